"""A database that the code of schema 8 wrote: after the migration nothing is lost, and its jobs fire.

`fixtures/schema_8_*.sql` holds the rows that the code of that version wrote, through its own stores.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.databases import Database, SqliteDatabase
from tests.support.factories import NOW, alone, asleep, ended, look, plan_of, tick
from wakeful.store.idempotency import AlreadyPerformed, InProgress, Keyed
from wakeful.store.migrations import load
from wakeful.store.port import Store
from wakeful.store.rows import RunFilter
from wakeful.store.sqlite.connection import migrate as migrate_sqlite

FIXTURES = Path(__file__).parent / "fixtures"
RENAMED = {
    "answers": "idempotency_keys",
    "holds": "budget_blocks",
    "alerted": "alert_cooldowns",
    "live": "live_runs",
}
DAY_NUMBER = NOW // 86_400_000

Rows = list[dict[str, Any]]


async def at_schema_8(database: Database) -> dict[str, Rows]:
    """Bring the database to schema 8 with the rows of the fixture. Returns every table as it is then."""
    if isinstance(database, SqliteDatabase):
        return await asyncio.to_thread(_sqlite_at_schema_8, database.path)
    return await _postgres_at_schema_8(database.url)  # type: ignore[attr-defined]


def _sqlite_at_schema_8(path: Path) -> dict[str, Rows]:
    db = sqlite3.connect(path, isolation_level=None)
    migrate_sqlite(db, load("sqlite")[:8], NOW)
    db.executescript((FIXTURES / "schema_8_sqlite.sql").read_text())
    db.close()
    return _sqlite_tables(path)


def _sqlite_tables(path: Path) -> dict[str, Rows]:
    db = sqlite3.connect(path)
    db.row_factory = sqlite3.Row
    names = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    tables = {name: [dict(row) for row in db.execute(f"SELECT * FROM {name}")] for name in names}
    db.close()
    return tables


async def _postgres_at_schema_8(url: str) -> dict[str, Rows]:
    import asyncpg

    from wakeful.store.postgres.connection import migrate

    connection = await asyncpg.connect(url)
    await connection.execute("DROP SCHEMA IF EXISTS wakeful CASCADE")  # the template is up to date
    await migrate(connection, "wakeful", load("postgres")[:8])
    await connection.execute((FIXTURES / "schema_8_postgres.sql").read_text())
    await connection.close()
    return await _postgres_tables(url)


async def _postgres_tables(url: str) -> dict[str, Rows]:
    import asyncpg

    connection = await asyncpg.connect(url)
    names = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'wakeful'")
    tables = {
        name: [dict(row) for row in await connection.fetch(f"SELECT * FROM {name}")] for (name,) in names
    }
    await connection.close()
    return tables


async def tables_of(database: Database) -> dict[str, Rows]:
    """Every table of the database, by name."""
    if isinstance(database, SqliteDatabase):
        return await asyncio.to_thread(_sqlite_tables, database.path)
    return await _postgres_tables(database.url)  # type: ignore[attr-defined]


def named(tables: Mapping[str, Rows]) -> dict[str, Rows]:
    """The tables of schema 8 under the names that they have now."""
    return {
        RENAMED.get(name, name): rows
        for name, rows in tables.items()
        if name not in ("schema_version", "sqlite_sequence")
    }


async def test_every_row_is_there_after_the_migration(database: Database) -> None:
    before = named(await at_schema_8(database))
    await database.connect()
    after = await tables_of(database)
    assert all(before[name] for name in RENAMED.values() if name in before), "the fixture fills each of them"
    assert all(before[name] for name in ("jobs", "runs", "attempts", "sessions", "messages", "turns"))
    assert not RENAMED.keys() & after.keys()
    for name, rows in before.items():
        shared = rows[0].keys() & after[name][0].keys() if rows else set()
        assert _sorted(rows, shared) == _sorted(after[name], shared), name


def _sorted(rows: Rows, columns: set[str]) -> list[str]:
    return sorted(repr([row[column] for column in sorted(columns)]) for row in rows)


@pytest.mark.parametrize("table", ["idempotency_keys", "budget_blocks", "alert_cooldowns"])
async def test_a_renamed_table_keeps_its_unique_key(database: Database, table: str) -> None:
    await at_schema_8(database)
    await database.connect()
    with pytest.raises(Exception, match=r"(?i)unique"):
        await database.execute(f"INSERT INTO {table} SELECT * FROM {table} LIMIT 1")


async def test_indexes_are_named_after_their_tables(database: Database) -> None:
    await at_schema_8(database)
    await database.connect()
    if isinstance(database, SqliteDatabase):
        found = database.rows("SELECT name, tbl_name FROM sqlite_master WHERE type = 'index'")
        indexes = [(name, table) for name, table in found if not name.startswith("sqlite_autoindex")]
    else:
        indexes = await _postgres_indexes(database.url)  # type: ignore[attr-defined]
    assert [name for name, table in indexes if not name.startswith(table)] == []


async def _postgres_indexes(url: str) -> list[tuple[str, str]]:
    import asyncpg

    connection = await asyncpg.connect(url)
    rows = await connection.fetch("SELECT indexname, tablename FROM pg_indexes WHERE schemaname = 'wakeful'")
    await connection.close()
    return [(row[0], row[1]) for row in rows]


async def test_responses_blocks_and_cooldowns_are_still_known(database: Database) -> None:
    await at_schema_8(database)
    store = await database.connect()
    again: Keyed[None] = Keyed("default", "key:1 create", "f1", lambda _: (500, ""))
    with pytest.raises(AlreadyPerformed) as performed:
        await store.create_jobs([asleep("another")], keyed=again)
    assert (performed.value.response.status, performed.value.response.body) == (201, '{"name":"keyed"}')
    with pytest.raises(InProgress):
        await store.create_jobs(
            [asleep("another")], keyed=replace(again, key="key:1 unfinished", fingerprint="f2")
        )
    assert [(block.cap, block.most) for block in await store.budget_blocks(DAY_NUMBER)] == [
        ("tokensPerDay", 5.0)
    ]


async def test_due_jobs_fire_and_waiting_runs_start(database: Database) -> None:
    await at_schema_8(database)
    store = await database.connect()
    planned = await store.plan(NOW, 100, lambda due: plan_of(due, tick(due, serial=False)))
    assert [run.job_name for run in planned.runs] == ["digest"]
    taken = await store.take(NOW, "w2", {"cron": 100})
    assert sorted(str(run.job_name) for run in taken) == ["digest", "quiet"]
    outcomes = [ended(run) for run in taken]
    assert await store.finish("w2", outcomes, alone) == {run.id for run in taken}
    assert [(await look(store, run)).state for run in taken] == ["succeeded"] * 2


async def test_executors_claim_what_waits_for_them(database: Database) -> None:
    await at_schema_8(database)
    store = await database.connect()
    claimed = await store.claim(NOW + 1_000, "pull:gpu", "default", None, None, 100)
    assert sorted(str(run.view.job_name) for run in claimed) == ["None", "next-pull"]
    held = await _claimed_before(store)
    renewed = await store.renew(NOW, "default", [held])
    assert [run.id for run in renewed] == [held[0]]


async def _claimed_before(store: Store) -> tuple[str, int]:
    """The run that an executor had claimed before the migration."""
    found = [run for run in await store.runs(RunFilter("default")) if run.job_name == "pull"]
    (run,) = [run for run in found if run.state == "running"]
    return run.id, run.attempt
