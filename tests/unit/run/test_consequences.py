"""What follows from outcomes: each rule by example."""

from __future__ import annotations

from typing import Any

import pytest

from wakeful.job.start_rules import BudgetOwner
from wakeful.run.consequences import (
    Candidate,
    Effects,
    Facts,
    JobEnd,
    Needs,
    PrecheckState,
    Withdrawal,
    consequences,
    fires_followers,
    first_of_each_run,
    needs,
    resets_failures,
)
from wakeful.run.incidents import IncidentJob
from wakeful.run.outcome import Finished
from wakeful.run.prechecks import Checked
from wakeful.run.usage import Spent

AT = 1_000
STATES = ["succeeded", "failed", "cancelled", "skipped", "retrying", "running"]
NOTHING = Effects([], {}, {}, {}, [], [], {}, [], [])


def ended(state: str = "succeeded", run_id: str = "r1", job_id: str | None = "j1", **fields: Any) -> Finished:
    return Finished(run_id, job_id, 1, state, 0, AT)._replace(**fields)


def candidate(job_id: str, run_id: str = "r1", **fields: Any) -> Candidate:
    return Candidate(job_id, "w", "a", f"name-{job_id}", "{}", "{}", run_id)._replace(**fields)


def fired(effects: Effects) -> list[tuple[str | None, str | None, str]]:
    return [(run.job_id, run.triggered_by, run.trigger) for run in effects.runs]


# --- prechecks -------------------------------------------------------------------------------------


def test_a_precheck_leaves_its_state_and_raises_the_revision() -> None:
    for state in ("succeeded", "skipped"):
        effects = consequences([ended(state, checked=Checked(3, "90", True))], Facts(revisions={"j1": 3}))
        assert effects.precheck_states == {"j1": PrecheckState("90", 4)}


@pytest.mark.parametrize("revisions", [{"j1": 4}, {"j1": 2}, {}])
def test_a_precheck_of_another_revision_changes_nothing(revisions: dict[str, int]) -> None:
    checked = Checked(3, "90", True, once=True)
    effects = consequences([ended(checked=checked, disable_job="once")], Facts(revisions=revisions))
    assert (effects.precheck_states, effects.disabled) == ({}, {})


def test_of_two_runs_at_once_the_first_to_end_writes_its_state() -> None:
    batch = [
        ended("succeeded", "r1", checked=Checked(3, "90", True)),
        ended("succeeded", "r2", checked=Checked(3, "80", True, once=True), disable_job="once"),
        ended("skipped", "r3", checked=Checked(4, "70", True)),
        ended("succeeded", "r4", "j2", checked=Checked(3, "60", True)),
    ]
    effects = consequences(batch, Facts(revisions={"j1": 3, "j2": 3}))
    assert effects.precheck_states == {"j1": PrecheckState("70", 5), "j2": PrecheckState("60", 4)}
    assert effects.disabled == {}


def test_once_disables_the_job_and_withdraws_its_ticks() -> None:
    once = ended(checked=Checked(3, once=True), disable_job="once")
    facts = Facts(revisions={"j1": 3}, has_next={"j1"}, edits={"r1": (10, 20)})
    effects = consequences([once], facts)
    assert effects.disabled == {"j1": JobEnd(AT, "once")}, "a pause and a resume are not an edit"
    assert effects.withdrawn == [Withdrawal("j1", AT, "job_disabled")]
    assert effects.precheck_states == {}
    deleted = consequences([once._replace(delete_job=True)], Facts(revisions={"j1": 3}))
    assert (deleted.disabled, deleted.deleted) == ({}, {"j1": AT})


# --- failures --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("states", "before", "after"),
    [
        (["failed"], 0, 1),
        (["failed", "failed"], 3, 5),
        (["succeeded"], 3, 0),
        (["failed", "succeeded"], 1, 0),
        (["succeeded", "failed"], 4, 1),
        (["failed", "failed", "succeeded", "failed"], 0, 1),
        (["retrying", "cancelled", "skipped", "running"], 2, 2),
    ],
)
def test_failures_in_a_row_are_counted_and_a_success_resets_them(
    states: list[str], before: int, after: int
) -> None:
    batch = [ended(state, f"r{number}") for number, state in enumerate(states)]
    effects = consequences(batch, Facts(failures={"j1": before}))
    assert effects.failures == ({"j1": after} if after != before else {})


def test_runs_of_other_jobs_and_of_none_do_not_count() -> None:
    batch = [ended("failed"), ended("succeeded", "r2", "j2"), ended("failed", "r3", None)]
    assert consequences(batch, Facts(failures={"j1": 1})).failures == {"j1": 2}


def test_a_job_that_no_longer_exists_counts_no_failures() -> None:
    effects = consequences([ended("failed", disable_after=1)], Facts())
    assert (effects.failures, effects.disabled) == ({}, {})


@pytest.mark.parametrize(("before", "disabled"), [(0, False), (1, False), (2, True), (7, True)])
def test_a_job_is_disabled_when_its_failures_reach_the_limit(before: int, disabled: bool) -> None:
    effects = consequences([ended("failed", disable_after=3)], Facts(failures={"j1": before}))
    assert effects.disabled == ({"j1": JobEnd(AT, "failed")} if disabled else {})


def test_a_job_without_a_limit_is_never_disabled_by_failures() -> None:
    assert consequences([ended("failed")], Facts(failures={"j1": 10**6})).disabled == {}


def test_failures_of_a_job_with_one_cause_are_one_incident_that_a_success_recovers() -> None:
    batch = [
        ended("failed"), ended("failed", "r2"), ended("succeeded", "r3"), ended("failed", "r4"),
        ended("retrying", "r5"), ended("failed", "r6", None), ended("failed", "r7", reason="timeout"),
    ]  # fmt: skip
    jobs = {"j1": IncidentJob("j1", "w", "a", "digest", has_alerts=False)}
    effects = consequences(batch, Facts(failures={"j1": 2}, incident_jobs=jobs))
    found = [
        (change.incident.cause, change.incident.state, change.incident.failed_runs, change.events)
        for change in effects.incidents
    ]
    opened, recovered = "incident.opened", "incident.recovered"
    assert found == [
        ("failed", "open", 3, (opened, recovered, opened)),
        ("timeout", "open", 1, (opened,)),
    ]
    first, other = (change.incident for change in effects.incidents)
    assert (first.first_run_id, first.last_run_id, first.in_a_row, first.reopened) == ("r1", "r4", 1, 1)
    assert other.in_a_row == 2


def test_the_incidents_of_a_job_that_is_deleted_are_closed() -> None:
    jobs = {"j1": IncidentJob("j1", "w", "a", "digest", has_alerts=True)}
    opened = consequences([ended("failed")], Facts(failures={"j1": 0}, incident_jobs=jobs)).incidents
    facts = Facts(failures={"j1": 1}, incidents=[change.incident for change in opened])
    (closed,) = consequences([ended("skipped", "r2", delete_job=True)], facts).incidents
    assert (closed.incident.state, closed.incident.closed_reason) == ("closed", "job_deleted")
    disabled = consequences([ended("failed", "r2", disable_job="gone")], facts._replace(incident_jobs=jobs))
    assert [change.incident.state for change in disabled.incidents] == ["open"]


# --- the end of a job ------------------------------------------------------------------------------


def test_an_outcome_disables_its_job_and_withdraws_its_ticks() -> None:
    effects = consequences([ended("failed", disable_job="gone")], Facts(failures={"j1": 0}))
    assert (effects.disabled, effects.deleted) == ({"j1": JobEnd(AT, "gone")}, {})
    assert effects.withdrawn == [Withdrawal("j1", AT, "job_disabled", manual=False)]


def test_an_outcome_deletes_its_job_and_cancels_all_that_is_pending() -> None:
    effects = consequences([ended(delete_job=True)], Facts())
    assert (effects.disabled, effects.deleted) == ({}, {"j1": AT})
    assert effects.withdrawn == [Withdrawal("j1", AT, "job_deleted", manual=True)]


def test_the_first_outcome_that_ends_a_job_says_when_and_why() -> None:
    batch = [
        ended("failed", disable_job="gone"),
        ended("failed", "r2", disable_job="failed", finished_ms=AT + 1),
        ended(run_id="r3", job_id="j2", delete_job=True),
        ended(run_id="r4", job_id="j2", delete_job=True, finished_ms=AT + 1),
    ]
    effects = consequences(batch, Facts(failures={"j1": 0}))
    assert (effects.disabled, effects.deleted) == ({"j1": JobEnd(AT, "gone")}, {"j2": AT})


@pytest.mark.parametrize("success_first", [True, False])
def test_a_job_that_is_deleted_is_not_disabled_as_well(success_first: bool) -> None:
    batch = [ended("failed", disable_after=1), ended(run_id="r2", delete_job=True)]
    effects = consequences(batch[::-1] if success_first else batch, Facts(failures={"j1": 0}))
    assert (effects.disabled, effects.deleted) == ({}, {"j1": AT})
    assert [each.reason for each in effects.withdrawn] == ["job_deleted"]


@pytest.mark.parametrize("fate", [{"delete_job": True}, {"disable_job": "gone"}])
@pytest.mark.parametrize(
    ("state", "has_next", "edited_ms", "goes_on"),
    [
        ("failed", True, AT + 1, True),
        ("failed", True, AT, False),
        ("failed", False, AT + 1, False),
        ("skipped", True, AT, True),
        ("skipped", False, AT, False),
        ("succeeded", True, AT - 1, False),
    ],
)
def test_a_job_goes_on_if_it_has_a_next_tick_and_was_edited_or_its_run_skipped(
    fate: dict[str, Any], state: str, has_next: bool, edited_ms: int, goes_on: bool
) -> None:
    facts = Facts(has_next={"j1"} if has_next else {"j2"}, edits={"r1": (AT, edited_ms), "r2": (AT, AT + 9)})
    effects = consequences([ended(state, **fate)], facts)
    assert bool(effects.disabled or effects.deleted) is not goes_on
    assert bool(effects.withdrawn) is not goes_on


def test_a_job_with_a_next_tick_ends_if_nothing_is_known_of_an_edit() -> None:
    assert consequences([ended(delete_job=True)], Facts(has_next={"j1"})).deleted == {"j1": AT}


def test_consecutive_failures_disable_a_job_that_was_edited_too() -> None:
    facts = Facts({"j1": 1}, {"j1"}, {"r1": (AT, AT + 1)})
    effects = consequences([ended("failed", disable_after=2, disable_job="gone")], facts)
    assert effects.disabled == {"j1": JobEnd(AT, "failed")}


def test_a_run_without_a_job_ends_none() -> None:
    batch = [
        ended("failed", job_id=None, disable_job="gone"),
        ended(run_id="r2", job_id=None, delete_job=True),
    ]
    effects = consequences(batch, Facts())
    assert (effects.disabled, effects.deleted, effects.withdrawn) == ({}, {}, [])


# --- followers and heartbeats ----------------------------------------------------------------------


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("on", ["succeeded", "failed", "finished"])
def test_a_job_fires_after_the_end_that_it_names_and_no_other(state: str, on: str) -> None:
    effects = consequences([ended(state)], Facts(followers=[candidate("f1", on=on)]))
    fires = state == on or (on == "finished" and state in ("succeeded", "failed"))
    assert fired(effects) == ([("f1", "r1", "chain")] if fires else [])


def test_followers_fire_in_the_order_of_the_runs_and_then_of_their_names() -> None:
    batch = [ended(run_id="r2", finished_ms=7), ended(run_id="r1", finished_ms=8)]
    followers = [candidate("b", "r1"), candidate("b", "r2"), candidate("a", "r1"), candidate("a", "r2")]
    effects = consequences(batch, Facts(followers=followers))
    assert [(run.job_id, run.triggered_by) for run in effects.runs] == [
        ("a", "r2"), ("b", "r2"), ("a", "r1"), ("b", "r1"),
    ]  # fmt: skip
    assert [run.scheduled_ms for run in effects.runs] == [7, 7, 8, 8]


def test_a_heartbeat_fires_once_after_the_first_run_that_wakes_it() -> None:
    batch = [ended(run_id="r3"), *(ended(run_id=each, wake_heartbeat=True) for each in ("r2", "r1"))]
    heartbeats = [candidate("h", run_id) for run_id in ("r1", "r2", "r3")]
    effects = consequences(batch, Facts(followers=[candidate("f", "r1")], heartbeats=heartbeats))
    assert fired(effects) == [("f", "r1", "chain"), ("h", "r2", "heartbeat")]


def test_a_heartbeat_that_waits_does_not_fire_again() -> None:
    facts = Facts(heartbeats=[candidate("h", waiting=True), candidate("i")])
    assert fired(consequences([ended(wake_heartbeat=True)], facts)) == [("i", "r1", "heartbeat")]


@pytest.mark.parametrize("fate", [{"delete_job": True}, {"disable_job": "gone"}])
def test_a_job_that_the_batch_ends_does_not_fire(fate: dict[str, Any]) -> None:
    batch = [ended(wake_heartbeat=True), ended("failed", "r2", "f1", **fate)]
    facts = Facts(followers=[candidate("f1"), candidate("f2")], heartbeats=[candidate("f1"), candidate("f3")])
    assert [job_id for job_id, *_ in fired(consequences(batch, facts))] == ["f2", "f3"]


# --- attempts, deliveries, usage -------------------------------------------------------------------


def test_an_attempt_that_is_retried_is_kept() -> None:
    batch = [ended(state, f"r-{state}") for state in STATES]
    assert [each.run_id for each in consequences(batch, Facts()).attempts] == ["r-retrying"]


def test_an_output_is_delivered_where_the_outcome_says() -> None:
    batch = [ended(deliver=("slack", None)), ended(run_id="r2"), ended(run_id="r3", deliver=(None, None))]
    assert consequences(batch, Facts()).deliveries == [("r1", "slack", None), ("r3", None, None)]


def test_usage_counts_for_the_job_its_agent_and_its_workspace() -> None:
    batch = [
        ended("failed", usage='{"tokens":5,"cost":0.5}'),
        ended("retrying", "r2", usage='{"tokens":2}'),
        ended(run_id="r3", usage="no usage"),
        ended(run_id="r4", usage='{"tokens":9}'),
    ]
    owners = {
        "r1": BudgetOwner("w", "a", "j1"),
        "r2": BudgetOwner("w", "a"),
        "r3": BudgetOwner("w", "a", "j2"),
    }
    assert consequences(batch, Facts(owners=owners)).usage == {
        (BudgetOwner("w"), 0): Spent(7, 0.5),
        (BudgetOwner("w", "a"), 0): Spent(7, 0.5),
        (BudgetOwner("w", "a", "j1"), 0): Spent(5, 0.5),
    }


# --- what is needed --------------------------------------------------------------------------------


def test_plain_successes_need_nothing_and_have_no_effects() -> None:
    plain = ended(
        output="said", error="not much", reason="fine", due_ms=1, failed_attempts=1, response_code=200
    )
    batch = [plain._replace(run_id=f"r{number}", attempt=number) for number in range(3)]
    assert needs(batch) == Needs()
    assert consequences(batch, Facts()) == NOTHING


def test_a_batch_needs_the_facts_of_what_its_outcomes_ask_for() -> None:
    batch = [
        ended(),
        ended("failed", "r2", "j2"),
        ended("failed", "r3", "j3", disable_after=1),
        ended("failed", "r4", "j4", disable_job="gone", usage="{}"),
        ended("skipped", "r5", "j5", delete_job=True),
        ended("failed", "r6", None, disable_job="gone", disable_after=1),
        ended("succeeded", "r7", "j7", wake_heartbeat=True),
        ended("retrying", "r8", "j8"),
        ended("succeeded", "r9", "j9", checked=Checked(1, "5", True)),
    ]
    assert needs(batch) == Needs(
        special=batch[1:],
        failed_jobs={"j2", "j3", "j4"},
        ending_jobs={"j3", "j4", "j5"},
        ending_runs=["r4", "r5"],
        waking_runs=["r7"],
        usage_runs=["r4"],
        history=[],
        checked_jobs={"j9"},
    )
    assert fires_followers(batch) == ["r1", "r2", "r3", "r4", "r7", "r9"]
    assert resets_failures(batch) == ["j1", "j7", "j9"]


@pytest.mark.parametrize(
    "fields",
    [
        {"state": "failed"}, {"usage": "{}"}, {"delete_job": True}, {"disable_job": "gone"},
        {"disable_after": 3}, {"deliver": (None, None)}, {"wake_heartbeat": True},
        {"checked": Checked(1, once=True)},
    ],
)  # fmt: skip
def test_an_outcome_that_asks_for_anything_is_no_plain_success(fields: dict[str, Any]) -> None:
    outcome = ended()._replace(**fields)
    assert needs([outcome]).special == [outcome]


def test_the_first_report_of_a_run_counts() -> None:
    first, second, other = ended(), ended("failed"), ended(run_id="r2")
    assert first_of_each_run([first, second, other]) == [first, other]
    alone = [first, other]
    assert first_of_each_run(alone) is alone
