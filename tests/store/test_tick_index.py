"""The index of ticks: new ones are neighbours in it, so that planning does not slow down with history."""

from __future__ import annotations

import re

from tests.support.databases import Database, PostgresDatabase, SqliteDatabase


async def test_the_index_of_ticks_begins_with_the_instant(database: Database) -> None:
    definition = await _definition(database)
    assert re.search(r"UNIQUE INDEX runs_tick ON .*\(scheduled_at, job_id\) WHERE", definition), definition


async def _definition(database: Database) -> str:
    if isinstance(database, SqliteDatabase):
        return str(database.rows("SELECT sql FROM sqlite_master WHERE name = 'runs_tick'")[0][0])
    import asyncpg

    assert isinstance(database, PostgresDatabase)
    connection = await asyncpg.connect(database.url)
    try:
        found = "SELECT indexdef FROM pg_indexes WHERE schemaname = 'wakeful' AND indexname = 'runs_tick'"
        return str(await connection.fetchval(found))
    finally:
        await connection.close()
