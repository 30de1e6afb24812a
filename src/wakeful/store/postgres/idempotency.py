"""Idempotency keys in PostgreSQL. See `store/idempotency.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from asyncpg import LockNotAvailableError

from wakeful.store.idempotency import ABANDONED_MS, KEPT_MS, InProgress, Keyed, StoredResponse, conflict
from wakeful.store.sql.idempotency import KEY_ROW, RESPONSE_COLUMNS, STORE_RESPONSE

if TYPE_CHECKING:
    from wakeful.store.postgres.connection import Db

T = TypeVar("T")

#: idempotency_keys_created: a range of it, in its order; then the primary key. Rows that another transaction
#: is deleting are skipped
EXPIRE_KEYS: Final = """
    DELETE FROM idempotency_keys a USING (
        SELECT workspace, key FROM idempotency_keys WHERE created_at < $1 ORDER BY created_at LIMIT 1000
        FOR UPDATE SKIP LOCKED) old
    WHERE a.workspace = old.workspace AND a.key = old.key"""
#: the primary key; an expired or abandoned row is taken over
CLAIM_KEY: Final = f"""
    INSERT INTO idempotency_keys AS a ({RESPONSE_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6)
    ON CONFLICT (workspace, key) DO UPDATE SET fingerprint = EXCLUDED.fingerprint, status = EXCLUDED.status,
        body = EXCLUDED.body, created_at = EXCLUDED.created_at
    WHERE a.created_at < $7 OR a.status = 0 AND a.created_at < $8
    RETURNING true"""


async def claim_key(db: Db, keyed: Keyed[T], now_ms: int) -> None:
    """Insert the key, or raise what its row says: AlreadyPerformed, InProgress, or InvalidArgument.

    Waits while another transaction holds the same key.
    """
    expired_ms = now_ms - KEPT_MS
    await db.execute(EXPIRE_KEYS, expired_ms)
    claimed = False
    while not claimed:
        try:
            claimed = await db.fetchval(CLAIM_KEY, *keyed.claim(now_ms), expired_ms, now_ms - ABANDONED_MS)
        except LockNotAvailableError as error:
            raise InProgress from error
        there = None if claimed else await db.fetchrow(KEY_ROW, keyed.workspace, keyed.key)
        if there is not None:  # otherwise it was deleted between the two statements
            raise conflict(StoredResponse(*there), keyed.fingerprint)


async def store_response(db: Db, keyed: Keyed[T], result: T) -> None:
    """Write the response beside the key."""
    await db.execute(STORE_RESPONSE, keyed.workspace, keyed.key, *keyed.render(result))
