"""The audit log: list entries, verify the hash chain."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from wakeful.errors import InvalidArgument
from wakeful.service.auth.access import Principal
from wakeful.service.auth.accounts import Accounts
from wakeful.store.audit import AuditFilter, AuditPage, AuditRow
from wakeful.store.audit_chain import flaw
from wakeful.store.port import Store
from wakeful.stored_text import UNSTORABLE, is_storable

_PAGE: Final = 1_000
_LARGEST: Final = 2**31 - 1
#: How many entries are read for a page of a filtered list.
_CONSIDERED: Final = 20_000
_ACTION: Final = re.compile(r"[a-z][a-z-]*(\.[a-z-]+)?")


class Verified(NamedTuple):
    """The result of a verification."""

    #: the number of entries that were checked
    entries: int
    #: the error of the first invalid entry; None: all are valid
    flaw: str | None


class AuditService:
    """Lists audit entries and verifies the chain."""

    def __init__(self, store: Store, accounts: Accounts) -> None:
        self._store = store
        self._accounts = accounts

    async def list(
        self, principal: Principal, workspace: str, *, before: int | None = None, limit: int = 100
    ) -> list[AuditRow]:
        """List entries, newest first; `before` is the number of the last entry of the previous page."""
        await self._accounts.authorize(principal, "audit.read", workspace)
        return await self._store.audit(workspace, before=_LARGEST if before is None else before, limit=limit)

    async def search(
        self,
        principal: Principal,
        workspace: str,
        *,
        actor: str | None = None,
        action: str | None = None,
        subject: str | None = None,
        since_ms: int | None = None,
        until_ms: int | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> AuditPage:
        """List entries that match, newest first; `action` may be a kind, such as `job`.

        At most 20,000 entries are read for a page, so a page may be short and have a next one.
        """
        await self._accounts.authorize(principal, "audit.read", workspace)
        for name, value in (("actor", actor), ("action", action), ("subject", subject)):
            if value is not None and not is_storable(value):
                raise InvalidArgument(f"{name}: {UNSTORABLE}")
        if action is not None and not _ACTION.fullmatch(action):
            raise InvalidArgument("action: write one such as job.create, or a kind such as job")
        only = AuditFilter(actor, action, subject, since_ms, until_ms)
        return await self._store.audit_page(
            workspace, only, before=before, limit=limit, considered=_CONSIDERED
        )

    async def verify(
        self, principal: Principal, workspace: str, progress: Callable[[int], None] = lambda count: None
    ) -> Verified:
        """Check the hash chain from the start: a changed, removed or reordered entry breaks it."""
        await self._accounts.authorize(principal, "audit.read", workspace)
        newest, newest_hash = await self._store.audit_head(workspace)
        count, before = 0, ""
        while True:
            rows = await self._store.audit(workspace, after=count, limit=_PAGE)
            found = flaw(rows, count, before)
            for row in rows:
                if found is None and row.seq == newest and row.hash != newest_hash:
                    found = f"entry {newest} is not the one that was written last"
            if found is not None:
                return Verified(count + len(rows), found)
            if not rows:
                missing = f"entries {count + 1} to {newest} are gone" if count < newest else None
                return Verified(count, missing)
            count, before = rows[-1].seq, rows[-1].hash
            progress(count)
