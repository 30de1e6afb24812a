"""The use cases of jobs. Reads are here; creation, edits, pauses and triggers are in the base classes.

Every call is authorized and checked whole before anything changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Final, NamedTuple

from wakeful.document import payload_from_text
from wakeful.engine.calendar_loader import load
from wakeful.errors import FailedPrecondition, InvalidArgument, NotFound
from wakeful.job.job import JobRecord, StaleJob
from wakeful.logs import get_logger
from wakeful.service.auth.access import Principal
from wakeful.service.jobs.bulk_actions import BulkActions
from wakeful.service.jobs.event_receiver import subscription_json
from wakeful.service.jobs.hooks import JobHooks
from wakeful.service.jobs.job_creation import JobCreator
from wakeful.service.jobs.job_editor import JobDependencies, JobEditor, JobGone, look_again
from wakeful.service.jobs.job_factory import SaveResult
from wakeful.service.jobs.job_query import JobQuery, find_job_of_any_agent, no_job
from wakeful.service.jobs.pauses import JobPauses
from wakeful.service.jobs.revision_rules import (
    Revision,
    build_revisions,
    document_of,
    lost_credentials,
    restoring_patch,
)
from wakeful.service.jobs.save_warnings import no_upstream
from wakeful.store.row_mapping import job_from_row
from wakeful.store.rows import JobOrder, JobRow, LabelFilter, RunView
from wakeful.values.json_value import Json

#: Before a payload of so many characters is read, the event loop has its turn.
_LARGE: Final = 16_384
#: Counts of jobs end here.
MOST_COUNTED: Final = 1_000
#: The number of runs that are returned with a job.
LAST_RUNS: Final = 5

log = get_logger("wakeful.service")


class JobReading(NamedTuple):
    """A job with what is returned together with it."""

    job: JobRecord
    has_hook: bool
    #: the state that its last precheck left; None if there is none
    precheck_state: Json
    #: the state of its subscription to the event in `on`; None if there is none
    subscription: Json
    #: what it used today: tokens and cost
    spent: dict[str, Json]
    #: its newest runs, newest first
    runs: Sequence[RunView]
    #: about the stored job: no job before it, or no channel for its output
    warnings: tuple[str, ...]


class JobService(JobCreator, JobPauses, BulkActions):
    """The use cases of jobs. Those that write are in its base classes."""

    def __init__(self, dependencies: JobDependencies) -> None:
        super().__init__(dependencies)
        self.hooks = JobHooks(dependencies, self)
        self.revisions = JobRevisions(dependencies, self)

    async def get(self, principal: Principal, workspace: str, agent: str, name: str) -> JobRecord:
        """Return the job of that name, or raise NotFound."""
        return job_from_row(await self.find_row(principal, "read", workspace, agent, name))

    async def read(self, principal: Principal, workspace: str, agent: str, name: str) -> JobReading:
        """Return the job of that name or id with what belongs to it, or raise NotFound."""
        await self._accounts.authorize(principal, "read", workspace, agent)
        found = await self._store.job_with_runs(workspace, agent, name, LAST_RUNS)
        if found is None:
            raise no_job(name)
        await load([found.job.timing], self._clock.now_ms())
        await self._load_names([found.job], found.runs)
        job = job_from_row(found.job)
        warnings: tuple[str, ...] = ()
        if job.definition.work.deliver:
            context = await self._accounts.context(job.workspace, job.agent)
            warnings = self._warnings.of_delivery(job, context.channel)
        warnings += self._warnings.of_event(found.job)
        after = job.definition.after
        if after is not None and not found.has_upstream:
            warnings = (*warnings, no_upstream(job.name, after.job))
        state = None if job.definition.work.precheck is None else payload_from_text(found.precheck_state)
        subscription = None
        if job.definition.work.on is not None:
            source = await self._store.event_source_of_job(job.id)
            subscription = None if source is None else subscription_json(source)
        return JobReading(
            job, found.has_hook, state, subscription, found.spent._asdict(), found.runs, warnings
        )

    async def by_id(self, principal: Principal, workspace: str, job_id: str) -> JobRecord:
        """Return the job of that id, or raise NotFound."""
        await self._accounts.authorize(principal, "read", workspace)
        row = await self._store.job_by_id(job_id)
        if row is None or row.workspace != workspace or principal.agent not in (None, row.agent):
            raise no_job(job_id)
        await load([row.timing], self._clock.now_ms())
        await self._load_names([row])
        return job_from_row(row)

    async def find(self, principal: Principal, workspace: str, job: str) -> JobRecord:
        """Return the job of that id, or of that name if only one agent has it.

        FailedPrecondition lists the jobs of that name if several agents have one.
        """
        await self._accounts.authorize(principal, "read", workspace)
        row = await find_job_of_any_agent(self._store, principal, workspace, job)
        await load([row.timing], self._clock.now_ms())
        await self._load_names([row])
        return job_from_row(row)

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
            await self._load_names(rows)
            for row in rows:
                if len(row.payload or "") > _LARGE:
                    await asyncio.sleep(0)
                try:
                    jobs.append(job_from_row(row))
                except InvalidArgument as error:
                    log.error("job.unreadable", **row.log_fields, error=error.message)
            if len(rows) < missing or len(jobs) == limit:
                break
            last = rows[-1]
            only = only._replace(
                after=(last.agent, last.name), after_tick=(last.wake_ms or 0, last.id), offset=0
            )
        if not jobs:
            await self._accounts.check_agent(principal, workspace, agent)
        return jobs

    async def _load_names(self, jobs: Sequence[JobRow], runs: Sequence[RunView] = ()) -> None:
        actors = chain((job.created_by for job in jobs), (run.triggered_by for run in runs))
        await self._accounts.names.load(actors)

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


class JobRevisions:
    """The revisions of jobs."""

    def __init__(self, dependencies: JobDependencies, editor: JobEditor) -> None:
        self._store = dependencies.store
        self._names = dependencies.accounts.names
        self._editor = editor

    async def list(self, principal: Principal, workspace: str, agent: str, name: str) -> list[Revision]:
        """Return the revisions of a job, the current one first, with who made each and what it changed."""
        row = await self._editor.find_row(principal, "read", workspace, agent, name)
        # In a thread: there are up to 50 documents, each with a payload.
        found = await asyncio.to_thread(
            build_revisions, job_from_row(row), await self._store.revisions(row.id)
        )
        await self._names.load(revision.by for revision in found)
        return found

    @look_again
    async def restore(
        self,
        principal: Principal,
        workspace: str,
        agent: str,
        name: str,
        revision: int,
        *,
        version: int | None = None,
    ) -> SaveResult:
        """Give a job the fields of an earlier revision: an edit, which is a new revision.

        Its pause and its secret stay. With `version`, only if the job is still at that version.
        FailedPrecondition: the fields had credentials, which are not kept.
        """
        job = job_from_row(await self._editor.find_row(principal, "job.write", workspace, agent, name))
        found = build_revisions(job, await self._store.revisions(job.id))
        wanted = next((each for each in found if each.version == revision), None)
        if wanted is None:
            raise NotFound(
                f"job '{job.name}' has no revision {revision}; list its revisions to see their numbers"
            )
        patch = restoring_patch(document_of(job.definition), wanted.document)
        lost = lost_credentials(patch)
        if lost:
            raise FailedPrecondition(
                f"revision {revision} had credentials in its {' and '.join(lost)}, which are not kept; edit "
                f"the job instead"
            )
        expected = job.version if version is None else version
        try:
            return await self._editor.update(principal, workspace, agent, job.id, patch, version=expected)
        except StaleJob as error:
            if version is not None:
                raise
            raise JobGone(error.message) from error  # changed meanwhile: what the patch must contain, too
