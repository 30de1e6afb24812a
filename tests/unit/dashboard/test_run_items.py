"""The timeline of a run."""

from __future__ import annotations

from typing import Any

from tests.unit.dashboard.test_job import NOW, run
from wakeful.dashboard.run_items import Step, timeline
from wakeful.service.runs.run_details import AttemptDetails, AttemptView, RunDetails, RunView


def details(view: RunView, *attempts: AttemptDetails, **fields: Any) -> RunDetails:
    found = RunDetails(view, None, False, list(attempts), None, None, None, None, [])
    return found._replace(**fields)


def attempt(number: int, **fields: Any) -> AttemptDetails:
    view = AttemptView(number, "w1", NOW + number * 1_000, NOW + number * 1_000 + 40, None)
    return AttemptDetails(view._replace(**fields), None, False, None, None)


def titles(steps: list[Step]) -> list[str]:
    return [step.title for step in steps]


def test_a_run_that_was_retried_has_a_step_for_each_attempt() -> None:
    failed = attempt(1, error="HTTP 503", response_code=503)._replace(
        cause="http 503", advice="Read its logs."
    )
    last = attempt(2, response_code=200)._replace(last=True)
    steps = timeline(details(run(attempt=2, failed_attempts=1, output="done"), failed, last))
    assert titles(steps) == ["Planned", "Attempt 1", "Attempt 2", "Succeeded"]
    assert [step.tone for step in steps] == ["", "failure", "success", "success"]
    assert dict(steps[1].facts) == {
        "Delay": "1 s",
        "Duration": "40 ms",
        "Worker": "w1",
        "Response": "HTTP 503",
        "Cause": "http 503",
    }
    assert (steps[1].error, steps[1].advice) == ("HTTP 503", "Read its logs.")
    assert steps[2].boxes == (("Output", "done"),)
    assert "Delay" not in dict(steps[2].facts)


def test_a_waiting_run_says_what_it_waits_for() -> None:
    waiting = run(state="pending", started_ms=None, finished_ms=None)
    steps = timeline(details(waiting, waiting="Lane cron is full (30 of 30)"))
    assert titles(steps) == ["Planned", "Waiting"]
    assert (steps[1].text, steps[1].tone) == ("Lane cron is full (30 of 30)", "active")


def test_a_missed_run_says_how_many_ticks_it_covers() -> None:
    missed = run(state="missed", reason="paused", covers=12, started_ms=None)
    assert titles(timeline(details(missed))) == ["Planned", "Missed, for 12 ticks"]


def test_a_dead_letter_says_so() -> None:
    dead = run(state="failed", dead=True, error="no", reason="permanent")
    end = timeline(details(dead, attempt(1, error="no")._replace(last=True)))[-1]
    assert (
        end.text
        == "the target reported a permanent error. It is a dead letter until it is replayed or discarded."
    )
    plain = timeline(details(dead._replace(reason=None)))[-1]
    assert plain.text == "It is a dead letter until it is replayed or discarded."
    assert plain.error == "no"


def test_causes_and_replays_are_linked() -> None:
    other = run(7, job_name="extract")
    chained = timeline(details(run(trigger="chain", triggered_by=other.id), cause=other))[0]
    assert chained.link == (other.id, "After run of extract")
    assert chained.facts == ()
    replayed = timeline(
        details(run(trigger="replay", triggered_by="key:1", replay_of=other.id), replay_of=other)
    )
    assert replayed[0].link == (other.id, "Replay of run")
    assert replayed[0].facts == (("By", "key:1"),)


def test_prechecks_evidence_and_deliveries_are_steps() -> None:
    checked = run(
        precheck='{"revision":1,"once":true}', context='{"price":90}', evidence='{"summary":"sent"}',
        delivery="failed", delivery_error="no such channel",
    )  # fmt: skip
    steps = timeline(details(checked, attempt(1)._replace(last=True)))
    assert titles(steps) == [
        "Planned",
        "Precheck: there is work",
        "Attempt 1",
        "Evidence",
        "Succeeded",
        "Delivery failed",
    ]
    assert steps[1].boxes == (("Context", '{"price":90}'),)
    assert "disabled when this run succeeds" in steps[1].text
    assert steps[-1].error == "no such channel"
    skipped = run(state="skipped", reason="precheck", output="price is the same", started_ms=None)
    assert titles(timeline(details(skipped))) == ["Planned", "Precheck: nothing to do", "Skipped"]
