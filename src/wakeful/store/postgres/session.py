"""Statements that both databases run, in PostgreSQL. See `store/sql/driver.py`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from asyncpg import LockNotAvailableError, UniqueViolationError

from wakeful.store.sql.driver import Duplicate, LockTimeout, Row

if TYPE_CHECKING:
    import asyncpg
    from asyncpg.pool import PoolConnectionProxy

    Db: TypeAlias = PoolConnectionProxy[asyncpg.Record]


class PostgresSession:
    """A transaction on a PostgreSQL connection."""

    def __init__(self, db: Db) -> None:
        self._db = db

    async def rows(self, statement: str, *args: object) -> Sequence[Row]:
        """Return all rows."""
        return await self._db.fetch(statement, *args)

    async def row(self, statement: str, *args: object) -> Row | None:
        """Return the first row."""
        return await self._db.fetchrow(statement, *args)

    async def execute(self, statement: str, *args: object) -> int:
        """Return the number of rows that were written."""
        try:
            status = await self._db.execute(statement, *args)
        except UniqueViolationError as error:
            raise Duplicate(str(error)) from error
        except LockNotAvailableError as error:
            raise LockTimeout(f"cannot use the database: {error}") from error
        return int(status.rpartition(" ")[2])  # 'INSERT 0 1', 'UPDATE 2'

    async def execute_many(self, statement: str, rows: Iterable[Sequence[object]]) -> None:
        """Execute the statement once for each row of arguments."""
        await self._db.executemany(statement, rows)

    async def lock_table(self, table: str) -> None:
        """Keep other transactions from writing to the table until the end of this one."""
        await self._db.execute(f"LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE")

    async def lock_name(self, name: str) -> None:
        """Wait until no other transaction holds the lock of this name; hold it until the end of this one."""
        await self._db.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", name)
