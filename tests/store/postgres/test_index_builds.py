"""Indexes that are built after a migration, while replicas write: two at once, killed, cut off."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import asyncpg
import pytest

from tests.support import postgres_server
from tests.support.factories import jobless
from tests.support.paths import ROOT
from wakeful.service.admin.status import migrate_database
from wakeful.store.migrations import Migration, load
from wakeful.store.postgres import PostgresStore
from wakeful.store.postgres.schema import installed_schema, migrate

INDEX = "live_runs_of_workspace"
_IS_VALID = f"SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('wakeful.{INDEX}')"
_PENDING = "SELECT count(*) FROM wakeful.pending_indexes"
_BUILDERS = f"""
    SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND state = 'active'
        AND query LIKE 'CREATE INDEX CONCURRENTLY%' AND query LIKE '%{INDEX}%'
        AND query NOT LIKE '%pg_stat_activity%'"""
_REPLICA = """
import asyncio, sys
from wakeful.store.postgres import PostgresStore

async def main():
    store = PostgresStore(sys.argv[1])
    await store.open()
    await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_AGAIN_S", "_AFTER_ERROR_S"):
        monkeypatch.setattr(f"wakeful.store.postgres.index_builder.{name}", 0.05)


class Upgrade:
    """A database of schema 17, with a transaction that lets the build of an index wait."""

    def __init__(self, url: str, admin: asyncpg.Connection[asyncpg.Record]) -> None:
        self.url = url
        self._admin = admin
        self._stores: list[PostgresStore] = []

    async def begin(self) -> None:
        self._holder = await asyncpg.connect(self.url)
        self._transaction = self._holder.transaction()
        await self._transaction.start()
        await self._holder.execute("LOCK TABLE wakeful.live_runs IN ROW EXCLUSIVE MODE")

    async def let_build(self) -> None:
        await self._transaction.rollback()

    async def open(self) -> PostgresStore:
        store = PostgresStore(self.url)
        await store.open()
        self._stores.append(store)
        return store

    async def builders(self, number: int) -> list[int]:
        """Wait until so many statements build an index."""
        while True:
            pids = [pid for (pid,) in await self._admin.fetch(_BUILDERS)]
            if len(pids) == number:
                return pids
            await asyncio.sleep(0.01)

    async def value(self, statement: str, *args: object) -> object:
        return await self._admin.fetchval(statement, *args)

    async def built(self) -> None:
        """Wait until nothing is pending, and check the index."""
        while await self.value(_PENDING):
            await asyncio.sleep(0.01)
        assert await self.value(_IS_VALID) is True

    async def close(self) -> None:
        for store in self._stores:
            await store.close()
        await self._holder.close()
        await self._admin.close()


@pytest.fixture
async def upgrade() -> AsyncIterator[Upgrade]:
    url = postgres_server.empty_database()
    admin = await asyncpg.connect(url)
    await migrate(admin, "wakeful", load("postgres")[:17])
    made = Upgrade(url, admin)
    await made.begin()
    yield made
    await made.close()


@contextmanager
def replica(url: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run another process that opens the database."""
    process = subprocess.Popen([sys.executable, "-c", _REPLICA, url], cwd=ROOT)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def test_replicas_start_and_write_while_one_of_them_builds(upgrade: Upgrade) -> None:
    first, second = await asyncio.gather(upgrade.open(), upgrade.open())
    await upgrade.builders(1)
    for store in (first, second):
        await store.add_runs([jobless()])
    await asyncio.sleep(0.2)  # the other one has tried again
    assert len(await upgrade.builders(1)) == 1
    assert (await first.workspace_stats("default")).live == {"pending": 2}
    await upgrade.let_build()
    await asyncio.wait_for(asyncio.gather(first.build_indexes(), second.build_indexes()), 30)
    await upgrade.built()


async def test_the_server_completes_the_index_of_a_killed_process(upgrade: Upgrade) -> None:
    with replica(upgrade.url) as process:
        await upgrade.builders(1)
        process.kill()
        process.wait()
        store = await upgrade.open()
        await asyncio.sleep(0.2)
        assert len(await upgrade.builders(1)) == 1, "the server still builds, so nobody else does"
        assert await upgrade.value(_IS_VALID) is False
        await upgrade.let_build()
        await asyncio.wait_for(store.build_indexes(), 30)
    await upgrade.built()


async def test_an_index_that_was_cut_off_is_dropped_and_built_by_another(upgrade: Upgrade) -> None:
    with replica(upgrade.url) as process:
        (pid,) = await upgrade.builders(1)
        store = await upgrade.open()
        process.kill()
        process.wait()
        await upgrade.value("SELECT pg_terminate_backend($1)", pid)
        await upgrade.builders(0)
        assert await upgrade.value(_IS_VALID) is False
        await upgrade.let_build()
        await asyncio.wait_for(store.build_indexes(), 30)
    await upgrade.built()


async def test_a_store_that_closes_leaves_the_build_to_the_server(upgrade: Upgrade) -> None:
    store = PostgresStore(upgrade.url)
    await store.open()
    await upgrade.builders(1)
    await asyncio.wait_for(store.close(), 10)
    assert len(await upgrade.builders(1)) == 1
    await upgrade.let_build()
    await upgrade.builders(0)
    assert await upgrade.value(_IS_VALID) is True
    assert await upgrade.value(_PENDING) == 1
    await upgrade.open()
    await upgrade.built()


async def test_the_command_migrate_waits_for_the_indexes(upgrade: Upgrade) -> None:
    task = asyncio.create_task(migrate_database(upgrade.url))
    await upgrade.builders(1)
    assert not task.done()
    await upgrade.let_build()
    assert await asyncio.wait_for(task, 30) == load("postgres")[-1].number
    await upgrade.built()


async def test_an_empty_database_gets_its_indexes_at_once() -> None:
    connection = await asyncpg.connect(postgres_server.empty_database())
    await migrate(connection, "wakeful", load("postgres"))
    assert await connection.fetchval(_IS_VALID) is True
    assert await connection.fetchval(_PENDING) == 0
    await connection.close()


async def test_a_replica_waits_for_a_long_migration_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wakeful.store.postgres.connect.ANSWER_S", 0.5)
    url = postgres_server.empty_database()
    migrating = await asyncpg.connect(url)
    slow = [*load("postgres"), Migration(load("postgres")[-1].number + 1, "slow", "SELECT pg_sleep(2)")]
    monkeypatch.setattr("wakeful.store.postgres.connection.load", lambda _: slow)
    task = asyncio.create_task(migrate(migrating, "wakeful", slow))
    while not await _holds_lock(url):
        await asyncio.sleep(0.01)
    store = PostgresStore(url)
    await store.open()
    assert task.done()
    await store.close()
    assert await installed_schema(migrating, "wakeful") == slow[-1].number
    await migrating.close()


async def _holds_lock(url: str) -> bool:
    connection = await asyncpg.connect(url)
    try:
        return bool(
            await connection.fetchval(
                "SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database"
                " WHERE l.locktype = 'advisory' AND d.datname = current_database()"
            )
        )
    finally:
        await connection.close()
