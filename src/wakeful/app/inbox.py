"""The inbox of a workspace in this process; `wakeful.client.admin` documents the methods."""

from __future__ import annotations

from collections.abc import Iterable

from wakeful.app.home import LocalPart
from wakeful.app.pages import make_page, one_more
from wakeful.client.admin import Inbox as ClientInbox
from wakeful.model import InboxCounts, InboxDecision, InboxItem, Page
from wakeful.run.inbox import InboxAction, parse_position, write_position
from wakeful.service.admin.inbox import allowed_actions
from wakeful.service.auth.access import LOCAL
from wakeful.service.serializers import INBOX_DECISIONS, INBOX_ITEMS, inbox_counts


class Inbox(LocalPart, ClientInbox):
    """What waits for a person: `app.inbox`."""

    async def list(
        self,
        *,
        kinds: Iterable[str] = (),
        agent: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[InboxItem]:
        found = await self._services.admin.inbox.list(
            LOCAL,
            self._workspace,
            kinds=list(kinds),
            agent=agent,
            after=parse_position(cursor),
            limit=one_more(limit),
        )
        return make_page(
            found,
            limit,
            lambda row: INBOX_ITEMS.to_model(row, may=allowed_actions(LOCAL, row.kind)),
            write_position,
        )

    async def counts(self, *, agent: str | None = None) -> InboxCounts:
        return inbox_counts(await self._services.admin.inbox.counts(LOCAL, self._workspace, agent=agent))

    async def approve(
        self, item_id: str, *, reason: str | None = None, version: int | None = None
    ) -> InboxDecision:
        return await self._decide(item_id, "approve", reason, version)

    async def reject(
        self, item_id: str, *, reason: str | None = None, version: int | None = None
    ) -> InboxDecision:
        return await self._decide(item_id, "reject", reason, version)

    async def _decide(
        self, item_id: str, action: InboxAction, reason: str | None, version: int | None
    ) -> InboxDecision:
        decided = await self._services.admin.inbox.decide(
            LOCAL, self._workspace, item_id, action, reason=reason, version=version
        )
        return INBOX_DECISIONS.to_model(decided)
