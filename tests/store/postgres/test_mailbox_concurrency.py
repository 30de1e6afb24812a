"""Mailboxes under concurrent transactions of two processes: one signal at a time, nothing lost, no deadlock.

A deadlock is resolved by a repetition, which these tests do not allow: it would hide a wrong lock order.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial

import asyncpg
import pytest

from tests.store.postgres.saying import say
from tests.support.factories import DAY, MINUTE, NOW, SECOND, alone, asleep, ended, job, plan_of, tick
from tests.support.instances import (
    HAS_REPORT,
    LANES,
    MAILBOX,
    agent_class,
    arrival,
    done,
    given_sent,
    key_of,
    new_instance,
    taken,
    view,
)
from wakeful.errors import FailedPrecondition, NotFound
from wakeful.run.instances import InstanceStatus, Send
from wakeful.run.outcome import Finished
from wakeful.run.run import NewRun
from wakeful.service.agents import instance_rules
from wakeful.store.instances import InstanceChange, InstanceRow
from wakeful.store.plans import DueJob, JobPlan
from wakeful.store.postgres import PostgresStore, connection, waiting_runs
from wakeful.store.postgres import leases as postgres_leases
from wakeful.store.rows import JobChange, JobRow, Move, RunFilter, SignalRecipient, TakenRun, UnfinishedRun

pytestmark = pytest.mark.usefixtures("classes")

ROUNDS = 20


@pytest.fixture(autouse=True)
def no_repetition(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a transaction that is aborted because of another one fail."""
    monkeypatch.setattr(connection, "_TRIES", 1)


def _count(run: TakenRun) -> int:
    return int(json.loads(run.data or "0"))


async def _set(store: PostgresStore, status: InstanceStatus, name: str = "eu") -> None:
    def change(row: InstanceRow | None, _: Sequence[JobRow]) -> InstanceChange:
        assert row is not None
        cancel = "stopped" if status == "stopped" else None
        return InstanceChange(row._replace(status=status), cancel=cancel, cancel_running=True)

    await store.change_instance("default", "report", name, NOW, change)


async def _together(*calls: Callable[[], Awaitable[object]]) -> None:
    """Run these calls at once, begun in a random order."""
    await asyncio.gather(*(call() for call in random.sample(calls, len(calls))))


async def _live(store: PostgresStore) -> list[str]:
    live = await store.runs(RunFilter("default", states=("pending", "running", "retrying"), limit=1000))
    return [run.id for run in live]


async def test_two_senders_and_two_workers_handle_one_signal_at_a_time_in_order(
    store: PostgresStore, other: PostgresStore
) -> None:
    each, running = 40, 0
    handled: list[str] = []

    async def send(by: PostgresStore) -> list[str]:
        return [run_id for _ in range(each) for run_id in await given_sent(by, "eu")]

    async def work(by: PostgresStore, name: str) -> None:
        nonlocal running
        while len(handled) < 2 * each:
            for run in await taken(by, name):
                running += 1
                assert running == 1
                await asyncio.sleep(0)
                running -= 1  # before the commit, after which the other worker may take the next one
                handled.append(run.id)
                outcome = done(run, data=json.dumps(_count(run) + 1))
                assert await by.finish(name, [outcome], alone) == {run.id}

    one, two, _, _ = await asyncio.gather(send(store), send(other), work(store, "w1"), work(other, "w2"))
    assert [run for run in handled if run in one] == one
    assert [run for run in handled if run in two] == two
    after = (await view(store)).row
    assert (after.data, after.revision, after.sequence) == (str(2 * each), 2 * each, 2 * each)
    assert await _live(store) == []


async def test_a_signal_that_arrives_while_the_one_before_is_taken_or_ended_is_not_lost(
    store: PostgresStore, other: PostgresStore
) -> None:
    for _ in range(ROUNDS):
        await given_sent(store, "eu")
        found: list[TakenRun] = []

        async def take(found: list[TakenRun] = found) -> None:
            found += await taken(other)

        await _together(lambda: given_sent(store, "eu"), take)
        (first,) = found  # a sender does not keep a worker from the run before
        await _together(lambda: given_sent(store, "eu"), partial(other.finish, "w1", [done(first)], alone))
        for _ in range(2):
            (run,) = await taken(store)
            await store.finish("w1", [done(run)], alone)
    assert await _live(store) == []


@pytest.mark.parametrize("status", ["paused", "stopped"])
async def test_a_pause_or_stop_that_meets_a_take_leaves_nothing_exposed(
    store: PostgresStore, other: PostgresStore, status: InstanceStatus
) -> None:
    for _ in range(ROUNDS):
        sent = await given_sent(store, "eu", "eu")
        found: list[TakenRun] = []

        async def take(found: list[TakenRun] = found) -> None:
            found += await taken(other)

        await _together(lambda: _set(store, status), take)
        assert await taken(other, "w2") == []
        if status == "stopped":
            assert await other.finish("w1", [done(run, data="1") for run in found], alone) == set()
            assert (await view(store)).row.data is None
            await _set(store, "active")
        else:
            await other.finish("w1", [done(run) for run in found], alone)
            assert await taken(other, "w2") == []
            await _set(store, "active")
            for expected in sent[len(found) :]:
                (run,) = await taken(other, "w2")
                assert run.id == expected
                await other.finish("w2", [done(run)], alone)
        assert await _live(store) == []


@pytest.mark.parametrize("status", ["paused", "stopped"])
async def test_a_pause_or_stop_that_meets_an_outcome_leaves_nothing_exposed(
    store: PostgresStore, other: PostgresStore, status: InstanceStatus
) -> None:
    for number in range(ROUNDS):
        await given_sent(store, "eu", "eu")
        (run,) = await taken(other)
        state = "retrying" if number % 2 else "succeeded"
        await _together(
            lambda: _set(store, status),
            partial(other.finish, "w1", [done(run, state, due_ms=NOW)], alone),
        )
        assert await taken(other) == []
        assert (await view(store)).active_run == (
            run.id if (state, status) == ("retrying", "paused") else None
        )
        await _set(store, "active")
        while taken_now := await taken(other):
            await other.finish("w1", [done(each) for each in taken_now], alone)
        assert await _live(store) == []


async def test_instances_that_send_to_each_other_in_both_orders_do_not_deadlock(
    store: PostgresStore, other: PostgresStore
) -> None:
    await store.put_class(agent_class(mailbox=100_000), NOW)
    names = [f"i{number}" for number in range(12)]
    await given_sent(store, *names)
    rounds, sent = 5, 0

    async def work(by: PostgresStore, worker: str, step: int) -> None:
        nonlocal sent
        for _ in range(rounds):
            runs = await by.take(NOW + MINUTE, worker, {"team": 6}, HAS_REPORT)
            outcomes = []
            for run in runs:
                place = names.index(str(run.instance))
                to = [names[(place + step * away) % len(names)] for away in (1, 5)]
                sends = tuple(Send("report", name, "report.generate", "{}") for name in to)
                outcomes.append(done(run, data=str(_count(run) + 1), sends=sends))
            written = await by.finish(worker, outcomes, alone)
            assert len(written) == len(outcomes)
            sent += 2 * len(written)

    await asyncio.gather(work(store, "w1", 1), work(other, "w2", -1), work(store, "w3", 7))
    handled = sum([int((await view(store, name)).row.data or 0) for name in names])
    assert sent == 2 * handled
    assert len(await _live(store)) == len(names) + sent - handled


async def test_senders_of_batches_in_opposite_orders_do_not_deadlock(
    store: PostgresStore, other: PostgresStore
) -> None:
    names = [f"i{number}" for number in range(20)]

    async def send(by: PostgresStore, order: list[str]) -> None:
        for _ in range(10):
            await by.send([arrival(name) for name in order], MAILBOX)

    await asyncio.gather(send(store, names), send(other, names[::-1]))
    assert {(await view(store, name)).row.sequence for name in names} == {20}
    assert len(await taken(store)) == len(names)


async def test_an_instance_is_added_once_by_two_that_start_it(
    store: PostgresStore, other: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_TRIES", 5)
    seen: list[bool] = []

    async def start(by: PostgresStore, name: str) -> None:
        def rule(row: InstanceRow | None, _: Sequence[JobRow]) -> InstanceChange | None:
            seen.append(row is None)
            return None if row is not None else InstanceChange(new_instance(name))

        found = await by.change_instance("default", "report", name, NOW, rule)
        assert found is not None

    for number in range(ROUNDS):
        await _together(partial(start, store, f"i{number}"), partial(start, other, f"i{number}"))
    assert seen.count(False) >= 1


async def test_taking_does_not_wait_for_a_sender(store: PostgresStore, other: PostgresStore) -> None:
    (first,) = await given_sent(store, "eu")
    held, go_on = asyncio.Event(), asyncio.Event()

    async def hold(db: object, events: object) -> None:
        await store._operations.instances.send(db, events, NOW, [arrival()], MAILBOX, None)  # type: ignore[arg-type]
        held.set()
        await go_on.wait()

    sender = asyncio.create_task(store._pool.write(hold))
    await held.wait()
    assert [run.id for run in await taken(other)] == [first]
    go_on.set()
    await sender
    assert await taken(other) == []


async def test_a_sender_waits_for_a_take_and_leaves_its_run_alone(
    store: PostgresStore, other: PostgresStore
) -> None:
    await given_sent(store, "eu", delay_ms=SECOND)
    held, go_on = asyncio.Event(), asyncio.Event()

    async def hold(db: object, events: object) -> list[TakenRun]:
        found = await postgres_leases.take(db, events, NOW + SECOND, "w1", LANES, HAS_REPORT)  # type: ignore[arg-type]
        held.set()
        await go_on.wait()
        return found

    taking = asyncio.create_task(store._pool.write(hold))
    await held.wait()
    sending = asyncio.create_task(given_sent(other, "eu"))  # it fires before the one that is being taken
    go_on.set()
    (run,) = await taking
    (second,) = await sending
    assert await taken(other, now_ms=NOW + SECOND) == []
    await store.finish("w1", [done(run)], alone)
    assert [each.id for each in await taken(other, now_ms=NOW + SECOND)] == [second]


async def test_rescue_and_outcomes_and_senders_do_not_deadlock(
    store: PostgresStore, other: PostgresStore
) -> None:
    names = [f"i{number}" for number in range(10)]

    def judge(run: UnfinishedRun) -> Finished:
        return Finished(
            run.id, run.job_id, run.attempt, "retrying", NOW, NOW, due_ms=NOW, instance_id=run.instance_id
        )

    for _ in range(5):
        await given_sent(store, *names)
        runs = await taken(store)
        await _together(
            lambda: other.rescue(NOW + DAY, NOW + DAY, 100, judge, alone),
            partial(store.finish, "w1", [done(run) for run in runs], alone),
            lambda: given_sent(other, *names[::-1]),
            lambda: store.release("w2", NOW),
        )
    while runs := await taken(store):
        await store.finish("w1", [done(run) for run in runs], alone)
    assert await _live(store) == []


def _signal_tick(of: JobRow | DueJob, at: int = NOW) -> NewRun:
    return tick(of, at, serial=False, due_ms=None, lane="team", requires="agent:default/report",
                instance_id=key_of(), instance="eu", signal="report.generate")  # fmt: skip


def _fire(due: DueJob) -> JobPlan:
    return plan_of(due, _signal_tick(due, due.next_ms))


async def test_planning_editing_and_failing_ticks_of_an_instance_do_not_deadlock(
    store: PostgresStore, other: PostgresStore
) -> None:
    digest = job("digest", agent="report")
    await store.create_jobs([digest])

    def edit(row: JobRow) -> JobChange:
        return JobChange(row._replace(updated_ms=NOW), withdraw="edited")

    for number in range(ROUNDS):
        at = NOW + number * DAY
        await store.plan(at, 10, _fire)
        runs = await taken(store, now_ms=at)
        outcomes = [
            ended(run, "failed" if number % 3 else "succeeded", instance_id=run.instance_id, error="no")
            for run in runs
        ]
        await _together(
            partial(store.finish, "w1", outcomes, alone),
            lambda: other.change_job(digest.id, edit),
            partial(other.plan, at + DAY, 10, _fire),
            lambda: other.send([arrival("us")], MAILBOX),
        )


async def test_a_cancelled_run_that_moved_before_it_was_locked_exposes_the_next(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def before_the_move(db: object, run_ids: object) -> list[str]:
        return []

    first, second = await given_sent(store, "eu", "eu")
    monkeypatch.setattr(waiting_runs, "lock_of_runs", before_the_move)
    await store.cancel_run(first, NOW, "no", running=False)
    assert [run.id for run in await taken(store)] == [second]


async def test_the_database_refuses_a_second_exposed_run(url: str, store: PostgresStore) -> None:
    first, second = await given_sent(store, "eu", "eu")
    with pytest.raises(asyncpg.UniqueViolationError, match="live_runs_exposed"):
        await say(url, f"UPDATE live_runs SET due_at = fire_at WHERE run_id = '{second}'")
    assert [run.id for run in await taken(store)] == [first]
    with pytest.raises(asyncpg.UniqueViolationError, match="live_runs_exposed"):
        await say(url, f"UPDATE live_runs SET state = 'running' WHERE run_id = '{second}'")


async def test_jobs_of_schedules_survive_a_stop_that_meets_a_start(
    store: PostgresStore, other: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_TRIES", 5)
    await given_sent(store, "eu")
    for number in range(ROUNDS):
        added = asleep(
            f"eu-{number}", agent="report", instance_id=key_of(), schedule_origin="declared",
            schedule_id=f"s{number}",
        )  # fmt: skip

        def start(row: InstanceRow | None, _: Sequence[JobRow], added: JobRow = added) -> InstanceChange:
            assert row is not None
            return InstanceChange(row._replace(status="active"), created=(added,))

        def stop(row: InstanceRow | None, jobs: Sequence[JobRow]) -> InstanceChange:
            assert row is not None
            gone = tuple(each.id for each in jobs)
            return InstanceChange(row._replace(status="stopped"), deleted=gone, cancel="stopped")

        await _together(
            partial(store.change_instance, "default", "report", "eu", NOW, start),
            lambda: other.change_instance("default", "report", "eu", NOW, stop),
        )
        found = await store.schedules(key_of())
        assert bool(found) is ((await view(store)).row.status == "active")
        await store.change_instance("default", "report", "eu", NOW, stop)
        assert await store.schedules(key_of()) == []


@pytest.mark.parametrize("erase", [False, True])
async def test_a_deletion_beside_a_handler_and_senders_leaves_a_whole_instance_or_none(
    store: PostgresStore, other: PostgresStore, erase: bool
) -> None:
    at, own = ("default", "report", "eu"), key_of()

    async def delete(by: PostgresStore) -> None:
        with suppress(NotFound):
            await by.change_instance(*at, NOW, instance_rules.delete(*at, NOW, erase=erase, has_runs=True))
        while await by.erase_instance(own, 2):
            pass

    async def send(by: PostgresStore) -> None:
        with suppress(FailedPrecondition):  # it is being deleted
            await given_sent(by, "eu")

    for _ in range(ROUNDS):
        await send(store)
        found = await taken(store)
        to_self = Send("report", "eu", "report.generate", "{}")
        outcomes = [done(run, data='{"a":1}', sends=(to_self,)) for run in found]
        await _together(
            partial(store.finish, "w1", outcomes, alone),
            partial(delete, other),
            partial(send, store),
            partial(delete, store),
        )
        live, row = await _live(store), await store.instance(*at)
        assert row is not None or live == []
        assert row is None or row.row.status == "active"
        assert len(await taken(store, "w2")) == (1 if live else 0)
        await delete(other)
        assert (await store.instance(*at), await _live(store)) == (None, [])
        assert await store.has_runs_of(own) is not erase
    assert await store.deleting_instances(5) == []


async def test_many_instances_that_start_in_opposite_orders_do_not_deadlock(
    store: PostgresStore, other: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_TRIES", 5)
    names = [f"i{number}" for number in range(30)]

    async def start(by: PostgresStore, order: list[str]) -> None:
        def rule(row: InstanceRow | None, _: Sequence[JobRow]) -> InstanceChange | None:
            return None if row is not None else InstanceChange(new_instance())

        rules = dict.fromkeys(order, rule)
        started = await by.change_instances("default", "report", NOW, rules, lambda changed: ())
        assert [each.row.name for each in started if each.row is not None] == order

    await _together(partial(start, store, names), partial(start, other, names[::-1]), *(
        partial(given_sent, by, *names) for by in (store, other)
    ))  # fmt: skip
    assert {(await view(store, name)).row.sequence for name in names} == {2}


async def test_jobs_that_move_between_mailboxes_do_not_block_senders_and_workers(
    store: PostgresStore, other: PostgresStore
) -> None:
    to = {
        name: SignalRecipient(key_of(name), "default", "report", name, "report.generate")
        for name in ("eu", "us")
    }
    jobs = [asleep(f"job-{number}", agent="report") for number in range(2)]
    await store.create_jobs(jobs)
    handled = 0

    async def add(of: JobRow, name: str) -> None:
        run = arrival(name).run._replace(job_id=of.id, job_name=of.name, trigger="user")
        await other.add_runs([run])

    async def move(by: PostgresStore, of: JobRow, name: str) -> None:
        change = Move("team", None, "agent:default/report", to[name])
        await by.change_job(of.id, lambda row: JobChange(row, move=change))

    async def work(by: PostgresStore, name: str) -> None:
        nonlocal handled
        runs = await taken(by, name)
        await by.finish(name, [done(run, sends=(_to("us"), _to("eu"))) for run in runs], alone)
        handled += len(runs)

    await store.put_class(agent_class(), NOW)
    for _ in range(ROUNDS):
        await _together(
            lambda: add(jobs[0], "eu"),
            lambda: add(jobs[1], "us"),
            lambda: move(store, jobs[0], "us"),
            lambda: move(other, jobs[1], "eu"),
            lambda: work(store, "w1"),
            lambda: work(other, "w2"),
        )
        await _together(lambda: move(store, jobs[0], "eu"), lambda: move(other, jobs[1], "us"))
    assert handled > 0
    for name in ("eu", "us"):
        found = await view(store, name)
        live = await store.runs(
            RunFilter("default", instance_id=key_of(name), states=("pending",), limit=1000)
        )
        assert found.waiting == len(live)
        assert len([run for run in live if run.due_ms is not None]) == (1 if live else 0)


def _to(instance: str) -> Send:
    return Send("report", instance, "report.ready", "{}")
