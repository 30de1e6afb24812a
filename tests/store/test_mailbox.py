"""Mailboxes: one signal of an instance at a time, in the order (due time, arrival)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.factories import (
    DAY,
    MINUTE,
    NOW,
    SECOND,
    FalseClock,
    alone,
    asked,
    asleep,
    ended,
    look,
    look_at_job,
    over,
    plan_of,
    tick,
)
from tests.support.instances import (
    HAS_REPORT,
    LANES,
    MAILBOX,
    agent_class,
    arrival,
    done,
    given_sent,
    key_of,
    taken,
    view,
)
from tests.support.notifications import NotificationRecorder
from wakeful.errors import FailedPrecondition, ResourceExhausted
from wakeful.run.instances import DeclaredSchedule, InstanceStatus
from wakeful.run.outcome import Finished
from wakeful.run.run import NewRun
from wakeful.store.instances import InstanceChange, InstanceRow
from wakeful.store.plans import DueJob, JobPlan, LiveRuns, ManualRunPlan
from wakeful.store.port import Store
from wakeful.store.rows import DeadLetter, JobChange, JobRow, Move, RunFilter, SignalRecipient, UnfinishedRun
from wakeful.values.json_value import Json

pytestmark = pytest.mark.usefixtures("classes")


async def _set(store: Store, status: InstanceStatus, instance: str = "eu", **fields: object) -> None:
    def change(row: InstanceRow | None, schedules: object) -> InstanceChange:
        assert row is not None
        return InstanceChange(row._replace(status=status), **fields)  # type: ignore[arg-type]

    await store.change_instance("default", "report", instance, NOW, change)


async def _end(store: Store, run_id: str, worker: str = "w1", state: str = "succeeded") -> None:
    (run,) = await store.runs_by_ids([run_id])
    outcome = ended(run, state, instance_id=key_of())
    assert await store.finish(worker, [outcome], alone) == {run_id}


def _signal(of: JobRow, at: int = NOW, **fields: object) -> NewRun:
    """Return a tick of a job whose target is the agent class."""
    return tick(of, at, serial=False, due_ms=None, lane="team", requires="agent:default/report",
                instance_id=key_of(), instance="eu", signal="report.generate", **fields)  # fmt: skip


# --- arrival --------------------------------------------------------------------------------------------


async def test_the_first_signal_creates_its_instance_and_can_be_taken(store: Store) -> None:
    (received,) = await store.send([arrival()], MAILBOX)
    assert (received.duplicate, received.run.state, received.run.due_ms) == (False, "pending", NOW)
    assert (received.run.trigger, received.run.instance, received.run.signal) == (
        "signal", "eu", "report.generate",
    )  # fmt: skip
    assert await store.run(received.run.id) == received.run
    found = await view(store)
    assert (found.row.status, found.row.sequence, found.waiting, found.active_run) == ("active", 1, 1, None)


async def test_a_taken_signal_has_the_state_of_its_instance_and_the_policy_of_its_class(store: Store) -> None:
    await store.put_class(agent_class(), NOW)
    await given_sent(store, "eu")
    (run,) = await taken(store)
    assert (run.instance_id, run.instance, run.signal) == (key_of(), "eu", "report.generate")
    assert (run.data, run.state_version, run.revision, run.memory) == (None, 0, 0, None)
    assert (run.policy, run.work, run.payload) == ('{"maxAttempts":5}', "{}", '{"type":"report.generate"}')


async def test_one_signal_of_an_instance_is_taken_at_a_time(store: Store) -> None:
    first, second, third = await given_sent(store, "eu", "eu", "eu")
    assert [run.id for run in await taken(store)] == [first]
    assert await taken(store, "w2") == []
    await _end(store, first)
    assert [run.id for run in await taken(store, "w2")] == [second]
    await _end(store, second, "w2")
    assert [run.id for run in await taken(store)] == [third]


async def test_signals_of_different_instances_are_taken_at_once(store: Store) -> None:
    sent = await given_sent(store, "eu", "us", "eu", "asia")
    assert {run.id for run in await taken(store)} == {sent[0], sent[1], sent[3]}


async def test_a_worker_without_the_class_or_its_version_takes_no_signal(store: Store) -> None:
    await given_sent(store, "eu")
    assert await store.take(NOW, "w1", LANES) == []
    assert await store.take(NOW, "w1", LANES, {"": 0, "agent:default/other": 1}) == []
    assert len(await store.take(NOW, "w1", LANES, {"": 0, "agent:default/report": 1})) == 1


async def test_an_earlier_due_time_comes_before_an_earlier_arrival(store: Store) -> None:
    (late,) = await given_sent(store, "eu", delay_ms=MINUTE)
    (now,) = await given_sent(store, "eu")
    (soon,) = await given_sent(store, "eu", delay_ms=SECOND)
    assert (await look(store, late)).due_ms is None
    assert await store.next_due_ms(NOW, list(LANES), HAS_REPORT) is None
    order = []
    for _ in range(3):
        (run,) = await taken(store, now_ms=NOW + MINUTE)
        order.append(run.id)
        await _end(store, run.id)
    assert order == [now, soon, late]


async def test_a_delayed_signal_is_exposed_with_its_due_time(store: Store) -> None:
    await given_sent(store, "eu", delay_ms=MINUTE)
    assert await taken(store) == []
    assert await store.next_due_ms(NOW, list(LANES), HAS_REPORT) == NOW + MINUTE
    assert len(await taken(store, now_ms=NOW + MINUTE)) == 1


async def test_a_signal_that_comes_first_publishes_runs(store: Store, recorder: NotificationRecorder) -> None:
    (first, _) = await given_sent(store, "eu", "eu")
    assert "runs" in await recorder.next_event("runs")
    await taken(store)
    await _end(store, first)
    assert "runs" in await recorder.next_event("runs")


# --- ends -----------------------------------------------------------------------------------------------


async def test_a_retrying_signal_holds_the_mailbox_until_it_ends(store: Store) -> None:
    first, second = await given_sent(store, "eu", "eu")
    (run,) = await taken(store)
    await store.finish("w1", [done(run, "retrying", due_ms=NOW + MINUTE, error="no")], alone)
    assert await taken(store, now_ms=NOW + SECOND) == []
    (again,) = await taken(store, now_ms=NOW + MINUTE)
    assert (again.id, again.attempt) == (first, 2)
    await store.finish("w1", [done(again, "failed", error="no")], alone)
    assert [run.id for run in await taken(store)] == [second]
    assert (await look(store, first)).dead


async def test_rescue_retries_the_signal_of_a_dead_worker_before_the_next(store: Store) -> None:
    first, _ = await given_sent(store, "eu", "eu")
    await taken(store)
    found: list[UnfinishedRun] = []

    def judge(run: UnfinishedRun) -> Finished:
        found.append(run)
        return Finished(
            run.id, None, run.attempt, "retrying", NOW, NOW, NOW, error="lost", instance_id=run.instance_id
        )

    await store.rescue(NOW + MINUTE, NOW + SECOND, 10, judge, alone)
    assert [(run.id, run.instance_id) for run in found] == [(first, key_of())]
    assert [run.id for run in await taken(store, "w2")] == [first]


async def test_a_released_signal_is_taken_before_the_next(store: Store) -> None:
    first, _ = await given_sent(store, "eu", "eu")
    await taken(store)
    assert await store.release("w1", NOW) == 1
    assert [run.id for run in await taken(store, "w2")] == [first]


@pytest.mark.parametrize("state", ["pending", "running", "retrying"])
async def test_a_cancelled_signal_exposes_the_next(store: Store, state: str) -> None:
    first, second = await given_sent(store, "eu", "eu")
    if state != "pending":
        (run,) = await taken(store)
        if state == "retrying":
            await store.finish("w1", [done(run, state, due_ms=NOW + DAY)], alone)
    await store.cancel_run(first, NOW, "no", running=state == "running")
    assert [run.id for run in await taken(store, "w2")] == [second]


# --- status ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["paused", "blocked"])
async def test_a_paused_or_blocked_instance_exposes_nothing_until_it_is_active(
    store: Store, status: InstanceStatus
) -> None:
    (first,) = await given_sent(store, "eu")
    await _set(store, status)
    (second,) = await given_sent(store, "eu")
    assert await taken(store) == []
    await _set(store, "active")
    assert [run.id for run in await taken(store)] == [first]
    await _set(store, status)
    await _end(store, first)
    assert await taken(store) == []
    await _set(store, "active")
    assert [run.id for run in await taken(store)] == [second]


async def test_a_retrying_signal_of_a_paused_instance_waits_until_it_resumes(store: Store) -> None:
    (first,) = await given_sent(store, "eu")
    (run,) = await taken(store)
    await _set(store, "paused")
    await store.finish("w1", [done(run, "retrying", due_ms=NOW + SECOND)], alone)
    assert await taken(store, now_ms=NOW + MINUTE) == []
    assert (await look(store, first)).due_ms is None
    await _set(store, "active")
    assert [run.id for run in await taken(store)] == [first]


async def test_a_released_signal_of_a_paused_instance_waits_until_it_resumes(store: Store) -> None:
    (first,) = await given_sent(store, "eu")
    await taken(store)
    await _set(store, "paused")
    await store.release("w1", NOW)
    assert await taken(store) == []
    await _set(store, "active")
    assert [run.id for run in await taken(store)] == [first]


async def test_a_stopped_instance_refuses_signals_and_skips_ticks(store: Store) -> None:
    await given_sent(store, "eu")
    await _set(store, "stopped", cancel="stopped")
    with pytest.raises(FailedPrecondition, match="instance 'eu' of agent 'report' is stopped; start it"):
        await given_sent(store, "eu")
    of = asleep("morning", agent="report")
    await store.create_jobs([of])
    with pytest.raises(FailedPrecondition, match="is stopped"):
        await store.add_runs([_signal(of, trigger="user")])
    await store.plan(NOW + DAY, 10, lambda due: plan_of(due, _signal(of, due.next_ms)))
    (skipped, *_) = await store.runs(RunFilter("default", job_id=of.id))
    assert (skipped.state, skipped.reason, skipped.instance) == ("skipped", "stopped", "eu")


async def test_a_full_mailbox_refuses_signals_and_skips_ticks(store: Store) -> None:
    small = agent_class(mailbox=2)
    await store.put_class(small, NOW)
    await store.send([arrival(), arrival()], 2)
    with pytest.raises(ResourceExhausted, match="mailbox of instance 'eu' of agent 'report' is full: 2 sig"):
        await store.send([arrival()], 2)
    of = asleep("morning", agent="report")
    await store.create_jobs([of])
    with pytest.raises(ResourceExhausted, match="mailbox"):
        await store.add_runs([_signal(of, trigger="user")])
    await store.plan(NOW + DAY, 10, lambda due: plan_of(due, _signal(of, due.next_ms)))
    (skipped,) = await store.runs(RunFilter("default", job_id=of.id))
    assert (skipped.state, skipped.reason) == ("skipped", "mailbox_full")
    await taken(store)  # a running signal does not wait
    assert len(await store.send([arrival()], 2)) == 1
    assert (await view(store)).waiting == 2


async def test_ticks_enter_the_mailbox_of_a_class_with_any_text(store: Store) -> None:
    texts: dict[str, Json] = {"payload": {"nul": "\x00", "text": r"\u0000"}}
    await store.put_class(agent_class(mailbox=1, schedules=(DeclaredSchedule("daily", texts),)), NOW)
    first, second = asleep("first", agent="report"), asleep("second", agent="report")
    await store.create_jobs([first, second])
    of = {first.id: first, second.id: second}
    await store.plan(NOW + DAY, 10, lambda due: plan_of(due, _signal(of[due.id], due.next_ms)))
    states = [(run.state, run.reason) for run in await store.runs(RunFilter("default", agent="report"))]
    assert sorted(states) == [("pending", None), ("skipped", "mailbox_full")]


@pytest.mark.parametrize("next_ms", [None, NOW + 2 * DAY])
async def test_a_job_whose_last_tick_is_skipped_is_over(store: Store, next_ms: int | None) -> None:
    await given_sent(store, "eu")
    await _set(store, "stopped", cancel="stopped")
    of = asleep("once", agent="report")
    await store.create_jobs([of])
    after = await store.last_change()
    await store.plan(
        NOW + DAY, 10, lambda due: plan_of(due, _signal(of, due.next_ms), next_ms=next_ms, wake_ms=next_ms)
    )
    job = await look_at_job(store, of)
    is_over = next_ms is None
    assert (job.enabled, job.disabled_reason) == ((False, "no_more_ticks") if is_over else (True, None))
    assert ("job.changed" in {row.kind for row in await store.changes(after)}) is is_over


async def test_a_batch_that_does_not_fit_is_refused_whole(store: Store) -> None:
    with pytest.raises(ResourceExhausted):
        await store.send([arrival("us"), arrival(), arrival(), arrival()], 2)
    assert await store.runs(RunFilter("default")) == []
    assert await store.instance("default", "report", "us") is None


# --- runs of jobs ---------------------------------------------------------------------------------------


async def test_a_tick_joins_the_mailbox_and_carries_the_policy_of_its_job(store: Store) -> None:
    (first,) = await given_sent(store, "eu")
    of = asleep("morning", agent="report", policy='{"maxAttempts":2}')
    await store.create_jobs([of])
    planned = await store.plan(NOW + DAY, 10, lambda due: plan_of(due, _signal(of, NOW)))
    assert [run.due_ms for run in planned.runs] == [None]
    (run,) = await taken(store)
    assert run.id == first
    await _end(store, first)
    (run,) = await taken(store)
    assert (run.id, run.policy, run.instance) == (planned.runs[0].id, '{"maxAttempts":2}', "eu")


async def test_a_tick_that_has_a_run_does_not_hide_the_signals_of_the_same_pass(store: Store) -> None:
    of, other = asleep("morning", agent="report"), asleep("evening", agent="report", wake_ms=NOW + DAY + 1)
    await store.create_jobs([of, other])
    await store.add_runs([over(_signal(of, NOW + DAY))])
    runs = {of.id: _signal(of, NOW + DAY), other.id: _signal(other, NOW + DAY)}

    def decide(due: DueJob) -> JobPlan:
        return plan_of(due, *([] if due.decided_ticks else [runs[due.id]]))

    assert (await store.plan(NOW + 2 * DAY, 10, decide)).repeat, "the job did not know that it has a run"
    planned = await store.plan(NOW + 2 * DAY, 10, decide)
    assert [run.id for run in planned.runs] == [runs[other.id].id]
    assert [run.id for run in await taken(store, now_ms=NOW + DAY)] == [runs[other.id].id]


async def test_the_only_tick_of_a_pass_that_has_a_run_does_not_hide_what_waits(store: Store) -> None:
    of = asleep("morning", agent="report")
    await store.create_jobs([of])
    await store.add_runs([over(_signal(of, NOW))])
    (later,) = await given_sent(store, "eu", at=NOW + DAY)
    planned = await store.plan(NOW + DAY, 10, lambda due: plan_of(due, _signal(of, NOW)))
    assert (planned.runs, planned.repeat) == ([], True)
    assert [run.id for run in await taken(store, now_ms=NOW + DAY)] == [later]


async def test_a_tick_in_the_mailbox_counts_as_waiting_for_a_manual_run(store: Store) -> None:
    of = asleep("morning", agent="report")
    await store.create_jobs([of])
    (waiting,) = await store.add_runs([_signal(of)])
    seen: list[LiveRuns] = []

    def replace_it(run: NewRun, live: LiveRuns) -> ManualRunPlan:
        seen.append(live)
        return ManualRunPlan(run, ((waiting.id, "replaced"),))

    manual = await store.add_manual_run(_signal(of, NOW + 1, trigger="user"), replace_it)
    assert seen == [LiveRuns((), (waiting.id,))]
    assert [run.id for run in await taken(store, now_ms=NOW + 1)] == [manual.id]


async def test_deleting_a_job_exposes_the_next_signal(store: Store) -> None:
    of = asleep("morning", agent="report")
    await store.create_jobs([of])
    await store.plan(NOW + DAY, 10, lambda due: plan_of(due, _signal(of, NOW)))
    (second,) = await given_sent(store, "eu")
    await store.delete_job(of.id, NOW, "job_deleted")
    assert [run.id for run in await taken(store)] == [second]


async def test_a_job_edit_that_withdraws_its_tick_exposes_the_next_signal(store: Store) -> None:
    of = asleep("morning", agent="report")
    await store.create_jobs([of])
    await store.plan(NOW + DAY, 10, lambda due: plan_of(due, _signal(of, NOW)))
    (second,) = await given_sent(store, "eu")
    await store.change_job(of.id, lambda row: JobChange(row, withdraw="edited"))
    assert [run.id for run in await taken(store)] == [second]


async def test_a_replay_joins_at_the_end_with_its_instance(store: Store) -> None:
    first, second = await given_sent(store, "eu", "eu")
    (run,) = await taken(store)
    await store.finish("w1", [done(run, "failed", error="no")], alone)

    def replay(letter: DeadLetter) -> NewRun:
        old = letter.run
        assert (old.instance, old.signal, old.requires) == ("eu", "report.generate", "agent:default/report")
        return arrival().run._replace(trigger="replay", attempt=2, idempotency_key=old.idempotency_key)

    (new,) = await store.replay_runs("default", [first], replay)
    assert (new.replay_of, new.due_ms) == (first, None)
    assert [run.id for run in await taken(store)] == [second]
    await _end(store, second)
    assert [run.id for run in await taken(store)] == [new.id]


# --- duplicates -----------------------------------------------------------------------------------------


async def test_a_duplicate_is_answered_with_the_first_run_whatever_its_state(store: Store) -> None:
    (first,) = await store.send([arrival(signal_id="a")], MAILBOX)
    await taken(store)
    await _end(store, first.run.id)
    (again,) = await store.send([arrival(signal_id="a")], MAILBOX)
    assert (again.duplicate, again.run.id, again.run.state) == (True, first.run.id, "succeeded")
    (other,) = await store.send([arrival("us", signal_id="a")], MAILBOX)
    assert not other.duplicate


async def test_a_batch_stores_a_signal_once(store: Store) -> None:
    sent = await store.send([arrival(signal_id="a"), arrival(signal_id="b"), arrival(signal_id="a")], MAILBOX)
    assert [each.duplicate for each in sent] == [False, False, True]
    assert sent[2].run == sent[0].run
    assert (await view(store)).waiting == 2


async def test_the_instance_of_an_agent_that_was_deleted_meanwhile_has_received_nothing(store: Store) -> None:
    await store.send([arrival(signal_id="one")], MAILBOX)

    def stop(old: InstanceRow | None, jobs: object) -> InstanceChange:
        assert old is not None
        return InstanceChange(old._replace(status="stopped"), cancel="stopped")

    await store.change_instance("default", "report", "eu", NOW, stop)
    assert await store.delete_agent("default", "report")
    await store.put_class(agent_class(), NOW)
    (again,) = await store.send([arrival(signal_id="one")], MAILBOX)
    assert (again.duplicate, again.run.state) == (False, "pending")


async def test_a_duplicate_does_not_need_room_in_the_mailbox(store: Store) -> None:
    (first,) = await store.send([arrival(signal_id="a")], 1)
    (again,) = await store.send([arrival(signal_id="a")], 1)
    assert again.run.id == first.run.id


async def test_an_expired_id_counts_as_new(store: Store, clock: FalseClock) -> None:
    of = agent_class(dedupe_ms=MINUTE)
    (first,) = await store.send([arrival(signal_id="a", of=of)], MAILBOX)
    clock.ms += MINUTE
    (again,) = await store.send([arrival(signal_id="a", of=of, at=clock.ms)], MAILBOX)
    assert not again.duplicate
    assert again.run.id != first.run.id
    (third,) = await store.send([arrival(signal_id="a", of=of, at=clock.ms)], MAILBOX)
    assert third.run.id == again.run.id


async def test_expired_ids_are_pruned(store: Store, clock: FalseClock) -> None:
    await store.send([arrival(signal_id=each, of=agent_class(dedupe_ms=MINUTE)) for each in "abc"], MAILBOX)
    assert await store.prune_signal_ids(NOW + MINUTE - 1, 10) == 0
    assert await store.prune_signal_ids(NOW + MINUTE, 2) == 2
    assert await store.prune_signal_ids(NOW + MINUTE, 10) == 1


async def test_a_duplicate_of_a_pruned_run_is_recognised(store: Store) -> None:
    (first,) = await store.send([arrival(signal_id="a")], MAILBOX)
    await taken(store)
    await _end(store, first.run.id)
    await store.prune(NOW + DAY, 10)
    assert await store.run(first.run.id) is None
    (again,) = await store.send([arrival(signal_id="a")], MAILBOX)
    assert (again.duplicate, again.run.id, again.run.reason) == (True, first.run.id, "pruned")
    assert (await view(store)).waiting == 0


# --- jobs that get another target -----------------------------------------------------------------------

EU = SignalRecipient(key_of(), "default", "report", "eu", "report.generate")


async def _move(store: Store, of: JobRow, **fields: Any) -> None:
    to = Move("team", None, "agent:default/report")._replace(**fields)
    await store.change_job(of.id, lambda row: JobChange(row, move=to))


async def test_waiting_runs_join_the_mailbox_if_their_job_gets_an_agent_class_as_target(store: Store) -> None:
    of = asleep("morning", agent="report")
    await store.create_jobs([of])
    first, second = asked(of, serial=True), asked(of, NOW + 1, serial=True, claim_timeout_ms=MINUTE)
    await store.add_runs([second, first])
    await _move(store, of, recipient=EU)
    seen = [await look(store, first), await look(store, second)]
    assert [(run.instance, run.signal, run.requires) for run in seen] == [
        ("eu", "report.generate", "agent:default/report"),
    ] * 2
    assert [(run.due_ms, run.serial, run.is_pull) for run in seen] == [
        (NOW, False, False),
        (None, False, False),
    ]
    (third,) = await given_sent(store, "eu")
    order = []
    for _ in range(3):
        (run,) = await taken(store, now_ms=NOW + MINUTE)
        order.append(run.id)
        await _end(store, run.id)
    assert order == [first.id, third, second.id]
    assert (await view(store)).row.sequence == 3


async def test_a_job_without_waiting_runs_adds_no_instance(store: Store) -> None:
    of = asleep("morning", agent="report")
    await store.create_jobs([of])
    await _move(store, of, recipient=EU)
    assert await store.instance("default", "report", "eu") is None


async def test_waiting_signals_leave_the_mailbox_if_their_job_gets_another_target(store: Store) -> None:
    of = asleep("morning", agent="report")
    await store.create_jobs([of])
    first, second = _signal(of, NOW, trigger="user"), _signal(of, NOW + 1, trigger="user")
    await store.add_runs([first, second])
    (third,) = await given_sent(store, "eu")
    await _move(store, of, requires="", serial=True, lane="cron")
    seen = [await look(store, first), await look(store, second)]
    assert [(run.instance, run.signal, run.due_ms, run.serial) for run in seen] == [
        (None, None, NOW, True), (None, None, NOW + 1, True),
    ]  # fmt: skip
    assert [run.id for run in await taken(store)] == [first.id, third]


async def test_waiting_signals_follow_their_job_to_another_instance(store: Store) -> None:
    of = asleep("morning", agent="report")
    await store.create_jobs([of])
    first = _signal(of, NOW, trigger="user")
    await store.add_runs([first])
    (second,) = await given_sent(store, "eu")
    await _move(store, of, recipient=SignalRecipient(key_of("us"), "default", "report", "us", "report.other"))
    assert {run.id: (run.instance, run.signal) for run in await taken(store)} == {
        first.id: ("us", "report.other"),
        second: ("eu", "report.generate"),
    }


async def test_waiting_signals_get_the_type_that_their_job_has_now(store: Store) -> None:
    of = asleep("morning", agent="report")
    await store.create_jobs([of])
    await store.add_runs([_signal(of, NOW, trigger="user")])
    await _move(store, of, recipient=EU._replace(signal="report.other"))
    (run,) = await taken(store)
    assert run.signal == "report.other"
