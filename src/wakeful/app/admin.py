"""Incidents and suggestions of a workspace in this process; `wakeful.client.admin` documents the methods."""

from __future__ import annotations

from collections.abc import Iterable

from wakeful.app.home import LocalPart
from wakeful.app.pages import check_cursor, make_page, one_more
from wakeful.client.admin import Incidents as ClientIncidents
from wakeful.client.admin import Suggestions as ClientSuggestions
from wakeful.evolution.suggestion import Suggestion as StoredSuggestion
from wakeful.model import Incident, Page, Suggestion
from wakeful.run.incidents import Incident as StoredIncident
from wakeful.service.auth.access import LOCAL
from wakeful.service.rights import LOCAL_RIGHTS
from wakeful.service.serializers import INCIDENTS, SUGGESTIONS


class Incidents(LocalPart, ClientIncidents):
    """The incidents of a workspace: `app.incidents`."""

    async def list(
        self,
        *,
        states: Iterable[str] = (),
        agent: str | None = None,
        job: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Incident]:
        found = await self._services.admin.incidents.list(
            LOCAL,
            self._workspace,
            agent=agent,
            job=job,
            states=list(states),
            before=check_cursor(cursor),
            limit=one_more(limit),
        )
        return make_page(found, limit, _incident, lambda incident: incident.id)

    async def get(self, incident_id: str) -> Incident:
        found = await self._services.admin.incidents.get(LOCAL, self._workspace, incident_id)
        return _incident(found)

    async def ack(self, incident_id: str, *, note: str | None = None) -> Incident:
        found = await self._services.admin.incidents.acknowledge(LOCAL, self._workspace, incident_id, note)
        return _incident(found)


class Suggestions(LocalPart, ClientSuggestions):
    """The suggestions of a workspace: `app.suggestions`."""

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
            before=check_cursor(cursor),
            limit=one_more(limit),
        )
        return make_page(found, limit, _suggestion, lambda suggestion: suggestion.id)

    async def get(self, suggestion_id: str) -> Suggestion:
        found = await self._services.admin.suggestions.get(LOCAL, self._workspace, suggestion_id)
        return _suggestion(found)

    async def apply(self, suggestion_id: str) -> Suggestion:
        found = await self._services.admin.suggestions.apply(LOCAL, self._workspace, suggestion_id)
        return _suggestion(found)

    async def dismiss(self, suggestion_id: str) -> Suggestion:
        found = await self._services.admin.suggestions.dismiss(LOCAL, self._workspace, suggestion_id)
        return _suggestion(found)

    async def rollback(self, suggestion_id: str) -> Suggestion:
        found = await self._services.admin.suggestions.rollback(LOCAL, self._workspace, suggestion_id)
        return _suggestion(found)


def _incident(found: StoredIncident) -> Incident:
    return INCIDENTS.to_model(found, may=tuple(LOCAL_RIGHTS.incident(found)))


def _suggestion(found: StoredSuggestion) -> Suggestion:
    return SUGGESTIONS.to_model(found, may=tuple(LOCAL_RIGHTS.suggestion(found)))
