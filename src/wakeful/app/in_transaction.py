"""Calls in the transaction of the caller: `connection=` of `enqueue`, `jobs.create`, `upsert` and `run`.

A call is planned by the services as any other call, and written on the connection of the caller
(`wakeful.store.caller_transaction`). The engine learns of it by the commit: nothing is published, cached or
started before.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Concatenate, Final, NoReturn, ParamSpec, TypeAlias, TypeVar

from wakeful.app.caller_connection import AtHome
from wakeful.errors import AlreadyExists, FailedPrecondition, InvalidArgument, NotFound, Unavailable
from wakeful.job.job import StaleJob
from wakeful.job.self_scheduling import ChargeRule
from wakeful.job.start_rules import BudgetBlock
from wakeful.run.run import NewRun
from wakeful.service.jobs.job_editor import JobGone
from wakeful.service.jobs.jobs import JobService
from wakeful.service.jobs.save_warnings import check_new_chain
from wakeful.service.services import Services
from wakeful.store.accounts import AgentChanged, Inherited
from wakeful.store.audit import AuditEntry
from wakeful.store.caller_transaction import JobKey, PlannedJob, PlannedRun, PlannedWrite, perform
from wakeful.store.changelog import TransactionEvents
from wakeful.store.idempotency import Keyed
from wakeful.store.plans import ManualRunRule
from wakeful.store.port import Store
from wakeful.store.quotas import Allowance
from wakeful.store.row_mapping import view_of_new_run
from wakeful.store.rows import JobChange, JobRow, RunView
from wakeful.store.sql.base import Recorded
from wakeful.store.sql.driver import Pending
from wakeful.store.sql.jobs_and_runs import FollowRename
from wakeful.store.sql.suggestions import SuggestionDecision

P = ParamSpec("P")
T = TypeVar("T")

_TRIES: Final = 5
_NOT_PLANNED: Final = "this cannot be done in the transaction of the caller"


class PlanningStore(Store):
    """Reads as a store does, and collects jobs and runs that are added, in place of writing them.

    `known` are jobs that only the transaction of the caller sees.
    """

    def __init__(self, store: Store, known: Mapping[JobKey, JobRow]) -> None:
        super().__init__(store._driver, store._operations, store.clock)
        self.planned: list[PlannedWrite] = []
        self._known = dict(known)

    async def _write(
        self,
        operation: Callable[Concatenate[Any, TransactionEvents, P], Pending[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> NoReturn:
        raise FailedPrecondition(_NOT_PLANNED)

    async def _record(
        self,
        recorded: Recorded[T],
        operation: Callable[Concatenate[Any, TransactionEvents, P], Pending[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> NoReturn:
        raise FailedPrecondition(_NOT_PLANNED)

    async def job(self, workspace: str, agent: str, name: str) -> JobRow | None:
        """Return the job of that name, unless deleted."""
        known = self._known.get((workspace, agent, name))
        return known or await super().job(workspace, agent, name)

    async def job_and_blocks(
        self, workspace: str, agent: str, name: str, day: int
    ) -> tuple[JobRow, Sequence[BudgetBlock]] | None:
        """Return the job of that name, unless deleted, and the caps reached on that day that apply to it."""
        known = self._known.get((workspace, agent, name))
        if known is not None:
            return known, await self.budget_blocks(day, workspace)
        return await super().job_and_blocks(workspace, agent, name, day)

    async def job_by_id(self, job_id: str, *, deleted: bool = False) -> JobRow | None:
        """Return the job of that id, unless deleted; with `deleted` also then."""
        for known in self._known.values():
            if known.id == job_id:
                return known
        return await super().job_by_id(job_id, deleted=deleted)

    async def create_jobs(
        self,
        jobs: Sequence[JobRow],
        entries: Sequence[AuditEntry] = (),
        allowance: Allowance | None = None,
        keyed: Keyed[None] | None = None,
        agents: Mapping[tuple[str, str], Inherited] | None = None,
        charge: ChargeRule | None = None,
    ) -> None:
        """Plan to add a job."""
        (row,) = jobs
        inherited = (agents or {}).get((row.workspace, row.agent), Inherited())
        self.planned.append(PlannedJob(row, entries, allowance, inherited))
        self._known[row.key] = row

    async def change_job(
        self,
        job_id: str,
        change: Callable[[JobRow], JobChange | None],
        entries: Sequence[AuditEntry] = (),
        agent: Inherited | None = None,
        suggestion: SuggestionDecision | None = None,
        charge: ChargeRule | None = None,
        follow: FollowRename | None = None,
        keyed: Keyed[JobRow | None] | None = None,
    ) -> JobRow | None:
        """Return the job if nothing is to be changed; refuse a change."""
        row = await self.job_by_id(job_id)
        if row is not None and change(row) is not None:
            raise FailedPrecondition(
                f"job '{row.name}' exists with other fields: a job is created in your transaction, and not "
                "changed, because the scheduler would wait for its commit; change it without `connection`"
            )
        return row

    async def add_runs(
        self,
        runs: Sequence[NewRun],
        entries: Sequence[AuditEntry] = (),
        keyed: Keyed[list[RunView]] | None = None,
        charge: ChargeRule | None = None,
        versions: Sequence[int | None] = (),
        day: int | None = None,
    ) -> list[RunView]:
        """Plan to add a run."""
        if not runs:  # a tick that is not due
            return []
        (run,) = runs
        if run.instance_id is not None:
            raise InvalidArgument(
                f"job '{run.job_name}' sends a signal to an instance, whose queue is locked by its runs; run "
                "it without `connection`, after the commit"
            )
        views = [view_of_new_run(run, self.clock.now_ms())]
        if keyed is not None:
            keyed.render(views)  # an error is raised here, and not in the transaction
        self.planned.append(PlannedRun(run, versions[0] if versions else None, entries, keyed))
        return views

    async def add_manual_run(
        self,
        run: NewRun,
        judge: ManualRunRule,
        entries: Sequence[AuditEntry] = (),
        keyed: Keyed[RunView] | None = None,
        charge: ChargeRule | None = None,
        version: int | None = None,
    ) -> RunView:
        """Refuse: which other runs are live is not known before the commit."""
        raise InvalidArgument(
            "overlap_policy: leave it out together with `connection`: which other runs are live is not known "
            "before the commit"
        )


#: Plans a call with the service of jobs.
Plan: TypeAlias = Callable[[JobService, PlanningStore], Awaitable[T]]


async def plan_and_write(services: Services, plan: Plan[T], key: JobKey, *, look_first: bool = False) -> T:
    """Plan a call, and write what is planned in the transaction of the caller. Return the plan's result.

    `key` is the job that the call is about: a job that the same transaction has created is found by it.
    `look_first` looks for it there before planning. This awaits only steps.
    """
    transaction = services.store.caller_transaction
    await _check_database(services)
    looked, known = False, dict[JobKey, JobRow]()
    for _ in range(_TRIES):
        if look_first and not looked:
            looked, known = True, await _find(services, key)
        planning = PlanningStore(services.store, known)

        async def prepare(planning: PlanningStore = planning) -> T:
            result = await plan(services.jobs.with_store(planning), planning)
            for each in planning.planned:
                if isinstance(each, PlannedJob):
                    await check_new_chain(services.store, each.row)
            await transaction.check_planned(planning.planned)
            return result

        try:
            result: T = await perform(AtHome(prepare))
        except NotFound:
            if looked:
                raise
            looked, known = True, await _find(services, key)
            if not known:
                raise
            continue
        try:
            await transaction.write(planning.planned)
        except AlreadyExists:
            if not look_first:
                raise
            looked = False  # another transaction has created it meanwhile
            continue
        except (AgentChanged, StaleJob, JobGone):
            for each in planning.planned:
                if isinstance(each, PlannedJob):
                    services.accounts.forget(each.row.workspace, each.row.agent)
            looked, known = False, {}
            continue
        return result
    raise Unavailable("the job is being changed at this moment; try again")


async def _find(services: Services, key: JobKey) -> dict[JobKey, JobRow]:
    row = await services.store.caller_transaction.find_job(key)
    return {} if row is None else {key: row, row.key: row}


async def _check_database(services: Services) -> None:
    transaction = services.store.caller_transaction
    fresh = not transaction.is_prepared
    if fresh:
        await perform(AtHome(transaction.prepare))
    if await transaction.check():
        return
    if not fresh:  # after a failover, the database of the store is on another server
        await perform(AtHome(transaction.prepare))
        if await transaction.check():
            return
    raise InvalidArgument(
        "connection: it is one to another database than that of this Wakeful; connect to the same server and "
        "database, or to the same file"
    )
