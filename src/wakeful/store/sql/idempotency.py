"""Idempotency keys. See `store/idempotency.py`."""

from __future__ import annotations

from typing import Final, TypeVar

from wakeful.store.idempotency import ABANDONED_MS, KEPT_MS, InProgress, Keyed, StoredResponse, conflict
from wakeful.store.sql.driver import LockTimeout, Session

T = TypeVar("T")

_COLUMNS: Final = "workspace, key, fingerprint, status, body, created_at"
#: the primary key
KEY_ROW: Final = f"SELECT {_COLUMNS} FROM idempotency_keys WHERE workspace = $1 AND key = $2"
#: the primary key
RESPONSE: Final = f"{KEY_ROW} AND status IS NOT NULL AND created_at >= $3"
#: idempotency_keys_created: a range of it, in its order; then the primary key. Rows that another transaction
#: is deleting are skipped
EXPIRE_KEYS: Final = """
    DELETE FROM idempotency_keys WHERE (workspace, key) IN (
        SELECT workspace, key FROM idempotency_keys WHERE created_at < $1 ORDER BY created_at LIMIT 1000
        FOR UPDATE SKIP LOCKED)"""
#: the primary key; an expired or abandoned row is taken over
CLAIM_KEY: Final = f"""
    INSERT INTO idempotency_keys AS a ({_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6)
    ON CONFLICT (workspace, key) DO UPDATE SET fingerprint = EXCLUDED.fingerprint, status = EXCLUDED.status,
        body = EXCLUDED.body, created_at = EXCLUDED.created_at
    WHERE a.created_at < $7 OR a.status IS NULL AND a.created_at < $8"""
#: the primary key
STORE_RESPONSE: Final = "UPDATE idempotency_keys SET status = $3, body = $4 WHERE workspace = $1 AND key = $2"


async def response(session: Session, workspace: str, key: str, now_ms: int) -> StoredResponse | None:
    """Return the stored response of that key, unless it has expired."""
    row = await session.row(RESPONSE, workspace, key, now_ms - KEPT_MS)
    return None if row is None else StoredResponse(*row)


async def claim_key(session: Session, keyed: Keyed[T], now_ms: int) -> None:
    """Insert the key, or raise AlreadyPerformed, InProgress or InvalidArgument, as its row says.

    Waits while another transaction holds the same key.
    """
    expired_ms = now_ms - KEPT_MS
    await session.execute(EXPIRE_KEYS, expired_ms)
    claim = (*keyed.claim(now_ms), expired_ms, now_ms - ABANDONED_MS)
    while True:
        try:
            if await session.execute(CLAIM_KEY, *claim):
                return
        except LockTimeout as error:
            raise InProgress from error
        row = await session.row(KEY_ROW, keyed.workspace, keyed.key)
        if row is not None:  # otherwise it was deleted between the two statements
            raise conflict(StoredResponse(*row), keyed.fingerprint)


async def store_response(session: Session, keyed: Keyed[T], result: T, now_ms: int) -> None:
    """Write the response beside the key.

    Outcomes in SQLite may undo their transaction, with the key, and begin it again.
    """
    response = keyed.workspace, keyed.key, *keyed.render(result)
    if not await session.execute(STORE_RESPONSE, *response):
        await claim_key(session, keyed, now_ms)
        await session.execute(STORE_RESPONSE, *response)
