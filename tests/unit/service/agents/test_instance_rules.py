"""How instances are started, stopped, paused and resumed."""

from __future__ import annotations

import pytest

from tests.unit.agents.test_declared_schedules import DAILY, HOURLY, LATER, first_jobs, instance, read
from wakeful.errors import FailedPrecondition, NotFound
from wakeful.run.instances import instance_id
from wakeful.service.agents import instance_rules
from wakeful.store.instances import InstanceChange, InstanceRule

DECLARED = read(DAILY, HOURLY, version=2)


def start(data: str | None = None, version: int = 0) -> InstanceRule:
    return instance_rules.start("eu", DECLARED, data, LATER, version)


def made(change: InstanceChange | None) -> InstanceChange:
    assert change is not None
    return change


def test_a_new_instance_is_active_with_its_initial_state_and_declared_schedules():
    change = made(start()(None, []))
    row = change.row
    assert row.id == instance_id("default", "report", "eu")
    assert (row.workspace, row.agent, row.name) == ("default", "report", "eu")
    assert (row.status, row.data, row.version, row.revision) == ("active", None, 0, 0)
    assert (row.schedules_hash, row.schedules_version) == (DECLARED.hash, 2)
    assert [job.schedule_id for job in change.created] == ["daily", "hourly"]


def test_a_given_state_is_of_the_version_that_wrote_it():
    row = made(start('{"count":7}', 1)(None, [])).row
    assert (row.data, row.version) == ('{"count":7}', 1)


def test_starting_an_active_instance_again_changes_nothing():
    row = instance("active", DECLARED.hash, 2)._replace(data='{"count":3}', version=2)
    assert start()(row, first_jobs(DAILY, HOURLY)) is None
    assert start('{"count":3}')(row, first_jobs(DAILY, HOURLY)) is None


@pytest.mark.parametrize("status", ["active", "paused", "blocked"])
def test_starting_an_instance_that_exists_converges_its_schedules_and_keeps_the_rest(status):
    row = instance(status)._replace(data='{"count":3}', version=1, note="why", revision=9)
    change = made(start()(row, first_jobs(DAILY)))
    assert [job.schedule_id for job in change.created] == ["hourly"]
    kept = row._replace(schedules_hash=DECLARED.hash, schedules_version=2, updated_ms=LATER)
    assert change.row == kept


def test_starting_never_applies_a_lower_version():
    assert start()(instance("active", "other", 3), first_jobs(DAILY)) is None


def test_starting_a_stopped_instance_begins_anew():
    row = instance("stopped")._replace(data='{"count":3}', version=2, memory="{}", revision=9, note="why")
    change = made(start()(row, []))
    assert (change.row.status, change.row.note, change.row.data, change.row.version) == (
        "active",
        None,
        None,
        0,
    )
    assert (change.row.memory, change.row.revision) == (None, 10)
    assert len(change.created) == 2


def test_stopping_deletes_the_schedules_and_cancels_the_runs():
    stop = instance_rules.stop("report", "eu", LATER)
    jobs = first_jobs(DAILY, HOURLY)
    change = made(stop(instance("paused")._replace(note="why"), jobs))
    assert (change.row.status, change.row.note, change.row.schedules_hash) == ("stopped", None, "")
    assert change.deleted == tuple(job.id for job in jobs)
    assert (change.cancel, change.cancel_running) == ("stopped", True)
    assert stop(change.row, []) is None


def test_pausing_takes_a_note_and_keeps_it():
    change = made(instance_rules.pause("report", "eu", "holiday", LATER)(instance(), []))
    assert (change.row.status, change.row.note) == ("paused", "holiday")
    assert change.cancel is None
    assert instance_rules.pause("report", "eu", None, LATER)(change.row, []) is None
    other = made(instance_rules.pause("report", "eu", "move", LATER)(change.row, []))
    assert other.row.note == "move"


@pytest.mark.parametrize(
    ("status", "says"),
    [("stopped", "is stopped; start it first"), ("blocked", "is blocked already: it handles no signals")],
)
def test_an_instance_that_handles_nothing_cannot_be_paused(status, says):
    with pytest.raises(FailedPrecondition, match=f"instance 'eu' of agent 'report' {says}"):
        instance_rules.pause("report", "eu", None, LATER)(instance(status), [])


@pytest.mark.parametrize("status", ["paused", "blocked"])
def test_resuming_ends_a_pause_and_a_block(status):
    row = instance(status)._replace(note="why", data="{}", revision=4)
    change = made(instance_rules.resume("report", "eu", LATER)(row, []))
    assert change.row == row._replace(status="active", note=None, updated_ms=LATER)
    assert instance_rules.resume("report", "eu", LATER)(change.row, []) is None


def test_a_stopped_instance_cannot_be_resumed():
    with pytest.raises(FailedPrecondition, match="is stopped, not paused; start it"):
        instance_rules.resume("report", "eu", LATER)(instance("stopped"), [])


@pytest.mark.parametrize(
    "rule",
    [
        instance_rules.stop("report", "eu", LATER),
        instance_rules.pause("report", "eu", None, LATER),
        instance_rules.resume("report", "eu", LATER),
    ],
)
def test_an_unknown_instance_is_not_found(rule: InstanceRule):
    with pytest.raises(NotFound, match="agent 'report' has no instance 'eu'; start it"):
        rule(None, [])
