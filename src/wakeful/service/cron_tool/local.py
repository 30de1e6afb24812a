"""The scheduler of the tool in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from wakeful.job.job import JobRecord
from wakeful.service.auth.access import Principal
from wakeful.service.cron_tool.port import CallContext, JsonObject
from wakeful.service.serializers import (
    serialize_instance,
    serialize_instance_details,
    serialize_job,
    serialize_received,
    serialize_run,
    serialize_runs,
    serialize_saved_job,
)
from wakeful.service.services import Services
from wakeful.signal.signals import Signal
from wakeful.values.json_value import Json

_LAST_RUNS: Final = 5


class LocalScheduler:
    """Calls the services for one principal. `agent` is the agent of calls that name none."""

    def __init__(
        self, services: Services, principal: Principal, workspace: str | None = None, agent: str | None = None
    ) -> None:
        self._services = services
        self._principal = principal
        #: the first arguments of a service call
        self._caller = principal, workspace or principal.workspace or "default"
        self._agent = agent or principal.agent or "default"

    @property
    def _now_ms(self) -> int:
        return self._services.now_ms()

    async def context(self, agent: str | None) -> CallContext:
        """Return the time, the zone and the agent."""
        name = agent or self._agent
        return CallContext(self._now_ms, await self._services.admin.status.zone(*self._caller, name), name)

    async def create(self, agent: str, document: Mapping[str, Json]) -> JsonObject:
        """Create a job."""
        saved = await self._services.jobs.create(*self._caller, agent, document)
        return serialize_saved_job(self._principal, saved, self._now_ms)

    async def dry_run(self, agent: str, document: Mapping[str, Json]) -> None:
        """Raise the errors of a document, and change nothing."""
        await self._services.jobs.upsert(*self._caller, agent, document, dry_run=True)

    async def update(self, agent: str, name: str, patch: Mapping[str, Json]) -> JsonObject:
        """Change the fields of the patch."""
        saved = await self._services.jobs.update(*self._caller, agent, name, patch)
        return serialize_saved_job(self._principal, saved, self._now_ms)

    async def get(self, agent: str, name: str) -> JsonObject:
        """Return the job with its next ticks and its last runs."""
        job = await self._services.jobs.get(*self._caller, agent, name)
        last = await self.runs(job.agent, job.id, _LAST_RUNS)
        rights = await self._services.rights.load(*self._caller, (job.agent,))
        return {**self._serialize(job), "may": [*rights.job(job)], "lastRuns": [*last]}

    def _serialize(self, job: JobRecord) -> JsonObject:
        return serialize_job(self._principal, job, self._now_ms, ticks=5)

    async def find_by_id(self, job_id: str) -> tuple[str, str]:
        """Return the agent and the name of the job with that id."""
        job = await self._services.jobs.by_id(*self._caller, job_id)
        return job.agent, job.name

    async def jobs(
        self, agent: str, include_disabled: bool, after: str | None, limit: int
    ) -> Sequence[JsonObject]:
        """List the jobs of an agent, by name."""
        found = await self._services.jobs.list(
            *self._caller,
            agent,
            include_disabled=include_disabled,
            after=None if after is None else (agent, after),
            limit=limit,
        )
        rights = await self._services.rights.load(*self._caller, (agent,))
        return [serialize_job(self._principal, job, rights=rights) for job in found]

    async def pause(self, agent: str, name: str, note: Json, until: Json) -> JsonObject:
        """Pause a job, with an optional note and end."""
        jobs = self._services.jobs
        job = await jobs.pause(*self._caller, agent, name, note=note, until=until)
        return self._serialize(job)

    async def resume(self, agent: str, name: str) -> JsonObject:
        """Resume a job."""
        return self._serialize(await self._services.jobs.resume(*self._caller, agent, name))

    async def delete(self, agent: str, name: str) -> Sequence[str]:
        """Delete a job."""
        return await self._services.jobs.delete(*self._caller, agent, name)

    async def run(
        self, agent: str, name: str, mode: str, payload: Json, overlap: Json = None
    ) -> JsonObject | None:
        """Run a job now."""
        run = await self._services.jobs.trigger(
            *self._caller,
            agent,
            name,
            mode=mode,
            payload=payload,
            overlap=overlap,
        )
        return None if run is None else serialize_run(run)

    async def runs(self, agent: str, job_id: str | None, limit: int) -> Sequence[JsonObject]:
        """List the runs of an agent or of one job, newest first."""
        found = await self._services.runs.list(*self._caller, agent, job_id=job_id, limit=limit)
        rights = await self._services.rights.load(*self._caller, runs=found)
        return await serialize_runs(found, rights)

    async def instances(self, agent: str, after: str | None, limit: int) -> Sequence[JsonObject]:
        """List the instances of an agent, by id."""
        found = await self._services.agents.instances.list(
            *self._caller,
            agent,
            after=None if after is None else (agent, after),
            limit=limit,
        )
        rights = await self._services.rights.load(*self._caller)
        return [serialize_instance(view, rights) for view in found]

    async def instance(self, agent: str, id: str) -> JsonObject:
        """Return an instance with its schedules."""
        details = await self._services.agents.instances.get(*self._caller, agent, id)
        rights = await self._services.rights.load(*self._caller, (agent,))
        return serialize_instance_details(self._principal, details, rights)

    async def send(self, agent: str, id: str, signal: Signal) -> JsonObject:
        """Send a signal to an instance."""
        (sent,) = await self._services.agents.signals.send(*self._caller, agent, id, [signal])
        return serialize_received(sent)

    async def status(self) -> JsonObject:
        """Return the status of the server and the workspace."""
        return await self._services.admin.status.status(*self._caller)
