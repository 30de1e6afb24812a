"""Idempotency keys in SQLite. See `store/idempotency.py`."""

from __future__ import annotations

import sqlite3
from typing import Final, TypeVar

from wakeful.store.idempotency import ABANDONED_MS, KEPT_MS, Keyed, StoredResponse, conflict
from wakeful.store.sql.idempotency import KEY_ROW, RESPONSE_COLUMNS, STORE_RESPONSE
from wakeful.store.sqlite.session import translate

T = TypeVar("T")

_KEY_ROW: Final = translate(KEY_ROW)
_STORE_RESPONSE: Final = translate(STORE_RESPONSE)
#: idempotency_keys_created: a range of it
EXPIRE_KEYS: Final = "DELETE FROM idempotency_keys INDEXED BY idempotency_keys_created WHERE created_at < ?"
#: the primary key; an abandoned row is taken over
CLAIM_KEY: Final = f"""
    INSERT INTO idempotency_keys ({RESPONSE_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (workspace, key) DO UPDATE SET fingerprint = excluded.fingerprint,
        created_at = excluded.created_at
    WHERE idempotency_keys.status = 0 AND idempotency_keys.created_at < ?"""


async def claim_key(db: sqlite3.Connection, keyed: Keyed[T], now_ms: int) -> None:
    """Insert the key, or raise what its row says: AlreadyPerformed, InProgress, or InvalidArgument."""
    db.execute(EXPIRE_KEYS, (now_ms - KEPT_MS,))
    if db.execute(CLAIM_KEY, (*keyed.claim(now_ms), now_ms - ABANDONED_MS)).rowcount == 0:
        there = db.execute(_KEY_ROW, (keyed.workspace, keyed.key)).fetchone()
        raise conflict(StoredResponse(*there), keyed.fingerprint)


async def store_response(db: sqlite3.Connection, keyed: Keyed[T], result: T) -> None:
    """Write the response beside the key."""
    db.execute(_STORE_RESPONSE, (keyed.workspace, keyed.key, *keyed.render(result)))
