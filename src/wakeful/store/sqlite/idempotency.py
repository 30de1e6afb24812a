"""Idempotency keys in SQLite. See `store/idempotency.py`."""

from __future__ import annotations

import sqlite3
from typing import TypeVar

from wakeful.store.idempotency import ABANDONED_MS, KEPT_MS, Keyed, StoredResponse, conflict
from wakeful.store.sqlite import office_statements as sql

T = TypeVar("T")


def response(db: sqlite3.Connection, workspace: str, key: str, now_ms: int) -> StoredResponse | None:
    """The stored response of that key, unless it has expired."""
    row = db.execute(sql.RESPONSE, (workspace, key, now_ms - KEPT_MS)).fetchone()
    return None if row is None else StoredResponse(*row)


def claim_key(db: sqlite3.Connection, keyed: Keyed[T], now_ms: int) -> None:
    """Insert the key, or raise what its row says: AlreadyPerformed, InProgress, or InvalidArgument."""
    db.execute(sql.EXPIRE_KEYS, (now_ms - KEPT_MS,))
    if db.execute(sql.CLAIM_KEY, (*keyed.claim(now_ms), now_ms - ABANDONED_MS)).rowcount == 0:
        there = db.execute(sql.KEY_ROW, (keyed.workspace, keyed.key)).fetchone()
        raise conflict(StoredResponse(*there), keyed.fingerprint)


def store_response(db: sqlite3.Connection, keyed: Keyed[T], result: T) -> None:
    """Write the response beside the key."""
    db.execute(sql.STORE_RESPONSE, (keyed.workspace, keyed.key, *keyed.render(result)))
