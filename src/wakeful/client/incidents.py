"""The incidents of a workspace: their methods, implemented by requests to a server."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from wakeful.model import Incident, Page
from wakeful.model.codec import from_json, page_from_json

if TYPE_CHECKING:
    from wakeful.client.rest import RestClient


class Incidents:
    """The incidents of a workspace, failures of one job with one cause: `client.incidents`."""

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
        """Return incidents, newest first; `job` is a name or an id, `cursor` is that of the previous page.

        States: `open`, `acknowledged`, `recovered`, `closed`.
        """
        page = await self._rest.list_incidents(
            state=",".join(states) or None, agent=agent, job=job, limit=limit, cursor=cursor
        )
        return page_from_json(Incident, page)

    async def get(self, incident_id: str) -> Incident:
        """Return an incident, or raise NotFound."""
        return from_json(Incident, await self._rest.get_incident(incident_id))

    async def ack(self, incident_id: str, *, note: str | None = None) -> Incident:
        """Acknowledge an incident: no reminder follows. Acknowledging it again changes nothing.

        FailedPrecondition: it has recovered, or was closed.
        """
        return from_json(Incident, await self._rest.acknowledge_incident(incident_id, note=note))
