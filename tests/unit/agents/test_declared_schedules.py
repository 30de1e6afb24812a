"""Which jobs an instance gets from the declared schedules of its class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from wakeful.agents import schedule_sync
from wakeful.agents.schedule_sync import (
    DeclaredSchedules,
    ScheduleDiff,
    converge,
    read_declared,
    sync_rule,
)
from wakeful.agents.schedules import Schedule
from wakeful.document import Defaults
from wakeful.errors import Unavailable
from wakeful.job.job import JobRecord, ScheduleKey
from wakeful.run.instances import AgentClass, DeclaredSchedule, InstanceStatus, instance_id
from wakeful.run.job_transitions import CANCELLED_BY_AGENT, disable_job, pause_job, schedule_job
from wakeful.store.instances import InstanceChange, InstanceRow
from wakeful.store.row_mapping import job_from_row, job_to_row
from wakeful.store.rows import JobRow

NOW = 1_800_000_000_000
LATER = NOW + 60_000
EU = instance_id("default", "report", "eu")
DAILY = Schedule("0 6 * * *", "report.generate", job_id="daily", tz="America/New_York", data={"full": True})
HOURLY = Schedule("@hourly", "report.check", job_id="hourly")


def agent_class(*schedules: Schedule, version: int = 1) -> AgentClass:
    declared = tuple(DeclaredSchedule(each.job_id, each.document({"lane": "team"})) for each in schedules)
    digest = "+".join(f"{each.job_id} {each.expr}" for each in schedules)
    return AgentClass("default", "report", version, "{}", 1_000, 1_000, "team", declared, ("*",), digest)


def read(*schedules: Schedule, version: int = 1, active: bool = True) -> DeclaredSchedules:
    return read_declared(agent_class(*schedules, version=version), Defaults(), NOW, active=active)


def first_jobs(*schedules: Schedule) -> list[JobRow]:
    """Return the jobs of an instance that has these schedules."""
    return list(converge(EU, "eu", [], read(*schedules), NOW).created)


def diff(jobs: Sequence[JobRow], *schedules: Schedule, enable_cancelled: bool = False) -> ScheduleDiff:
    return converge(EU, "eu", jobs, read(*schedules), LATER, enable_cancelled=enable_cancelled)


def changed(row: JobRow, job: JobRecord) -> JobRow:
    return job_to_row(job)._replace(version=row.version)


def instance(status: InstanceStatus = "active", schedules: str = "", version: int = 0) -> InstanceRow:
    return InstanceRow(
        EU, "default", "report", "eu", status, None, None, 0, 0, None, 0, schedules, version, None, None,
        NOW, NOW,
    )  # fmt: skip


def test_a_new_instance_gets_a_job_for_each_declared_schedule():
    daily, hourly = (job_from_row(row) for row in first_jobs(DAILY, HOURLY))
    assert daily.schedule_key == ScheduleKey(EU, "declared", "daily")
    assert daily.definition.work.target == {"kind": "agent", "instance": "eu", "signal": "report.generate"}
    assert daily.definition.work.payload == {"full": True}
    assert daily.definition.timing is not None
    assert daily.definition.timing.schedule.tz == "America/New_York"
    assert (daily.definition.work.lane, daily.definition.policy.overlap) == ("team", "skip")
    assert daily.definition.policy.catchup == "none"
    assert daily.enabled
    assert daily.next_ms is not None
    assert daily.next_ms > NOW
    assert daily.name.startswith("eu-daily-")
    assert hourly.name != daily.name
    assert (daily.workspace, daily.agent, daily.created_by) == ("default", "report", "admin:wakeful")


def test_two_instances_and_two_origins_have_other_names():
    names = {
        converge(instance_id("default", "report", name), name, [], read(DAILY), NOW).created[0].name
        for name in ("eu", "us", "eu-daily")
    }
    assert len(names) == 3


def test_the_same_schedules_again_change_nothing():
    assert diff(first_jobs(DAILY, HOURLY), DAILY, HOURLY) == ScheduleDiff()


def test_a_changed_schedule_keeps_its_job_and_one_that_is_gone_is_deleted():
    daily, hourly = first_jobs(DAILY, HOURLY)
    found = diff([daily, hourly], Schedule("0 7 * * *", "report.generate", job_id="daily"))
    assert found.created == ()
    assert found.deleted == (hourly.id,)
    (new,) = found.changed
    assert (new.id, new.name, new.schedule_id) == (daily.id, daily.name, "daily")
    assert new.next_ms != daily.next_ms


def test_dynamic_schedules_stay():
    key = ScheduleKey(EU, "dynamic", "daily")
    definition = read(DAILY).of_instance("eu", "daily")
    dynamic = schedule_job(key, "default", "report", definition, None, NOW, "agent:report/eu")
    assert dynamic is not None
    assert diff([job_to_row(dynamic)]) == ScheduleDiff()


def test_a_schedule_that_a_person_paused_stays_paused():
    (row,) = first_jobs(DAILY)
    row = changed(row, pause_job(job_from_row(row), NOW, "holiday"))
    assert diff([row], DAILY) == ScheduleDiff()
    found = diff([row], replace_expr(DAILY), enable_cancelled=True)
    assert not found.changed[0].enabled


def test_a_schedule_that_the_agent_cancelled_is_enabled_only_by_a_start():
    (row,) = first_jobs(DAILY)
    row = changed(row, disable_job(job_from_row(row), NOW, CANCELLED_BY_AGENT))
    assert diff([row], DAILY) == ScheduleDiff()
    assert not diff([row], replace_expr(DAILY)).changed[0].enabled
    (again,) = diff([row], DAILY, enable_cancelled=True).changed
    assert again.enabled
    assert again.next_ms is not None


def replace_expr(schedule: Schedule) -> Schedule:
    return Schedule("30 7 * * *", schedule.signal, job_id=schedule.job_id)


@pytest.mark.parametrize("origin", ["declared", "dynamic"])
def test_a_malformed_stored_schedule_is_dropped_and_the_others_converge(origin: str):
    daily, hourly = first_jobs(DAILY, HOURLY)
    broken = hourly._replace(timing='{"schedule":{"kind":"moon"}}', schedule_origin=origin)
    found = diff([broken, daily], replace_expr(DAILY), HOURLY)
    assert found.deleted == (hourly.id,)
    assert [row.schedule_id for row in found.changed] == ["daily"]
    assert [row.schedule_id for row in found.created] == ["hourly"]


def test_a_bad_declared_schedule_keeps_its_job_and_the_others_work():
    jobs = first_jobs(DAILY, HOURLY)
    bad = Schedule("61 * * * *", "report.generate", job_id="daily")
    declared = read(bad, replace_expr(HOURLY), Schedule("@weekly", "report.check", job_id="weekly"))
    assert list(declared.errors) == ["daily"]
    assert "61 is out of range" in declared.errors["daily"]
    found = converge(EU, "eu", jobs, declared, LATER)
    assert found.deleted == ()
    assert [row.schedule_id for row in found.changed] == ["hourly"]
    assert [row.schedule_id for row in found.created] == ["weekly"]
    # The instance is converged again when the schedule can be read.
    assert declared.hash != declared.agent_class.hash


def test_a_time_zone_database_that_fails_for_a_moment_changes_nothing(monkeypatch: pytest.MonkeyPatch):
    def fail(*args: object, **options: object) -> None:
        raise Unavailable("the time zone database cannot be read")

    monkeypatch.setattr(schedule_sync, "read_schedule", fail)
    with pytest.raises(Unavailable):
        read(DAILY)


def test_the_jobs_of_an_inactive_agent_are_paused():
    (row,) = converge(EU, "eu", [], read(DAILY, active=False), NOW).created
    assert (row.enabled, row.disabled_reason, row.next_ms) == (False, "agent_inactive", None)


@pytest.mark.parametrize("reason", [CANCELLED_BY_AGENT, "no_more_ticks"])
def test_a_start_of_an_inactive_agent_enables_schedules_when_the_agent_is_active(reason: str):
    (row,) = first_jobs(DAILY)
    row = changed(row, disable_job(job_from_row(row), NOW, reason))
    declared = read(replace_expr(DAILY), active=False)
    (again,) = converge(EU, "eu", [row], declared, LATER, enable_cancelled=True).changed
    assert (again.enabled, again.disabled_reason, again.wake_ms) == (False, "agent_inactive", None)


# --- the rule of the loop ---------------------------------------------------------------------------------


def synced(row: InstanceRow | None, declared: DeclaredSchedules) -> InstanceChange | None:
    return sync_rule("eu", declared, LATER)(row, first_jobs(DAILY) if row else [])


def test_an_instance_records_the_hash_and_version_of_its_schedules():
    declared = read(HOURLY, version=3)
    change = synced(instance(), declared)
    assert change is not None
    assert (change.row.schedules_hash, change.row.schedules_version) == (declared.hash, 3)
    assert (len(change.created), len(change.deleted)) == (1, 1)
    assert synced(change.row, read(DAILY)) is None  # of a lower version


def test_instances_that_are_stopped_or_missing_stay_as_they_are():
    assert synced(instance("stopped"), read(HOURLY)) is None
    assert synced(None, read(HOURLY)) is None


def test_a_blocked_instance_tries_again_with_a_newer_class_only():
    known = read(DAILY, version=2)
    blocked = instance("blocked", known.hash, 2)._replace(note="cannot be migrated")
    assert synced(blocked, known) is None
    newer = replace(known, agent_class=known.agent_class._replace(version=3))
    change = synced(blocked, newer)
    assert change is not None
    assert (change.row.status, change.row.note, change.row.schedules_version) == ("active", None, 3)
    paused_change = synced(blocked._replace(status="paused"), newer)
    assert paused_change is not None
    assert paused_change.row.status == "paused"
