"""The contract of a store: what a database must do for Wakeful.

A column `x_ms` of a row is an instant; the database has its own type for it and the name `x_at`. The tables:

- `jobs`: one row per job (`JobRow`), and `deleted_at`. The row of a deleted job stays until its last run is
  pruned, because runs outlive their job and may be replayed. UNIQUE (workspace, agent, name) among jobs that
  are not deleted. `wake_at` is when planning looks at the job, and planning scans the index on it. It is the
  next tick (`next_at`) of an enabled job, the end of a pause (`pause_until`, without a `next_at`), or NULL.
  PostgreSQL has the columns that planning changes in a table of its own, `cursors`.
- `runs`: one row per run (`RunView`), and `serial`. UNIQUE (job_id, scheduled_at) among ticks (trigger
  `schedule`): **this index is the lock that makes a tick happen once**; no code above may assume any other.
  `created_at` is the store's clock when the run was inserted. PostgreSQL has the unfinished ones in
  `live_runs` too, a small table for hot queries.
- `attempts`: one row for each attempt but the last, which is on the run itself.
- `workers`: name, `beat_at`, `started_at`, and the `capabilities` of its process. Executors are not workers:
  each run that an executor has claimed has a lease of its own, `beat_at` of the run, which is NULL for a run
  that a worker holds.
- `workspaces`, `agents`, `keys`: `accounts`. `audit`, `audit_heads`: `audit`. `quotas`, `workflows` and
  `idempotency_keys`: the modules of these names.
- `spending`, `budget_blocks`: `budgets` and, for reports, `costs`. `job_incidents`: `incidents`. `incidents`
  and `alert_cooldowns`: `alerts`.
- `sessions`, `messages`, `turns`, `session_history`: `sessions`. `deliveries`: `deliveries`. `hooks`:
  `hooks`.
- `agent_classes`, `instances`, `signal_ids`: `instances`. A run of an instance is in its mailbox until it is
  over, and its `due_at` is NULL until it is its turn.
- `suggestions`: the module of that name. `job_revisions`: `revisions`.
- `verifications`: the module of this name.
- `web_sessions`, `sign_in_links`, `sign_in_limits`: `web_sessions`.
- `run_counts`, `job_run_counts`, `run_counts_position`: `run_counts`.
- `changes`, and in PostgreSQL `changes_head`: `changelog`. `schema_version`: `migrations`.

Calls are set-based: a call costs a fixed number of statements, however many rows it concerns. Every call is
one transaction. Decisions are made by pure functions that the caller passes; they are called inside the
transaction and must be fast. A store decides nothing itself, and reads the time only from `clock`.

A run keeps the name of the worker that ended it; a pending or retrying run has none. A run that was launched
and awaits its callback is running without a worker (`awaiting_callback`). `due_at` is set while a run is
pending, retrying or awaiting its callback, and NULL otherwise. A *pull run* (`is_pull`) is claimed by an
executor, whose name is its worker then; no worker of a replica takes it. Each time it is due, it waits
`claim_timeout_ms` for an executor, until its `claim_deadline`. To *withdraw* the planned runs of a job is to
cancel its pending ticks; manual runs stay. Deleting or disabling a job clears its `next_at` and `wake_at`.

A tick may be recorded as running shortly before its `fire_at`. Until then it has not started: when its job is
changed or deleted, it is withdrawn with the pending ones (no `started_at`, no worker). If the change keeps it
or withdraws nothing, it is released instead, due at its `fire_at`. Its worker gets `stop:<id>`, or
`stop:<id>:<attempt>` for that attempt alone.

A *prefetched* run is running without `started_at`: its worker starts it when a slot of its lane is free, or
gives it back. When its job changes, it counts as started. Cancelling it takes effect before the launch.

A terminal run (succeeded, failed, cancelled, skipped, missed) does not change any more, except that a dead
letter stops being one (`dead`) when it is replayed or discarded. One without success has an error or a
reason: PostgreSQL finds them by that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from wakeful.job.capabilities import NO_CAPABILITIES, Capabilities
from wakeful.run.consequences import Consequences
from wakeful.run.outcome import Finished
from wakeful.run.run import NewRun
from wakeful.store.accounts import KEYS_TOPIC, AccountStore
from wakeful.store.audit import AuditStore
from wakeful.store.budgets import BudgetStore, CostStore
from wakeful.store.changelog import ChangelogStore
from wakeful.store.deliveries import DeliveryStore
from wakeful.store.figures import FigureStore, LiveStore
from wakeful.store.hooks import HookStore
from wakeful.store.idempotency import IdempotencyStore
from wakeful.store.incidents import AlertStore, IncidentStore
from wakeful.store.instances import INSTANCES_TOPIC, InstanceStore
from wakeful.store.jobs import JobStore, RunStore, WorkflowStore
from wakeful.store.lane_shares import NOT_SHARED, LaneUse
from wakeful.store.overviews import OverviewStore
from wakeful.store.quotas import QuotaStore
from wakeful.store.revisions import RevisionStore
from wakeful.store.rows import (
    AwaitingRun,
    BeatResult,
    DueJob,
    Extension,
    JobPlan,
    RunView,
    TakenRun,
    UnfinishedRun,
)
from wakeful.store.run_counts import RunCountStore
from wakeful.store.sessions import SessionStore
from wakeful.store.stats import ProcessStore, StatsStore
from wakeful.store.suggestions import SuggestionStore
from wakeful.store.verifications import VerificationStore
from wakeful.store.web_sessions import WebSessionStore
from wakeful.values.clock import Clock

NO_SLOTS: Mapping[str, int] = MappingProxyType({})
#: The minimum time that a serial pull run has to be claimed once its turn comes.
TURN_MS = 60_000
#: After how many decisions of a planning pass other work of the process continues.
DECISIONS_AT_ONCE = 50
#: The topics without an object: all that may be missed while a process receives no notifications.
TOPICS: Final = (
    "jobs", "runs", "budget_blocks", "incidents", "sessions", "deliveries", "verifications", INSTANCES_TOPIC,
    KEYS_TOPIC,
)  # fmt: skip
#: The workspace whose request makes the calls in this context; None: there is no request, or one with a key
#: for all workspaces. The calls of one workspace leave a part of what they share to others.
current_tenant: Final[ContextVar[str | None]] = ContextVar("current_tenant", default=None)
#: The topic that says that a claim is over begins so.
CLAIM_OVER: Final = "claim:"


def claim_topic(workspace: str, worker: str, claim_id: str) -> str:
    """Return the topic that says that a claim is over: its executor does not wait for it any more.

    >>> claim_topic("default", "laptop-1", "7")
    'claim:442ac55280a11c617d5c423f93733a2c'
    """
    names = "\n".join((workspace, worker, claim_id))
    return CLAIM_OVER + hashlib.sha256(names.encode()).hexdigest()[:32]


class Planned(NamedTuple):
    """The result of a planning pass."""

    #: the number of due jobs that it claimed; if that is the limit, there may be more
    claimed: int
    #: the runs that were inserted, in the order of the plans
    runs: list[NewRun]
    #: a tick had a run already: nothing was written, and the next pass knows it
    repeat: bool = False


class TakeNext(NamedTuple):
    """Which runs to take in the transaction that writes outcomes."""

    #: the runs whose slot the next run of the same instance may use, with the lane of the slot
    lanes: Mapping[str, str]
    capabilities: Capabilities
    #: as in `Store.take`
    free: Mapping[str, int] = NO_SLOTS
    prefetch: Mapping[str, int] = NO_SLOTS
    usage: Mapping[str, LaneUse] = NOT_SHARED


class Store(
    AccountStore,
    AuditStore,
    QuotaStore,
    WorkflowStore,
    IdempotencyStore,
    ChangelogStore,
    StatsStore,
    BudgetStore,
    CostStore,
    ProcessStore,
    AlertStore,
    IncidentStore,
    SessionStore,
    DeliveryStore,
    HookStore,
    InstanceStore,
    LiveStore,
    RunCountStore,
    FigureStore,
    SuggestionStore,
    JobStore,
    RevisionStore,
    RunStore,
    VerificationStore,
    WebSessionStore,
    OverviewStore,
    Protocol,
):
    """A database of Wakeful.

    Audit `entries` of a call are appended in the same transaction, if it changes anything. With `keyed`, its
    response is stored in the same transaction; if there is one already, the call changes nothing and raises
    AlreadyPerformed (`wakeful.store.idempotency`).
    """

    #: the clock of the database; instants that are compared come from it
    clock: Clock

    async def open(self) -> None:
        """Connect, and migrate the schema: numbered migrations, forward only, under a lock."""
        ...

    @property
    def newest_schema(self) -> int:
        """The newest migration of this code."""
        ...

    async def schema(self) -> int:
        """Return the newest migration of the database."""
        ...

    async def ping(self) -> None:
        """Raise Unavailable if the database does not respond, or does not accept writes."""
        ...

    async def close(self) -> None:
        """Disconnect. No call may be in progress."""
        ...

    def listen(self, listener: Callable[[str], None]) -> None:
        """Call `listener` in the event loop with each topic that a transaction publishes, in any process.

        Topics: `jobs` (the wake of a job may be earlier), `runs` (a run may be taken), `budget_blocks` (they
        changed), `incidents` (an alert may be due), `sessions` (a turn may begin), `deliveries` (one may be
        due), `verifications` (one may be due), `instances` (a signal added one), `keys` (keys or
        sessions have ended), `stop:<run id>` (the run was
        cancelled), `stop:<run id>:<attempt>` (the outcome of that attempt was reported from outside),
        `hibernate:<instance id>` (processes unload the instance), and `claim_topic` (nobody waits for the
        claim). With SQLite, changes by other processes are
        not published (`notifies_other_processes`); the engine's longest sleep bounds how late they are seen.
        """
        ...

    # --- planning ---------------------------------------------------------------------------------

    async def plan(self, until_ms: int, limit: int, decide: Callable[[DueJob], JobPlan | None]) -> Planned:
        """Claim up to `limit` jobs with `wake_at <= until_ms`, oldest first, and write what `decide` returns.

        Claimed jobs are locked against other planners until the end; jobs that another planner holds are
        skipped. None from `decide` leaves a job unchanged. A tick that has a run already does not get another
        one: its job learns that tick (`DueJob.decided_ticks`), the pass writes nothing else, and the caller
        repeats it (`Planned.repeat`). A run to cancel that has ended stays as it is; running ones are
        published (`stop:<id>`). Pending runs are published (`runs`), and so are cancelled ones, since another
        run may have waited for them. Statements: claim, live runs, insert, cancel, advance.
        """
        ...

    async def next_wake_ms(self) -> int | None:
        """Return the earliest `wake_at` of all jobs."""
        ...

    # --- running ----------------------------------------------------------------------------------

    async def take(
        self,
        now_ms: int,
        worker: str,
        free: Mapping[str, int],
        capabilities: Capabilities = NO_CAPABILITIES,
        prefetch: Mapping[str, int] = NO_SLOTS,
        usage: Mapping[str, LaneUse] = NOT_SHARED,
    ) -> list[TakenRun]:
        """Mark due runs as running under this worker, up to the given number per lane, longest due first.

        A pending or retrying run with `due_at <= now_ms` is due. Runs that require something else than the
        capabilities of the worker's process (`capabilities.can_take`) are not read. A serial run is taken
        only if no other run of its job is running or retrying and, if it is pending, no older one is pending:
        they start one at a time, in the order of their ticks. Two retrying runs of one job, which an edit or
        a race may leave, go in tick order. `attempt` of a retrying run goes up by one; `started_at` becomes
        `now_ms`. Two workers never take one run. A run without a job has the policy and the work `{}`.
        Returned longest due first over all lanes, then by age.

        `prefetch` is how many more runs to take per lane that start later, when a slot is free. Such a run is
        running without `started_at` (`TakenRun.slot` is `later`). Its start is written with its outcome, or
        by `record_starts`. The first due run that may not be prefetched (`prefetch_rules`) ends them.

        `usage` names the lanes that are shared (`lane_shares`): if more runs are due there than may be taken,
        they are chosen so that workspaces by their weight, and then agents, have equal parts of what is used
        and taken; of one agent, longest due first. `TakenRun.weight` is the weight of its workspace then.

        Suspects are not taken: runs that were lost together with others of their worker.
        """
        ...

    async def take_suspects(
        self,
        now_ms: int,
        worker: str,
        lanes: Sequence[str],
        capabilities: Capabilities = NO_CAPABILITIES,
        limit: int = 1,
    ) -> list[TakenRun]:
        """Take the suspects of these lanes that are due longest, as by `take`.

        If `limit` allows several, those that were lost more than once are not taken.
        """
        ...

    async def next_due_ms(
        self, after_ms: int, lanes: Sequence[str], capabilities: Capabilities = NO_CAPABILITIES
    ) -> int | None:
        """Return the earliest `due_at` after `after_ms` of runs that a worker of these lanes could take."""
        ...

    async def finish(self, worker: str, finished: Sequence[Finished], consequences: Consequences) -> set[str]:
        """Write how attempts ended, each only if its run is still running under this worker and attempt.

        Returns the ids that were written. An attempt that is not the last goes into `attempts`. What follows
        for jobs, with the states of their prechecks, and for other runs is decided by `consequences`
        (`wakeful.run.consequences`) and written in the same transaction. Retrying, follow-up and waiting runs
        whose turn has come are published (`runs`). Unstorable: a value cannot be stored, and nothing
        was written. With `state == "running"` the run awaits its callback until `due_at`, without a worker,
        or its verification (`wakeful.store.verifications`). Output, error, reason and usage are written in
        every case.
        """
        ...

    async def finish_and_take(
        self, worker: str, finished: Sequence[Finished], consequences: Consequences, take_next: TakeNext
    ) -> tuple[set[str], list[TakenRun]]:
        """Do `finish`; then take the next runs of these instances, and other runs, as `take_next` allows.

        The next run of an instance is taken as by `take` if it is pending, due, and in the lane of the run
        that ended (`TakenRun.slot` is `previous`). So a signal that waits behind another needs no transaction
        of its own to start. The others are taken by `take`, after all effects of the outcomes.
        """
        ...

    async def record_check(
        self, run_id: str, attempt: int, worker: str, context: str | None, precheck: str
    ) -> bool:
        """Write the context of a run, and what its precheck decided (`prechecks.checked_to_text`).

        False, and nothing is written, if the run is not running under this worker and attempt. The state of
        the precheck, and `once`, take effect with the outcome (`Finished.checked`).
        """
        ...

    async def extend_callbacks(self, extensions: Sequence[Extension]) -> set[str]:
        """Extend the deadlines of runs that await their reports, as progress is reported.

        A later deadline stays. Returns the ids of the runs that await a report in that attempt.
        """
        ...

    async def note_callback(self, run_id: str, attempt: int, problem: str | None) -> None:
        """Write why a run that awaits its report is not executed, as its error; None: it is executed."""
        ...

    async def awaiting_runs(self, after: str, limit: int) -> list[AwaitingRun]:
        """Return runs that await a report, in the order of their ids, after that id; '': from the first."""
        ...

    async def beat(
        self, worker: str, now_ms: int, holding: Sequence[str], capabilities: Capabilities | None = None
    ) -> BeatResult:
        """Record a heartbeat. Returns which of these runs the worker lost, and if the schema is too new.

        `capabilities` is what the worker's process can launch; None leaves what is recorded.
        """
        ...

    async def check_schema(self) -> None:
        """Raise IncompatibleSchema if the database has a schema that this code does not support."""
        ...

    async def lost(self, worker: str, holding: Sequence[str]) -> set[str]:
        """Return which of these runs the worker does not hold any more. Changes nothing."""
        ...

    async def limit_heartbeats(self, now_ms: int) -> None:
        """Set heartbeats of workers and executors that are later than now to now: the clock was set back."""
        ...

    async def rescue(
        self,
        now_ms: int,
        dead_before_ms: int,
        limit: int,
        judge: Callable[[UnfinishedRun], Finished],
        consequences: Consequences,
        spared_before_ms: int = 0,
    ) -> list[str]:
        """End the attempts of workers without a heartbeat since, and of runs whose callback is overdue.

        Likewise for a claimed run whose lease was not renewed since, whatever else its executor holds, except
        for one that was claimed before `spared_before_ms`. A worker that never sent a heartbeat counts from
        the start of its run. At most `limit` runs, longest started first. `judge` returns the outcome of
        each; it is written as by `finish`. Dead workers without runs are deleted. Two rescuers never judge
        one run. Returns the ids that were written.
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
        claim_id: str | None = None,
    ) -> list[tuple[TakenRun, RunView]]:
        """Mark pull runs of this workspace as running under an executor, longest due first.

        As `take`, for pull runs; returns what a launch needs of each, and all its fields. `agents` and
        `lanes` filter; None does not. `worker` is only a label: two executors may have the same, and a worker
        of a replica too. The lease of each run begins at `now_ms`; `renew` renews it, and `rescue` ends the
        attempt when it has expired. `claim_id` names the claim for `release_claims`.
        """
        ...

    async def release_claims(
        self,
        now_ms: int,
        workspace: str,
        worker: str,
        runs: Sequence[tuple[str, int]] = (),
        claim_id: str | None = None,
        agent: str | None = None,
    ) -> list[str]:
        """Retry at once claimed runs of this executor that it does not execute. The attempts do not count.

        These attempts (id, attempt), and all runs that the claim of this name gave it. With `agent` only runs
        of that agent. Runs that it does not hold in that attempt are not changed. Returns the ids of those
        that were released. The attempts go into `attempts` with the error `released`. Topics: `runs`, and
        `claim_topic` of the claim.
        """
        ...

    async def renew(
        self,
        now_ms: int,
        workspace: str,
        held: Sequence[tuple[str, int]],
        agent: str | None = None,
        worker: str | None = None,
        waiting: Mapping[str, str] | None = None,
    ) -> list[UnfinishedRun]:
        """Renew the leases of these claimed runs (id, attempt).

        Returns those that are still claimed and running in that attempt, in any order; with `agent` only runs
        of that agent, with `worker` only those of this executor. Others are not changed. `waiting` says what
        the work of some of them, by id, waits for; they start now.
        """
        ...

    async def next_claim_ms(
        self, after_ms: int, workspace: str, agents: Sequence[str] | None, lanes: Sequence[str] | None
    ) -> int | None:
        """Return the earliest `due_at` after `after_ms` of runs that such a claim could get."""
        ...

    async def expire(
        self,
        now_ms: int,
        limit: int,
        judge: Callable[[UnfinishedRun], Finished],
        consequences: Consequences,
    ) -> list[str]:
        """End pull runs that no executor claimed before their `claim_deadline`.

        At most `limit`, the longest overdue first. `judge` returns the outcome of each. It is written as by
        `finish`, and the run has neither worker nor start. A serial run does not expire while another of
        its job is running or retrying: meanwhile its time starts again, and it has at least `TURN_MS`, or all
        its time, when its turn comes. Returns the ids that were written.
        """
        ...

    async def release(self, worker: str, now_ms: int, keep: Sequence[tuple[str, int]] | None = None) -> int:
        """Delete the worker and retry at once the runs that it holds. Returns how many.

        With `keep` the worker stays, and so do these attempts (run id and attempt): it releases runs whose
        claim was committed while the response was lost. The attempts go into `attempts` with the error
        `released`. Topic: `runs`.
        """
        ...

    async def give_back(self, worker: str, now_ms: int, runs: Sequence[tuple[str, int]]) -> int:
        """Release these prefetched attempts (run id and attempt), which have not started. Returns how many.

        Only those that the worker still holds, without a recorded start. They are due since their `fire_at`,
        so they keep their place among the runs that wait. Otherwise as `release`.
        """
        ...

    async def record_starts(self, worker: str, starts: Sequence[tuple[str, int, int]]) -> None:
        """Write when prefetched attempts started: run id, attempt, instant. Others are not changed."""
        ...

    async def prune(self, before_ms: int, limit: int) -> int:
        """Delete up to `limit` terminal runs that finished before then, except dead letters, and deleted
        jobs without runs. Returns how many runs."""
        ...
