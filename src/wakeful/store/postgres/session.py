"""Transactions in PostgreSQL, with the statements that both databases run (`store/sql/driver.py`)."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias

import asyncpg
from asyncpg import LockNotAvailableError, UniqueViolationError
from asyncpg.pool import PoolConnectionProxy

from wakeful.store.sql.driver import Duplicate, LockTimeout, Row, Statement

#: A connection of the pool.
Db: TypeAlias = "PoolConnectionProxy[asyncpg.Record]"

#: Each statement is planned once for each connection: that takes as long as to execute it with a few rows.
#: The tests check that the plan is good for any arguments.
_BEGIN: Final = "BEGIN; SET LOCAL plan_cache_mode = force_generic_plan"
#: The ticks of one job may take a tenth of a second to compute.
_LONGEST_S: Final = 0.02


class PostgresSession:
    """A transaction on a PostgreSQL connection."""

    def __init__(self, db: Db) -> None:
        self._db = db

    async def rows(self, statement: Statement, *args: object) -> Sequence[Row]:
        """Return all rows."""
        return await self._db.fetch(_text(statement), *args)

    async def row(self, statement: Statement, *args: object) -> Row | None:
        """Return the first row."""
        return await self._db.fetchrow(_text(statement), *args)

    async def column(self, statement: Statement, *args: object) -> list[Any]:
        """Return the first column of all rows."""
        return [row[0] for row in await self._db.fetch(_text(statement), *args)]

    async def value(self, statement: Statement, *args: object) -> Any:
        """Return the first column of the first row; None: there is no row."""
        return await self._db.fetchval(_text(statement), *args)

    async def execute(self, statement: Statement, *args: object) -> int:
        """Return the number of rows that were written."""
        try:
            status = await self._db.execute(_text(statement), *args)
        except UniqueViolationError as error:
            raise Duplicate(str(error)) from error
        except LockNotAvailableError as error:
            raise LockTimeout(f"cannot use the database: {error}") from error
        return int(status.rpartition(" ")[2])  # 'INSERT 0 1', 'UPDATE 2'

    async def execute_many(self, statement: Statement, rows: Iterable[Sequence[object]]) -> None:
        """Execute the statement once for each row of arguments."""
        await self._db.executemany(_text(statement), rows)

    async def lock_table(self, table: str) -> None:
        """Keep other transactions from writing to the table until the end of this one."""
        await self._db.execute(f"LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE")

    async def lock_name(self, name: str) -> None:
        """Wait until no other transaction holds the lock of this name; hold it until the end of this one."""
        await self._db.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", name)


def _text(statement: Statement) -> str:
    return statement if isinstance(statement, str) else statement.postgresql


@asynccontextmanager
async def transaction(db: Db) -> AsyncIterator[None]:
    """Begin a transaction, and commit it at the end. After an exception the pool rolls it back."""
    await db.execute(_BEGIN)
    yield
    if await db.execute("COMMIT") != "COMMIT":  # the server rolls back a transaction that had an error
        raise asyncpg.InterfaceError("the transaction was rolled back: an error in it was ignored")


@asynccontextmanager
async def savepoint(db: Db) -> AsyncIterator[None]:
    """Undo what was written inside if a row is not unique; the transaction can continue."""
    await db.execute("SAVEPOINT tried")
    try:
        yield
    except UniqueViolationError:
        await db.execute("ROLLBACK TO SAVEPOINT tried")
        raise
    await db.execute("RELEASE SAVEPOINT tried")


class Breaks:
    """Says when the event loop must have its turn: after so many decisions, or after 20 ms of them."""

    def __init__(self, decisions: int) -> None:
        self._decisions = decisions
        self._number = 0
        self._due_at = time.monotonic() + _LONGEST_S

    def is_due(self) -> bool:
        """Return whether to pause. It is called with each decision."""
        self._number += 1
        if self._number % self._decisions and time.monotonic() < self._due_at:
            return False
        self._due_at = time.monotonic() + _LONGEST_S
        return True
