"""The operations that each database implements by hand: hot paths, locks, and large batches.

Each protocol is a module of functions in `sqlite/` and in `postgres/`. `port.Store` says what an operation
does; here it has a connection as its first argument, and `events` if it runs in a write transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from wakeful.job.start_rules import Capabilities
from wakeful.run.consequences import Consequences
from wakeful.run.instances import InstanceLimits
from wakeful.run.outcome import Finished
from wakeful.run.run import NewRun
from wakeful.run.signal_rules import Arrival
from wakeful.store.accounts import AgentRow, Inherited, InheritingChange
from wakeful.store.audit import AuditEntry
from wakeful.store.changelog import TransactionEvents
from wakeful.store.claim_requests import ClaimedRun, ClaimRequest
from wakeful.store.instances import (
    ChangedInstance,
    InstanceRule,
    Received,
)
from wakeful.store.lane_shares import LaneOccupancy
from wakeful.store.plans import DueJob, JobPlan, ManualRunRule, Planned, TakeNext
from wakeful.store.quotas import Allowance
from wakeful.store.rows import (
    JobChange,
    JobRow,
    Renewal,
    RunView,
    TakenRun,
    UnfinishedRun,
)
from wakeful.values.clock import Clock

D = TypeVar("D")
C = TypeVar("C", contravariant=True)


class PlanningOperations(Protocol[C]):
    """Planning passes."""

    async def plan(
        self,
        db: C,
        events: TransactionEvents,
        now_ms: int,
        until_ms: int,
        limit: int,
        decide: Callable[[DueJob], JobPlan | None],
    ) -> Planned: ...


class LeaseOperations(Protocol[C]):
    """Runs and the workers that hold them, also those that were claimed before a slot was free."""

    async def take(
        self,
        db: C,
        events: TransactionEvents,
        now_ms: int,
        worker: str,
        free: Mapping[str, int],
        capabilities: Capabilities,
        prefetch: Mapping[str, int],
        usage: Mapping[str, LaneOccupancy],
    ) -> list[TakenRun]: ...

    async def take_suspects(
        self,
        db: C,
        events: TransactionEvents,
        now_ms: int,
        worker: str,
        lanes: Sequence[str],
        capabilities: Capabilities,
        limit: int,
    ) -> list[TakenRun]: ...

    async def rescue(
        self,
        db: C,
        events: TransactionEvents,
        clock: Clock,
        now_ms: int,
        dead_before_ms: int,
        limit: int,
        judge: Callable[[UnfinishedRun], Finished],
        consequences: Consequences,
        spared_before_ms: int,
    ) -> list[str]: ...

    async def finish_and_take(
        self,
        db: C,
        events: TransactionEvents,
        clock: Clock,
        now_ms: int,
        worker: str,
        finished: Sequence[Finished],
        consequences: Consequences,
        take_next: TakeNext,
    ) -> tuple[set[str], list[TakenRun]]: ...

    async def release(
        self,
        db: C,
        events: TransactionEvents,
        worker: str,
        now_ms: int,
        keep: Sequence[tuple[str, int]] | None,
    ) -> int: ...

    async def prune(
        self, db: C, events: TransactionEvents, before_ms: int, limit: int, after_id: str
    ) -> tuple[int, str]: ...

    async def give_back(
        self, db: C, events: TransactionEvents, worker: str, now_ms: int, runs: Sequence[tuple[str, int]]
    ) -> int: ...


class ExecutorOperations(Protocol[C]):
    """Runs that executors claim, or that none claimed in time."""

    async def claim(
        self,
        db: C,
        events: TransactionEvents,
        now_ms: int,
        workspace: str,
        requests: Sequence[ClaimRequest],
    ) -> list[list[ClaimedRun]]: ...

    async def release_claims(
        self,
        db: C,
        events: TransactionEvents,
        now_ms: int,
        workspace: str,
        worker: str,
        runs: Sequence[tuple[str, int]],
        claim_id: str | None,
        agent: str | None,
    ) -> list[str]: ...

    async def taken_runs(self, db: C, ids: Sequence[str]) -> list[tuple[TakenRun, RunView]]: ...

    async def renew(
        self, db: C, now_ms: int, workspace: str, renewals: Sequence[Renewal]
    ) -> list[UnfinishedRun]: ...

    async def expire(
        self,
        db: C,
        events: TransactionEvents,
        clock: Clock,
        now_ms: int,
        limit: int,
        judge: Callable[[UnfinishedRun], Finished],
        consequences: Consequences,
    ) -> list[str]: ...


class OutcomeOperations(Protocol[C]):
    """Outcomes of attempts."""

    async def finish(
        self,
        db: C,
        events: TransactionEvents,
        clock: Clock,
        now_ms: int,
        worker: str | None,
        finished: Sequence[Finished],
        consequences: Consequences,
    ) -> set[str]: ...


class JobOperations(Protocol[C]):
    """Jobs, and agents with the jobs that inherit from them."""

    async def create_jobs(
        self,
        db: C,
        events: TransactionEvents,
        now_ms: int,
        jobs: Sequence[JobRow],
        allowance: Allowance | None,
        agents: Mapping[tuple[str, str], Inherited] | None,
    ) -> None: ...

    async def change_job(
        self,
        db: C,
        events: TransactionEvents,
        clock: Clock,
        job_id: str,
        change: Callable[[JobRow], JobChange | None],
        agent: Inherited | None,
    ) -> tuple[JobRow | None, bool]: ...

    async def change_jobs(
        self,
        db: C,
        events: TransactionEvents,
        clock: Clock,
        job_ids: Sequence[str],
        change: Callable[[JobRow], JobChange | None],
        agents: Mapping[tuple[str, str], Inherited] | None,
    ) -> list[JobRow]: ...

    async def delete_job(
        self,
        db: C,
        events: TransactionEvents,
        clock: Clock,
        job_id: str,
        now_ms: int,
        reason: str,
        due_runs: Callable[[JobRow], Sequence[NewRun]],
    ) -> bool: ...

    async def put_agent(
        self,
        db: C,
        events: TransactionEvents,
        clock: Clock,
        workspace: str,
        name: str,
        change: Callable[[AgentRow | None], AgentRow | None],
        follow: InheritingChange | None,
    ) -> tuple[AgentRow | None, bool]: ...


class RunOperations(Protocol[C]):
    """Runs, as users see and change them."""

    async def add_runs(
        self,
        db: C,
        events: TransactionEvents,
        now_ms: int,
        runs: Sequence[NewRun],
        versions: Sequence[int | None],
    ) -> list[RunView]: ...

    async def add_manual_run(
        self,
        db: C,
        events: TransactionEvents,
        now_ms: int,
        run: NewRun,
        judge: ManualRunRule,
        version: int | None,
    ) -> RunView: ...

    async def cancel_run(
        self, db: C, events: TransactionEvents, run_id: str, now_ms: int, reason: str, running: bool
    ) -> RunView | None: ...

    async def cancel_runs(
        self, db: C, events: TransactionEvents, now_ms: int, runs: Sequence[tuple[str, str]]
    ) -> None: ...

    async def complete_run(
        self,
        db: C,
        events: TransactionEvents,
        clock: Clock,
        now_ms: int,
        finished: Finished,
        consequences: Consequences,
    ) -> bool: ...


class InsertOperations(Protocol[C]):
    """New runs."""

    async def insert_runs(
        self, db: C, events: TransactionEvents, now_ms: int, runs: Sequence[NewRun]
    ) -> Sequence[NewRun]: ...


class InstanceOperations(Protocol[C]):
    """Instances of agent classes, and signals that arrive from outside."""

    async def send(
        self,
        db: C,
        events: TransactionEvents,
        now_ms: int,
        arrivals: Sequence[Arrival],
        mailbox: int,
        limits: InstanceLimits | None,
    ) -> list[Received]: ...

    async def change_instances(
        self,
        db: C,
        events: TransactionEvents,
        clock: Clock,
        workspace: str,
        agent: str,
        now_ms: int,
        rules: Mapping[str, InstanceRule],
        limits: InstanceLimits | None,
    ) -> list[ChangedInstance]: ...

    async def erase_instance(
        self, db: C, events: TransactionEvents, now_ms: int, instance: str, limit: int
    ) -> bool: ...


class ChangelogOperations(Protocol[C]):
    """The chains of the audit."""

    async def append(
        self, db: C, events: TransactionEvents, clock: Clock, entries: Sequence[AuditEntry]
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class Operations(Generic[D]):
    """The operations of one database: a module for each."""

    changelog: ChangelogOperations[D]
    executors: ExecutorOperations[D]
    insert_runs: InsertOperations[D]
    instances: InstanceOperations[D]
    jobs: JobOperations[D]
    leases: LeaseOperations[D]
    outcomes: OutcomeOperations[D]
    planning: PlanningOperations[D]
    runs: RunOperations[D]
