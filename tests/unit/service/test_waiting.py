"""What a run waits for, in words."""

from __future__ import annotations

import pytest

from wakeful.job.policy import Policy
from wakeful.service.runs.executors import WaitingFacts, run_ahead, waiting_for
from wakeful.store.rows import RunView

NOW = 1_800_000_000_000
AT = "2027-01-15T08:00:00.000Z"
SOON = "2027-01-15T08:00:05.000Z"


def run(state: str = "pending", **fields: object) -> RunView:
    view = RunView(
        "run-2", "job", "default", "writer", "digest", NOW, NOW, "user", None, state, None, 1, None, 1,
        None, "cron", NOW, None, None, "key", None, None, None, None, None, False, NOW,
    )  # fmt: skip
    return view._replace(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("view", "facts", "text"),
    [
        (
            run(is_pull=True, claim_deadline_ms=NOW + 5_000),
            WaitingFacts(NOW),
            "waits for an executor (none has asked for runs of agent writer in the last hour; the run "
            f"expires at {SOON})",
        ),
        (
            run(is_pull=True, claim_deadline_ms=NOW + 5_000),
            WaitingFacts(NOW, executor=True),
            "waits for an executor (one asked for runs of agent writer in the last hour; the run expires at "
            f"{SOON})",
        ),
        (run(), WaitingFacts(NOW, slots=(30, 30)), "lane cron is full (30 of 30)"),
        (run(), WaitingFacts(NOW, slots=(29, 30)), "waits for a worker"),
        (
            run(),
            WaitingFacts(NOW, workers=False),
            "waits for a worker: no process that starts runs is alive; start wakeful serve or worker",
        ),
        (
            run(),
            WaitingFacts(NOW, Policy(overlap="queue"), ahead="run-1", slots=(30, 30)),
            "behind run run-1 (overlapPolicy queue)",
        ),
        (run(is_pull=True), WaitingFacts(NOW, ahead="run-1"), "behind run run-1"),
        (run(due_ms=NOW + 5_000), WaitingFacts(NOW), f"starts at {SOON}"),
        (
            run(requires="function:digest"),
            WaitingFacts(NOW, slots=(30, 30), unmet=True),
            "no running replica has the function 'digest'; start a process that registers it",
        ),
        (run(requires="function:digest"), WaitingFacts(NOW), "waits for a worker"),
        (
            run("retrying", due_ms=NOW + 5_000, failed_attempts=1, attempt=3, error="HTTP 500\nbusy"),
            WaitingFacts(NOW, Policy(max_attempts=5)),
            f"attempt 2 of 5 at {SOON}, last error: HTTP 500",
        ),
        (run("retrying", due_ms=NOW), WaitingFacts(NOW, slots=(1, 1)), "lane cron is full (1 of 1)"),
        (run("running", worker="host:7", started_ms=NOW), WaitingFacts(NOW), f"on worker host:7 since {AT}"),
        (
            run("running", worker="laptop", started_ms=NOW, is_pull=True),
            WaitingFacts(NOW),
            f"on executor laptop since {AT}",
        ),
        (
            run("running", started_ms=NOW, due_ms=NOW + 5_000, awaiting_callback=True),
            WaitingFacts(NOW),
            f"awaiting callback since {AT}, until {SOON}",
        ),
        *[
            (run(state), WaitingFacts(NOW), None)
            for state in ("succeeded", "failed", "cancelled", "skipped", "missed")
        ],
    ],
)
def test_the_reason_follows_from_the_facts(view: RunView, facts: WaitingFacts, text: str | None):
    assert waiting_for(view, facts) == text


def test_a_run_waits_for_the_running_run_before_a_retrying_one():
    running, retrying = run("running", id="run-3"), run("retrying", id="run-1", scheduled_ms=NOW - 1)
    assert run_ahead(run(), [retrying, running]) == "run-3"
    assert run_ahead(run(), [retrying, run()]) == "run-1"
    assert run_ahead(run(), [run()]) is None


def test_a_retrying_run_waits_only_for_older_ones():
    own, older = run("retrying"), run("retrying", id="run-1", scheduled_ms=NOW - 1)
    assert run_ahead(own, [older]) == "run-1"
    assert run_ahead(older, [own]) is None
