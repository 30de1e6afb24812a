"""Transactions that write, and savepoints in them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import asyncpg

if TYPE_CHECKING:
    from wakeful.store.postgres.session import Db

#: Each statement is planned once for each connection: that takes as long as to execute it with a few rows.
#: The tests check that the plan is good for any arguments.
_BEGIN: Final = "BEGIN; SET LOCAL plan_cache_mode = force_generic_plan"


@asynccontextmanager
async def transaction(db: Db) -> AsyncIterator[None]:
    """Begin a transaction, and commit it at the end; an exception rolls it back."""
    await db.execute(_BEGIN)
    try:
        yield
    except BaseException:
        if db.is_in_transaction():
            await db.execute("ROLLBACK")
        raise
    if await db.execute("COMMIT") != "COMMIT":  # the server rolls back a transaction that had an error
        raise asyncpg.InterfaceError("the transaction was rolled back: an error in it was ignored")


@asynccontextmanager
async def savepoint(db: Db) -> AsyncIterator[None]:
    """Undo what was written inside if there is an exception; the transaction can continue."""
    await db.execute("SAVEPOINT tried")
    try:
        yield
    except BaseException:
        if db.is_in_transaction():
            await db.execute("ROLLBACK TO SAVEPOINT tried")
        raise
    await db.execute("RELEASE SAVEPOINT tried")
