"""Databases as earlier versions wrote them: `tests/store/fixtures/schema_N_*.sql`."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

from tests.support.databases import Database, PostgresDatabase, SqliteDatabase
from tests.support.factories import NOW
from tests.support.paths import ROOT
from wakeful.store.migrations import load
from wakeful.store.sqlite.schema import migrate as migrate_sqlite

FIXTURES = ROOT / "tests/store/fixtures"
#: The first schema with a fixture.
FIRST = 8

Rows = list[dict[str, Any]]


async def at_schema(database: Database, number: int) -> dict[str, Rows]:
    """Bring the database to this schema with the rows of the fixture. Returns every table as it is then."""
    await database.remove_schema()
    if isinstance(database, SqliteDatabase):
        await asyncio.to_thread(_sqlite_at_schema, database.path, number)
    else:
        await _postgres_at_schema(_url(database), number)
    return await tables_of(database)


async def tables_of(database: Database) -> dict[str, Rows]:
    """Return every table of the database, by name."""
    if isinstance(database, SqliteDatabase):
        return await asyncio.to_thread(_sqlite_tables, database.path)
    return await _postgres_tables(_url(database))


def _url(database: Database) -> str:
    assert isinstance(database, PostgresDatabase)
    return database.url


def _sqlite_at_schema(path: Path, number: int) -> None:
    db = sqlite3.connect(path, isolation_level=None)
    migrate_sqlite(db, load("sqlite")[:number], NOW)
    db.executescript((FIXTURES / f"schema_{number}_sqlite.sql").read_text())
    db.close()


def _sqlite_tables(path: Path) -> dict[str, Rows]:
    db = sqlite3.connect(path)
    db.row_factory = sqlite3.Row
    names = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    tables = {name: [dict(row) for row in db.execute(f"SELECT * FROM {name}")] for name in names}
    db.close()
    return tables


async def _postgres_at_schema(url: str, number: int) -> None:
    import asyncpg

    from wakeful.store.postgres.schema import migrate

    connection = await asyncpg.connect(url)
    await migrate(connection, "wakeful", load("postgres")[:number])
    await connection.execute((FIXTURES / f"schema_{number}_postgres.sql").read_text())
    await connection.close()


async def _postgres_tables(url: str) -> dict[str, Rows]:
    import asyncpg

    connection = await asyncpg.connect(url)
    names = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'wakeful'")
    tables = {
        name: [dict(row) for row in await connection.fetch(f"SELECT * FROM {name}")] for (name,) in names
    }
    await connection.close()
    return tables
