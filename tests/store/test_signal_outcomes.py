"""What a handler returns is written with the outcome of its run, whole or not at all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.factories import DAY, MINUTE, NOW, SECOND, FalseClock, alone, look, plan_of, tick
from tests.support.instances import (
    HAS_REPORT,
    agent_class,
    arrival,
    done,
    given_sent,
    key_of,
    new_instance,
    taken,
    view,
)
from tests.support.notifications import NotificationRecorder
from wakeful.document import Defaults, read_definition
from wakeful.errors import Unstorable
from wakeful.job.job import Definition, ScheduleKey
from wakeful.run.instances import MAX_SCHEDULES, ScheduleChange, Send, schedule_job_name
from wakeful.run.job_transitions import schedule_job
from wakeful.store.accounts import AgentRow
from wakeful.store.instances import InstanceChange
from wakeful.store.plans import DueJob, JobPlan, TakeNext
from wakeful.store.port import Store
from wakeful.store.row_mapping import job_to_row
from wakeful.store.rows import JobChange, JobRow, RunFilter, RunView, TakenRun


async def _running(store: Store, instance: str = "eu") -> TakenRun:
    """Return a signal of this instance that is running under `w1`."""
    await store.put_class(agent_class(), NOW)
    await given_sent(store, instance)
    (run,) = [run for run in await taken(store) if run.instance == instance]
    return run


async def _handle(store: Store, run: TakenRun, **fields: Any) -> RunView:
    """Write the outcome of a handler that returned this."""
    assert await store.finish("w1", [done(run, **fields)], alone) == {run.id}
    return await look(store, run)


def _cron(schedule_id: str = "daily", expr: str = "0 6 * * *", instance: str = "eu") -> Definition:
    return read_definition(
        {
            "name": schedule_job_name(instance, "dynamic", schedule_id),
            "schedule": expr,
            "target": {"kind": "agent", "instance": instance, "signal": "report.generate"},
        },
        now_ms=NOW,
        defaults=Defaults(),
    )


def _set_cron(schedule_id: str = "daily", expr: str = "0 6 * * *") -> ScheduleChange:
    return ScheduleChange(schedule_id, _cron(schedule_id, expr))


def _cancel_cron(schedule_id: str = "daily", *, declared: bool = False) -> ScheduleChange:
    return ScheduleChange(schedule_id, declared=declared)


def _send(instance: str = "us", **fields: Any) -> Send:
    return Send("report", instance, "report.ready", '{"type":"report.ready"}')._replace(**fields)


async def _waiting(store: Store, instance: str) -> list[RunView]:
    """Return the pending signals of an instance, oldest first."""
    found = await store.runs(RunFilter("default", instance_id=key_of(instance), states=("pending",)))
    return found[::-1]


async def _again(store: Store, instance: str = "eu") -> TakenRun:
    """Send another signal, and take it."""
    await given_sent(store, instance)
    (run,) = await taken(store)
    return run


# --- state ----------------------------------------------------------------------------------------------


async def test_the_state_is_written_with_the_outcome_and_read_by_the_next_run(store: Store) -> None:
    run = await _running(store)
    await _handle(store, run, data='{"count":1}', version=3, memory='{"seen":[]}')
    row = (await view(store)).row
    assert (row.data, row.version, row.revision, row.memory) == ('{"count":1}', 3, 1, '{"seen":[]}')
    assert (row.handled_ms, row.status) == (NOW + SECOND, "active")
    run = await _again(store)
    assert (run.data, run.state_version, run.revision, run.memory) == ('{"count":1}', 3, 1, '{"seen":[]}')


async def test_a_handler_that_returns_nothing_leaves_the_state(store: Store) -> None:
    run = await _running(store)
    await _handle(store, run, data='{"count":1}')
    run = await _again(store)
    await _handle(store, run, version=2)
    row = (await view(store)).row
    assert (row.data, row.version, row.revision) == ('{"count":1}', 1, 1)


async def test_a_run_requires_the_version_that_wrote_the_state(store: Store) -> None:
    run = await _running(store)
    await given_sent(store, "eu")
    await _handle(store, run, data="{}", version=3)
    assert await store.take(NOW, "w1", {"team": 1}, {"agent:default/report": 2}) == []
    (run,) = await store.take(NOW, "w1", {"team": 1}, {"agent:default/report": 3})
    assert (await look(store, run)).requires_version == 3


async def test_a_fenced_outcome_changes_nothing(store: Store) -> None:
    run = await _running(store)
    await store.release("w1", NOW)
    (again,) = await taken(store, "w2")
    late = done(
        run,
        data='{"count":1}',
        sends=(_send(),),
        schedules=(_set_cron(),),
        stop=True,
        emitted='[{"type":"x"}]',
    )
    assert await store.finish("w1", [late], alone) == set()
    found = await view(store)
    assert (found.row.data, found.row.revision, found.row.status) == (None, 0, "active")
    assert await store.instance("default", "report", "us") is None
    assert await store.schedules(key_of()) == []
    assert (await look(store, again)).emitted is None


async def test_a_fenced_outcome_does_not_affect_the_others_of_its_batch(store: Store) -> None:
    late = await _running(store)
    await store.release("w1", NOW)
    await taken(store, "w2")
    run = await _running(store, "us")
    outcomes = [done(late, data='{"count":1}'), done(run, data='{"count":2}', sends=(_send("asia"),))]
    assert await store.finish("w1", outcomes, alone) == {run.id}
    assert ((await view(store)).row.data, (await view(store, "us")).row.data) == (None, '{"count":2}')
    assert len(await _waiting(store, "asia")) == 1


async def test_a_state_that_changed_meanwhile_refuses_the_outcome(store: Store) -> None:
    run = await _running(store)

    def reset(row: Any, schedules: object) -> InstanceChange:
        return InstanceChange(row._replace(revision=row.revision + 1))

    await store.change_instance("default", "report", "eu", NOW, reset)
    seen = await _handle(store, run, data='{"count":1}', output="done")
    assert (seen.state, seen.reason) == ("retrying", "directive_refused")
    assert "changed while the handler ran" in str(seen.error)
    assert (await view(store)).row.data is None


async def test_a_blocked_instance_keeps_its_state_and_its_signal(store: Store) -> None:
    run = await _running(store)
    blocked = done(run, "retrying", due_ms=NOW, error="cannot read the state", block="cannot read the state")
    await store.finish("w1", [blocked], alone)
    found = await view(store)
    assert (found.row.status, found.row.note, found.active_run) == (
        "blocked", "cannot read the state", run.id,
    )  # fmt: skip
    assert await taken(store) == []

    def resume(row: Any, schedules: object) -> InstanceChange:
        return InstanceChange(row._replace(status="active", note=None))

    await store.change_instance("default", "report", "eu", NOW, resume)
    assert [each.id for each in await taken(store)] == [run.id]


# --- signals --------------------------------------------------------------------------------------------


async def test_signals_to_others_and_to_itself_are_stored_with_the_outcome(store: Store) -> None:
    run = await _running(store)
    await _handle(store, run, sends=(_send("us"), _send("eu"), _send("us", delay_ms=MINUTE)))
    first, delayed = await _waiting(store, "us")
    assert (first.trigger, first.triggered_by, first.signal, first.due_ms) == (
        "signal", run.id, "report.ready", NOW,
    )  # fmt: skip
    assert (delayed.fire_ms, delayed.due_ms) == (NOW + MINUTE, None)
    (own,) = await _waiting(store, "eu")
    assert own.due_ms == NOW


async def test_a_delay_counts_from_the_commit_by_the_clock_of_the_database(
    store: Store, clock: FalseClock
) -> None:
    run = await _running(store)
    clock.ms = NOW + 5 * MINUTE
    await _handle(store, run, sends=(_send("eu", delay_ms=MINUTE),))
    (own,) = await _waiting(store, "eu")
    assert own.fire_ms == NOW + 6 * MINUTE


async def test_a_sent_signal_with_an_id_arrives_once(store: Store) -> None:
    run = await _running(store)
    send = _send("us", source="/report", id="r-1")
    await _handle(store, run, sends=(send, send))
    assert len(await _waiting(store, "us")) == 1
    await given_sent(store, "eu")
    (run,) = [each for each in await taken(store) if each.instance == "eu"]
    await _handle(store, run, sends=(send,))
    assert len(await store.runs(RunFilter("default", instance_id=key_of("us")))) == 1


async def test_a_signal_to_an_agent_without_a_class_is_refused(store: Store) -> None:
    run = await _running(store)
    seen = await _handle(store, run, data="{}", sends=(_send("us"), _send("us", agent="nobody")))
    assert (seen.state, seen.reason, seen.failed_attempts) == ("retrying", "directive_refused", 1)
    assert "agent 'nobody' has no class" in str(seen.error)
    assert await store.instance("default", "report", "us") is None
    assert (await view(store)).row.data is None


async def test_a_signal_to_a_stopped_instance_is_refused(store: Store) -> None:
    run = await _running(store)
    await store.change_instance(
        "default", "report", "us", NOW, lambda row, jobs: InstanceChange(new_instance("us", status="stopped"))
    )
    seen = await _handle(store, run, sends=(_send("us"),))
    assert (seen.state, seen.reason) == ("retrying", "directive_refused")
    assert "'us' of agent 'report' is stopped; start it" in str(seen.error)


async def test_signals_that_fill_a_mailbox_refuse_their_outcome_and_no_other(store: Store) -> None:
    await store.put_class(agent_class(mailbox=2), NOW)
    await given_sent(store, "eu", "asia")
    one, two = await taken(store)
    outcomes = [
        done(one, data='{"n":1}', sends=(_send("us"), _send("us"))),
        done(two, data='{"n":2}', sends=(_send("us"),)),
    ]
    assert await store.finish("w1", outcomes, alone) == {one.id, two.id}
    seen = [await look(store, one), await look(store, two)]
    assert [each.state for each in seen] == ["succeeded", "retrying"]
    assert "is full (2 signals wait)" in str(seen[1].error)
    assert (await view(store, "eu")).row.data == '{"n":1}'
    assert (await view(store, "asia")).row.data is None
    assert len(await _waiting(store, "us")) == 2


async def test_a_value_that_cannot_be_stored_rolls_everything_back(store: Store) -> None:
    run = await _running(store)
    with pytest.raises(Unstorable):
        await store.finish("w1", [done(run, data='{"x":"\ud800"}', sends=(_send("us"),))], alone)
    assert (await look(store, run)).state == "running"
    assert await store.instance("default", "report", "us") is None


# --- schedules ------------------------------------------------------------------------------------------


async def test_a_schedule_is_a_job_of_the_instance(store: Store, recorder: NotificationRecorder) -> None:
    run = await _running(store)
    await recorder.next_event("runs")
    await _handle(store, run, schedules=(_set_cron(),))
    assert "jobs" in await recorder.next_event("jobs")
    (row,) = await store.schedules(key_of())
    assert (row.agent, row.name, row.enabled) == ("report", schedule_job_name("eu", "dynamic", "daily"), True)
    assert (row.instance_id, row.schedule_origin, row.schedule_id) == (key_of(), "dynamic", "daily")
    assert row.next_ms is not None
    assert row.created_by == "agent:report/eu"


async def test_setting_a_schedule_again_changes_its_job_and_withdraws_its_ticks(store: Store) -> None:
    run = await _running(store)
    await _handle(store, run, schedules=(_set_cron(),))
    (before,) = await store.schedules(key_of())
    await given_sent(store, "eu")
    (run,) = await taken(store)
    tick = arrival().run._replace(
        job_id=before.id, job_name=before.name, trigger="schedule", scheduled_ms=NOW + DAY, fire_ms=NOW + DAY
    )
    await store.add_runs([tick])
    await _handle(store, run, schedules=(_set_cron(expr="0 7 * * *"),))
    (after,) = await store.schedules(key_of())
    assert (after.id, after.version) == (before.id, before.version + 1)
    assert after.timing != before.timing
    assert (await look(store, tick)).state == "cancelled"


async def test_the_same_schedule_changes_nothing(store: Store) -> None:
    run = await _running(store)
    await _handle(store, run, schedules=(_set_cron(),))
    (before,) = await store.schedules(key_of())
    run = await _again(store)
    await _handle(store, run, schedules=(_set_cron(),))
    assert await store.schedules(key_of()) == [before]


async def test_a_cancelled_schedule_is_deleted_and_an_unknown_one_is_no_error(store: Store) -> None:
    run = await _running(store)
    await _handle(store, run, schedules=(_set_cron("a"), _set_cron("b"), _cancel_cron("c")))
    run = await _again(store)
    assert (await _handle(store, run, schedules=(_cancel_cron("a"),))).state == "succeeded"
    assert [row.schedule_id for row in await store.schedules(key_of())] == ["b"]


async def test_ids_of_declared_and_dynamic_schedules_do_not_collide(store: Store) -> None:
    run = await _running(store)
    await _declare(store, "daily")
    await _handle(store, run, schedules=(_set_cron("daily"),))
    assert [row.schedule_origin for row in await store.schedules(key_of())] == ["declared", "dynamic"]
    run = await _again(store)
    await _handle(store, run, schedules=(_cancel_cron("daily"), _cancel_cron("daily", declared=True)))
    (row,) = await store.schedules(key_of())
    assert (row.schedule_origin, row.enabled, row.disabled_reason) == (
        "declared", False, "cancelled_by_agent",
    )  # fmt: skip


async def _declare(store: Store, schedule_id: str) -> JobRow:
    key = ScheduleKey(key_of(), "declared", schedule_id)
    definition = replace(_cron(schedule_id), name=schedule_job_name("eu", "declared", schedule_id))
    job = schedule_job(key, "default", "report", definition, None, NOW, "system")
    assert job is not None
    row = job_to_row(job)
    await store.create_jobs([row])
    return row


async def test_a_schedule_that_cannot_be_read_is_replaced_and_harms_no_other(store: Store) -> None:
    run = await _running(store)
    await _handle(store, run, schedules=(_set_cron("a"), _set_cron("b")))
    broken, other = await store.schedules(key_of())
    await store.change_job(broken.id, lambda row: JobChange(row._replace(timing='{"kind":"nonsense"}')))
    run = await _again(store)
    assert (await _handle(store, run, schedules=(_set_cron("c"),))).state == "succeeded"
    run = await _again(store)
    assert (await _handle(store, run, schedules=(_set_cron("a"),))).state == "succeeded"
    first, second, third = await store.schedules(key_of())
    assert first.id != broken.id
    assert (first.schedule_id, second, third.schedule_id) == ("a", other, "c")


async def test_too_many_schedules_are_refused(store: Store) -> None:
    run = await _running(store)
    many = tuple(_set_cron(f"s{number}") for number in range(MAX_SCHEDULES + 1))
    seen = await _handle(store, run, schedules=many)
    assert (seen.state, seen.reason) == ("retrying", "directive_refused")
    assert await store.schedules(key_of()) == []


# --- stop -----------------------------------------------------------------------------------------------


async def test_stop_deletes_schedules_and_cancels_pending_signals(store: Store) -> None:
    run = await _running(store)
    await _declare(store, "daily")
    await _handle(store, run, schedules=(_set_cron(),))
    run = await _again(store)
    (waiting,) = await given_sent(store, "eu")
    await _handle(store, run, data='{"count":2}', stop=True, sends=(_send("eu"), _send("us")))
    found = await view(store)
    assert (found.row.status, found.waiting, found.row.data) == ("stopped", 0, '{"count":2}')
    assert await store.schedules(key_of()) == []
    seen = await look(store, waiting)
    assert (seen.state, seen.reason) == ("cancelled", "stopped")
    assert len(await _waiting(store, "us")) == 1


async def test_a_one_time_schedule_that_its_own_run_sets_again_is_kept(
    store: Store, clock: FalseClock
) -> None:
    run = await _running(store)
    await _handle(store, run, schedules=(_set_cron("once"),))
    (once,) = await store.schedules(key_of())
    tick_at = NOW + DAY
    clock.ms = tick_at

    def fire(due: DueJob) -> JobPlan:
        signal = tick(
            due, due.next_ms, serial=False, due_ms=None, lane="team", requires="agent:default/report",
            instance_id=key_of(), instance="eu", signal="report.generate",
        )  # fmt: skip
        return plan_of(due, signal, next_ms=None, wake_ms=None)

    await store.plan(tick_at, 10, fire)
    (run,) = await taken(store, now_ms=tick_at)
    clock.ms += SECOND
    await _handle(store, run, delete_job=True, schedules=(_set_cron("once", "0 7 * * *"),))
    (kept,) = await store.schedules(key_of())
    assert (kept.id, kept.enabled, kept.next_ms is None) == (once.id, True, False)


# --- emitted --------------------------------------------------------------------------------------------


async def test_emitted_signals_are_recorded_and_in_the_changelog(store: Store) -> None:
    run = await _running(store)
    after = await store.last_change()
    seen = await _handle(store, run, emitted='[{"type":"report.ready"}]')
    assert (seen.emitted, seen.delivery) == ('[{"type":"report.ready"}]', "not_requested")
    changes = {row.kind: row.items for row in await store.changes(after)}
    assert changes["signal.emitted"] == (run.id,)


async def test_emitted_signals_are_delivered_to_the_channel_of_the_agent(
    store: Store, recorder: NotificationRecorder
) -> None:
    run = await _running(store)

    def channel(old: AgentRow | None) -> AgentRow:
        assert old is not None
        return old._replace(channel="ops", to="#reports")

    await store.put_agent("default", "report", channel)
    seen = await _handle(store, run, emitted='[{"type":"report.ready"}]')
    assert seen.delivery == "pending"
    assert "deliveries" in await recorder.next_event("deliveries")
    (delivery,), _ = await store.take_deliveries(NOW, "w1", NOW + MINUTE, 10)
    assert (delivery.channel, delivery.to, delivery.emitted) == (
        "ops", "#reports", '[{"type":"report.ready"}]',
    )  # fmt: skip


async def test_the_transaction_of_an_outcome_takes_the_next_signal(store: Store) -> None:
    run = await _running(store)
    await given_sent(store, "eu")
    take_next = TakeNext({run.id: run.lane}, HAS_REPORT)
    written, (following,) = await store.finish_and_take("w1", [done(run, data='{"n":1}')], alone, take_next)
    assert written == {run.id}
    assert (following.instance, following.data, following.revision) == ("eu", '{"n":1}', run.revision + 1)
    assert (await look(store, following)).worker == "w1"
    assert await taken(store) == [], "nothing else of the instance can be taken"


@pytest.mark.parametrize(
    ("lane", "capabilities"),
    [("main", {"agent:default/report": 1}), ("team", {"agent:default/other": 9}), ("team", {})],
)
async def test_a_signal_is_not_taken_without_its_lane_or_class(
    store: Store, lane: str, capabilities: dict[str, int]
) -> None:
    run = await _running(store)
    await given_sent(store, "eu")
    take_next = TakeNext({run.id: lane}, capabilities)
    written, following = await store.finish_and_take("w1", [done(run)], alone, take_next)
    assert (written, following) == ({run.id}, [])
    assert len(await taken(store)) == 1


async def test_a_fenced_outcome_takes_no_signal(store: Store) -> None:
    run = await _running(store)
    await given_sent(store, "eu")
    take_next = TakeNext({run.id: run.lane}, HAS_REPORT)
    assert await store.finish_and_take("w2", [done(run)], alone, take_next) == (set(), [])
    assert (await look(store, run)).state == "running"


async def test_a_signal_that_is_due_later_is_not_taken_with_the_outcome_before_it(store: Store) -> None:
    run = await _running(store)
    later = Send("report", "eu", "report.ready", "{}", delay_ms=MINUTE)
    take_next = TakeNext({run.id: run.lane}, HAS_REPORT)
    written, following = await store.finish_and_take("w1", [done(run, sends=(later,))], alone, take_next)
    assert (written, following) == ({run.id}, [])
