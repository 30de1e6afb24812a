"""The databases of the tests, with direct access that bypasses the store."""

from __future__ import annotations

import asyncio
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.factories import FalseClock
from tests.support.sqlite_files import fresh_file
from wakeful.store.port import Store
from wakeful.store.sqlite import SqliteStore


class Database(ABC):
    """The database of one test, with Wakeful's tables, and the stores that are open on it."""

    def __init__(self) -> None:
        self.clock = FalseClock()
        self._stores: list[Store] = []

    async def connect(self) -> Store:
        """Return another store on this database, as in another process."""
        store = self._store()
        await store.open()
        self._stores.append(store)
        return store

    async def close(self) -> None:
        """Close all stores."""
        for store in self._stores:
            await store.close()

    async def drop_index(self, columns: str) -> None:
        """Drop the unique index whose columns start with these, to test that a rule depends on it."""
        name = await asyncio.to_thread(self._unique_index, columns)
        await self.execute(f'DROP INDEX "{name}"')

    @abstractmethod
    def _store(self) -> Store: ...

    @abstractmethod
    def _unique_index(self, columns: str) -> str: ...

    @abstractmethod
    async def execute(self, statement: str) -> None:
        """Execute a statement."""

    @abstractmethod
    async def remove_schema(self) -> None:
        """Remove all tables, for tests of migrations."""


class SqliteDatabase(Database):
    """A new SQLite file."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = fresh_file(path)

    def _store(self) -> Store:
        return SqliteStore(self.path, clock=self.clock)

    def _unique_index(self, columns: str) -> str:
        found = self.rows(
            "SELECT name FROM sqlite_master WHERE sql LIKE 'CREATE UNIQUE INDEX%(' || ? || '%'", columns
        )
        return str(found[0][0])

    def rows(self, statement: str, *given: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        db = sqlite3.connect(self.path, isolation_level=None, timeout=10)
        try:
            return db.execute(statement, given).fetchall()
        finally:
            db.close()

    async def execute(self, statement: str) -> None:
        await asyncio.to_thread(self.rows, statement)

    async def remove_schema(self) -> None:
        self.path.unlink()


class PostgresDatabase(Database):
    """A PostgreSQL database."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url

    def _store(self) -> Store:
        from wakeful.store.postgres import PostgresStore

        return PostgresStore(self.url, clock=self.clock)

    def _unique_index(self, columns: str) -> str:
        return asyncio.run(self._ask(columns))

    async def _ask(self, columns: str) -> str:
        import asyncpg

        connection = await asyncpg.connect(self.url)
        try:
            found = "indexdef LIKE 'CREATE UNIQUE INDEX%(' || $1 || '%' AND indexname NOT LIKE '%_pkey'"
            return str(await connection.fetchval(f"SELECT indexname FROM pg_indexes WHERE {found}", columns))
        finally:
            await connection.close()

    async def execute(self, statement: str) -> None:
        import asyncpg

        connection = await asyncpg.connect(self.url)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    async def remove_schema(self) -> None:
        await self.execute("DROP SCHEMA wakeful CASCADE")


def postgres() -> PostgresDatabase:
    """Return a new PostgreSQL database; skip the test if there is no PostgreSQL."""
    return PostgresDatabase(_server().fresh_database())


@contextmanager
def lent_postgres() -> Iterator[PostgresDatabase]:
    """Yield a PostgreSQL database that other tests use too, each with the rows of a new one."""
    with _server().lent_database() as url:
        yield PostgresDatabase(url)


def _server() -> Any:
    pytest.importorskip("asyncpg", reason="PostgreSQL: its driver is not installed")
    pytest.importorskip("wakeful.store.postgres", reason="PostgreSQL: no store for it yet")
    return pytest.importorskip("tests.support.postgres_server", reason="PostgreSQL: no server for tests")
