"""Writes in a transaction that the caller of Wakeful has begun on a connection of its own.

They are planned first, with reads on the connections of the store (`PlanningStore`), and then written on the
connection of the caller. That connection may block or be awaited, and belongs to another thread or event
loop. So what is done with it is a coroutine that awaits steps: whoever drives it executes each step where the
connection lives, and sends the result back.
"""

from __future__ import annotations

import sqlite3
import types
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Concatenate, Final, NamedTuple, NoReturn, ParamSpec, Protocol, TypeAlias, TypeVar

from wakeful.errors import FailedPrecondition, InvalidArgument
from wakeful.job.self_scheduling import ChargeRule
from wakeful.job.start_rules import BudgetBlock
from wakeful.run.run import NewRun
from wakeful.store.accounts import Inherited
from wakeful.store.audit import AuditEntry
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

_NOT_PLANNED: Final = "this cannot be done in the transaction of the caller"


class Sql(NamedTuple):
    """A statement of PostgreSQL. Its arguments and the columns of its result are texts."""

    text: str
    args: tuple[str | None, ...] = ()
    #: whether it undoes what a failed step has left; it may fail, too
    undoes: bool = False


#: A statement, which returns rows; or, for SQLite, a function of the connection.
Step: TypeAlias = Sql | Callable[[sqlite3.Connection], Any]


@types.coroutine
def perform(step: T) -> Generator[T, Any, Any]:
    """Have a step executed where it belongs, and return its result."""
    return (yield step)


#: Workspace, agent and name of a job.
JobKey: TypeAlias = tuple[str, str, str]


class PlannedRun(NamedTuple):
    """A run to add, of a job at this version."""

    run: NewRun
    version: int | None
    entries: Sequence[AuditEntry]
    keyed: Keyed[list[RunView]] | None


class PlannedJob(NamedTuple):
    """A job to create."""

    row: JobRow
    entries: Sequence[AuditEntry]
    allowance: Allowance | None
    agent: Inherited


PlannedWrite: TypeAlias = PlannedRun | PlannedJob


class CallerTransaction(Protocol):
    """What a store does on the connection of the caller: `check`, `find_job` and `write` await only steps."""

    #: Whether other connections can write while the transaction of the caller is open.
    allows_other_writers: bool

    @property
    def is_prepared(self) -> bool:
        """Whether `prepare` was called."""
        ...

    async def prepare(self) -> None:
        """Read what `check` compares, on a connection of the store."""
        ...

    async def check_planned(self, planned: Sequence[PlannedWrite]) -> None:
        """Check, on a connection of the store, what `write` does not."""
        ...

    async def check(self) -> bool:
        """Return whether the connection is one to the database of the store; raise if it cannot be used."""
        ...

    async def find_job(self, key: JobKey) -> JobRow | None:
        """Return a job as the transaction sees it; its name may be its id."""
        ...

    async def write(self, planned: Sequence[PlannedWrite]) -> None:
        """Write what is planned. After an error the transaction is as before."""
        ...


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
