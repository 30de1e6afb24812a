"""The incidents of a server."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from wakeful.client.scheduler import IncidentsApi
from wakeful.model import Incident, Page
from wakeful.model.codec import from_json, page_from_json

if TYPE_CHECKING:
    from wakeful.client.rest import RestClient


class Incidents(IncidentsApi):
    """The incidents of a workspace: `client.incidents`. `wakeful.client.scheduler` documents the methods."""

    def __init__(self, rest: RestClient) -> None:
        self._rest = rest

    async def list(
        self,
        *,
        states: Iterable[str] = (),
        agent: str | None = None,
        job: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Incident]:
        page = await self._rest.list_incidents(
            state=",".join(states) or None, agent=agent, job=job, limit=limit, cursor=cursor
        )
        return page_from_json(Incident, page)

    async def get(self, incident_id: str) -> Incident:
        return from_json(Incident, await self._rest.get_incident(incident_id))

    async def ack(self, incident_id: str, *, note: str | None = None) -> Incident:
        return from_json(Incident, await self._rest.acknowledge_incident(incident_id, note=note))
