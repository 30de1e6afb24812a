"""The suggestions of a workspace in this process. `wakeful.client.suggestions` documents the methods."""

from __future__ import annotations

from collections.abc import Iterable

from wakeful.app.home import Home, at_home
from wakeful.client.suggestions import Suggestions as ClientSuggestions
from wakeful.model import Page, Suggestion
from wakeful.service.auth.access import LOCAL
from wakeful.service.serializers import SUGGESTIONS
from wakeful.service.services import Services


@at_home
class Suggestions(ClientSuggestions):
    """The suggestions of a workspace: `app.suggestions`."""

    def __init__(self, services: Services, workspace: str, home: Home | None = None) -> None:
        self._services = services
        self._home = home or Home()
        self._workspace = workspace

    async def list(
        self,
        *,
        statuses: Iterable[str] = (),
        agent: str | None = None,
        job: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Suggestion]:
        found = await self._services.admin.suggestions.list(
            LOCAL,
            self._workspace,
            agent=agent,
            job=job,
            statuses=list(statuses),
            before=cursor,
            limit=limit + 1,
        )
        shown = [SUGGESTIONS.to_model(each) for each in found[:limit]]
        return Page(shown, shown[-1].id if len(found) > limit else None)

    async def get(self, suggestion_id: str) -> Suggestion:
        found = await self._services.admin.suggestions.get(LOCAL, self._workspace, suggestion_id)
        return SUGGESTIONS.to_model(found)

    async def apply(self, suggestion_id: str) -> Suggestion:
        found = await self._services.admin.suggestions.apply(LOCAL, self._workspace, suggestion_id)
        return SUGGESTIONS.to_model(found)

    async def dismiss(self, suggestion_id: str) -> Suggestion:
        found = await self._services.admin.suggestions.dismiss(LOCAL, self._workspace, suggestion_id)
        return SUGGESTIONS.to_model(found)

    async def rollback(self, suggestion_id: str) -> Suggestion:
        found = await self._services.admin.suggestions.rollback(LOCAL, self._workspace, suggestion_id)
        return SUGGESTIONS.to_model(found)
