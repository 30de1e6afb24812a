"""The inbox of a workspace: what waits for a person to decide."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from wakeful.model import InboxCounts, InboxDecision, InboxItem, Page
from wakeful.model.codec import from_json, page_from_json

if TYPE_CHECKING:
    from wakeful.client.rest import RestClient


class Inbox:
    """What waits for a person: runs to confirm, jobs to approve, suggestions, incidents: `client.inbox`."""

    def __init__(self, rest: RestClient) -> None:
        self._rest = rest

    async def list(
        self,
        *,
        kinds: Iterable[str] = (),
        agent: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[InboxItem]:
        """Return what waits, newest first; `cursor` is that of the previous page.

        Kinds: `verification`, `approval`, `suggestion`, `incident`.
        """
        page = await self._rest.list_inbox(
            kind=",".join(kinds) or None, agent=agent, limit=limit, cursor=cursor
        )
        return page_from_json(InboxItem, page)

    async def counts(self, *, agent: str | None = None) -> InboxCounts:
        """Return how much of each kind waits."""
        return from_json(InboxCounts, await self._rest.count_inbox(agent=agent))

    async def approve(
        self, item_id: str, *, reason: str | None = None, version: int | None = None
    ) -> InboxDecision:
        """Confirm a run, approve a job, apply a suggestion, or acknowledge an incident.

        `version` is that of the item. FailedPrecondition: another person has decided, or it changed since.
        """
        decision = await self._rest.approve_item(item_id, reason=reason, version=version)
        return from_json(InboxDecision, decision)

    async def reject(
        self, item_id: str, *, reason: str | None = None, version: int | None = None
    ) -> InboxDecision:
        """Reject the work of a run, leave a job paused, or dismiss a suggestion.

        `version` is that of the item. FailedPrecondition: another person has decided, or it changed since.
        """
        decision = await self._rest.reject_item(item_id, reason=reason, version=version)
        return from_json(InboxDecision, decision)
