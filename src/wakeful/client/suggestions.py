"""The suggestions of a server."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from wakeful.client.suggestions_api import SuggestionsApi
from wakeful.model import Page, Suggestion
from wakeful.model.codec import from_json, page_from_json

if TYPE_CHECKING:
    from wakeful.client.rest import RestClient


class Suggestions(SuggestionsApi):
    """The suggestions of a workspace: `client.suggestions`. See `wakeful.client.scheduler`."""

    def __init__(self, rest: RestClient) -> None:
        self._rest = rest

    async def list(
        self,
        *,
        statuses: Iterable[str] = (),
        agent: str | None = None,
        job: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Suggestion]:
        page = await self._rest.list_suggestions(
            status=",".join(statuses) or None, agent=agent, job=job, limit=limit, cursor=cursor
        )
        return page_from_json(Suggestion, page)

    async def get(self, suggestion_id: str) -> Suggestion:
        return from_json(Suggestion, await self._rest.get_suggestion(suggestion_id))

    async def apply(self, suggestion_id: str) -> Suggestion:
        return from_json(Suggestion, await self._rest.apply_suggestion(suggestion_id))

    async def dismiss(self, suggestion_id: str) -> Suggestion:
        return from_json(Suggestion, await self._rest.dismiss_suggestion(suggestion_id))

    async def rollback(self, suggestion_id: str) -> Suggestion:
        return from_json(Suggestion, await self._rest.roll_back_suggestion(suggestion_id))
