"""The audit log: list entries, verify the hash chain."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Final, NamedTuple

from wakeful.errors import InvalidArgument
from wakeful.service.auth.access import Principal
from wakeful.service.auth.accounts import Accounts
from wakeful.service.auth.actor_names import subject_actor
from wakeful.store.audit import AuditFilter, AuditRow, flaw
from wakeful.store.audit import AuditPage as AuditPage
from wakeful.store.port import Store
from wakeful.values.stored_text import UNSTORABLE, is_storable

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


class VerifiedPart(NamedTuple):
    """The result of a part of a verification."""

    #: the number of the last entry that was checked
    entries: int
    #: the error of the first invalid entry; None: all are valid
    flaw: str | None
    #: the hash of that entry, with which the next part continues
    hash: str
    #: whether there is nothing more to check
    complete: bool


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
        found = await self._store.audit(workspace, before=_LARGEST if before is None else before, limit=limit)
        await self._load_names(found)
        return found

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
        found = await self._store.audit_page(
            workspace, only, before=before, limit=limit, considered=_CONSIDERED
        )
        await self._load_names(found.rows)
        return found

    async def _load_names(self, rows: Sequence[AuditRow]) -> None:
        subjects = (subject_actor(row.action, row.subject) for row in rows)
        await self._accounts.names.load(chain((row.actor for row in rows), subjects))

    async def verify(
        self, principal: Principal, workspace: str, progress: Callable[[int], None] = lambda count: None
    ) -> Verified:
        """Check the hash chain from the start: a changed, removed or reordered entry breaks it."""
        part = VerifiedPart(0, None, "", False)
        while not part.complete:
            part = await self.verify_part(principal, workspace, part.entries, part.hash, _PAGE)
            progress(part.entries)
        return Verified(part.entries, part.flaw)

    async def verify_part(
        self, principal: Principal, workspace: str, after: int, hash: str, limit: int
    ) -> VerifiedPart:
        """Check the entries after number `after`, whose hash is `hash`, at most `limit`."""
        await self._accounts.authorize(principal, "audit.read", workspace)
        newest, newest_hash = await self._store.audit_head(workspace)
        if after > newest:
            return VerifiedPart(after, f"entries {newest + 1} to {after} are gone", hash, True)
        if after == newest and hash != newest_hash:
            return VerifiedPart(after, f"entry {newest} is not the one that was written last", hash, True)
        end = after + limit
        while after < end:
            rows = await self._store.audit(workspace, after=after, limit=min(_PAGE, end - after))
            found = flaw(rows, after, hash)
            for row in rows:
                if found is None and row.seq == newest and row.hash != newest_hash:
                    found = f"entry {newest} is not the one that was written last"
            if found is not None:
                return VerifiedPart(after + len(rows), found, hash, True)
            if not rows:
                missing = f"entries {after + 1} to {newest} are gone" if after < newest else None
                return VerifiedPart(after, missing, hash, True)
            after, hash = rows[-1].seq, rows[-1].hash
        return VerifiedPart(after, None, hash, False)

    async def newest(self, principal: Principal, workspace: str) -> int:
        """Return the number of the newest entry; 0: there is none."""
        await self._accounts.authorize(principal, "audit.read", workspace)
        return (await self._store.audit_head(workspace))[0]
