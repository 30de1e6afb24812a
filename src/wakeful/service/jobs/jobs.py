"""What can be done with jobs: permitted, charged and written down. Everything is judged whole before anything
changes. What becomes of one that is there is in `job_changes`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial

from wakeful.bounded_cache import bypass
from wakeful.document import Defaults, read_definition
from wakeful.document.values import compact
from wakeful.engine.calendar_loader import excludes_something, has_calendar, load, off_loop, work_out
from wakeful.engine.launcher_registry import LauncherRegistry
from wakeful.errors import AlreadyExists, InvalidArgument
from wakeful.job import Definition, JobRecord, Json, check_slug
from wakeful.launch.secrets import Keyring
from wakeful.logs import get_logger
from wakeful.service.admin.budgets import Budgets
from wakeful.service.auth.access import LOCAL, Principal, visible_agent
from wakeful.service.auth.accounts import Accounts, JobContext
from wakeful.service.auth.agent_target_policy import AgentTargetPolicy, check_not_internal, check_not_reserved
from wakeful.service.auth.masking import unmasked
from wakeful.service.auth.ownership import (
    AGENT_TRIGGER,
    check_change,
    check_overlap,
    check_payload,
    check_rate,
    is_admin_owned,
)
from wakeful.service.jobs.chains import check_chain
from wakeful.service.jobs.create_batcher import CreateBatcher
from wakeful.service.jobs.job_editor import audit_details, check_version, no_job, read_enabled
from wakeful.service.jobs.job_factory import JobFactory, SaveResult
from wakeful.service.jobs.pauses import JobPauses
from wakeful.service.runs.manual_runs import (
    apply_overlap,
    backfill_runs,
    read_instant,
    read_mode,
    read_overlap,
    read_payload,
    triggered_run,
)
from wakeful.start_rules import BudgetOwner
from wakeful.store.idempotency import Keyed
from wakeful.store.port import Store
from wakeful.store.quotas import Allowance
from wakeful.store.row_mapping import job_of
from wakeful.store.rows import JobFilter, LabelFilter, RunFilter, RunView

log = get_logger("wakeful.service")


class JobService(JobPauses):
    """Creates, shows and triggers jobs, and changes them."""

    def __init__(
        self,
        store: Store,
        targets: LauncherRegistry,
        keyring: Keyring,
        defaults: Defaults,
        *,
        accounts: Accounts | None = None,
        allowance: Allowance | None = None,
        lanes: Iterable[str] | None = None,
        budgets: Budgets | None = None,
        target_policy: AgentTargetPolicy | None = None,
        internal: bool = False,
    ) -> None:
        super().__init__(
            store,
            targets,
            keyring,
            accounts or Accounts(store, defaults),
            lanes,
            budgets or Budgets(store),
            target_policy or AgentTargetPolicy(),
        )
        self._defaults = defaults
        #: whether the jobs are Wakeful's own, whose names are reserved
        self._internal = internal
        self._factory = JobFactory(targets, keyring, self._lanes)
        self._allowance = allowance
        self._batcher = CreateBatcher(store, allowance)
        #: held from looking when an agent's key last ran a job until its next run is written
        self._pacing = asyncio.Lock()

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
        """Add a job; AlreadyExists if the name is taken. With `rehearse`, as `upsert` has it."""
        await self._accounts.authorize(principal, "job.write", workspace, agent)

        async def create(context: JobContext) -> SaveResult:
            with bypass() if dry_run else nullcontext():
                await self._read_calendars(context, [document])
                saved = self._made(principal, context, document, self._clock.now_ms())
            await check_chain(self._store, workspace, agent, saved.row.name, saved.row.after_job)
            if dry_run:
                if await self._store.job(workspace, agent, saved.row.name) is not None:
                    raise AlreadyExists(f"agent '{agent}' already has a job '{saved.row.name}'")
                return saved
            entry = principal.entry(
                workspace, "job.create", f"{agent}/{saved.row.name}", audit_details(document)
            )
            if keyed is None:
                await self._batcher.add(saved.row, entry, context.inherited)
            else:  # not batched: waiting for another request with this key would delay the whole batch
                agents = {(workspace, agent): context.inherited}
                await self._store.create_jobs(
                    [saved.row], [entry], self._allowance, keyed.of(lambda _: saved), agents
                )
            return saved

        return await self._accounts.with_context(workspace, check_slug(agent, "agent"), create)

    async def create_many(
        self, principal: Principal, workspace: str, agent: str, documents: Sequence[Mapping[str, object]]
    ) -> list[SaveResult]:
        """Add many jobs in one go: all of them, or none. The audit has one entry for them all."""
        await self._accounts.authorize(principal, "job.write", workspace, agent)

        async def create(context: JobContext) -> list[SaveResult]:
            await self._read_calendars(context, documents)
            now_ms = self._clock.now_ms()
            saved = [self._made(principal, context, document, now_ms) for document in documents]
            if saved:
                about: dict[str, Json] = {
                    "count": len(saved),
                    "first": saved[0].row.name,
                    "last": saved[-1].row.name,
                }
                entry = principal.entry(workspace, "job.create-many", agent, compact(about))
                rows, agents = [each.row for each in saved], {(workspace, agent): context.inherited}
                await self._store.create_jobs(rows, [entry], self._allowance, agents=agents)
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
        """Make the job what the document says; with `version`, only if it is still at that one.

        The same document again changes nothing: not the pause, the secret, the anchor or the next tick. With
        `rehearse`, nothing is changed at all, but what would be refused is; all but what depends on how many
        jobs there are by then.
        """
        await self._accounts.authorize(principal, "job.write", workspace, agent)
        name = document.get("name")
        check_not_internal(principal, str(name))
        row = await self._store.job(workspace, agent, name) if isinstance(name, str) else None
        if row is None and version is not None:
            raise no_job(str(name))
        if row is None:
            try:
                return await self.create(principal, workspace, agent, document, dry_run=dry_run)
            except AlreadyExists:  # somebody was quicker: then it is theirs that we change
                row = await self._store.job(workspace, agent, str(name))
                if row is None:
                    raise
        read_enabled(document)
        now_ms = self._clock.now_ms()
        await check_chain(self._store, workspace, agent, row.name, document.get("after"))

        def converged(old: JobRecord, context: JobContext) -> Definition:
            check_version(old, version)
            given = unmasked(document, old.definition)
            return read_definition(given, now_ms=now_ms, defaults=context.defaults, old=old.definition)

        if has_calendar(row.timing) or excludes_something(document):
            context = await self._accounts.context(workspace, agent)
            with bypass() if dry_run else nullcontext():
                await work_out(partial(converged, job_of(row), context), now_ms)
        entry = principal.entry(workspace, "job.update", f"{agent}/{name}", audit_details(document))
        return await self._edit(principal, row, converged, entry, dry_run=dry_run)

    async def get(self, principal: Principal, workspace: str, agent: str, name: str) -> JobRecord:
        """The job of that name, or NotFound."""
        return job_of(await self._row(principal, "read", workspace, agent, name))

    async def by_id(self, principal: Principal, workspace: str, job_id: str) -> JobRecord:
        """The job of that id, or NotFound."""
        await self._accounts.authorize(principal, "read", workspace)
        row = await self._store.job_by_id(job_id)
        if row is None or row.workspace != workspace or principal.agent not in (None, row.agent):
            raise no_job(job_id)
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
    ) -> list[JobRecord]:
        """List jobs, by agent and name, that come after the pair (agent, name).

        A job that cannot be read is logged and left out.
        """
        await self._accounts.authorize(principal, "read", workspace, agent)
        rows = await self._store.jobs(
            JobFilter(workspace, visible_agent(principal, agent), include_disabled, after, limit, labels)
        )
        if not rows and agent not in (None, principal.agent) and principal is not LOCAL:
            await self._accounts.agent(workspace, agent)
        jobs = []
        for row in rows:
            try:
                jobs.append(job_of(row))
            except InvalidArgument as error:
                log.error("job.unreadable", job=row.name, agent=row.agent, id=row.id, error=error.message)
        return jobs

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
        """Run it now: `force` whatever its schedule says, `due` only if a tick is due (None: it is not).

        It starts at once, beside any other run of the job, unless `overlap` names an overlap policy.
        A forced run asks no precheck, unless an agent's key forces it. ResourceExhausted: what it
        may use today is used up, or an agent's key runs an admin's job too often.
        """
        due_only = read_mode(mode) == "due"
        own, policy = read_payload(payload, self._defaults.max_payload_bytes), read_overlap(overlap)
        row = await self._row(principal, "run", workspace, agent, name)
        check_version(row, version)
        job, now_ms = job_of(row), self._clock.now_ms()
        check_overlap(principal, job, policy)
        if own is not None:
            context = await self._accounts.context(workspace, agent)
            check_payload(principal, job)
            self._target_policy.check_payload(principal, job.definition.work, context)
        if due_only and (job.next_ms is None or job.next_ms > now_ms):
            if keyed is not None:
                await self._store.add_runs([], (), keyed.of(lambda _: None))
            return None
        async with self._pacing if is_admin_owned(principal, row) else contextlib.nullcontext():
            if is_admin_owned(principal, row):
                started = RunFilter(workspace, agent, job.id, trigger=AGENT_TRIGGER, limit=1)
                check_rate(job, await self._store.runs(started), now_ms)
            await self._budgets.check(BudgetOwner(workspace, agent, job.id), name)
            run = triggered_run(principal, job, now_ms, due_only=due_only, payload=own)
            details = compact({"run": run.id, "mode": "due" if due_only else "force"})
            entry = principal.entry(workspace, "job.run", f"{agent}/{name}", details)
            if policy is not None:
                most = job.definition.policy.max_queued
                judge = partial(apply_overlap, overlap=policy, max_queued=most, now_ms=now_ms)
                return await self._store.add_judged_run(run, judge, [entry], keyed)
            (view,) = await self._store.add_runs(
                [run], [entry], keyed.of(lambda runs: runs[0]) if keyed else None
            )
        return view

    async def backfill(
        self,
        principal: Principal,
        workspace: str,
        agent: str,
        name: str,
        start: object,
        end: object,
        *,
        version: int | None = None,
        keyed: Keyed[int] | None = None,
    ) -> int:
        """Run the ticks of a past range, oldest first, whether or not they ran before; return their number.

        An instant is text or milliseconds since 1970. Text without a zone is in the zone of the job.
        """
        row = await self._row(principal, "run", workspace, agent, name)
        check_change(principal, row)
        check_version(row, version)
        job = job_of(row)
        start_ms, end_ms = read_instant("start", start, job), read_instant("end", end, job)
        runs = await off_loop(partial(backfill_runs, principal, job, start_ms, end_ms, self._clock.now_ms()))
        await self._budgets.check(BudgetOwner(workspace, agent, job.id), name)
        about = compact({"count": len(runs), "startMs": start_ms, "endMs": end_ms})
        entry = principal.entry(workspace, "job.backfill", f"{agent}/{name}", about)
        return len(await self._store.add_runs(runs, [entry], keyed.of(len) if keyed else None))

    # --- inside ----------------------------------------------------------------------------------

    async def _read_calendars(self, context: JobContext, documents: Sequence[Mapping[str, object]]) -> None:
        """Work out what the calendars of new jobs exclude, off the event loop."""
        now_ms = self._clock.now_ms()
        for document in documents:
            if excludes_something(document):
                read = partial(read_definition, document, now_ms=now_ms, defaults=context.defaults)
                await work_out(read, now_ms)

    def _made(
        self, principal: Principal, context: JobContext, document: Mapping[str, object], now_ms: int
    ) -> SaveResult:
        saved = self._factory.make(context, unmasked(document), now_ms, principal.creator)
        if principal.role == "agent":
            check_not_internal(principal, saved.row.name)
            work = saved.job.definition.work
            self._target_policy.check(principal, work, context)
            self._target_policy.check_delivery(principal, work, context)
        if not self._internal:
            check_not_reserved(saved.row.name)
        return saved
