"""An operation that is cancelled at any await, or whose connection is cut at any statement, holds nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from tests.store.test_verifications import LEASE, report
from tests.support.databases import Database, PostgresDatabase, SqliteDatabase
from tests.support.effort import part
from tests.support.factories import NOW, alone, asked, asleep, ended, fire, held, job, look
from tests.support.instances import HAS_REPORT, LANES, MAILBOX, agent_class, arrival, done
from tests.support.interruptions import cancel_at_each_await
from tests.support.pull_runs import ME, YOU, claim_pairs, new_job, pulled
from tests.support.waiting import PATIENCE, eventually
from wakeful.errors import Unavailable
from wakeful.run.run import NewRun
from wakeful.run.signal_rules import Arrival
from wakeful.store.audit import AuditEntry
from wakeful.store.idempotency import AlreadyPerformed, Keyed
from wakeful.store.plans import TakeNext
from wakeful.store.port import Store
from wakeful.store.rows import JobFilter, RunFilter, TakenRun
from wakeful.store.sql.verifications import DueVerification

FREE = {"cron": 100}
_SECOND_CLAIM = "claim"


class _Work:
    """Something of each kind that operations take, and the operations."""

    def __init__(self, database: Database, store: Store, other: Store) -> None:
        self._database = database
        self.store = store
        #: another process
        self._other = other
        self._made = 0
        self._runs: list[NewRun] = []
        self._signal: Arrival = arrival()

    async def prepare(self) -> None:
        """Add work: a due job; runs that wait, wait for an executor, are prefetched, running, claimed and
        verified; an instance with two signals."""
        self._made += 1
        other = self._other
        of = await new_job(other, f"job-{self._made}")
        waits, prefetched, mine, reported = (asked(of, serial=False) for _ in range(4))
        pull, claimed = pulled(of), pulled(of)
        await other.add_runs([prefetched, claimed])
        await other.take(NOW, ME, {}, prefetch=FREE)
        await claim_pairs(other, NOW, ME, "default", None, None, 10, _SECOND_CLAIM)
        await other.create_jobs([job(f"due-{self._made}")])
        await other.add_runs([waits, pull, held(mine, ME), held(reported, ME)])
        await other.finish(ME, [report(await look(other, reported))], alone)
        name = f"instance-{self._made}"
        await other.send([arrival(name), arrival(name)], MAILBOX)
        self._signal = arrival(name, signal_id=f"signal-{self._made}")
        self._runs = [waits, prefetched, mine, reported, pull, claimed]

    # --- the operations ---------------------------------------------------------------------------

    async def plan(self) -> None:
        await self.store.plan(NOW, 10, fire)

    async def take(self) -> None:
        await self.store.take(NOW, ME, LANES, HAS_REPORT)

    async def prefetch(self) -> None:
        await self.store.take(NOW, ME, {}, HAS_REPORT, LANES)

    async def claim(self) -> None:
        await claim_pairs(self.store, NOW, ME, "default", None, None, 10)

    async def release_claims(self) -> None:
        await self.store.release_claims(NOW, "default", ME, (), _SECOND_CLAIM)

    async def finish_and_take(self) -> None:
        next_runs = TakeNext({}, HAS_REPORT, LANES, {})
        await self.store.finish_and_take(ME, [ended(self._runs[2])], alone, next_runs)

    async def release(self) -> None:
        await self.store.release(ME, NOW)

    async def send(self) -> None:
        await self.store.send([self._signal], MAILBOX)

    async def verify(self) -> None:
        await self._verify(self.store, ME, NOW)

    async def keyed(self) -> None:
        await self._create(self.store)

    # --- afterwards -------------------------------------------------------------------------------

    async def check(self) -> None:
        """Check that nothing of the store is in use, and that another process can do all the work."""
        other = self._other
        if isinstance(self._database, PostgresDatabase):  # the server may still execute what was cancelled
            await eventually(lambda: _has_no_statement(self._database))
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*(self.store.ping() for _ in range(3)))
            await other.plan(NOW, 10, fire)
            await other.finish(ME, [ended(run) for run in self._runs if run is not self._runs[3]], alone)
            await other.release(ME, NOW)
            await self._verify(other, YOU, NOW + LEASE)
            claimed = await claim_pairs(other, NOW, YOU, "default", None, None, 10)
            await other.finish(YOU, [ended(run) for run, _ in claimed], alone)
            (received,) = await other.send([self._signal], MAILBOX)
            # One signal of an instance at a time.
            while taken := await other.take(NOW, YOU, LANES, HAS_REPORT):
                await other.finish(YOU, [_end(run) for run in taken], alone)
            with contextlib.suppress(AlreadyPerformed):
                await self._create(other)
        _check_connections(self.store)
        finished = await other.runs_by_ids([*(run.id for run in self._runs), received.run.id])
        assert [run.state for run in finished] == ["succeeded"] * 7
        assert await other.runs(RunFilter("default", states=("pending", "retrying", "running"))) == []
        assert await other.next_wake_ms() != NOW, "the due job was planned"
        assert await other.next_verification_ms(0) is None
        assert (await other.audit_head("default"))[0] == self._made, "the keyed operation is performed once"
        assert len(await other.jobs(JobFilter("default", name=f"keyed-{self._made}"))) == 1

    async def _create(self, store: Store) -> None:
        name = f"keyed-{self._made}"
        entry = AuditEntry("default", "key:1", "job.create", name, "{}", None)
        keyed: Keyed[object] = Keyed("default", name, name, lambda _: (201, "done"))
        await store.create_jobs([asleep(name)], [entry], None, keyed)

    async def _verify(self, store: Store, worker: str, now_ms: int) -> None:
        due: list[DueVerification] = await store.take_verifications(
            now_ms, worker, HAS_REPORT, 0, 10, lambda verify: now_ms + LEASE
        )
        for each in due:
            await store.finish_verification(ended(each.run), alone, (worker, each.tries))


def _check_connections(store: Store) -> None:
    """Check that no connection of the store is in use, or in a transaction."""
    driver: Any = store._driver
    if store.kind == "sqlite":
        assert not driver._db.in_transaction
        assert not driver._read_db.in_transaction
    else:
        pool = driver._pool.pool
        assert pool.get_size() == pool.get_idle_size() + len(driver._pool._kept)
        assert not any(holder._con.is_in_transaction() for holder in pool._holders if holder._con)


class _CutConnection:
    """A connection that fails at its statement of this number, from 1."""

    def __init__(self, db: Any, number: int) -> None:
        self._db = db
        self._left = number

    @property
    def was_cut(self) -> bool:
        return self._left <= 0

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._db, name)
        if not name.startswith(("execute", "fetch")):
            return value

        def call(statement: str, *given: Any, **options: Any) -> Any:
            if not statement.startswith("ROLLBACK"):
                self._left -= 1
            if self._left == 0:
                if not isinstance(self._db, sqlite3.Connection):
                    self._db.terminate()
                elif not statement.startswith("ROLLBACK"):
                    error = sqlite3.OperationalError("disk I/O error")
                    error.sqlite_errorcode = sqlite3.SQLITE_IOERR
                    raise error
            return value(statement, *given, **options)

        return call


@contextlib.contextmanager
def _cutting(store: Store, number: int) -> Iterator[Callable[[], bool]]:
    """Cut each connection of the store at its statement of this number. Yields whether one was cut."""
    driver: Any = store._driver
    cut: list[_CutConnection] = []

    def cutting(db: Any) -> Any:
        cut.append(_CutConnection(db, number))
        return cut[-1]

    acquired, connected = getattr(driver, "_acquire", None), getattr(driver, "_write_connection", None)

    @contextlib.asynccontextmanager
    async def acquire(**options: bool) -> AsyncIterator[Any]:
        assert acquired is not None
        async with acquired(**options) as db:
            yield cutting(db)

    name = "_write_connection" if connected else "_acquire"
    setattr(driver, name, (lambda: cutting(connected())) if connected else acquire)
    try:
        yield lambda: any(each.was_cut for each in cut)
    finally:
        delattr(driver, name)


def _end(run: TakenRun) -> Any:
    return done(run) if run.instance_id is not None else ended(run)


async def _work(database: Database) -> _Work:
    if not isinstance(database, PostgresDatabase):
        work = _Work(database, await database.connect(), await database.connect())
    else:  # a cancelled statement may cost a connection
        plain = database.url
        database.url += f"{'&' if '?' in plain else '?'}pool_size=2"
        work = _Work(database, await database.connect(), await database.connect())
        database.url = plain
    await work.store.put_class(agent_class(), NOW)
    return work


_OPERATIONS = [
    _Work.plan, _Work.take, _Work.prefetch, _Work.claim, _Work.release_claims, _Work.finish_and_take,
    _Work.release, _Work.send, _Work.verify, _Work.keyed,
]  # fmt: skip
each_operation = pytest.mark.parametrize("operate", part(_OPERATIONS), ids=lambda each: each.__name__)


@each_operation
async def test_a_cancelled_operation_is_done_or_not_and_holds_nothing(
    database: Database, operate: Callable[[_Work], Any]
):
    work = await _work(database)
    assert await cancel_at_each_await(lambda: operate(work), work.check, prepare=work.prepare) >= 2


@each_operation
async def test_an_operation_that_loses_its_connection_is_done_or_not_and_holds_nothing(
    database: Database, operate: Callable[[_Work], Any]
):
    work = await _work(database)
    for number in range(1, 100):
        await work.prepare()
        with _cutting(work.store, number) as was_cut, contextlib.suppress(Unavailable):
            await operate(work)
        await work.check()
        if not was_cut():
            break
    assert number > 1


def _open_files() -> list[str]:
    return [os.path.realpath(f"/proc/self/fd/{each}") for each in os.listdir("/proc/self/fd")]


async def _count_connections(database: Database) -> int:
    """Return how many connections there are to the database."""
    if isinstance(database, SqliteDatabase):
        return _open_files().count(str(database.path))
    return await _count_others(database, "application_name <> 'wakeful tests'")


async def _has_no_statement(database: Database) -> bool:
    """Return whether no connection to the database executes a statement."""
    return await _count_others(database, "state = 'active'") == 0


async def _count_others(database: Database, condition: str) -> int:
    """Return how many other connections to a PostgreSQL database match a condition."""
    import asyncpg

    assert isinstance(database, PostgresDatabase)
    connection = await asyncpg.connect(database.url)
    try:
        statement = f"""
            SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database() AND backend_type = 'client backend'
              AND pid <> pg_backend_pid() AND {condition}"""
        return int(await connection.fetchval(statement))
    finally:
        await connection.close()


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
@pytest.mark.parametrize("operation", ["open", "close"])
async def test_a_store_that_is_cancelled_while_it_opens_or_closes_leaves_no_connection(
    database: Database, operation: str
):
    await database.connect()  # the schema
    await database.close()
    stores = [database._store()]

    async def prepare() -> None:
        stores[0] = database._store()
        if operation == "close":
            await stores[0].open()
            await stores[0].ping()

    async def operate() -> None:
        if operation == "open":
            await stores[0].open()
        await stores[0].close()

    async def check() -> None:
        async def is_closed() -> bool:
            return await _count_connections(database) == 0

        await eventually(is_closed)

    assert await cancel_at_each_await(operate, check, prepare=prepare) >= 2
