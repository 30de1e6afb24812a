"""The incidents of a workspace in this process. `wakeful.client.incidents` documents the methods."""

from __future__ import annotations

from collections.abc import Iterable

from wakeful.app.home import Home, at_home
from wakeful.client.incidents import Incidents as ClientIncidents
from wakeful.model import Incident, Page
from wakeful.service.auth.access import LOCAL
from wakeful.service.serializers import INCIDENTS
from wakeful.service.services import Services


@at_home
class Incidents(ClientIncidents):
    """The incidents of a workspace: `app.incidents`."""

    def __init__(self, services: Services, workspace: str, home: Home | None = None) -> None:
        self._services = services
        self._home = home or Home()
        self._workspace = workspace

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
            LOCAL, self._workspace, agent=agent, job=job, states=list(states), before=cursor, limit=limit + 1
        )
        shown = [INCIDENTS.to_model(each) for each in found[:limit]]
        return Page(shown, shown[-1].id if len(found) > limit else None)

    async def get(self, incident_id: str) -> Incident:
        found = await self._services.admin.incidents.get(LOCAL, self._workspace, incident_id)
        return INCIDENTS.to_model(found)

    async def ack(self, incident_id: str, *, note: str | None = None) -> Incident:
        found = await self._services.admin.incidents.acknowledge(LOCAL, self._workspace, incident_id, note)
        return INCIDENTS.to_model(found)
