"""The endpoints of instances and signals."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from typing import cast

from wakeful.client.connection import Query, path, read_list, read_page
from wakeful.client.rest.part import RestPart
from wakeful.client.types import InstanceShape, RunShape
from wakeful.model import Page
from wakeful.values.json_value import Json


class RestInstances(RestPart):
    """The instances of the agents of a workspace."""

    async def list(
        self,
        agent: str | None = None,
        *,
        status: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[InstanceShape]:
        """Return a page of instances, by agent and id."""
        query: Query = {"status": status, "limit": limit, "cursor": cursor}
        where = ("instances",) if agent is None else ("agents", agent, "instances")
        return read_page(await self._request("GET", *where, query=query), "instances")

    async def get(self, agent: str, id: str) -> InstanceShape:
        """Return an instance with its schedules, and for an admin its state."""
        return cast(InstanceShape, await self._request("GET", "agents", agent, "instances", id))

    async def start(self, agent: str, id: str, *, state: Mapping[str, Json] | None = None) -> InstanceShape:
        """Start an instance."""
        return await self._act(agent, id, "start", None if state is None else {"state": dict(state)})

    async def stop(self, agent: str, id: str) -> InstanceShape:
        """Stop an instance."""
        return await self._act(agent, id, "stop")

    async def pause(self, agent: str, id: str, *, note: str | None = None) -> InstanceShape:
        """Pause an instance."""
        return await self._act(agent, id, "pause", None if note is None else {"note": note})

    async def resume(self, agent: str, id: str) -> InstanceShape:
        """Resume an instance."""
        return await self._act(agent, id, "resume")

    async def hibernate(self, agent: str, id: str) -> InstanceShape:
        """Hibernate an instance."""
        return await self._act(agent, id, "hibernate")

    async def send(
        self, agent: str, id: str, events: Sequence[Mapping[str, Json]]
    ) -> builtins.list[RunShape]:
        """Send CloudEvents to an instance, all or none; return their runs."""
        batch = len(events) != 1
        body: Json = [dict(event) for event in events] if batch else dict(events[0])
        where = path(self._workspace, "agents", agent, "signals")
        reply = await self._connection.request("POST", where, body=body, query={"instance": id})
        if not batch:
            return [cast(RunShape, reply)]
        return cast(builtins.list[RunShape], read_list(reply, "runs", dict))

    async def _act(self, agent: str, id: str, action: str, body: Json = None) -> InstanceShape:
        where = ("agents", agent, "instances", id, action)
        return cast(InstanceShape, await self._request("POST", *where, body=body))
