"""Concurrent transactions on one PostgreSQL database: locking, waiting and retries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import asyncpg
import pytest

from tests.store.postgres.saying import say
from tests.store.test_verifications import given_reported
from tests.support.factories import (
    DAY,
    NOW,
    SECOND,
    FalseClock,
    alone,
    asked,
    asleep,
    ended,
    fire,
    given_held,
    held,
    job,
    start,
)
from tests.support.notifications import NotificationRecorder
from tests.support.waiting import PATIENCE
from wakeful.agents.sessions import receive, start_turns
from wakeful.errors import Unavailable
from wakeful.job.start_rules import NO_CAPABILITIES
from wakeful.run.consequences import consequences
from wakeful.store.changelog import TransactionEvents
from wakeful.store.plans import DueJob
from wakeful.store.port import Store
from wakeful.store.postgres import PostgresStore
from wakeful.store.postgres import jobs as postgres_jobs
from wakeful.store.postgres import leases as postgres_running
from wakeful.store.postgres import planning as postgres_planning
from wakeful.store.postgres import runs as postgres_runs
from wakeful.store.postgres.outcomes import finish
from wakeful.store.postgres.session import Db
from wakeful.store.rows import JobChange, Move, RunFilter
from wakeful.store.sessions import HEARTBEAT, HEARTBEAT_LABELS, WAKE_JOB, SessionKey, SessionMessage
from wakeful.values.ids import id_at

T = TypeVar("T")


@asynccontextmanager
async def _in_the_middle(
    store: PostgresStore, work: Callable[[Db, TransactionEvents], Awaitable[T]]
) -> AsyncIterator[list[T]]:
    """Keep a transaction that has done this work open while the body runs."""
    done: list[T] = []
    ready, go_on = asyncio.Event(), asyncio.Event()

    async def pause(db: Db, events: TransactionEvents) -> None:
        done.append(await work(db, events))
        ready.set()
        await go_on.wait()

    task = asyncio.create_task(store._pool.write(pause))
    await ready.wait()
    try:
        yield done
    finally:
        go_on.set()
        await task


async def test_an_older_run_added_while_a_run_starts_waits_for_it(
    store: PostgresStore, other: PostgresStore
) -> None:
    digest = asleep()
    await store.create_jobs([digest])
    first, older = asked(digest, NOW), asked(digest, NOW - SECOND)
    await store.add_runs([first])
    async with _in_the_middle(
        store, lambda db, events: postgres_running.take(db, events, NOW, "w1", {"cron": 9}, NO_CAPABILITIES)
    ) as (taken,):
        assert [run.id for run in taken] == [first.id]
        await other.add_runs([older])
        assert await other.take(NOW, "w2", {"cron": 9}) == []
    assert await other.take(NOW, "w2", {"cron": 9}) == []
    await store.finish("w1", [ended(first)], alone)
    assert [run.id for run in await other.take(NOW, "w2", {"cron": 9})] == [older.id]


async def test_no_run_of_a_job_starts_while_the_job_is_planned(
    store: PostgresStore, other: PostgresStore
) -> None:
    digest = job()
    await store.create_jobs([digest])
    recorder = NotificationRecorder()
    other.listen(recorder)
    async with _in_the_middle(
        store, lambda db, events: postgres_planning.plan(db, events, NOW, NOW, 9, start("w1"))
    ) as (planned,):
        assert len(planned.runs) == 1
        await other.add_runs([asked(digest)])
        assert await other.take(NOW, "w2", {"cron": 9}) == []
        assert (await other.plan(NOW, 9, fire)).claimed == 0
    assert await other.take(NOW, "w2", {"cron": 9}) == []


async def test_a_worker_that_finds_a_job_locked_by_a_planner_is_notified_later(
    store: PostgresStore, other: PostgresStore
) -> None:
    digest = job()
    await store.create_jobs([digest])
    await store.add_runs([asked(digest)])
    recorder = NotificationRecorder()
    async with _in_the_middle(
        store, lambda db, events: postgres_planning.plan(db, events, NOW, NOW, 9, lambda due: None)
    ):
        other.listen(recorder)
        assert await other.take(NOW, "w2", {"cron": 9}) == []
    await recorder.next_event("runs")
    assert len(await other.take(NOW, "w2", {"cron": 9})) == 1


async def test_a_job_is_not_planned_while_a_run_of_it_starts(
    store: PostgresStore, other: PostgresStore
) -> None:
    digest = job()
    await store.create_jobs([digest])
    await store.add_runs([asked(digest)])
    async with _in_the_middle(
        store, lambda db, events: postgres_running.take(db, events, NOW, "w1", {"cron": 9}, NO_CAPABILITIES)
    ) as (taken,):
        assert len(taken) == 1
        assert (await other.plan(NOW, 9, fire)).claimed == 0
    seen: list[DueJob] = []
    await other.plan(NOW, 9, lambda due: seen.append(due))
    assert [due.running for due in seen] == [(taken[0].id,)]


async def test_two_runs_of_a_serial_job_never_run_concurrently(url: str) -> None:
    """Four stores plan, add, take and finish concurrently; a unique index checks the rule."""
    stores = [PostgresStore(url, clock=FalseClock()) for _ in range(4)]
    for store in stores:
        await store.open()
    await say(url, "CREATE UNIQUE INDEX one_at_a_time ON live_runs (job_id) WHERE state = 'running'")
    jobs = [job(f"job-{n}") for n in range(3)]
    await stores[0].create_jobs(jobs)
    started: dict[str, list[int]] = {row.id: [] for row in jobs}

    async def work(store: Store, worker: str) -> None:
        for turn in range(15):
            planned = await store.plan(
                NOW + 15 * DAY,
                2,
                lambda due: start(worker)(due) if not (due.running or due.waiting) else fire(due),
            )
            running = [held(run) for run in planned.runs if run.state == "running"]
            # added now with an earlier tick than all others: it must not overtake a run that is starting
            await store.add_runs([asked(jobs[turn % 3], NOW - turn * SECOND)])
            taken = await store.take(NOW + 30 * DAY, worker, {"cron": 3})
            for run in taken:
                started[run.job_id or ""].append(run.scheduled_ms)
            await store.finish(worker, [ended(run) for run in running], alone)
            await store.finish(worker, [ended(run) for run in taken], alone)

    await asyncio.gather(*(work(store, f"w{n}") for n, store in enumerate(stores)))
    while taken := await stores[0].take(NOW + 30 * DAY, "w0", {"cron": 3}):
        await stores[0].finish("w0", [ended(run) for run in taken], alone)
    runs = await stores[0].runs(RunFilter("default", limit=10_000))
    assert {run.state for run in runs} == {"succeeded"}
    assert len(runs) >= 60
    for store in stores:
        await store.close()


@pytest.mark.parametrize("call", ["write", "write_one"])
async def test_a_transaction_that_loses_a_deadlock_is_retried(store: PostgresStore, call: str) -> None:
    tried = []

    async def work(*_: object) -> str:
        tried.append(1)
        if len(tried) < 3:
            raise asyncpg.DeadlockDetectedError("deadlock detected")
        return "done"

    assert await getattr(store._pool, call)(work) == "done"
    assert len(tried) == 3


async def test_a_transaction_that_always_deadlocks_fails_with_unavailable(store: PostgresStore) -> None:
    async def work(db: object, events: object) -> None:
        raise asyncpg.DeadlockDetectedError("deadlock detected")

    with pytest.raises(Unavailable, match=r"5 tries.*deadlock detected.*try again"):
        await store._pool.write(work)


async def test_waiting_too_long_for_a_lock_fails_with_unavailable(
    store: PostgresStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = job()
    await store.create_jobs([digest])
    connection = await asyncpg.connect(url)
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute("SELECT FROM cursors FOR UPDATE")
    async with store._pool._acquire() as db:
        await db.execute("SET lock_timeout = '50ms'")
        before = await db.fetchval("SELECT pg_backend_pid()")
    with pytest.raises(Unavailable, match="lock timeout"):
        await store.change_job(digest.id, lambda row: None)
    async with store._pool._acquire() as db:
        assert await db.fetchval("SELECT pg_backend_pid()") == before, "a lock ends no connections"
    assert (await store.plan(NOW, 10, fire)).claimed == 0  # planners skip locked jobs
    await transaction.rollback()
    await connection.close()
    assert (await store.plan(NOW, 10, fire)).claimed == 1


@pytest.mark.parametrize("added", ["follow-up", "heartbeat", "manual"])
async def test_a_run_that_is_added_beside_an_edit_of_its_job_moves_with_it(
    store: PostgresStore, other: PostgresStore, url: str, added: str
) -> None:
    _, first = await given_held(store, name="first")
    name, fields = {
        "follow-up": ("then", {"after_job": "first", "after_on": "succeeded"}),
        "heartbeat": (HEARTBEAT, {"labels": HEARTBEAT_LABELS}),
        "manual": ("then", {}),
    }[added]
    then = job(name, timing=None, next_ms=None, wake_ms=None, **fields)
    await store.create_jobs([then])

    async def add(db: Db, events: TransactionEvents) -> object:
        if added == "manual":
            return await postgres_runs.add_runs(db, events, NOW, [asked(then)])
        outcome = ended(first, wake_heartbeat=added == "heartbeat")
        return await finish(db, events, FalseClock(), NOW, "w1", [outcome], consequences)

    watcher = await asyncpg.connect(url)
    waiting = """
        SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'"""
    move = Move("night", None, "", None, serial=False)
    work = '{"target":{"kind":"echo"},"lane":"night"}'
    async with _in_the_middle(store, add):
        edit = asyncio.create_task(
            other.change_job(then.id, lambda row: JobChange(row._replace(work=work), move=move))
        )
        while not edit.done() and not await watcher.fetchval(waiting):
            await asyncio.sleep(0.01)
    await watcher.close()
    await edit
    (run,) = await store.runs(RunFilter("default", job_id=then.id))
    assert (run.state, run.lane) == ("pending", "night")


async def test_a_stop_waits_for_the_verification_before_it_locks_the_run(
    store: PostgresStore, other: PostgresStore, url: str
) -> None:
    run = await given_reported(store)

    async def hold(db: Db, _: TransactionEvents) -> None:
        await db.execute("SELECT FROM verifications WHERE run_id = $1 FOR UPDATE", run.id)

    watcher = await asyncpg.connect(url)
    waiting = """
        SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'"""
    async with _in_the_middle(other, hold):
        stopping = asyncio.create_task(store.cancel_run(run.id, NOW, "stopped", running=True))
        while not await watcher.fetchval(waiting):
            await asyncio.sleep(0.01)
        free = await watcher.fetchval(
            "SELECT count(*) FROM (SELECT FROM wakeful.runs WHERE id = $1 FOR UPDATE SKIP LOCKED) r", run.id
        )
    await watcher.close()
    assert free == 1, "the check that ends meanwhile can lock the run"
    stopped = await stopping
    assert stopped is not None
    assert (stopped.state, await store.verification(run.id)) == ("cancelled", None)


async def test_the_engine_waits_for_no_requests(store: PostgresStore) -> None:
    await store.create_jobs([job()])
    go_on = asyncio.Event()

    async def read(_: Db) -> None:
        await go_on.wait()

    requests = [asyncio.create_task(store._pool.read(read)) for _ in range(30)]
    try:
        async with asyncio.timeout(PATIENCE):  # a call that waits for a connection is refused after 10 s
            await store.beat("w1", NOW, ())
            assert await store.budget_owners() == set()
            (run,) = (await store.plan(NOW, 10, start("w1"))).runs
            assert await store.finish("w1", [ended(run)], alone) == {run.id}
    finally:
        go_on.set()
        await asyncio.gather(*requests, return_exceptions=True)


async def test_a_call_that_waits_when_the_store_is_closed_is_refused(store: PostgresStore) -> None:
    go_on = asyncio.Event()

    async def read(_: Db) -> None:
        await go_on.wait()

    requests = [asyncio.create_task(store._pool.read(read)) for _ in range(30)]
    await asyncio.sleep(0.5)
    closing = asyncio.create_task(store._pool.close())
    await asyncio.sleep(0)
    go_on.set()
    results = await asyncio.gather(*requests, return_exceptions=True)
    await closing
    assert {type(each) for each in results} == {type(None), Unavailable}


@pytest.mark.parametrize("debounce_ms", [0, 800])
async def test_a_turn_has_the_target_that_is_being_changed(
    store: PostgresStore, other: PostgresStore, url: str, debounce_ms: int
) -> None:
    """Else it would wait where the target was before: the transaction that changes it does not see it."""
    wake = asleep(name=WAKE_JOB, policy="{}", work="{}")
    await store.create_jobs([wake])
    await say(url, "UPDATE wakeful.agents SET queue = $1", f'{{"debounceMs":{debounce_ms}}}')
    move = Move("night", None, "", None, serial=False)
    later = NOW + SECOND
    message = SessionMessage(id_at(NOW), "hello", "ada", "user", NOW)

    async def send() -> None:
        key = SessionKey(wake.workspace, wake.agent, "main")
        await other.update_session(key, NOW, lambda session: receive(session, message, NOW, None))

    async def take() -> None:
        await other.take_turns(later, 9, lambda session: start_turns(session, later))

    async def change(db: Db, events: TransactionEvents) -> None:
        new = JobChange(wake._replace(work='{"lane":"night"}'), move=move)
        await postgres_jobs.change_job(db, events, store.clock, wake.id, lambda row: new)

    if debounce_ms:
        await send()
    async with _in_the_middle(store, change):
        starting = asyncio.create_task(take() if debounce_ms else send())
        await asyncio.wait({starting}, timeout=0.5)
        assert await other.runs(RunFilter("default")) == []
    await starting
    await take()
    (run,) = await store.runs(RunFilter("default"))
    assert run.lane == "night"
