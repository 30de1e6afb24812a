"""What a database must do for Wakeful. Read this, and you know what every store promises.

The engine works on these four tables; the other modules here describe the rest. A column `x_ms` of a row is
an instant, kept as whatever the database has for instants and named `x_at` there.

- `jobs`: one row a job (`JobRow`), and `deleted_at`. A deleted job's row stays until its last run is
  pruned, because runs outlive their job and may be replayed. UNIQUE (workspace, agent, name) among those
  not deleted. `wake_at` is when planning looks at the job, and the index on it is what planning
  scans: with the next tick (`next_at`) of an enabled job, at the end of a pause (`pause_until`, without a
  `next_at`), and otherwise NULL.
- `runs`: one row a run (`RunView`), and `serial`. UNIQUE (job_id, scheduled_at, nonce), where the nonce
  is '' for a tick (trigger `schedule`) and the run's own id for everything else: **this index is the
  lock that makes a tick happen once**; no code above may assume any other. (A store may write it as a
  UNIQUE (job_id, scheduled_at) over the ticks alone: it forbids the same.) `created_at` is the store's
  clock when the run was written.
- `attempts`: one row for each attempt that did not end its run (the last one is on the run itself).
- `workers`: who is alive: name, `beat_at`, `started_at`. Executors are not workers: each run that an executor
  has claimed has a lease of its own, `beat_at` of the run, which is NULL for a run that a worker holds.

Everything is set-based: a call costs a fixed handful of statements, however many rows it holds. Every
call is one transaction: it happens whole or not at all. Whatever is decided is decided by the pure
function that the caller hands in; a store never judges, and never asks what time it is except by
`clock`. Functions handed in are called inside the transaction and must be quick and pure.

A run keeps the name of the worker that ended it; one that is pending or retrying has none. `due_at` is
set while a run is pending, retrying or parked, and NULL otherwise. A *pull run*, whose lane begins with
`PULL`, waits for an executor until its `until_at`; when it is to be tried again, as long once more. To
*withdraw* the planned runs of a job is to cancel its pending ticks; what somebody asked for by hand still
runs. Deleting or disabling a job clears its `next_at` and `wake_at`.

A tick may be recorded as running a moment ahead of its `fire_at`. Until then it has not started: when its job
is changed or deleted, it is withdrawn with the pending ones (no `started_at`, no worker) or, where the change
withdraws nothing or `keeps` it, released, due at its `fire_at`. Its worker is told (`stop:<id>`, or
`stop:<id>:<attempt>` for that attempt alone).

A terminal run (succeeded, failed, cancelled, skipped, missed) is never changed again, except that a dead
letter stops being one (`dead`) when it is replayed or discarded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from wakeful.clock import Clock
from wakeful.consequences import Consequences
from wakeful.outcome import Finished
from wakeful.run import NewRun, is_executor
from wakeful.store.accounts import AccountStore, Inherited
from wakeful.store.alerts import AlertStore
from wakeful.store.audit import AuditEntry, AuditStore
from wakeful.store.budgets import BudgetStore
from wakeful.store.changelog import ChangelogStore, TransactionEvents
from wakeful.store.deliveries import DeliveryStore
from wakeful.store.idempotency import IdempotencyStore, Keyed
from wakeful.store.quotas import Allowance, QuotaStore
from wakeful.store.rows import (
    AttemptView,
    ClaimedRun,
    DeadLetter,
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
from wakeful.store.sessions import SessionStore
from wakeful.store.stats import StatsStore
from wakeful.store.workflows import WorkflowStore

#: The worker's name on a run that is parked: launched, and waiting for somebody outside to complete it.
PARKED = "(callback)"
#: The worker's name on a run for the moment in which it ends because nobody claimed it.
UNCLAIMED = "(unclaimed)"
#: A run that is to be claimed, and whose turn it was not yet, has so much time left when its turn comes.
TURN_MS = 60_000


def stop_worker(events: TransactionEvents, worker: str, finished: Finished) -> None:
    """Tell the worker that holds a run, if one does, that this attempt was completed without it."""
    if worker != PARKED and not is_executor(worker):
        events.publish(f"stop:{finished.run_id}:{finished.attempt}")


#: What becomes of a dead letter: the run that is made of it, or None where it stays one.
Replay = Callable[[DeadLetter], NewRun | None]
#: The entry for the audit that tells of a run, by its id.
EntryForRun = Callable[[str], AuditEntry]


class Planned(NamedTuple):
    """What a planning pass did."""

    #: how many due jobs it claimed; as many as the limit means that there may be more
    claimed: int
    #: the runs that were written: a tick that had its run already is not among them
    runs: list[NewRun]


class Store(
    AccountStore,
    AuditStore,
    QuotaStore,
    WorkflowStore,
    IdempotencyStore,
    ChangelogStore,
    StatsStore,
    BudgetStore,
    AlertStore,
    SessionStore,
    DeliveryStore,
    Protocol,
):
    """A database that keeps Wakeful's time.

    Where a call takes `entries`, they are appended to the audit in the same transaction, if it changes
    anything. Where it takes `keyed`, its response is stored in the same transaction: if one is there already,
    the call changes nothing and raises AlreadyPerformed (`wakeful.store.idempotency`).
    """

    #: the database's own clock; every instant that is compared with another comes from it
    clock: Clock

    async def open(self) -> None:
        """Connect, and bring the schema up to date: numbered migrations, forward only, under a lock."""
        ...

    async def close(self) -> None:
        """Let go of everything. Nothing may be under way."""
        ...

    def listen(self, listener: Callable[[str], None]) -> None:
        """Call `listener` in the event loop whenever something changed, whichever process changed it.

        Topics: `jobs` (a job's wake may be earlier than thought), `runs` (a run may be taken), `holds` (a
        budget is spent, or not any more), `incidents` (somebody may have to be told), `sessions` (a turn may
        begin), `deliveries` (one may be due), `stop:<run id>` (whoever runs it should stop), and
        `stop:<run id>:<attempt>` (the outcome of that attempt was reported from outside). A process on
        the same SQLite file is not heard (`notifies_other_processes`); the engine's longest sleep bounds how
        late its changes are seen.
        """
        ...

    # --- planning ---------------------------------------------------------------------------------

    async def plan(self, until_ms: int, limit: int, decide: Callable[[DueJob], JobPlan | None]) -> Planned:
        """Claim up to `limit` jobs with `wake_at <= until_ms`, oldest first, and write what `decide` says.

        Claimed jobs are locked against every other planner until the end, and those that another planner
        holds are passed over. `decide` returning None leaves a job as it is. A run whose tick has one
        already is not born again, and does not fail the pass. A run to be cancelled that is over already
        stays as it is; of the others, those that were running are announced (`stop:<id>`). Pending births
        are announced (`runs`), and so is a cancelled run, which may have been in another's way. `born` is
        in the order of the plans. Statements: claim, live runs of the claimed, insert, cancel, advance.
        """
        ...

    async def next_wake_ms(self) -> int | None:
        """The earliest `wake_at` of all jobs."""
        ...

    # --- running ----------------------------------------------------------------------------------

    async def take(self, now_ms: int, worker: str, free: Mapping[str, int]) -> list[TakenRun]:
        """Mark due runs as running under this worker, up to so many a lane, longest due first.

        Due is a pending or retrying run with `due_at <= now_ms`. A serial run is taken only when no other
        run of its job is running or retrying, and, if it is pending, no older pending one of its job is
        left: so they start one at a time, strictly in the order of their ticks. A retrying run keeps its
        turn, and two of one job, which an edit or a race may leave, go in tick order: neither waits for the
        other for ever. A retrying run's `attempt` goes up by one, a pending one keeps the number it was
        born with; `started_at` becomes `now_ms`. Two workers never take one run. A run without a job has
        the policy and the work `{}`. Returned longest due first, over all lanes; equally due ones in the
        order they were born.
        """
        ...

    async def next_due_ms(self, after_ms: int, lanes: Sequence[str]) -> int | None:
        """The earliest `due_at` later than `after_ms` of runs that a worker of these lanes could take."""
        ...

    async def finish(self, worker: str, finished: Sequence[Finished], consequences: Consequences) -> set[str]:
        """Write how attempts ended, each only if its run is still running under this worker and attempt.

        Returns the ids that were written. With each, in the same transaction and in the order given: an
        attempt that is not the last goes into `attempts`; a failed run becomes a dead letter and adds one
        to its job's `failures`, which any success sets to 0; the job is deleted, with its pending runs
        cancelled, or disabled, with its planned runs withdrawn, as `Finished` says (reason `failed` where
        `disable_after` is reached; `version` goes up by one; those runs end for the reason `job_deleted` or
        `job_disabled`); the enabled jobs that fire after this one, in this way (`finished` is succeeded or
        failed, never cancelled), get the run that `follow` makes. A retrying run, a follower's, and one that
        waited for its turn are announced (`runs`).
        A run that was skipped before its launch (state `skipped`) is no failure and no success: it counts for
        nothing, nothing follows it, and it deletes its job only if that has no tick to come.
        A job that somebody has edited since the run was written, and that has a tick to come, is neither
        deleted nor disabled by that run: who gives a job another time in the middle of its run wants it to
        live. (`disable_after` counts all the same.)
        Unstorable: a value of one of them cannot be stored, and nothing was written.
        `state == "running"` parks the run: worker `PARKED`, `due_at` its deadline, no `finished_at`. What a
        `Finished` says of output, error, reason and usage is written in every case.
        """
        ...

    async def beat(self, worker: str, now_ms: int, holding: Sequence[str]) -> set[str]:
        """Say that the worker lives. Returns which of the runs it holds are not its own any more."""
        ...

    async def lost(self, worker: str, holding: Sequence[str]) -> set[str]:
        """Which of these runs are not the worker's any more. It changes nothing."""
        ...

    async def rescue(
        self,
        now_ms: int,
        dead_before_ms: int,
        limit: int,
        judge: Callable[[LostRun], Finished],
        consequences: Consequences,
    ) -> list[str]:
        """Take running runs from workers that have not beaten since, and parked ones past their deadline.

        So with a claimed run whose lease was not renewed since, whatever else its executor holds.
        A worker that never beat counts as having beaten when its run started. At most `limit` runs, longest
        started first. `judge` says what becomes of each; it is written as by `finish`, chains and counters
        too. Workers found dead, and left with no run, are forgotten. Two rescuers never judge one run.
        Returns the ids that were written.
        """
        ...

    async def claim(
        self,
        now_ms: int,
        worker: str,
        workspace: str,
        agents: Sequence[str] | None,
        lanes: Sequence[str] | None,
        limit: int,
    ) -> list[ClaimedRun]:
        """Mark pull runs of this workspace as running under an executor, longest due first.

        As `take`, for runs of a pull lane: due, serial ones in their turn, never the same to two. `agents`
        and `lanes` (pull lanes, as the runs have them) narrow it; None does not. `worker` begins with
        `PULL` and is only a label: two executors may have the same. The lease of each run begins at `now_ms`;
        `renew` renews it, and `rescue` takes the run when it is over.
        """
        ...

    async def renew(
        self,
        now_ms: int,
        workspace: str,
        held: Sequence[tuple[str, int]],
        agent: str | None = None,
        worker: str | None = None,
    ) -> list[RenewedRun]:
        """Renew the leases of these claimed runs, each named by its id and attempt.

        Returns those that are still claimed and running in that attempt, in any order. With `agent` only runs
        of that agent count, with `worker` only those that this executor claimed. The others are not changed.
        """
        ...

    async def next_claim_ms(
        self, after_ms: int, workspace: str, agents: Sequence[str] | None, lanes: Sequence[str] | None
    ) -> int | None:
        """The earliest `due_at` later than `after_ms` of the runs that such a claim could get."""
        ...

    async def expire(
        self,
        now_ms: int,
        limit: int,
        judge: Callable[[LostRun], Finished],
        consequences: Consequences,
    ) -> list[str]:
        """End runs that waited for an executor until their `until_at`, and nobody claimed them.

        At most `limit`, the longest overdue first. `judge` is asked of each with the worker `UNCLAIMED`; what
        it says is written as by `finish`, chains and counters too, and the run has neither worker nor
        start. A serial run does not expire while another of its job is running or retrying: while one is
        running it waits anew, and has at least `TURN_MS`, or all its time, when its turn comes. Returns
        the ids that were written.
        """
        ...

    async def release(self, worker: str, now_ms: int, but: Sequence[str] | None = None) -> int:
        """The worker goes and is forgotten; what it holds is retrying, due at once. Returns how many.

        With `but` the worker stays, and lets go of all that is marked as its own except these runs: of those
        whose claim was written, while the answer never reached it.
        The attempt that was cut short goes into `attempts`, with the error `released`. Announced (`runs`).
        """
        ...

    async def prune(self, before_ms: int, limit: int) -> int:
        """Delete up to `limit` terminal runs that finished before then, dead letters excepted, and deleted
        jobs that have no run left. Returns how many runs."""
        ...

    # --- jobs -------------------------------------------------------------------------------------

    async def create_jobs(
        self,
        jobs: Sequence[JobRow],
        entries: Sequence[AuditEntry] = (),
        allowance: Allowance | None = None,
        keyed: Keyed[None] | None = None,
        agents: Mapping[tuple[str, str], Inherited] | None = None,
    ) -> None:
        """Add jobs, all or none, and announce them. AlreadyExists names the first whose name is taken.

        Their agents are made where they are not there yet. With an `allowance` every job is charged to its
        workspace and its agent; ResourceExhausted says which bucket is empty, and nothing is charged.
        `agents` is what the jobs of an agent (workspace, name) were made with: AgentChanged if that is not
        what the agent has, which nobody changes before the end of the transaction.
        """
        ...

    async def job(self, workspace: str, agent: str, name: str) -> JobRow | None:
        """The job of that name, unless deleted."""
        ...

    async def job_by_id(self, job_id: str, *, deleted: bool = False) -> JobRow | None:
        """The job of that id, unless deleted; with `deleted` even then, for its runs may outlive it."""
        ...

    async def jobs(self, only: JobFilter) -> list[JobRow]:
        """Jobs, ordered by agent and name."""
        ...

    async def change_job(
        self,
        job_id: str,
        change: Callable[[JobRow], JobChange | None],
        entries: Sequence[AuditEntry] = (),
        agent: Inherited | None = None,
    ) -> JobRow | None:
        """Lock the job, write what `change` makes of it with `version` one higher, and announce it.

        None from `change` leaves it alone. An exception of `change` leaves everything as it was. A new name
        that is taken: AlreadyExists. `id`, `workspace`, `created_ms` and `created_by` stay. Withdrawn runs
        end at the job's new `updated_ms`. Runs are born as in `plan`: a tick that has one already keeps it.
        With a `move`, its runs that wait go to that lane and are announced (`runs`); a running one stays as
        it is. Returns the job as it is afterwards, or None where there is none. `agent` is what `change` goes
        by: AgentChanged, before `change` is called, if the job's agent has something else.
        """
        ...

    async def delete_job(
        self,
        job_id: str,
        now_ms: int,
        reason: str,
        entries: Sequence[AuditEntry] = (),
        born: Callable[[JobRow], Sequence[NewRun]] = lambda job: (),
    ) -> bool:
        """Delete the job and cancel its pending runs. Running and retrying ones go on. False: not there.

        `born` sees the job, which nobody else changes any more, and says what becomes of the ticks that were
        due and that no planner had come to: they are written as in `plan`. An exception of it leaves
        everything as it was: who deletes only what they have seen says so there.
        """
        ...

    # --- runs -------------------------------------------------------------------------------------

    async def add_runs(
        self,
        runs: Sequence[NewRun],
        entries: Sequence[AuditEntry] = (),
        keyed: Keyed[list[RunView]] | None = None,
    ) -> list[RunView]:
        """Add runs that are no ticks, all or none, and announce them. AlreadyExists: an id is taken.

        Returns them as they are stored. No runs, with a key, store that there were none.
        """
        ...

    async def add_manual_run(
        self,
        run: NewRun,
        judge: ManualRunRule,
        entries: Sequence[AuditEntry] = (),
        keyed: Keyed[RunView] | None = None,
    ) -> RunView:
        """Add a run that is no tick as `judge` says, given the live runs of its job, and announce it.

        No planner plans the job, and no worker starts a serial run of it, meanwhile. Waiting are its pending
        serial runs, but not those of a backfill. What `judge` cancels ends as by `cancel_run`.
        """
        ...

    async def replay_runs(
        self,
        workspace: str,
        which: Sequence[str] | int,
        make: Replay,
        entry: EntryForRun | None = None,
        keyed: Keyed[list[RunView]] | None = None,
    ) -> list[RunView]:
        """Make new runs of dead letters, which are none from then on, all or none; return the new ones.

        `which` are the ids of some, or how many of the oldest of the workspace. What is no dead letter of it
        is passed over, and one of which `make` returns None stays as it is. The new runs are in the order of
        the ids, or of age; `replay_of` says of what each was made. Announced (`runs`). With an `entry`, each
        dead letter that was replayed has its own.
        """
        ...

    async def discard_runs(
        self, workspace: str, which: Sequence[str] | int, entry: EntryForRun | None = None
    ) -> list[str]:
        """Dead letters that nobody wants any more stop being any; return their ids. As `replay_runs`."""
        ...

    async def cancel_run(
        self, run_id: str, now_ms: int, reason: str, *, running: bool, entries: Sequence[AuditEntry] = ()
    ) -> RunView | None:
        """Cancel a run that is pending or retrying or, with `running`, stop one that is running.

        A running one is announced as `stop:<id>`, parked or not; its worker's word counts no more. Every
        one is announced as `runs`, for another may have its turn. None: no such run. FailedPrecondition:
        it is in another state.
        """
        ...

    async def complete_run(
        self, finished: Finished, consequences: Consequences, entries: Sequence[AuditEntry] = ()
    ) -> bool:
        """Write the outcome of a running run that was reported from outside, as `finish` does.

        For a claimed run and for one with a callback, whether it is parked yet or not: the caller decides
        which runs those are. Fenced by run and attempt, so the first report counts: whatever the worker
        writes of this attempt later is dropped. Where a worker holds the run, `stop:<id>:<attempt>` is
        announced. False: the run is not running in that attempt (any more).
        """
        ...

    async def run(self, run_id: str) -> RunView | None:
        """The run of that id."""
        ...

    async def runs(self, only: RunFilter) -> list[RunView]:
        """Runs, newest first, which is by id."""
        ...

    async def attempts(self, run_id: str) -> list[AttemptView]:
        """The attempts of a run before its last, in order."""
        ...
