"""Idempotency keys, as they are read. Each database claims them in its own way."""

from __future__ import annotations

from typing import Final

from wakeful.store.idempotency import KEPT_MS, StoredResponse
from wakeful.store.sql.driver import Session

RESPONSE_COLUMNS: Final = "workspace, key, fingerprint, status, body, created_at"
#: the primary key
KEY_ROW: Final = f"SELECT {RESPONSE_COLUMNS} FROM idempotency_keys WHERE workspace = $1 AND key = $2"
#: the primary key
RESPONSE: Final = f"{KEY_ROW} AND status <> 0 AND created_at >= $3"
#: the primary key
STORE_RESPONSE: Final = "UPDATE idempotency_keys SET status = $3, body = $4 WHERE workspace = $1 AND key = $2"


async def response(session: Session, workspace: str, key: str, now_ms: int) -> StoredResponse | None:
    """Return the stored response of that key, unless it has expired."""
    row = await session.row(RESPONSE, workspace, key, now_ms - KEPT_MS)
    return None if row is None else StoredResponse(*row)
