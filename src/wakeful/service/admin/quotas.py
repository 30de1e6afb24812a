"""Quotas: list usage, set limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from wakeful.document.values import compact
from wakeful.errors import InvalidArgument
from wakeful.job.job import check_slug
from wakeful.service.auth.access import Principal, visible_agent
from wakeful.service.auth.accounts import Accounts
from wakeful.store.port import Store
from wakeful.store.quotas import BUCKETS as BUCKETS
from wakeful.store.quotas import CREATE_JOB as CREATE_JOB
from wakeful.store.quotas import INSTANCES as INSTANCES
from wakeful.store.quotas import LIVE_JOBS as LIVE_JOBS
from wakeful.store.quotas import QuotaRow

_LARGEST: Final = 2**31 - 1


class QuotaService:
    """Lists and sets quotas."""

    def __init__(
        self, store: Store, accounts: Accounts, defaults: Mapping[tuple[str, bool], int | None]
    ) -> None:
        self._store = store
        self._accounts = accounts
        #: the installation's limits by bucket and whether they are those of an agent; None: no limit
        self.defaults = defaults

    async def list(self, principal: Principal, workspace: str) -> list[QuotaRow]:
        """List limits and usage; an agent sees its own."""
        await self._accounts.authorize(principal, "quota.read", workspace)
        only = visible_agent(principal, None)
        rows = await self._store.quotas(workspace, self._store.clock.now_ms())
        return [row for row in rows if only in (None, row.agent)]

    async def set(
        self, principal: Principal, workspace: str, agent: str | None, bucket: str, limit: int | None
    ) -> None:
        """Set the limit of the workspace (`agent` is None) or of one agent; None removes it."""
        await self._accounts.authorize(principal, "operate", workspace)
        if bucket not in BUCKETS:
            raise InvalidArgument(f"bucket: '{bucket[:64]}' is not one of {', '.join(BUCKETS)}")
        if agent == "":
            raise InvalidArgument("agent: it is empty; name one, or leave it out for the whole workspace")
        if agent is not None:
            check_slug(agent, "agent")
        if limit is not None and not 0 <= limit <= _LARGEST:
            raise InvalidArgument(f"limit: write a whole number from 0 to {_LARGEST}, or null for none")
        details = compact({"bucket": bucket, "limit": limit})
        entry = principal.entry(workspace, "quota.set", agent or workspace, details)
        await self._store.set_quota(workspace, agent or "", bucket, limit, [entry])
