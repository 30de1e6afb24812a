"""MCP on stdin and stdout, for clients that start their servers themselves: `wakeful mcp`.

The scheduler of the tool is then the HTTP API of a server.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final, cast

from mcp.server.stdio import stdio_server

from wakeful.api.mcp.server import make_server
from wakeful.client.connection import check_next
from wakeful.client.instances import to_event
from wakeful.client.rest import RestClient
from wakeful.errors import NotFound
from wakeful.service.cron_tool.port import CallContext, JsonObject
from wakeful.signal.signals import Signal
from wakeful.values.ids import is_id
from wakeful.values.json_value import Json

#: Seconds for which the clock of the server is extrapolated with the local one.
_CACHED_S: Final = 30.0
#: How many instances are read at once.
_PAGE: Final = 500


class RemoteScheduler:
    """Calls a server with the key of the client. `agent` is the agent of calls that name none."""

    def __init__(self, client: RestClient, agent: str | None = None) -> None:
        self._client = client
        self._agent = agent
        self._known: dict[str, tuple[float, CallContext]] = {}

    async def context(self, agent: str | None) -> CallContext:
        """Return the time, the zone and the agent."""
        named = agent or self._agent or ""
        known = self._known.get(named)
        if known is None or time.monotonic() - known[0] > _CACHED_S:
            known = time.monotonic(), await self._fetch_context(named)
            self._known = {named: known}
        since, context = known
        elapsed_ms = round((time.monotonic() - since) * 1000)
        return CallContext(context.now_ms + elapsed_ms, context.tz, context.agent)

    async def _fetch_context(self, named: str) -> CallContext:
        status = await self._client.get_status()
        name = named or str(status.get("agentId") or "default")
        tz = str(status.get("tz") or "UTC")
        if name != (status.get("agentId") or "default"):
            with suppress(NotFound):  # the agent need not exist yet
                tz = (await self._client.get_agent(name))["tz"] or tz
        return CallContext(cast(int, status["nowMs"]), tz, name)

    async def create(self, agent: str, document: Mapping[str, Json]) -> JsonObject:
        """Create a job."""
        return cast(JsonObject, await self._client.create_job(agent, document))

    async def dry_run(self, agent: str, document: Mapping[str, Json]) -> None:
        """Raise the errors of a document, and change nothing."""
        await self._client.check_job(agent, document)

    async def update(self, agent: str, name: str, patch: Mapping[str, Json]) -> JsonObject:
        """Change the fields of the patch."""
        return cast(JsonObject, await self._client.update_job(agent, name, patch))

    async def get(self, agent: str, name: str) -> JsonObject:
        """Return the job with its next ticks."""
        return cast(JsonObject, await self._client.get_job(agent, name))

    async def find_by_id(self, job_id: str) -> tuple[str, str]:
        """Return the agent and the name of the job with that id."""
        if is_id(job_id):
            job = await self._client.find_job(job_id)
            if job["id"] == job_id:
                return job["agentId"], job["name"]
        raise NotFound(f"no job '{job_id}'; list the jobs to see their names")

    async def jobs(
        self, agent: str, include_disabled: bool, after: str | None, limit: int
    ) -> Sequence[JsonObject]:
        """List the jobs of an agent, by name."""
        found = await self._client.list_every_job(agent, include_disabled=include_disabled)
        return [cast(JsonObject, job) for job in found if after is None or job["name"] > after][:limit]

    async def pause(self, agent: str, name: str, note: Json, until: Json) -> JsonObject:
        """Pause a job, with an optional note and end."""
        job = await self._client.pause_job(agent, name, note=cast(str | None, note), until=until)
        return cast(JsonObject, job)

    async def resume(self, agent: str, name: str) -> JsonObject:
        """Resume a job."""
        return cast(JsonObject, await self._client.resume_job(agent, name))

    async def delete(self, agent: str, name: str) -> Sequence[str]:
        """Delete a job."""
        return await self._client.delete_job(agent, name)

    async def run(
        self, agent: str, name: str, mode: str, payload: Json, overlap: Json = None
    ) -> JsonObject | None:
        """Run a job now."""
        policy = cast(str | None, overlap)
        run = await self._client.run_job(agent, name, mode=mode, payload=payload, overlap_policy=policy)
        return cast(JsonObject | None, run)

    async def runs(self, agent: str, job_id: str | None, limit: int) -> Sequence[JsonObject]:
        """List the runs of an agent or of one job, newest first."""
        page = await self._client.list_all_runs(agent=agent, job_id=job_id, limit=limit)
        return [cast(JsonObject, run) for run in page]

    async def instances(self, agent: str, after: str | None, limit: int) -> Sequence[JsonObject]:
        """List the instances of an agent, by id."""
        found: list[JsonObject] = []
        cursor: str | None = None
        while len(found) < limit:
            page = await self._client.list_instances(agent, limit=_PAGE, cursor=cursor)
            found += [cast(JsonObject, each) for each in page if after is None or each["id"] > after]
            if page.cursor is None:
                break
            cursor = check_next(cursor, page.cursor)
        return found[:limit]

    async def instance(self, agent: str, id: str) -> JsonObject:
        """Return an instance with its schedules."""
        return cast(JsonObject, await self._client.get_instance(agent, id))

    async def send(self, agent: str, id: str, signal: Signal) -> JsonObject:
        """Send a signal to an instance."""
        (sent,) = await self._client.send_events(agent, id, [to_event(signal)])
        return cast(JsonObject, sent)

    async def status(self) -> JsonObject:
        """Return the status of the server and the workspace."""
        return await self._client.get_status()


async def serve_stdio(client: RestClient, agent: str | None = None) -> None:
    """Serve until stdin closes. The server that the client calls need not be running yet."""
    scheduler = RemoteScheduler(client, agent)
    server = make_server(lambda ctx: scheduler)
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())
