"""Idempotency keys in PostgreSQL. See `store/idempotency.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from asyncpg import LockNotAvailableError

from wakeful.store.idempotency import ABANDONED_MS, KEPT_MS, InProgress, Keyed, StoredResponse, conflict
from wakeful.store.postgres import office_statements as sql

if TYPE_CHECKING:
    from wakeful.store.postgres.connection import Db

T = TypeVar("T")


async def response(db: Db, workspace: str, key: str, now_ms: int) -> StoredResponse | None:
    """The stored response of that key, unless it has expired."""
    row = await db.fetchrow(sql.RESPONSE, workspace, key, now_ms - KEPT_MS)
    return None if row is None else StoredResponse(*row)


async def claim_key(db: Db, keyed: Keyed[T], now_ms: int) -> None:
    """Insert the key, or raise what its row says: AlreadyPerformed, InProgress, or InvalidArgument.

    Waits while another transaction holds the same key.
    """
    expired_ms = now_ms - KEPT_MS
    await db.execute(sql.EXPIRE_KEYS, expired_ms)
    claimed = False
    while not claimed:
        try:
            claimed = await db.fetchval(
                sql.CLAIM_KEY, *keyed.claim(now_ms), expired_ms, now_ms - ABANDONED_MS
            )
        except LockNotAvailableError as error:
            raise InProgress from error
        there = None if claimed else await db.fetchrow(sql.KEY_ROW, keyed.workspace, keyed.key)
        if there is not None:  # otherwise it was deleted between the two statements
            raise conflict(StoredResponse(*there), keyed.fingerprint)


async def store_response(db: Db, keyed: Keyed[T], result: T) -> None:
    """Write the response beside the key."""
    await db.execute(sql.STORE_RESPONSE, keyed.workspace, keyed.key, *keyed.render(result))
