"""Create and read jobs. Every call is authorized and checked whole before anything changes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Final
from weakref import WeakValueDictionary

from wakeful.document import payload_from_text, read_definition
from wakeful.document.values import compact
from wakeful.engine.calendar_loader import compute_ticks, excludes_something, has_calendar, load
from wakeful.errors import AlreadyExists, InvalidArgument
from wakeful.job.capabilities import NOTHING, Requirement
from wakeful.job.job import Definition, JobRecord, Json, check_slug
from wakeful.logs import get_logger
from wakeful.service.auth.access import LOCAL, Principal
from wakeful.service.auth.accounts import JobContext
from wakeful.service.auth.agent_policy import check_not_internal, check_not_reserved
from wakeful.service.auth.masking import unmasked
from wakeful.service.jobs.bulk_actions import BulkActions, BulkPauses
from wakeful.service.jobs.create_batcher import CreateBatcher
from wakeful.service.jobs.hooks import JobHooks
from wakeful.service.jobs.job_editor import (
    JobDependencies,
    JobEditor,
    JobGone,
    audit_details,
    check_version,
    look_again,
)
from wakeful.service.jobs.job_factory import JobFactory, SaveResult, read_enabled
from wakeful.service.jobs.job_query import JobQuery, find_job, find_job_of_any_agent, no_job
from wakeful.service.jobs.pauses import JobPauses
from wakeful.service.jobs.revisions import JobRevisions
from wakeful.service.jobs.run_origin import AgentCall
from wakeful.service.jobs.save_warnings import (
    check_new_chain,
    missing_upstream,
    needs_trigger_url,
    no_upstream,
    waits_for_approval,
)
from wakeful.service.jobs.triggers import JobTriggers
from wakeful.store.idempotency import Keyed
from wakeful.store.row_mapping import job_of
from wakeful.store.rows import JobOrder, LabelFilter
from wakeful.values.bounded_cache import bypass
from wakeful.values.clock import Clock

#: How many documents are read before other requests have a turn.
_AT_ONCE: Final = 50

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
    """The use cases of jobs: create and read here, the others in the parts that it is composed of."""

    def __init__(self, dependencies: JobDependencies) -> None:
        self._store = dependencies.store
        self._accounts = dependencies.accounts
        self._target_policy = dependencies.target_policy
        self._allowance = dependencies.allowance
        self._warnings = dependencies.warnings
        self._origins = dependencies.origins
        self._factory = JobFactory(dependencies.launchers, dependencies.keyring, dependencies.lanes)
        #: by workspace: one that waits for a lock holds up no other
        self._batchers: WeakValueDictionary[str, CreateBatcher] = WeakValueDictionary()
        self._editor = JobEditor(dependencies)
        self.update = self._editor.update
        self.delete = self._editor.delete
        self.rotate_secret = self._editor.rotate_secret
        pauses = JobPauses(dependencies.store, dependencies.accounts, self._editor)
        self.pause = pauses.pause
        self.resume = pauses.resume
        self.skip_next = pauses.skip_next
        bulk = BulkPauses(dependencies.store, dependencies.accounts, dependencies.origins)
        self.pause_many = bulk.pause
        self.resume_many = bulk.resume
        self.triggers = JobTriggers(dependencies, self._editor)
        self.trigger = self.triggers.trigger
        self.backfill = self.triggers.backfill
        several = BulkActions(dependencies.store, dependencies.accounts, self.triggers, self._editor)
        self.run_many = several.run
        self.delete_many = several.delete
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
        await self._accounts.authorize(principal, "job.write", workspace, agent)
        call = await self._origins.call(principal, workspace, agent)
        charge = call.charge if call else None

        async def create(context: JobContext) -> SaveResult:
            with bypass() if dry_run else nullcontext():
                await self._read_calendars(context, [document])
                saved = self._new_job(principal, context, document, self._clock.now_ms(), call)
            [saved] = await self._with_warnings(context, [saved])
            if dry_run:
                if await self._store.job(workspace, agent, saved.row.name) is not None:
                    raise AlreadyExists(f"agent '{agent}' already has a job '{saved.row.name}'")
                await check_new_chain(self._store, saved.row)
                return saved
            entry = principal.entry(
                workspace, "job.create", f"{agent}/{saved.row.name}", audit_details(document)
            )
            if keyed is None and (call is None or call.run is None):
                batcher = self._batchers.setdefault(workspace, CreateBatcher(self._store, self._allowance))
                await batcher.add(saved.row, entry, context.inherited)
            else:  # not batched: waiting for another request with this key would delay the whole batch
                agents = {(workspace, agent): context.inherited}
                response: Keyed[None] | None = keyed.of(lambda _: saved) if keyed else None
                await self._store.create_jobs([saved.row], [entry], self._allowance, response, agents, charge)
            return saved

        return await self._accounts.with_context(workspace, check_slug(agent, "agent"), create)

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
        await self._accounts.authorize(principal, "job.write", workspace, agent)
        call = await self._origins.call(principal, workspace, agent)
        charge = call.charge if call else None

        async def create(context: JobContext) -> Sequence[SaveResult]:
            await self._read_calendars(context, documents)
            now_ms = self._clock.now_ms()
            made = []
            for number, document in enumerate(documents):
                if number % _AT_ONCE == _AT_ONCE - 1:
                    await asyncio.sleep(0)  # other requests have a turn
                try:
                    made.append(self._new_job(principal, context, document, now_ms, call))
                except InvalidArgument as error:
                    raise type(error)(f"jobs[{number}]: {error.message}") from error
            saved = await self._with_warnings(context, made)
            if saved:
                about: dict[str, Json] = {
                    "count": len(saved),
                    "first": saved[0].row.name,
                    "last": saved[-1].row.name,
                }
                entry = principal.entry(workspace, "job.create-many", agent, compact(about))
                rows, agents = [each.row for each in saved], {(workspace, agent): context.inherited}
                response: Keyed[None] | None = keyed.of(lambda _: saved) if keyed else None
                await self._store.create_jobs(rows, [entry], self._allowance, response, agents, charge)
            return saved

        return await self._accounts.with_context(workspace, check_slug(agent, "agent"), create)

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
        """Create the job or change it to match the document; with `version`, only if it is at that version.

        The same document again changes nothing: not the pause, the secret, the anchor or the next tick. With
        `dry_run`, all checks but the quotas are made and nothing is changed.
        """

        async def upsert() -> SaveResult:
            return await self._upsert(principal, workspace, agent, document, version, dry_run)

        return await look_again(upsert)

    async def _upsert(
        self,
        principal: Principal,
        workspace: str,
        agent: str,
        document: Mapping[str, object],
        version: int | None,
        dry_run: bool,
    ) -> SaveResult:
        await self._accounts.authorize(principal, "job.write", workspace, agent)
        name = document.get("name")
        check_not_internal(principal, str(name))
        row = await find_job(self._store, workspace, agent, name) if isinstance(name, str) else None
        if row is not None and row.name != name:  # the document names the job by its id
            document = {**document, "name": row.name}
            check_not_internal(principal, row.name)
        if row is None and version is not None:
            raise no_job(str(name))
        if row is None:
            try:
                return await self.create(principal, workspace, agent, document, dry_run=dry_run)
            except AlreadyExists as error:
                raise JobGone(error.message) from error  # created meanwhile: change that one
        read_enabled(document)
        call = await self._origins.call(principal, workspace, agent)
        now_ms = self._clock.now_ms()

        def converged(old: JobRecord, context: JobContext) -> Definition:
            check_version(old, version)
            given = unmasked(document, old.definition)
            if call is not None:
                given = call.completed(given, old.definition.work)
            return read_definition(given, now_ms=now_ms, defaults=context.defaults, old=old.definition)

        if has_calendar(row.timing) or excludes_something(document):
            context = await self._accounts.context(workspace, agent)
            with bypass() if dry_run else nullcontext():
                await compute_ticks(partial(converged, job_of(row), context), now_ms)
        entry = principal.entry(workspace, "job.update", f"{agent}/{row.name}", audit_details(document))
        return await self._editor.edit(principal, row, converged, entry, call=call, dry_run=dry_run)

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

    async def _read_calendars(self, context: JobContext, documents: Sequence[Mapping[str, object]]) -> None:
        """Compute what the calendars of new jobs exclude, off the event loop."""
        now_ms = self._clock.now_ms()
        for document in documents:
            if excludes_something(document):
                read = partial(read_definition, document, now_ms=now_ms, defaults=context.defaults)
                await compute_ticks(read, now_ms)

    async def _with_warnings(self, context: JobContext, saved: Sequence[SaveResult]) -> Sequence[SaveResult]:
        """Return new jobs of an agent with their warnings."""
        week = self._warnings.week(context.workspace)
        alone = await missing_upstream(self._store, [each.row for each in saved])
        met: set[Requirement] = {NOTHING}
        warned = []
        for each in saved:
            row = each.row
            found = waits_for_approval(row) + needs_trigger_url(row) + alone.get(row.name, ())
            if week is not None:
                found += self._warnings.of_schedule(row, week)
            if '"deliver"' in row.work:
                found += self._warnings.of_delivery(each.job, context.channel)
            if each.untargeted is not None or each.requirement not in met:
                of_job = await self._warnings.of_job(
                    row.workspace, row.agent, row.name, each.untargeted, each.requirement
                )
                if not of_job and each.untargeted is None:
                    met.add(each.requirement)
                found += of_job
            warned.append(each._replace(warnings=found) if found else each)
        return warned

    def _new_job(
        self,
        principal: Principal,
        context: JobContext,
        document: Mapping[str, object],
        now_ms: int,
        call: AgentCall | None,
    ) -> SaveResult:
        document = unmasked(document)
        if call is not None:
            document = call.completed(document)
        saved = self._factory.make(context, document, now_ms, principal.creator)
        if call is not None:
            saved = saved._replace(row=call.new_job(saved.row, context))
        if principal.role == "agent":
            check_not_internal(principal, saved.row.name)
            work = saved.job.definition.work
            self._target_policy.check(principal, work, context)
            self._target_policy.check_delivery(principal, work, context)
        check_not_reserved(saved.row.name)
        return saved
