"""What a change of a job does to its runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.support.factories import DAY, MINUTE, NOW
from tests.support.instances import key_of
from wakeful.document import Defaults, read_definition
from wakeful.job.job import JobRecord, ScheduleKey
from wakeful.run.instances import schedule_job_name
from wakeful.run.job_transitions import CANCELLED_BY_AGENT, disable_job, edit_job, schedule_job
from wakeful.store.job_changes import move_after_edit, overdue_runs, schedule_change, stored_schedules
from wakeful.store.row_mapping import job_to_row
from wakeful.store.rows import SignalRecipient

KEY = ScheduleKey(key_of(), "dynamic", "daily")


def _job(schedule: str = "0 9 * * *", target: dict[str, Any] | None = None, **fields: Any) -> JobRecord:
    document = {
        "name": schedule_job_name("eu", "dynamic", "daily"),
        "schedule": schedule,
        "target": target or {"kind": "agent", "instance": "eu", "signal": "report.generate"},
        **fields,
    }
    definition = read_definition(document, now_ms=NOW, defaults=Defaults())
    job = schedule_job(KEY, "default", "report", definition, None, NOW, "agent:report/eu")
    assert job is not None
    return job


def test_another_schedule_withdraws_ticks_that_it_does_not_have() -> None:
    old = _job()
    new = edit_job(old, _job("0 10 * * *").definition, NOW)
    change = schedule_change(job_to_row(old), job_to_row(new), NOW)
    assert (change.withdraw, change.move, change.runs) == ("edited", None, ())
    assert old.next_ms is not None
    assert change.withdrawal_reason(old.next_ms) == "edited"
    assert new.next_ms is not None
    assert change.withdrawal_reason(new.next_ms) is None


def test_a_disabled_schedule_withdraws_its_ticks_and_records_those_that_were_due() -> None:
    old = replace(_job(), next_ms=NOW - MINUTE, wake_ms=NOW - MINUTE)
    change = schedule_change(job_to_row(old), job_to_row(disable_job(old, NOW, CANCELLED_BY_AGENT)), NOW)
    assert change.withdraw == CANCELLED_BY_AGENT
    assert [(run.state, run.reason) for run in change.runs] == [("missed", "paused")]


def test_a_change_that_leaves_the_ticks_withdraws_nothing() -> None:
    old = _job()
    new = edit_job(old, _job(payload={"a": 1}).definition, NOW)
    change = schedule_change(job_to_row(old), job_to_row(new), NOW)
    assert (change.withdraw, change.move, change.runs) == (None, None, ())


def test_a_schedule_that_cannot_be_read_is_replaced_without_a_record() -> None:
    broken = job_to_row(_job())._replace(timing='{"kind":"nonsense"}')
    change = schedule_change(broken, job_to_row(_job()), NOW)
    assert (change.withdraw, change.runs) == ("edited", ())
    assert overdue_runs(broken, NOW + DAY) == ()
    assert stored_schedules([broken], {KEY}) == {KEY: None}
    assert stored_schedules([broken], set()) == {}


def test_runs_move_into_a_mailbox_to_another_one_and_out_of_it() -> None:
    webhook = {"kind": "webhook", "url": "https://a.example"}
    plain, eu, us = _job(target=webhook), _job(), _job(target={"kind": "agent", "instance": "us"})
    into = move_after_edit(plain, eu)
    assert into is not None
    assert into.recipient == SignalRecipient(key_of(), "default", "report", "eu", "report.generate")
    assert into.requires == "agent:default/report"
    over = move_after_edit(eu, us)
    assert over is not None
    assert over.recipient == SignalRecipient(key_of("us"), "default", "report", "us", "wakeful.job")
    out = move_after_edit(eu, plain)
    assert out is not None
    assert (out.recipient, out.requires, out.serial) == (None, "", True)
    assert move_after_edit(eu, _job(payload={"a": 1})) is None
    assert move_after_edit(plain, _job(target=webhook, timeout="5s")) is None
