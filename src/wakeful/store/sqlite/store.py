"""The store in one SQLite file: for one developer, one process, no other service.

`port.py` says what each method promises. Here each is one hop to the thread that reads or writes,
and one transaction there; what it does is in the module named after it (`planning`, `running`, `outcomes`,
`records`), in statements that stand together in `statements`. What it keeps besides time is in `office`, and
of conversations in `talking`.

SQLite lets one writer in at a time, so whoever plans, takes or rescues has the database to itself: no row
is ever locked. Several processes on one file are as safe, if slower; but a process gets no notification of
another's changes (`notifies_other_processes`).
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from wakeful.clock import Clock, SystemClock
from wakeful.errors import Unstorable
from wakeful.outcome import Finished
from wakeful.run import Follower, NewRun
from wakeful.store.accounts import Inherited
from wakeful.store.audit import AuditEntry, always, written
from wakeful.store.idempotency import Keyed
from wakeful.store.port import EntryForRun, Planned, Replay
from wakeful.store.quotas import Allowance
from wakeful.store.rows import (
    AttemptView,
    ClaimedRun,
    DueJob,
    JobChange,
    JobFilter,
    JobPlan,
    JobRow,
    LostRun,
    ManualRunRule,
    RenewedRun,
    RunFilter,
    RunView,
    TakenRun,
)
from wakeful.store.sqlite import (
    dead_letters,
    executors,
    leases,
    manual_runs,
    outcomes,
    planning,
    pull,
    records,
)
from wakeful.store.sqlite.budgets import SqliteGuarding
from wakeful.store.sqlite.changelog import SqliteWatching
from wakeful.store.sqlite.connection import BUSY_MS, Connection, path_of
from wakeful.store.sqlite.deliveries import SqliteDelivering
from wakeful.store.sqlite.sessions import SqliteTalking
from wakeful.store.workflows import WorkflowRow

#: What SQLite and its driver raise for a value that they cannot keep.
_REFUSED: Final = (sqlite3.DataError, sqlite3.InterfaceError, OverflowError, UnicodeError)


class SqliteStore(SqliteTalking, SqliteWatching, SqliteGuarding, SqliteDelivering):
    """A SQLite file that keeps Wakeful's time. Each method is that of `port.Store`.

    `path_or_url` is a path, `:memory:`, or `sqlite:///path`. `inline` does the work in the event loop's own
    thread: whoever waits for one call at a time, as a simulation does, gets the same order every time.
    `busy_ms` is how long a write waits for the writers of other processes.
    """

    def __init__(
        self,
        path_or_url: str | os.PathLike[str],
        *,
        clock: Clock | None = None,
        inline: bool = False,
        busy_ms: int = BUSY_MS,
    ) -> None:
        self.clock: Clock = clock or SystemClock()
        path = path_of(os.fspath(path_or_url))
        self._connection = Connection(path, inline=inline, clock=self.clock, busy_ms=busy_ms)

    async def open(self) -> None:
        """Connect, and bring the schema up to date."""
        await self._connection.open(self.clock.now_ms())

    async def close(self) -> None:
        """Let go of everything."""
        await self._connection.close()

    def listen(self, heard: Callable[[str], None]) -> None:
        """Call `heard` in the event loop whenever this process has changed something."""
        self._connection.listen(heard)

    # --- planning ---------------------------------------------------------------------------------

    async def plan(self, until_ms: int, limit: int, decide: Callable[[DueJob], JobPlan | None]) -> Planned:
        """Claim due jobs, and write what `decide` says of them."""
        now_ms = self.clock.now_ms()
        return await self._connection.write(
            lambda db, tell: planning.plan(db, tell, now_ms, until_ms, limit, decide)
        )

    async def next_wake_ms(self) -> int | None:
        """The earliest `wake_at` of all jobs."""
        return await self._connection.read(planning.next_wake_ms)

    # --- running ----------------------------------------------------------------------------------

    async def take(self, now_ms: int, worker: str, free: Mapping[str, int]) -> list[TakenRun]:
        """Mark due runs as running under this worker."""
        return await self._connection.write(lambda db, tell: leases.take(db, tell, now_ms, worker, free))

    async def next_due_ms(self, after_ms: int, lanes: Sequence[str]) -> int | None:
        """The earliest `due_at` later than that in these lanes."""
        return await self._connection.read(lambda db: leases.next_due_ms(db, after_ms, lanes))

    async def finish(
        self, worker: str, finished: Sequence[Finished], follow: Callable[[Follower], NewRun]
    ) -> set[str]:
        """Write how attempts ended, and all that follows from it."""
        now_ms = self.clock.now_ms()
        try:
            return await self._connection.write(
                lambda db, tell: outcomes.finish(db, tell, now_ms, worker, finished, follow)
            )
        except _REFUSED as error:
            raise Unstorable(f"an outcome cannot be stored: {error}") from error

    async def beat(self, worker: str, now_ms: int, holding: Sequence[str]) -> set[str]:
        """Say that the worker lives. Returns what it has lost."""
        return await self._connection.write(lambda db, _: leases.beat(db, worker, now_ms, holding))

    async def lost(self, worker: str, holding: Sequence[str]) -> set[str]:
        """Which of these runs are not the worker's any more."""
        return await self._connection.read(lambda db: leases.lost(db, worker, holding))

    async def rescue(
        self,
        now_ms: int,
        dead_before_ms: int,
        limit: int,
        judge: Callable[[LostRun], Finished],
        follow: Callable[[Follower], NewRun],
    ) -> list[str]:
        """Take runs from the dead, and parked ones past their deadline."""
        return await self._connection.write(
            lambda db, tell: leases.rescue(db, tell, now_ms, dead_before_ms, limit, judge, follow)
        )

    async def claim(
        self,
        now_ms: int,
        worker: str,
        workspace: str,
        agents: Sequence[str] | None,
        lanes: Sequence[str] | None,
        limit: int,
    ) -> list[ClaimedRun]:
        """Mark due pull runs as running under this executor."""
        return await self._connection.write(
            lambda db, tell: executors.claim(db, tell, now_ms, worker, workspace, agents, lanes, limit)
        )

    async def renew(
        self,
        now_ms: int,
        workspace: str,
        held: Sequence[tuple[str, int]],
        agent: str | None = None,
        worker: str | None = None,
    ) -> list[RenewedRun]:
        """Renew the leases of these claimed runs."""
        return await self._connection.write(
            lambda db, _: executors.renew(db, now_ms, workspace, held, agent, worker)
        )

    async def workflows(self, workspace: str, wanted: Sequence[tuple[str, int]]) -> list[WorkflowRow]:
        """Those of these workflow versions that exist."""
        return await self._connection.read(lambda db: executors.workflows(db, workspace, wanted))

    async def next_claim_ms(
        self, after_ms: int, workspace: str, agents: Sequence[str] | None, lanes: Sequence[str] | None
    ) -> int | None:
        """The earliest `due_at` later than that of what such a claim could get."""
        return await self._connection.read(
            lambda db: executors.next_claim_ms(db, after_ms, workspace, agents, lanes)
        )

    async def expire(
        self,
        now_ms: int,
        limit: int,
        judge: Callable[[LostRun], Finished],
        follow: Callable[[Follower], NewRun],
    ) -> list[str]:
        """End pull runs that nobody claimed in time."""
        return await self._connection.write(
            lambda db, tell: pull.expire(db, tell, now_ms, limit, judge, follow)
        )

    async def release(self, worker: str, now_ms: int, but: Sequence[str] | None = None) -> int:
        """The worker goes; what it holds is retrying. With `but` it stays, and lets go of all but these."""
        return await self._connection.write(lambda db, tell: leases.release(db, tell, worker, now_ms, but))

    async def prune(self, before_ms: int, limit: int) -> int:
        """Delete runs that finished before then."""
        return await self._connection.write(lambda db, _: leases.prune(db, before_ms, limit))

    # --- jobs -------------------------------------------------------------------------------------

    async def create_jobs(
        self,
        jobs: Sequence[JobRow],
        entries: Sequence[AuditEntry] = (),
        allowance: Allowance | None = None,
        keyed: Keyed[None] | None = None,
        agents: Mapping[tuple[str, str], Inherited] | None = None,
    ) -> None:
        """Add jobs, all or none."""
        now_ms = self.clock.now_ms()
        await self._audited(
            entries,
            lambda db, tell: records.create_jobs(db, tell, now_ms, jobs, allowance, agents),
            always,
            keyed,
        )

    async def job(self, workspace: str, agent: str, name: str) -> JobRow | None:
        """The job of that name, unless deleted."""
        return await self._connection.read(lambda db: records.job(db, workspace, agent, name))

    async def job_by_id(self, job_id: str, *, deleted: bool = False) -> JobRow | None:
        """The job of that id; a deleted one only if that is asked for."""
        return await self._connection.read(lambda db: records.job_by_id(db, job_id, deleted))

    async def jobs(self, only: JobFilter) -> list[JobRow]:
        """Jobs, ordered by agent and name."""
        return await self._connection.read(lambda db: records.list_jobs(db, only))

    async def change_job(
        self,
        job_id: str,
        change: Callable[[JobRow], JobChange | None],
        entries: Sequence[AuditEntry] = (),
        agent: Inherited | None = None,
    ) -> JobRow | None:
        """Write what `change` makes of the job."""
        row, _ = await self._audited(
            entries,
            lambda db, tell: records.change_job(db, tell, self.clock, job_id, change, agent),
            written,
        )
        return row

    async def delete_job(
        self,
        job_id: str,
        now_ms: int,
        reason: str,
        entries: Sequence[AuditEntry] = (),
        born: Callable[[JobRow], Sequence[NewRun]] = lambda job: (),
    ) -> bool:
        """Delete the job and cancel its pending runs."""
        return await self._audited(
            entries,
            lambda db, tell: records.delete_job(db, tell, job_id, now_ms, reason, born, self.clock),
        )

    # --- runs -------------------------------------------------------------------------------------

    async def add_runs(
        self,
        runs: Sequence[NewRun],
        entries: Sequence[AuditEntry] = (),
        keyed: Keyed[list[RunView]] | None = None,
    ) -> list[RunView]:
        """Add runs that are no ticks."""
        now_ms = self.clock.now_ms()
        return await self._audited(
            entries, lambda db, tell: records.add_runs(db, tell, now_ms, runs), always, keyed
        )

    async def add_judged_run(
        self,
        run: NewRun,
        judge: ManualRunRule,
        entries: Sequence[AuditEntry] = (),
        keyed: Keyed[RunView] | None = None,
    ) -> RunView:
        """Add a run that is no tick, as `judge` says."""
        now_ms = self.clock.now_ms()
        return await self._audited(
            entries, lambda db, tell: manual_runs.add_judged_run(db, tell, now_ms, run, judge), always, keyed
        )

    async def replay_runs(
        self,
        workspace: str,
        which: Sequence[str] | int,
        make: Replay,
        entry: EntryForRun | None = None,
        keyed: Keyed[list[RunView]] | None = None,
    ) -> list[RunView]:
        """Make new runs of dead letters."""
        now_ms = self.clock.now_ms()
        return await self._audited(
            lambda born: [entry(str(run.replay_of)) for run in born] if entry else [],
            lambda db, tell: dead_letters.replay(db, tell, now_ms, workspace, which, make),
            keyed=keyed,
        )

    async def discard_runs(
        self, workspace: str, which: Sequence[str] | int, entry: EntryForRun | None = None
    ) -> list[str]:
        """Dead letters that nobody wants stop being any."""
        return await self._audited(
            lambda gone: [entry(run_id) for run_id in gone] if entry else [],
            lambda db, _: dead_letters.discard(db, workspace, which),
        )

    async def cancel_run(
        self, run_id: str, now_ms: int, reason: str, *, running: bool, entries: Sequence[AuditEntry] = ()
    ) -> RunView | None:
        """Cancel a run that has not started or, with `running`, one that has."""
        return await self._audited(
            entries, lambda db, tell: records.cancel_run(db, tell, run_id, now_ms, reason, running)
        )

    async def complete_run(
        self, finished: Finished, follow: Callable[[Follower], NewRun], entries: Sequence[AuditEntry] = ()
    ) -> bool:
        """Write the outcome of a run that was reported from outside."""
        now_ms = self.clock.now_ms()
        return await self._audited(
            entries, lambda db, tell: records.complete_run(db, tell, now_ms, finished, follow)
        )

    async def run(self, run_id: str) -> RunView | None:
        """The run of that id."""
        return await self._connection.read(lambda db: records.run(db, run_id))

    async def runs(self, only: RunFilter) -> list[RunView]:
        """Runs, newest first."""
        return await self._connection.read(lambda db: records.list_runs(db, only))

    async def attempts(self, run_id: str) -> list[AttemptView]:
        """The attempts of a run before its last."""
        return await self._connection.read(lambda db: records.attempts(db, run_id))
