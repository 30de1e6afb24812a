"""Create jobs, one or many, or change a job to match its document. All is checked before it is written.

Concurrent creates are written in one transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from wakeful.document import read_definition
from wakeful.engine.calendar_loader import compute_ticks, excludes_something, has_calendar
from wakeful.errors import AlreadyExists, Unavailable
from wakeful.job.job import Definition, InvalidChain, JobRecord, check_slug
from wakeful.job.start_rules import NOTHING, Requirement
from wakeful.service.auth.access import Principal
from wakeful.service.auth.accounts import JobContext
from wakeful.service.auth.agent_policy import check_not_internal, check_not_reserved
from wakeful.service.auth.masking import unmask
from wakeful.service.batcher import Batcher
from wakeful.service.jobs.job_batches import (
    DOCUMENT_ERRORS,
    check_owner,
    describe_batch,
    find_conflicts,
    join_errors,
    split_error,
)
from wakeful.service.jobs.job_editor import (
    JobDependencies,
    JobEditor,
    JobGone,
    audit_details,
    check_version,
    look_again,
)
from wakeful.service.jobs.job_factory import JobFactory, SaveResult, read_enabled
from wakeful.service.jobs.job_query import find_job, no_job
from wakeful.service.jobs.run_origin import AgentCall
from wakeful.service.jobs.save_warnings import (
    check_new_chain,
    missing_upstream,
    needs_trigger_url,
    waits_for_approval,
)
from wakeful.store.accounts import AgentChanged, Inherited
from wakeful.store.audit import AuditEntry
from wakeful.store.idempotency import Keyed, is_claiming
from wakeful.store.row_mapping import job_from_row
from wakeful.store.rows import JobRow
from wakeful.values.bounded_cache import bypass
from wakeful.values.json_value import compact

#: How many documents are read before other requests have a turn.
_AT_ONCE: Final = 50
_LARGEST_BATCH: Final = 500


class _NewJob(NamedTuple):
    """A job to write, and what it inherits from its agent."""

    row: JobRow
    entry: AuditEntry
    agent: Inherited


class JobCreator(JobEditor):
    """Writes new jobs, and documents of jobs."""

    def __init__(self, dependencies: JobDependencies) -> None:
        super().__init__(dependencies)
        self._allowance = dependencies.allowance
        self._factory = JobFactory(dependencies.launchers, dependencies.keyring, dependencies.lanes)
        #: by workspace: one that waits for a lock holds up no other
        self._batchers: WeakValueDictionary[str, Batcher[_NewJob, None]] = WeakValueDictionary()

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
        check_owner(document, agent)
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
            if keyed is None and not is_claiming() and (call is None or call.run is None):
                await self._batcher(workspace).add(_NewJob(saved.row, entry, context.inherited))
            else:  # not batched: waiting for another request with this key would delay the whole batch
                agents = {(workspace, agent): context.inherited}
                response: Keyed[None] | None = keyed.of(lambda _: saved) if keyed else None
                await self._store.create_jobs([saved.row], [entry], self._allowance, response, agents, charge)
            return saved

        return await self._accounts.with_context(workspace, check_slug(agent, "agent"), create)

    def _batcher(self, workspace: str) -> Batcher[_NewJob, None]:
        new = Batcher("wakeful-creates", self._write_new, most=_LARGEST_BATCH, is_of_one=_is_of_one)
        return self._batchers.setdefault(workspace, new)

    async def _write_new(self, batch: Sequence[_NewJob]) -> Sequence[None]:
        agents: dict[tuple[str, str], Inherited] = {}
        for job, _, agent in batch:
            if agents.setdefault((job.workspace, job.agent), agent) != agent:
                raise AgentChanged(job.agent)  # one of the two has an outdated agent
        rows, entries = [each.row for each in batch], [each.entry for each in batch]
        await self._store.create_jobs(rows, entries, self._allowance, agents=agents)
        return [None] * len(batch)

    async def create_many(
        self,
        principal: Principal,
        workspace: str,
        agent: str,
        documents: Sequence[Mapping[str, object]],
        *,
        dry_run: bool = False,
        keyed: Keyed[Sequence[SaveResult]] | None = None,
    ) -> Sequence[SaveResult]:
        """Create many jobs in one transaction, all or none, with one audit entry.

        An error has the errors of all documents (`errors`). `dry_run` is as in `upsert`.
        """
        await self._accounts.authorize(principal, "job.write", workspace, agent)
        call = await self._origins.call(principal, workspace, agent)
        charge = call.charge if call else None

        async def create(context: JobContext) -> Sequence[SaveResult]:
            made: dict[int, SaveResult] = {}
            errors = []
            now_ms = self._clock.now_ms()
            for index, document in enumerate(documents):
                if index % _AT_ONCE == _AT_ONCE - 1:
                    await asyncio.sleep(0)  # other requests have a turn
                try:
                    check_owner(document, agent)
                    if excludes_something(document):
                        await self._read_calendars(context, [document])
                    made[index] = self._new_job(principal, context, document, now_ms, call)
                except DOCUMENT_ERRORS as error:
                    errors += split_error(index, error)
            rows = {index: each.row for index, each in made.items()}
            if errors or dry_run:
                errors += await find_conflicts(self._store, workspace, agent, rows)
            if errors:
                raise join_errors(errors)
            saved = await self._with_warnings(context, [*made.values()])
            if dry_run or not saved:
                return saved
            entry = principal.entry(
                workspace, "job.create-many", agent, compact(describe_batch(rows.values()))
            )
            response: Keyed[None] | None = None
            if keyed is not None:  # not in the transaction, which others wait for
                stored = await asyncio.to_thread(keyed.render, saved)
                response = Keyed(keyed.workspace, keyed.key, keyed.fingerprint, lambda _: stored)
            agents = {(workspace, agent): context.inherited}
            try:
                await self._store.create_jobs(
                    [*rows.values()], [entry], self._allowance, response, agents, charge
                )
            except (AlreadyExists, InvalidChain) as error:
                errors = await find_conflicts(self._store, workspace, agent, rows)
                raise (join_errors(errors) if errors else error) from error
            return saved

        return await self._accounts.with_context(workspace, check_slug(agent, "agent"), create)

    @look_again
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
        await self._accounts.authorize(principal, "job.write", workspace, agent)
        check_owner(document, agent)
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
            given = unmask(document, old.definition)
            if call is not None:
                given = call.completed(given, old.definition.work)
            return read_definition(given, now_ms=now_ms, defaults=context.defaults, old=old.definition)

        if has_calendar(row.timing) or excludes_something(document):
            context = await self._accounts.context(workspace, agent)
            with bypass() if dry_run else nullcontext():
                await compute_ticks(partial(converged, job_from_row(row), context), now_ms)
        entry = principal.entry(workspace, "job.update", f"{agent}/{row.name}", audit_details(document))
        return await self.edit(principal, row, converged, entry, call=call, dry_run=dry_run)

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
        for number, each in enumerate(saved, 1):
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
            row = each.row
            found = waits_for_approval(row) + needs_trigger_url(row) + alone.get(row.name, ())
            found += self._warnings.of_event(row)
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
        document = unmask(document)
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


def _is_of_one(error: Exception) -> bool:
    """Return whether one job of a batch may be the cause of its error."""
    return not isinstance(error, Unavailable) or isinstance(error, AgentChanged)
