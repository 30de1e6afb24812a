"""The first admin key of an installation: created at the first start, or set by the operator.

Both are decided in one transaction, so that replicas that start together on an empty database create one key.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from typing import Final, Literal

from wakeful.document.values import compact
from wakeful.errors import InvalidArgument
from wakeful.logs import get_logger
from wakeful.service.auth.access import LOCAL, Principal
from wakeful.settings import API_KEY, PREFIX
from wakeful.store.accounts import KeyChange, KeyRow
from wakeful.store.audit import AuditEntry
from wakeful.store.port import Store
from wakeful.values.ids import new_id

#: The principal that creates the key of `WAKEFUL_ADMIN_KEY`.
OPERATOR: Final = Principal(f"setting:{PREFIX}ADMIN_KEY", "admin", None)

log = get_logger("wakeful.service")


async def make_first_key(store: Store) -> str | None:
    """Create an admin key for all workspaces and return its text; None if a key exists."""
    if await store.keys(None):
        return None
    text = "wk_" + secrets.token_urlsafe(32)
    row = _admin_key(store, text, "first", LOCAL)

    def decide(known: Sequence[KeyRow]) -> KeyChange:
        return KeyChange() if known else KeyChange(row, entries=[_created(row, LOCAL)])

    return text if await store.change_keys(decide) else None


async def apply_admin_key(store: Store, text: str) -> Literal["valid", "revoked"]:
    """Create the operator's key if it is missing, and revoke the keys of earlier settings.

    A revoked key stays revoked: a replica that starts with an old setting changes nothing.
    """
    if not API_KEY.fullmatch(text):
        raise InvalidArgument(f"{PREFIX}ADMIN_KEY: write wk_ and 43 letters, digits, - or _")
    row = _admin_key(store, text, f"{PREFIX}ADMIN_KEY", OPERATOR)

    def decide(known: Sequence[KeyRow]) -> KeyChange:
        if any(each.hash == row.hash for each in known):
            return KeyChange()
        old = [each for each in known if each.created_by == OPERATOR.actor and each.revoked_ms is None]
        revoked = [OPERATOR.entry("default", "key.revoke", each.id) for each in old]
        return KeyChange(row, tuple(each.id for each in old), [_created(row, OPERATOR), *revoked])

    known = await store.key_by_hash(row.hash)
    if known is None:
        await store.change_keys(decide)
        known = await store.key_by_hash(row.hash)
    if known is not None and known.revoked_ms is not None:
        log.warning("key.revoked", setting=f"{PREFIX}ADMIN_KEY", key_id=known.id)
        return "revoked"
    return "valid"


def _admin_key(store: Store, text: str, name: str, principal: Principal) -> KeyRow:
    now_ms = store.clock.now_ms()
    return KeyRow(
        id=new_id(now_ms),
        workspace=None,
        name=name,
        role="admin",
        agent=None,
        hash=hashlib.sha256(text.encode()).digest(),
        created_ms=now_ms,
        created_by=principal.actor,
        expires_ms=None,
        last_used_ms=None,
        revoked_ms=None,
    )


def _created(row: KeyRow, principal: Principal) -> AuditEntry:
    details = compact({"role": row.role, "agent": row.agent, "name": row.name})
    return principal.entry("default", "key.create", row.id, details)
