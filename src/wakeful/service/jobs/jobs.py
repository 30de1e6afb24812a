"""The use cases of jobs. Reads are here; the parts that it is composed of write.

Every call is authorized and checked whole before anything changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from wakeful.document import payload_from_text
from wakeful.engine.calendar_loader import load
from wakeful.errors import InvalidArgument
from wakeful.job.job import JobRecord
from wakeful.logs import get_logger
from wakeful.service.auth.access import LOCAL, Principal
from wakeful.service.jobs.bulk_actions import BulkActions, BulkPauses, BulkResult, BulkRuns
from wakeful.service.jobs.hooks import JobHooks
from wakeful.service.jobs.job_creation import JobCreator
from wakeful.service.jobs.job_editor import (
    JobDependencies,
    JobEditor,
    SuggestionEdit,
)
from wakeful.service.jobs.job_factory import SaveResult
from wakeful.service.jobs.job_query import JobQuery, find_job_of_any_agent, no_job
from wakeful.service.jobs.job_selection import JobSelection
from wakeful.service.jobs.pauses import JobPauses, SkippedTick
from wakeful.service.jobs.revisions import JobRevisions
from wakeful.service.jobs.save_warnings import (
    no_upstream,
)
from wakeful.service.jobs.triggers import JobTriggers
from wakeful.store.idempotency import Keyed
from wakeful.store.row_mapping import job_of
from wakeful.store.rows import JobOrder, LabelFilter, RunView
from wakeful.values.clock import Clock
from wakeful.values.json_value import Json

#: Before a payload of so many characters is read, the event loop has its turn.
_LARGE: Final = 16_384
#: Counts of jobs end here.
MOST_COUNTED: Final = 1_000
#: How many jobs one request creates.
MAX_BATCH: Final = 1_000

log = get_logger("wakeful.service")


def read_batch(document: Mapping[str, object]) -> list[dict[str, object]]:
    """Return the documents of the jobs that a request creates.

    >>> read_batch({"jobs": [{"name": "digest"}]})
    [{'name': 'digest'}]
    """
    jobs = document.get("jobs")
    if not isinstance(jobs, list) or not 1 <= len(jobs) <= MAX_BATCH:
        raise InvalidArgument(f"jobs: write a list of 1 to {MAX_BATCH} jobs")
    for number, job in enumerate(jobs):
        if not isinstance(job, dict):
            raise InvalidArgument(f"jobs[{number}]: write an object with a name and a schedule")
    return jobs


class JobService:
    """The use cases of jobs: read here, the others in the parts that it is composed of."""

    def __init__(self, dependencies: JobDependencies) -> None:
        self._store = dependencies.store
        self._accounts = dependencies.accounts
        self._warnings = dependencies.warnings
        self._editor = JobEditor(dependencies)
        self._creator = JobCreator(dependencies, self._editor)
        self._pauses = JobPauses(dependencies.store, dependencies.accounts, self._editor)
        self._bulk_pauses = BulkPauses(dependencies.store, dependencies.accounts, dependencies.origins)
        self.triggers = JobTriggers(dependencies, self._editor)
        self._bulk_actions = BulkActions(
            dependencies.store, dependencies.accounts, self.triggers, self._editor
        )
        self.hooks = JobHooks(dependencies, self._editor)
        self.revisions = JobRevisions(dependencies, self._editor)

    @property
    def _clock(self) -> Clock:
        return self._store.clock

    async def create(
        self,
        principal: Principal,
        workspace: str,
        agent: str,
        document: Mapping[str, object],
        *,
        dry_run: bool = False,
        keyed: Keyed[SaveResult] | None = None,
    ) -> SaveResult:
        """Create a job; AlreadyExists if the name is taken. `dry_run` is as in `upsert`."""
        return await self._creator.create(principal, workspace, agent, document, dry_run=dry_run, keyed=keyed)

    async def create_many(
        self,
        principal: Principal,
        workspace: str,
        agent: str,
        documents: Sequence[Mapping[str, object]],
        *,
        keyed: Keyed[Sequence[SaveResult]] | None = None,
    ) -> Sequence[SaveResult]:
        """Create many jobs in one transaction, all or none, with one audit entry."""
        return await self._creator.create_many(principal, workspace, agent, documents, keyed=keyed)

    async def upsert(
        self,
        principal: Principal,
        workspace: str,
        agent: str,
        document: Mapping[str, object],
        *,
        version: int | None = None,
        dry_run: bool = False,
    ) -> SaveResult:
        """Create the job or change it to match the document: `JobCreator.upsert`."""
        return await self._creator.upsert(
            principal, workspace, agent, document, version=version, dry_run=dry_run
        )

    async def update(
        self,
        principal: Principal,
        workspace: str,
        agent: str,
        name: str,
        patch: Mapping[str, object],
        *,
        version: int | None = None,
        suggestion: SuggestionEdit | None = None,
    ) -> SaveResult:
        """Change fields of a job: `JobEditor.update`."""
        return await self._editor.update(
            principal, workspace, agent, name, patch, version=version, suggestion=suggestion
        )

    async def delete(
        self, principal: Principal, workspace: str, agent: str, name: str, *, version: int | None = None
    ) -> tuple[str, ...]:
        """Delete the job and return warnings: `JobEditor.delete`."""
        return await self._editor.delete(principal, workspace, agent, name, version=version)

    async def rotate_secret(
        self,
        principal: Principal,
        workspace: str,
        agent: str,
        name: str,
        *,
        version: int | None = None,
        keyed: Keyed[SaveResult] | None = None,
    ) -> SaveResult:
        """Give the job a new webhook secret: `JobEditor.rotate_secret`."""
        return await self._editor.rotate_secret(
            principal, workspace, agent, name, version=version, keyed=keyed
        )

    async def pause(
        self,
        principal: Principal,
        workspace: str,
        agent: str,
        name: str,
        *,
        note: object = None,
        until: object = None,
        version: int | None = None,
    ) -> JobRecord:
        """Stop the ticks of a job: `JobPauses.pause`."""
        return await self._pauses.pause(
            principal, workspace, agent, name, note=note, until=until, version=version
        )

    async def resume(
        self, principal: Principal, workspace: str, agent: str, name: str, *, version: int | None = None
    ) -> JobRecord:
        """Start the ticks of a job again, from now."""
        return await self._pauses.resume(principal, workspace, agent, name, version=version)

    async def skip_next(
        self, principal: Principal, workspace: str, agent: str, name: str, *, version: int | None = None
    ) -> SkippedTick:
        """Record the next tick of a job as skipped: `JobPauses.skip_next`."""
        return await self._pauses.skip_next(principal, workspace, agent, name, version=version)

    async def pause_many(
        self,
        principal: Principal,
        workspace: str,
        selection: JobSelection,
        *,
        note: object = None,
        until: object = None,
        dry_run: bool = False,
    ) -> BulkResult:
        """Pause the selected jobs."""
        return await self._bulk_pauses.pause(
            principal, workspace, selection, note=note, until=until, dry_run=dry_run
        )

    async def resume_many(
        self, principal: Principal, workspace: str, selection: JobSelection, *, dry_run: bool = False
    ) -> BulkResult:
        """Resume the selected jobs, from now."""
        return await self._bulk_pauses.resume(principal, workspace, selection, dry_run=dry_run)

    async def trigger(
        self,
        principal: Principal,
        workspace: str,
        agent: str,
        name: str,
        *,
        mode: object = "force",
        payload: object = None,
        overlap: object = None,
        version: int | None = None,
        keyed: Keyed[RunView | None] | None = None,
    ) -> RunView | None:
        """Run a job now: `JobTriggers.trigger`."""
        return await self.triggers.trigger(
            principal,
            workspace,
            agent,
            name,
            mode=mode,
            payload=payload,
            overlap=overlap,
            version=version,
            keyed=keyed,
        )

    async def backfill(
        self,
        principal: Principal,
        workspace: str,
        agent: str,
        name: str,
        start: object,
        end: object,
        *,
        overlap: object = None,
        version: int | None = None,
        keyed: Keyed[int] | None = None,
    ) -> int:
        """Run the ticks of a past range and return their number: `JobTriggers.backfill`."""
        return await self.triggers.backfill(
            principal, workspace, agent, name, start, end, overlap=overlap, version=version, keyed=keyed
        )

    async def run_many(
        self,
        principal: Principal,
        workspace: str,
        selection: JobSelection,
        *,
        mode: object = "force",
        payload: object = None,
        overlap: object = None,
        dry_run: bool = False,
    ) -> BulkRuns:
        """Run the selected jobs now."""
        return await self._bulk_actions.run(
            principal, workspace, selection, mode=mode, payload=payload, overlap=overlap, dry_run=dry_run
        )

    async def delete_many(
        self, principal: Principal, workspace: str, selection: JobSelection, *, dry_run: bool = False
    ) -> BulkResult:
        """Delete the selected jobs. The warnings name jobs that are left."""
        return await self._bulk_actions.delete(principal, workspace, selection, dry_run=dry_run)

    async def get(self, principal: Principal, workspace: str, agent: str, name: str) -> JobRecord:
        """Return the job of that name, or raise NotFound."""
        return job_of(await self._editor.find(principal, "read", workspace, agent, name))

    async def warnings_of(self, job: JobRecord) -> tuple[str, ...]:
        """Return the warnings about a stored job: no job before it, or no channel for its output."""
        found: tuple[str, ...] = ()
        if job.definition.work.deliver:
            context = await self._accounts.context(job.workspace, job.agent)
            found = self._warnings.of_delivery(job, context.channel)
        after = job.definition.after
        if after is None or await self._store.job(job.workspace, job.agent, after.job) is not None:
            return found
        return (*found, no_upstream(job.name, after.job))

    async def precheck_state(self, job: JobRecord) -> Json:
        """Return the state that the last precheck of a job left; None if there is none."""
        if job.definition.work.precheck is None:
            return None
        return payload_from_text(await self._store.precheck_state(job.id))

    async def by_id(self, principal: Principal, workspace: str, job_id: str) -> JobRecord:
        """Return the job of that id, or raise NotFound."""
        await self._accounts.authorize(principal, "read", workspace)
        row = await self._store.job_by_id(job_id)
        if row is None or row.workspace != workspace or principal.agent not in (None, row.agent):
            raise no_job(job_id)
        await load([row.timing], self._clock.now_ms())
        return job_of(row)

    async def find(self, principal: Principal, workspace: str, job: str) -> JobRecord:
        """Return the job of that id, or of that name if only one agent has it.

        FailedPrecondition lists the jobs of that name if several agents have one.
        """
        await self._accounts.authorize(principal, "read", workspace)
        row = await find_job_of_any_agent(self._store, principal, workspace, job)
        await load([row.timing], self._clock.now_ms())
        return job_of(row)

    async def list(
        self,
        principal: Principal,
        workspace: str,
        agent: str | None = None,
        *,
        include_disabled: bool = True,
        labels: LabelFilter = (),
        after: tuple[str, str] | None = None,
        limit: int = 1_000,
        query: JobQuery | None = None,
        order: JobOrder = "name",
        after_tick: tuple[int, str] | None = None,
        offset: int = 0,
    ) -> list[JobRecord]:
        """List jobs, by agent and name, that come after the pair (agent, name), without the first ones.

        With the order `next`, the jobs that have a next tick, by that tick, after the pair (wake_ms, id). A
        job that cannot be read is logged and left out; less than `limit` jobs are the last ones. `query` is a
        further filter, without agent and labels.
        """
        await self._accounts.authorize(principal, "read", workspace, agent)
        query = replace(query or JobQuery(), agent=agent, labels=labels)
        only = query.filter(principal, workspace)._replace(
            include_disabled=include_disabled,
            after=after,
            order=order,
            after_tick=after_tick,
            offset=offset,
        )
        jobs: list[JobRecord] = []
        while True:
            missing = limit - len(jobs)
            rows = await self._store.jobs(only._replace(limit=missing))
            for row in rows:
                if len(row.payload or "") > _LARGE:
                    await asyncio.sleep(0)
                try:
                    jobs.append(job_of(row))
                except InvalidArgument as error:
                    log.error("job.unreadable", **row.log_fields, error=error.message)
            if len(rows) < missing or len(jobs) == limit:
                break
            last = rows[-1]
            only = only._replace(
                after=(last.agent, last.name), after_tick=(last.wake_ms or 0, last.id), offset=0
            )
        if not jobs and agent not in (None, principal.agent) and principal is not LOCAL:
            await self._accounts.agent(workspace, agent)
        return jobs

    async def count(
        self,
        principal: Principal,
        workspace: str,
        query: JobQuery,
        *,
        include_disabled: bool = True,
        most: int = MOST_COUNTED,
    ) -> int:
        """Return how many jobs a filter finds; one more than `most` if there are more."""
        await self._accounts.authorize(principal, "read", workspace, query.agent)
        only = query.filter(principal, workspace)._replace(include_disabled=include_disabled)
        return await self._store.count_jobs(only, most + 1)
