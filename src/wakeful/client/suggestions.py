"""The suggestions of a server."""

from __future__ import annotations

from collections.abc import Iterable

from wakeful.client.rest.admin import RestSuggestions
from wakeful.client.suggestions_api import SuggestionsApi
from wakeful.model import Page, Suggestion
from wakeful.model.codec import from_json, page_from_json


class Suggestions(SuggestionsApi):
    """The suggestions of a workspace: `client.suggestions`. See `wakeful.client.scheduler`."""

    def __init__(self, rest: RestSuggestions) -> None:
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
        page = await self._rest.list(statuses=statuses, agent=agent, job=job, limit=limit, cursor=cursor)
        return page_from_json(Suggestion, page)

    async def get(self, suggestion_id: str) -> Suggestion:
        return from_json(Suggestion, await self._rest.get(suggestion_id))

    async def apply(self, suggestion_id: str) -> Suggestion:
        return from_json(Suggestion, await self._rest.decide(suggestion_id, "apply"))

    async def dismiss(self, suggestion_id: str) -> Suggestion:
        return from_json(Suggestion, await self._rest.decide(suggestion_id, "dismiss"))

    async def rollback(self, suggestion_id: str) -> Suggestion:
        return from_json(Suggestion, await self._rest.decide(suggestion_id, "rollback"))
