"""The scheduler of a server, as the tool asks it over HTTP: for `wakeful mcp`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final, cast

from wakeful.api.mcp.port import CallContext, JsonObject
from wakeful.client.rest import RestClient, RestJobs
from wakeful.errors import NotFound
from wakeful.job import Json

#: For so many seconds the server's clock is believed to go on as ours does.
_REMEMBERED: Final = 30.0


class RemoteScheduler:
    """A server, with the key that the client has. `agent` is whose jobs they are, unless the key says it."""

    def __init__(self, client: RestClient, agent: str | None = None) -> None:
        self._client = client
        self._agent = agent
        self._known: dict[str, tuple[float, CallContext]] = {}

    async def standing(self, agent: str | None) -> CallContext:
        """The time, the zone and the agent."""
        named = agent or self._agent or ""
        known = self._known.get(named)
        if known is None or time.monotonic() - known[0] > _REMEMBERED:
            known = time.monotonic(), await self._asked(named)
            self._known = {named: known}
        since, standing = known
        gone_ms = round((time.monotonic() - since) * 1000)
        return CallContext(standing.now_ms + gone_ms, standing.tz, standing.agent)

    async def _asked(self, named: str) -> CallContext:
        status = await self._client.status()
        name = named or str(status.get("agentId") or "default")
        tz = str(status.get("tz") or "UTC")
        if name != (status.get("agentId") or "default"):
            with suppress(NotFound):  # it need not be there yet
                tz = (await self._client.agents.get(name))["tz"] or tz
        return CallContext(cast(int, status["nowMs"]), tz, name)

    def _jobs(self, agent: str) -> RestJobs:
        return self._client.jobs.of(agent)

    async def create(self, agent: str, document: Mapping[str, Json]) -> JsonObject:
        """Add a job."""
        return cast(JsonObject, await self._jobs(agent).create(document))

    async def check(self, agent: str, document: Mapping[str, Json]) -> None:
        """Raise what is wrong with a document, and change nothing."""
        await self._jobs(agent).dry_run(document)

    async def update(self, agent: str, name: str, patch: Mapping[str, Json]) -> JsonObject:
        """Change the fields that are named."""
        return cast(JsonObject, await self._jobs(agent).update(name, patch))

    async def get(self, agent: str, name: str) -> JsonObject:
        """The job with its next ticks."""
        return cast(JsonObject, await self._jobs(agent).get(name))

    async def place_of(self, job_id: str) -> tuple[str, str]:
        """The agent and the name of the job of that id."""
        for job in await self._client.jobs.list(all_agents=True):
            if job["id"] == job_id:
                return job["agentId"], job["name"]
        raise NotFound(f"no job '{job_id}'; list the jobs to see what there is")

    async def jobs(
        self, agent: str, include_disabled: bool, after: str | None, limit: int
    ) -> Sequence[JsonObject]:
        """Its jobs, by name."""
        found = await self._jobs(agent).list(include_disabled=include_disabled)
        return [cast(JsonObject, job) for job in found if after is None or job["name"] > after][:limit]

    async def pause(self, agent: str, name: str, note: Json, until: Json) -> JsonObject:
        """Stop its ticks, with a note and up to an instant where they are given."""
        return cast(
            JsonObject,
            await self._jobs(agent).pause(name, note=cast(str | None, note), until=cast(str | None, until)),
        )

    async def resume(self, agent: str, name: str) -> JsonObject:
        """Start its ticks again, from now."""
        return cast(JsonObject, await self._jobs(agent).resume(name))

    async def delete(self, agent: str, name: str) -> None:
        """Delete a job."""
        await self._jobs(agent).delete(name)

    async def run(
        self, agent: str, name: str, mode: str, payload: Json, overlap: Json = None
    ) -> JsonObject | None:
        """Run it now."""
        policy = cast(str | None, overlap)
        run = await self._jobs(agent).run(name, mode=mode, payload=payload, overlap_policy=policy)
        return cast(JsonObject | None, run)

    async def runs(self, agent: str, job_id: str | None, limit: int) -> Sequence[JsonObject]:
        """Its runs, newest first."""
        page = await self._client.runs.of(agent).list(job_id=job_id, limit=limit)
        return [cast(JsonObject, run) for run in page]

    async def status(self) -> JsonObject:
        """How the server is."""
        return await self._client.status()
