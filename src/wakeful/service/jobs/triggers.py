"""Start runs of a job by hand: one run now, or the ticks of a past range."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from functools import partial
from weakref import WeakValueDictionary

from wakeful.engine.calendar_loader import off_loop
from wakeful.errors import NotFound
from wakeful.job.job import StaleJob
from wakeful.job.start_rules import BudgetBlock, BudgetOwner
from wakeful.service.auth.access import Principal
from wakeful.service.auth.agent_policy import (
    AGENT_TRIGGER,
    check_change,
    check_overlap,
    check_payload,
    check_rate,
    is_admin_owned,
)
from wakeful.service.jobs.job_editor import (
    JobDependencies,
    JobEditor,
    check_version,
    run_as_it_is,
)
from wakeful.service.jobs.job_query import find_job
from wakeful.service.runs.manual_runs import (
    apply_overlap,
    backfill_runs,
    read_backfill_overlap,
    read_instant,
    read_mode,
    read_overlap,
    read_payload,
    triggered_run,
)
from wakeful.service.runs.run_starter import RunStarter
from wakeful.store.idempotency import Keyed
from wakeful.store.port import Store
from wakeful.store.row_mapping import job_from_row
from wakeful.store.rows import JobRow, RunFilter, RunView
from wakeful.store.sql.usage import CapReached
from wakeful.values.bounded_cache import MB, BoundedCache, text_size
from wakeful.values.ids import is_id
from wakeful.values.json_value import compact


class JobTriggers(JobEditor):
    """Starts runs of jobs by hand."""

    def __init__(self, dependencies: JobDependencies) -> None:
        super().__init__(dependencies)
        self._budgets = dependencies.budgets
        self._telemetry = dependencies.telemetry
        self._starter = RunStarter(dependencies.store)
        #: jobs as they were when they were last triggered, by workspace, agent and name
        self._known: BoundedCache[tuple[str, str, str], JobRow] = BoundedCache(4 * MB)
        #: by job: held from reading the last run by an agent's key until the next one is written
        self._rate_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

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
        due_ms: int | None = None,
        keyed: Keyed[RunView | None] | None = None,
    ) -> RunView | None:
        """Run a job now: always with mode `force`, with mode `due` only if a tick is due, else return None.

        The run starts at once, or at `due_ms`, beside other runs of the job, unless `overlap` names a policy
        for that. A forced run skips the precheck, unless an agent's key starts it. ResourceExhausted: a
        budget is used up, or an agent's key runs an admin's job too often.
        """
        view = None
        known = self._known.get((workspace, agent, name))
        plain = mode == "force" and overlap is None and version is None and keyed is None
        if known is not None and plain and principal.is_person:
            # Written only if it is still at this version, and nothing else has to be read.
            with contextlib.suppress(StaleJob, NotFound, CapReached):
                view = await self._trigger(
                    principal, workspace, agent, name, payload=payload, due_ms=due_ms, known=known
                )
            if view is None:
                self._known.drop((workspace, agent, name))
        if view is None:
            view = await run_as_it_is(self._trigger)(
                principal, workspace, agent, name, mode=mode, payload=payload, overlap=overlap,
                version=version, due_ms=due_ms, keyed=keyed,
            )  # fmt: skip
        if view is not None:
            self._telemetry.record_trigger(view)
        return view

    async def _trigger(
        self,
        principal: Principal,
        workspace: str,
        agent: str,
        name: str,
        *,
        mode: object = "force",
        payload: object,
        overlap: object = None,
        version: int | None = None,
        due_ms: int | None,
        keyed: Keyed[RunView | None] | None = None,
        known: JobRow | None = None,
    ) -> RunView | None:
        """Trigger a job; `known` is the job as it was read before. CapReached: read it and its budgets."""
        due_only = read_mode(mode) == "due"
        own, policy = read_payload(payload, self._accounts.defaults.max_payload_bytes), read_overlap(overlap)
        blocks: Sequence[BudgetBlock] | None = None

        async def find(store: Store, workspace: str, agent: str, name: str) -> JobRow | None:
            nonlocal blocks
            if known is not None:
                blocks = ()
                return known
            if is_id(name):
                return await find_job(store, workspace, agent, name)
            found = await store.job_and_blocks(workspace, agent, name, self._budgets.today())
            row, blocks = found or (None, None)
            return row

        row = await self._find_row(principal, "run", workspace, agent, name, find)
        check_version(row, version)
        call = await self._origins.call(principal, workspace, agent)
        charge = call.charge if call is not None and call.run is not None else None
        job, now_ms = job_from_row(row), self._clock.now_ms()
        if call is not None:
            call.check_approved(job)
        check_overlap(principal, job, policy)
        if own is not None:
            context = await self._accounts.context(workspace, agent)
            check_payload(principal, job)
            self._target_policy.check_payload(principal, job.definition.work, context)
        if due_only and (job.next_ms is None or job.next_ms > now_ms):
            if keyed is not None:
                await self._store.add_runs([], (), keyed.of(lambda _: None))
            return None
        one_at_a_time = self._rate_locks.setdefault(row.id, asyncio.Lock())
        async with one_at_a_time if is_admin_owned(principal, row) else contextlib.nullcontext():
            if is_admin_owned(principal, row):
                started = RunFilter(workspace, agent, job.id, trigger=AGENT_TRIGGER, limit=1)
                check_rate(job, await self._store.runs(started), now_ms)
            owner = BudgetOwner(workspace, agent, job.id)
            if blocks is None:
                await self._budgets.check(owner, job.name)
            else:
                self._budgets.check_blocks(blocks, owner, job.name)
            run = triggered_run(principal, job, now_ms, due_only=due_only, payload=own)
            if due_ms is not None:
                run = run._replace(scheduled_ms=due_ms, due_ms=due_ms)
            if call is not None:
                (run,) = call.triggered([run])
            details = compact({"run": run.id, "mode": "due" if due_only else "force"})
            entry = principal.entry(workspace, "job.run", f"{agent}/{job.name}", details)
            if policy is not None:
                most = job.definition.policy.max_queued
                judge = partial(apply_overlap, overlap=policy, max_queued=most, now_ms=now_ms)
                return await self._store.add_manual_run(run, judge, [entry], keyed, charge, row.version)
            day = None if known is None else self._budgets.today()
            view = await self._starter.start(run, row.version, [entry], keyed=keyed, charge=charge, day=day)
            if known is None and name == row.name:
                self._known.put((workspace, agent, name), row, 1_000 + sum(map(text_size, _texts(row))))
            return view

    @run_as_it_is
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
        """Run the ticks of a past range, oldest first, whether or not they ran before; return their number.

        An instant is text or milliseconds since 1970. Text without a zone is in the zone of the job. They
        overlap as the job's policy says, or with `overlap` as `queue` or `allow` says.
        """
        policy = read_backfill_overlap(overlap)
        row = await self.find_row(principal, "run", workspace, agent, name)
        check_change(principal, row)
        check_version(row, version)
        call = await self._origins.call(principal, workspace, agent)
        charge = call.charge if call else None
        job = job_from_row(row)
        if call is not None:
            call.check_approved(job)
        start_ms, end_ms = read_instant("start", start, job), read_instant("end", end, job)
        now_ms = self._clock.now_ms()
        runs = await off_loop(partial(backfill_runs, principal, job, start_ms, end_ms, now_ms, policy))
        if call is not None:
            runs = call.triggered(runs)
        await self._budgets.check(BudgetOwner(workspace, agent, job.id), job.name)
        about = compact({"count": len(runs), "startMs": start_ms, "endMs": end_ms})
        entry = principal.entry(workspace, "job.backfill", f"{agent}/{job.name}", about)
        response = keyed.of(len) if keyed else None
        versions = [row.version] * len(runs)
        return len(await self._store.add_runs(runs, [entry], response, charge, versions))


def _texts(row: JobRow) -> list[str]:
    return [value for value in row if isinstance(value, str)]
