"""A migration while a replica of the version before it works."""

from __future__ import annotations

import asyncio

import asyncpg

from tests.support import postgres_server
from wakeful.store.migrations import load
from wakeful.store.postgres.schema import installed_schema, migrate

_WAITING = """
    SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database
    WHERE NOT l.granted AND l.relation = 'wakeful.runs'::regclass AND d.datname = current_database()"""


async def test_a_migration_that_a_deadlock_aborts_is_repeated() -> None:
    url = postgres_server.empty_database()
    migrating, early, late = [await asyncpg.connect(url) for _ in range(3)]
    await migrate(migrating, "wakeful", load("postgres")[:16])
    await migrating.execute("SET deadlock_timeout = '50ms'")
    await late.execute("SET deadlock_timeout = '60s'; SET search_path = wakeful")
    async with early.transaction():
        await early.execute("SELECT FROM wakeful.runs")
        task = asyncio.create_task(migrate(migrating, "wakeful", load("postgres")))
        await _until_waiting(early, 1)

        async def replica() -> None:
            async with late.transaction():
                await late.execute("SELECT FROM workspaces")
                await late.execute("SELECT FROM runs")  # waits for the migration

        other = asyncio.create_task(replica())
        await _until_waiting(early, 2)
    await asyncio.gather(task, other)
    assert await installed_schema(migrating, "wakeful") == load("postgres")[-1].number
    for connection in (migrating, early, late):
        await connection.close()


async def _until_waiting(connection: asyncpg.Connection[asyncpg.Record], count: int) -> None:
    """Wait until so many statements wait for the table of runs."""
    while await connection.fetchval(_WAITING) < count:
        await asyncio.sleep(0.01)
