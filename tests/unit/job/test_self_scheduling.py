"""The bounds of jobs that an agent makes for itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest

from wakeful.document import Defaults, read_definition
from wakeful.errors import FailedPrecondition, PermissionDenied, ResourceExhausted
from wakeful.job.job import Chain, Definition, JobRecord
from wakeful.job.self_scheduling import (
    DEFAULT_BOUNDS,
    CallingRun,
    RunCharge,
    SelfScheduling,
    charge_for,
    check_added,
    is_attended,
    is_one_time,
    read_bounds,
    refused_charge,
    starts,
)
from wakeful.run.run import TriggerName

ONCE: dict[str, Any] = {"schedule": {"kind": "at", "atMs": 10_000}}
EVENT = {"server": "crm", "event": "ticket.created"}


def definition(**fields: Any) -> Definition:
    return read_definition({"name": "follow-up", **fields}, now_ms=0, defaults=Defaults())


def record(enabled: bool = True, **fields: Any) -> JobRecord:
    return JobRecord("j1", "default", "ada", definition(**fields), enabled, 0, None, None, 0, 0)


def calling(trigger: str = "schedule", depth: int = 0, session: str | None = None) -> CallingRun:
    return CallingRun("r1", "default", "ada", "running", trigger, session, None, None, depth, None)


# --- which runs a person started -------------------------------------------------------------------------


def test_only_people_and_messages_start_attended_runs():
    triggers = get_args(TriggerName)
    assert [each for each in triggers if is_attended(each, None)] == ["user"]
    assert [each for each in triggers if is_attended(each, "telegram:1")] == ["user", "agent"]


# --- new jobs --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"schedule": "0 9 * * 1"},
        {"schedule": "every 5m"},
        {"schedule": "every 5m", "maxRuns": 1},
        {"after": "digest"},
        {**ONCE, "after": "digest"},
        {**ONCE, "on": EVENT},
    ],
)
def test_a_job_that_can_fire_more_than_once_is_refused_in_an_unattended_run(fields: dict[str, Any]):
    job = definition(**fields)
    assert not is_one_time(job)
    with pytest.raises(PermissionDenied, match=r"only one-time jobs.*'in 20m'.*\"recurring\": true"):
        check_added(DEFAULT_BOUNDS, calling(), job, "ada")
    check_added(SelfScheduling(recurring=True), calling(), job, "ada")
    check_added(DEFAULT_BOUNDS, calling("user"), job, "ada")
    check_added(DEFAULT_BOUNDS, calling("agent", session="telegram:1"), job, "ada")


def test_a_chain_of_self_made_jobs_ends_at_its_depth():
    job = definition(**ONCE)
    for depth in range(3):
        check_added(DEFAULT_BOUNDS, calling(depth=depth), job, "ada")
    with pytest.raises(PermissionDenied, match=r"a chain of 3 jobs.*\"depth\": 4"):
        check_added(DEFAULT_BOUNDS, calling(depth=3), job, "ada")
    check_added(SelfScheduling(depth=4), calling(depth=3), job, "ada")
    check_added(DEFAULT_BOUNDS, calling("user", depth=3), job, "ada")
    with pytest.raises(PermissionDenied):
        check_added(SelfScheduling(depth=0), calling(), job, "ada")


def test_jobs_outside_a_run_can_be_forbidden():
    check_added(DEFAULT_BOUNDS, None, definition(schedule="every 5m"), "ada")
    with pytest.raises(PermissionDenied, match="x-wakeful-run-id"):
        check_added(SelfScheduling(outside_runs=False), None, definition(**ONCE), "ada")
    check_added(SelfScheduling(outside_runs=False), calling("user"), definition(**ONCE), "ada")


# --- changes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (record(**ONCE), record(schedule="every 5m")),
        (record(schedule="every 5m"), record(schedule="every 1m")),
        (record(**ONCE), record(schedule={"kind": "at", "atMs": 20_000})),
        (record(**ONCE), record(after="digest")),
        (record(after="digest"), record(after={"job": "digest", "on": "finished"})),
        (record(False, **ONCE), record(**ONCE)),
        (record(False, **ONCE), record(False, schedule="every 5m")),
        (record(False, **ONCE), replace(record(False, **ONCE), pause_until_ms=5_000)),
        (record(schedule="every 5m", maxRuns=2), record(schedule="every 5m", maxRuns=3)),
        (record(schedule="every 5m", maxRuns=2), record(schedule="every 5m")),
        (record(schedule="every 5m", endAt=900_000), record(schedule="every 5m")),
        (record(schedule="every 5m"), record(schedule="every 5m", on=EVENT)),
        (record(on=EVENT), record(on={**EVENT, "event": "ticket.changed"})),
    ],
)
def test_a_change_that_makes_a_job_fire_again_counts_as_a_new_job(before: JobRecord, after: JobRecord):
    assert starts(before, after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (record(schedule="every 5m"), record(schedule="every 5m", message="other", description="x")),
        (record(schedule="every 5m"), record(False, schedule="every 5m")),
        (record(schedule="every 5m"), replace(record(False, schedule="every 5m"), pause_until_ms=5_000)),
        (record(schedule="every 5m"), record(schedule="every 5m", maxRuns=3)),
        (record(schedule="every 5m", maxRuns=3), record(schedule="every 5m", maxRuns=2)),
        (record(False, **ONCE), record(False, **ONCE, message="other")),
        (record(**ONCE, on=EVENT), record(**ONCE)),
    ],
)
def test_other_changes_do_not(before: JobRecord, after: JobRecord):
    assert not starts(before, after)


def test_a_chain_is_compared_by_its_job_and_its_result():
    before = record(after="digest")
    same = replace(before, definition=replace(before.definition, after=Chain("digest", "succeeded")))
    assert not starts(before, same)


# --- counting --------------------------------------------------------------------------------------------


def test_what_a_run_makes_is_charged_to_it_within_its_limit():
    assert charge_for(DEFAULT_BOUNDS, None) is None
    assert charge_for(DEFAULT_BOUNDS, calling(), 2) == RunCharge("r1", 2, 5, "ada")
    unlimited = charge_for(DEFAULT_BOUNDS, calling("user"))
    assert unlimited is not None
    assert unlimited.limit > 1_000_000


def test_a_refused_charge_says_why():
    charge = RunCharge("r1", 1, 5, "ada")
    full = refused_charge(charge, "running", 5)
    assert isinstance(full, ResourceExhausted)
    assert "5 jobs, of at most 5; removed ones count too" in full.message
    assert '"perRun": 6' in full.message
    ended = refused_charge(charge, "succeeded", 0)
    assert isinstance(ended, FailedPrecondition)
    assert ended.message.startswith("run 'r1' is succeeded")
    assert "no longer exists" in refused_charge(charge, None, 0).message


# --- the document of an agent ----------------------------------------------------------------------------


def test_the_bounds_of_an_agent_are_read_from_its_document():
    assert read_bounds(None) == read_bounds({}) == SelfScheduling(False, 5, 3, True)
    given = {"recurring": True, "perRun": 0, "depth": 9, "outsideRuns": False}
    assert read_bounds(given) == SelfScheduling(True, 0, 9, False)
