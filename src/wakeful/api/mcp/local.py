"""The scheduler of this process, as the tool asks it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from wakeful.api.mcp.port import CallContext, JsonObject
from wakeful.job import JobRecord, Json
from wakeful.service.auth.access import Principal
from wakeful.service.serializers import serialize_job, serialize_run, serialize_saved_job
from wakeful.service.services import Services

_LAST_RUNS: Final = 5


class LocalScheduler:
    """The service layer, for one who asks. `agent` is whose jobs they are where a call names no agent."""

    def __init__(
        self, services: Services, principal: Principal, workspace: str | None = None, agent: str | None = None
    ) -> None:
        self._services = services
        self._principal = principal
        self._workspace = workspace or principal.workspace or "default"
        self._agent = agent or principal.agent or "default"

    @property
    def _now_ms(self) -> int:
        return self._services.now_ms()

    async def standing(self, agent: str | None) -> CallContext:
        """The time, the zone and the agent."""
        name = agent or self._agent
        return CallContext(
            self._now_ms, await self._services.status.zone(self._principal, self._workspace, name), name
        )

    async def create(self, agent: str, document: Mapping[str, Json]) -> JsonObject:
        """Add a job."""
        saved = await self._services.jobs.create(self._principal, self._workspace, agent, document)
        return serialize_saved_job(self._principal, saved, self._now_ms)

    async def check(self, agent: str, document: Mapping[str, Json]) -> None:
        """Raise what is wrong with a document, and change nothing."""
        await self._services.jobs.upsert(self._principal, self._workspace, agent, document, dry_run=True)

    async def update(self, agent: str, name: str, patch: Mapping[str, Json]) -> JsonObject:
        """Change the fields that are named."""
        saved = await self._services.jobs.update(self._principal, self._workspace, agent, name, patch)
        return serialize_saved_job(self._principal, saved, self._now_ms)

    async def get(self, agent: str, name: str) -> JsonObject:
        """The job with its next ticks and its last runs."""
        job = await self._services.jobs.get(self._principal, self._workspace, agent, name)
        last = await self.runs(job.agent, job.id, _LAST_RUNS)
        return {**self._shown(job), "lastRuns": [*last]}

    def _shown(self, job: JobRecord) -> JsonObject:
        return serialize_job(self._principal, job, self._now_ms, ticks=5)

    async def place_of(self, job_id: str) -> tuple[str, str]:
        """The agent and the name of the job of that id."""
        job = await self._services.jobs.by_id(self._principal, self._workspace, job_id)
        return job.agent, job.name

    async def jobs(
        self, agent: str, include_disabled: bool, after: str | None, limit: int
    ) -> Sequence[JsonObject]:
        """Its jobs, by name."""
        found = await self._services.jobs.list(
            self._principal,
            self._workspace,
            agent,
            include_disabled=include_disabled,
            after=None if after is None else (agent, after),
            limit=limit,
        )
        return [serialize_job(self._principal, job) for job in found]

    async def pause(self, agent: str, name: str, note: Json, until: Json) -> JsonObject:
        """Stop its ticks, with a note and up to an instant where they are given."""
        jobs = self._services.jobs
        job = await jobs.pause(self._principal, self._workspace, agent, name, note=note, until=until)
        return self._shown(job)

    async def resume(self, agent: str, name: str) -> JsonObject:
        """Start its ticks again, from now."""
        return self._shown(await self._services.jobs.resume(self._principal, self._workspace, agent, name))

    async def delete(self, agent: str, name: str) -> None:
        """Delete a job."""
        await self._services.jobs.delete(self._principal, self._workspace, agent, name)

    async def run(
        self, agent: str, name: str, mode: str, payload: Json, overlap: Json = None
    ) -> JsonObject | None:
        """Run it now."""
        run = await self._services.jobs.trigger(
            self._principal,
            self._workspace,
            agent,
            name,
            mode=mode,
            payload=payload,
            overlap=overlap,
        )
        return None if run is None else serialize_run(run)

    async def runs(self, agent: str, job_id: str | None, limit: int) -> Sequence[JsonObject]:
        """Its runs, newest first."""
        found = await self._services.runs.list(
            self._principal, self._workspace, agent, job_id=job_id, limit=limit
        )
        return [serialize_run(run) for run in found]

    async def status(self) -> JsonObject:
        """How the server is."""
        return await self._services.status.status(self._principal, self._workspace)
