"""Directives at their limits: stops in the same batch, schedules that are over, inactive agents."""

from __future__ import annotations

from typing import Any

from tests.support.factories import DAY, MINUTE, NOW, SECOND, FalseClock, alone, look
from tests.support.instances import agent_class, done, given_sent, key_of, taken, view
from wakeful.document import Defaults, read_definition
from wakeful.run.instances import MAX_SCHEDULES, InstanceLimits, ScheduleChange, Send, schedule_job_name
from wakeful.run.outcome import Finished
from wakeful.store.accounts import AgentRow
from wakeful.store.instances import InstanceFilter
from wakeful.store.port import Store
from wakeful.store.quotas import INSTANCES
from wakeful.store.rows import JobChange, RunFilter, RunView, TakenRun


async def _running(store: Store, *instances: str) -> list[TakenRun]:
    """Return a running signal of each of these instances."""
    await store.put_class(agent_class(), NOW)
    await given_sent(store, *instances)
    runs = {run.instance: run for run in await taken(store)}
    return [runs[instance] for instance in instances]


async def _handle(store: Store, run: TakenRun, **fields: Any) -> RunView:
    assert await store.finish("w1", [done(run, **fields)], alone) == {run.id}
    return await look(store, run)


def _set(schedule_id: str = "daily", schedule: str = "0 6 * * *", **fields: Any) -> ScheduleChange:
    document = {
        "name": schedule_job_name("eu", "dynamic", schedule_id),
        "schedule": schedule,
        "target": {"kind": "agent", "instance": "eu", "signal": "report.generate"},
        **fields,
    }
    return ScheduleChange(schedule_id, read_definition(document, now_ms=NOW, defaults=Defaults()))


async def test_a_signal_to_an_instance_that_stops_in_the_same_batch_does_not_wait_for_ever(
    store: Store,
) -> None:
    for sender_first in (True, False):
        eu, us = await _running(store, f"eu-{sender_first}".lower(), f"us-{sender_first}".lower())
        recipient = str(us.instance)
        sends = done(eu, sends=(Send("report", recipient, "report.ready", '{"type":"report.ready"}'),))
        stops = done(us, stop=True)
        batch = [sends, stops] if sender_first else [stops, sends]
        assert await store.finish("w1", batch, alone) == {eu.id, us.id}
        found = await view(store, recipient)
        assert (found.row.status, found.waiting) == ("stopped", 0)
        runs = await store.runs(RunFilter("default", instance_id=key_of(recipient)))
        (signal,) = [run for run in runs if run.id != us.id]
        assert (signal.state, signal.reason) == ("skipped", "stopped")


async def test_a_schedule_that_is_over_begins_anew_when_it_is_set_again(store: Store) -> None:
    (run,) = await _running(store, "eu")
    await _handle(store, run, schedules=(_set(maxRuns=1),))
    (over,) = await store.schedules(key_of())
    ended = over._replace(enabled=False, disabled_reason="max_runs", next_ms=None, wake_ms=None, run_count=1)
    await store.change_job(over.id, lambda row: JobChange(ended))
    (run,) = await _running(store, "eu")
    assert (await _handle(store, run, schedules=(_set(maxRuns=1),))).state == "succeeded"
    (again,) = await store.schedules(key_of())
    assert (again.id != over.id, again.enabled, again.run_count) == (True, True, 0)
    assert again.next_ms is not None


async def test_a_one_time_schedule_whose_instant_passed_before_the_commit_is_caught_up(
    store: Store, clock: FalseClock
) -> None:
    (run,) = await _running(store, "eu")
    once = _set("once", "in 10s")
    clock.ms = NOW + MINUTE
    await _handle(store, run, schedules=(once,))
    (job,) = await store.schedules(key_of())
    assert (job.enabled, job.next_ms, job.wake_ms) == (True, NOW + 10 * SECOND, NOW + 10 * SECOND)


async def test_a_schedule_of_an_agent_that_is_not_active_waits_until_it_is(store: Store) -> None:
    (run,) = await _running(store, "eu")

    def deactivate(old: AgentRow | None) -> AgentRow:
        assert old is not None
        return old._replace(active=False)

    await store.put_agent("default", "report", deactivate)
    await _handle(store, run, schedules=(_set(),))
    (job,) = await store.schedules(key_of())
    assert (job.enabled, job.disabled_reason, job.wake_ms) == (False, "agent_inactive", None)
    (run,) = await _running(store, "eu")
    await _handle(store, run, schedules=(_set(schedule="0 7 * * *"),))
    (job,) = await store.schedules(key_of())
    assert (job.enabled, job.disabled_reason, job.wake_ms) == (False, "agent_inactive", None)


async def test_a_schedule_may_take_the_place_of_one_that_is_cancelled_with_it(store: Store) -> None:
    (run,) = await _running(store, "eu")
    many = tuple(_set(f"s{number}") for number in range(MAX_SCHEDULES))
    assert (await _handle(store, run, schedules=many)).state == "succeeded"
    (run,) = await _running(store, "eu")
    seen = await _handle(store, run, schedules=(ScheduleChange("s1"), _set("new")))
    assert (seen.state, len(await store.schedules(key_of()))) == ("succeeded", MAX_SCHEDULES)


async def test_signals_to_new_instances_beyond_the_quota_refuse_their_outcome_and_no_other(
    store: Store,
) -> None:
    blocked, one, two, three = await _running(store, "a-blocked", "a", "b", "c")
    limits = InstanceLimits(per_workspace=50, per_agent=5)

    def sends(run: TakenRun, *names: str) -> Finished:
        to = [Send("report", name, "report.ready", '{"type":"report.ready"}') for name in names]
        return done(run, sends=tuple(to), limits=limits)

    block = done(blocked, "retrying", due_ms=NOW + MINUTE, block="no")
    batch = [block, sends(one, "d", "e"), sends(two, "d", "d"), sends(three, "a", "f")]
    assert await store.finish("w1", batch, alone) == {blocked.id, one.id, two.id, three.id}
    seen = [await look(store, run) for run in (one, two, three)]
    assert [(run.state, run.reason) for run in seen] == [
        ("retrying", "directive_refused"), ("succeeded", None), ("retrying", "directive_refused"),
    ]  # fmt: skip
    error = "Emit: 2 recipients would have to be added, and the quota of instances is used up"
    assert seen[0].error == error
    names = [each.row.name for each in await store.instances(InstanceFilter("default", "report"))]
    assert names == ["a", "a-blocked", "b", "c", "d"]


async def test_a_quota_of_the_workspace_holds_for_signals_to_new_instances(store: Store) -> None:
    (run,) = await _running(store, "a")
    await store.set_quota("default", "", INSTANCES, 1)
    to_new, to_itself = (Send("report", name, "x", '{"type":"x"}') for name in "ba")
    assert (await _handle(store, run, sends=(to_new,))).reason == "directive_refused"
    assert await store.instance("default", "report", "b") is None
    (run,) = await taken(store, now_ms=NOW + MINUTE)
    assert (await _handle(store, run, sends=(to_itself,))).state == "succeeded"
    await store.set_quota("default", "", INSTANCES, 2)
    (run,) = await taken(store)
    assert (await _handle(store, run, sends=(to_new,))).state == "succeeded"


async def test_handling_a_signal_keeps_when_the_instance_was_hibernated(store: Store) -> None:
    (run,) = await _running(store, "eu")
    await store.record_hibernation([key_of()], NOW - DAY)
    await _handle(store, run, data="{}")
    assert (await view(store)).row.hibernated_ms == NOW - DAY
