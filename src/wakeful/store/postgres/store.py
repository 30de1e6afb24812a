"""The store in PostgreSQL: for any number of equal processes that share one database.

`port.py` says what each method promises. Here each is one transaction on a pooled connection; what it does is
in the module named after it (`planning`, `running`, `outcomes`, `records`), in statements that stand together
in `statements`. What it keeps besides time is in `office`, and of conversations in `talking`.

There is no leader: processes find work with `FOR UPDATE SKIP LOCKED` and share it out. The database's clock
rules (`watch`), and what one process changes, the others hear.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from asyncpg import DataError

from wakeful.clock import Clock, SteeredClock
from wakeful.errors import Unstorable
from wakeful.outcome import Finished
from wakeful.run import Follower, NewRun
from wakeful.store.accounts import Inherited
from wakeful.store.audit import AuditEntry, always, written
from wakeful.store.idempotency import Keyed
from wakeful.store.port import EntryForRun, Planned, Replay
from wakeful.store.postgres import (
    dead_letters,
    executors,
    leases,
    manual_runs,
    outcomes,
    planning,
    pull,
    records,
)
from wakeful.store.postgres.budgets import PostgresGuarding
from wakeful.store.postgres.changelog import PostgresWatching
from wakeful.store.postgres.connection import Pool
from wakeful.store.postgres.deliveries import PostgresDelivering
from wakeful.store.postgres.listener import Watch
from wakeful.store.postgres.sessions import PostgresTalking
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
from wakeful.store.workflows import WorkflowRow


class PostgresStore(PostgresTalking, PostgresWatching, PostgresGuarding, PostgresDelivering):
    """A PostgreSQL database that keeps Wakeful's time. Each method is that of `port.Store`.

    `url` is `postgresql://user:password@host/database`; `?schema=` names the schema that holds our tables
    (`wakeful`). Without a `clock`, the database's is followed.
    """

    def __init__(self, url: str, *, clock: Clock | None = None, pool_size: int = 10) -> None:
        steered = SteeredClock()
        self.clock: Clock = clock or steered
        self._pool = Pool(url, pool_size, self.clock)
        self._watch = Watch(self._pool, steered if clock is None else None)
        self._pruned_to = leases.FIRST_ID

    async def open(self) -> None:
        """Connect, and bring the schema up to date."""
        await self._pool.open()
        try:
            async with self._pool.translated():
                await self._watch.start()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Let go of everything."""
        await self._watch.stop()
        await self._pool.close()

    def listen(self, heard: Callable[[str], None]) -> None:
        """Call `heard` in the event loop whenever something has changed, here or in another process."""
        self._pool.listen(heard)

    # --- planning ---------------------------------------------------------------------------------

    async def plan(self, until_ms: int, limit: int, decide: Callable[[DueJob], JobPlan | None]) -> Planned:
        """Claim due jobs, and write what `decide` says of them."""
        now_ms = self.clock.now_ms()
        return await self._pool.write(
            lambda db, tell: planning.plan(db, tell, now_ms, until_ms, limit, decide)
        )

    async def next_wake_ms(self) -> int | None:
        """The earliest `wake_at` of all jobs."""
        return await self._pool.read(planning.next_wake_ms)

    # --- running ----------------------------------------------------------------------------------

    async def take(self, now_ms: int, worker: str, free: Mapping[str, int]) -> list[TakenRun]:
        """Mark due runs as running under this worker."""
        return await self._pool.write(lambda db, tell: leases.take(db, tell, now_ms, worker, free))

    async def next_due_ms(self, after_ms: int, lanes: Sequence[str]) -> int | None:
        """The earliest `due_at` later than that in these lanes."""
        return await self._pool.read(lambda db: leases.next_due_ms(db, after_ms, lanes))

    async def finish(
        self, worker: str, finished: Sequence[Finished], follow: Callable[[Follower], NewRun]
    ) -> set[str]:
        """Write how attempts ended, and all that follows from it."""
        now_ms = self.clock.now_ms()
        try:
            return await self._pool.write(
                lambda db, tell: outcomes.finish(db, tell, now_ms, worker, finished, follow)
            )
        except DataError as error:
            raise Unstorable(f"an outcome cannot be stored: {error}") from error

    async def beat(self, worker: str, now_ms: int, holding: Sequence[str]) -> set[str]:
        """Say that the worker lives. Returns what it has lost."""
        return await self._pool.read(lambda db: leases.beat(db, worker, now_ms, holding))

    async def lost(self, worker: str, holding: Sequence[str]) -> set[str]:
        """Which of these runs are not the worker's any more."""
        return await self._pool.read(lambda db: leases.lost(db, worker, holding))

    async def rescue(
        self,
        now_ms: int,
        dead_before_ms: int,
        limit: int,
        judge: Callable[[LostRun], Finished],
        follow: Callable[[Follower], NewRun],
    ) -> list[str]:
        """Take runs from the dead, and parked ones past their deadline."""
        return await self._pool.write(
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
        return await self._pool.write(
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
        known = [each for each in held if records.is_id(each[0])]
        return await self._pool.read(lambda db: executors.renew(db, now_ms, workspace, known, agent, worker))

    async def workflows(self, workspace: str, wanted: Sequence[tuple[str, int]]) -> list[WorkflowRow]:
        """Those of these workflow versions that exist."""
        return await self._pool.read(lambda db: executors.workflows(db, workspace, wanted))

    async def next_claim_ms(
        self, after_ms: int, workspace: str, agents: Sequence[str] | None, lanes: Sequence[str] | None
    ) -> int | None:
        """The earliest `due_at` later than that of what such a claim could get."""
        return await self._pool.read(
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
        return await self._pool.write(lambda db, tell: pull.expire(db, tell, now_ms, limit, judge, follow))

    async def release(self, worker: str, now_ms: int, but: Sequence[str] | None = None) -> int:
        """The worker goes, or lets go of all but these; what it held is retrying."""
        return await self._pool.write(lambda db, tell: leases.release(db, tell, worker, now_ms, but))

    async def prune(self, before_ms: int, limit: int) -> int:
        """Delete runs that finished before then."""
        pruned, self._pruned_to = await self._pool.write(
            lambda db, _: leases.prune(db, before_ms, limit, self._pruned_to)
        )
        return pruned

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
        return await self._pool.read(lambda db: records.job(db, workspace, agent, name))

    async def job_by_id(self, job_id: str, *, deleted: bool = False) -> JobRow | None:
        """The job of that id; a deleted one only if that is asked for."""
        return await self._pool.read(lambda db: records.job_by_id(db, job_id, deleted))

    async def jobs(self, only: JobFilter) -> list[JobRow]:
        """Jobs, ordered by agent and name."""
        return await self._pool.read(lambda db: records.list_jobs(db, only))

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
        return await self._pool.read(lambda db: records.run(db, run_id))

    async def runs(self, only: RunFilter) -> list[RunView]:
        """Runs, newest first."""
        return await self._pool.read(lambda db: records.list_runs(db, only))

    async def attempts(self, run_id: str) -> list[AttemptView]:
        """The attempts of a run before its last."""
        return await self._pool.read(lambda db: records.attempts(db, run_id))
