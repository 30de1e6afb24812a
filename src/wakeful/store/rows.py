"""The rows that callers and a store exchange: plain tuples, named like the columns.

Instants are epoch milliseconds. Texts named `timing`, `policy` and `work` are the compact JSON of
`wakeful.document`; equal values have equal texts, so that parsed values can be cached by text.

A run has these representations; the docstring of each states why it is separate. Here: `RunView`, `TakenRun`,
`UnfinishedRun`, `DeadLetter`. Elsewhere: `run.NewRun`, `launch.port.Launch`, `engine.in_flight.InFlight`,
`model.Run`. `outcome.Finished` is the end of one attempt.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, NamedTuple, TypeAlias

from wakeful.errors import IncompatibleSchema
from wakeful.run.run import NewRun
from wakeful.run.usage import Spent

#: The worker of a run that was reported as done and is not verified yet, for replicas of schema 17 and as the
#: fence of its outcome (`store.sql.verifications`). `RunView.verifying` says whether a run is verified.
VERIFYING: Final = "verifying"
#: The holder of claimed runs whose outcomes several executors report: run and attempt are the fence.
ANY_EXECUTOR: Final = ""


#: The most revisions that a job keeps: what it was before each change of its definition. Pauses add none.
MAX_REVISIONS: Final = 50


class JobRow(NamedTuple):
    """A job."""

    id: str
    workspace: str
    agent: str
    name: str
    timing: str | None
    policy: str
    work: str
    #: compact JSON, stored verbatim
    payload: str | None
    #: `after`: the name of a job of the same agent, and how its run must end
    after_job: str | None
    after_on: str | None
    description: str
    #: compact JSON of a flat map
    labels: str
    #: encrypted webhook secret, and the one before it while it is still accepted
    secret: bytes | None
    old_secret: bytes | None
    old_secret_until_ms: int | None
    enabled: bool
    disabled_reason: str | None
    anchor_ms: int
    next_ms: int | None
    wake_ms: int | None
    run_count: int
    failures: int
    version: int
    created_ms: int
    updated_ms: int
    #: who created it: `role:actor`, as in `admin:key:1f`; '' if that was not recorded
    created_by: str = ""
    #: of a paused job: why, and until when; `wake_ms` is the same instant then, and `next_ms` is None
    pause_note: str | None = None
    pause_until_ms: int | None = None
    #: of a schedule of an instance: its identity (`job.ScheduleKey`)
    instance_id: str | None = None
    schedule_origin: str | None = None
    schedule_id: str | None = None
    #: ticks that have a record (`JobRecord.decided`), separated by commas; None: there are none
    decided_ticks: str | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        """Its workspace, agent and name: no other job has these."""
        return self.workspace, self.agent, self.name

    @property
    def log_fields(self) -> dict[str, object]:
        """The fields of log events about this job."""
        return {"job_id": self.id, "job": self.name, "agent": self.agent, "workspace": self.workspace}


#: `free`: one that was free; `later`: none yet, it waits until one is free; `previous`: that of the signal
#: before it
ClaimedSlot: TypeAlias = Literal["free", "later", "previous"]


class TakenRun(NamedTuple):
    """What a launch needs of a run and its job, read by the one statement that takes the run."""

    id: str
    job_id: str | None
    workspace: str
    agent: str
    job_name: str | None
    scheduled_ms: int
    fire_ms: int
    trigger: str
    attempt: int
    lane: str
    idempotency_key: str
    policy: str
    work: str
    #: the run's own payload, else its job's
    payload: str | None
    #: why the previous attempt failed; `due`: a manual run, to start only if its job is due
    reason: str | None = None
    #: the number of failed attempts that count towards `max_attempts`
    failed_attempts: int = 0
    #: its job's encrypted webhook secret, and the one before it while it is still accepted
    secret: bytes | None = None
    old_secret: bytes | None = None
    old_secret_until_ms: int | None = None
    #: how many ticks were missed before it
    missed: int = 0
    #: its job's schedule and anchor, from which the previous tick follows
    timing: str | None = None
    anchor_ms: int | None = None
    #: the session of a turn
    session: str | None = None
    #: compact JSON of what is added to its payload, and of what its precheck decided in an earlier attempt
    context: str | None = None
    precheck: str | None = None
    #: its job: compact JSON of the state that the last precheck left, and its revision
    precheck_state: str | None = None
    precheck_revision: int = 0
    #: of a signal run: its instance, the type of the signal, and the state when it was taken
    instance_id: str | None = None
    instance: str | None = None
    signal: str | None = None
    #: compact JSON; None: the initial state of the class
    data: str | None = None
    #: the version of the class that wrote the state; 0: none did
    state_version: int = 0
    #: changes with the state
    revision: int = 0
    #: compact JSON of what the instance remembers besides its state
    memory: str | None = None
    #: of a signal run: how many jobs in a row an agent made for itself, up to this run
    depth: int = 0
    #: when its instance was created; a new instance of the same name has the same id, and revisions anew
    instance_created_ms: int | None = None
    #: which slot of its lane it uses
    slot: ClaimedSlot = "free"
    #: the weight of its workspace in the lane, if several owners want its slots
    weight: float = 1

    @property
    def log_fields(self) -> dict[str, object]:
        """The fields of log events about this run."""
        return {
            "run_id": self.id,
            "job_id": self.job_id,
            "job": self.job_name,
            "agent": self.agent,
            "workspace": self.workspace,
            "attempt": self.attempt,
        }


class UnfinishedRun(NamedTuple):
    """What decides whether and how a run without an outcome ends: lost, expired, timed out."""

    id: str
    job_id: str | None
    attempt: int
    policy: str
    started_ms: int | None
    worker: str | None
    failed_attempts: int = 0
    #: the status of the response to a callback launch; else None
    response_code: int | None = None
    is_pull: bool = False
    awaiting_callback: bool = False
    #: of a signal run: its instance
    instance_id: str | None = None
    #: the work of its job, and why the run was launched again; only `rescue` reads them
    work: str = "{}"
    reason: str | None = None
    #: how often it was lost together with other runs before, and how many others its worker held this time;
    #: only `rescue` reads them
    losses: int = 0
    companions: int = 0


class Extension(NamedTuple):
    """A later deadline of a run that awaits its report."""

    run_id: str
    attempt: int
    due_ms: int


class AwaitingRun(NamedTuple):
    """A run that awaits a report: the result of a callback, or of the worker of a broker."""

    run_id: str
    attempt: int
    idempotency_key: str
    #: the work of its job, which may have been edited since the launch
    work: str
    #: what a process needs to launch it (`wakeful.job.start_rules`)
    requires: str = ""
    #: whether its job was edited since, so that both may be of another target; a webhook has not responded
    edited: bool = False


class RunView(NamedTuple):
    """A run with all its fields, to show it: the columns that a list returns."""

    id: str
    job_id: str | None
    workspace: str
    agent: str
    job_name: str | None
    scheduled_ms: int
    fire_ms: int
    trigger: str
    triggered_by: str | None
    state: str
    reason: str | None
    covers: int
    until_ms: int | None
    attempt: int
    worker: str | None
    lane: str
    due_ms: int | None
    started_ms: int | None
    finished_ms: int | None
    idempotency_key: str
    replay_of: str | None
    payload: str | None
    output: str | None
    error: str | None
    usage: str | None
    #: failed, and neither replayed nor discarded
    dead: bool
    created_ms: int
    #: running without a worker, until it is completed from outside or `due_ms` passes
    awaiting_callback: bool = False
    #: whether executors claim it, and until when it waits for one, or waited the last time
    is_pull: bool = False
    claim_deadline_ms: int | None = None
    #: whether it starts only when no other run of its job is active
    serial: bool = False
    #: the state of the delivery of its output (`model.DeliveryState`), and why it failed
    delivery: str = "not_requested"
    delivery_error: str | None = None
    #: of a tick: the number of ticks missed since the previous one with a run
    missed: int = 0
    #: the number of failed attempts that count towards `max_attempts`; `attempt` counts every launch
    failed_attempts: int = 0
    #: the status of the target's response to the last attempt, if it has one
    response_code: int | None = None
    #: what a process must have to take it (`start_rules.Requirement`)
    requires: str = ""
    requires_version: int = 0
    #: of a signal run: its instance, the type of the signal, and the signals that went out as a JSON array
    instance: str | None = None
    signal: str | None = None
    emitted: str | None = None
    #: the session of a turn
    session: str | None = None
    #: how many jobs in a row an agent made for itself, up to the job of this run
    depth: int = 0
    #: compact JSON: what is added to its payload, what its precheck decided, and the evidence of its work
    context: str | None = None
    precheck: str | None = None
    evidence: str | None = None
    #: the attempt that was reported as done and is not verified yet, or was the last such
    verifying_attempt: int | None = None
    #: of a claimed run: what its work waits for, as its executor says
    waiting: str | None = None

    @property
    def verifying(self) -> bool:
        """Whether it was reported as done and its work is not verified yet."""
        # Replicas of schema 17 write the name only.
        reported = self.verifying_attempt == self.attempt or self.worker == VERIFYING
        return self.state == "running" and self.awaiting_callback and reported

    @property
    def shown_worker(self) -> str | None:
        """The worker or executor that has it, or ended it."""
        return None if self.worker == VERIFYING else self.worker

    @property
    def log_fields(self) -> dict[str, object]:
        """The fields of log events about this run."""
        return {
            "run_id": self.id,
            "job_id": self.job_id,
            "job": self.job_name,
            "agent": self.agent,
            "workspace": self.workspace,
            "attempt": self.attempt,
        }


class Renewal(NamedTuple):
    """A claimed run whose lease is renewed."""

    run_id: str
    attempt: int
    #: only if it is a run of this agent, and held by this executor; None: of any
    agent: str | None = None
    worker: str | None = None
    #: what its work waits for: it starts now
    waiting: str | None = None


class ReportedRun(NamedTuple):
    """What a report from outside needs: a run, with the policy and work of its job; None: it has no job."""

    run: RunView
    policy: str | None
    work: str | None


class DeadLetter(NamedTuple):
    """What a replay needs: a dead run, with the policy and work that its job has now."""

    run: RunView
    policy: str
    work: str


class AttemptView(NamedTuple):
    """An attempt of a run."""

    attempt: int
    worker: str | None
    started_ms: int | None
    finished_ms: int | None
    error: str | None
    response_code: int | None = None
    #: the beginning of what its target answered, if it failed
    output: str | None = None


class JobWithRuns(NamedTuple):
    """A job with what is read together with it."""

    job: JobRow
    has_hook: bool
    #: what its last precheck left, as JSON
    precheck_state: str | None
    #: what it used today
    spent: Spent
    #: whether the job that it comes after exists; true if it comes after none
    has_upstream: bool
    #: newest first
    runs: list[RunView]


class SignalRecipient(NamedTuple):
    """The instance to which the runs of a job are sent as signals."""

    instance_id: str
    workspace: str
    agent: str
    instance: str
    #: the type of the signals
    signal: str


class Move(NamedTuple):
    """Another lane, requirement or mailbox for the unfinished runs of a job."""

    lane: str
    #: how long each waits for an executor, from now or from when it is due; None: a worker takes it
    claim_timeout_ms: int | None
    #: what a process must have to take it
    requires: str = ""
    #: the mailbox of its pending runs; None: none, and whether they wait for each other then
    recipient: SignalRecipient | None = None
    serial: bool = False


class NewRevision(NamedTuple):
    """What a change of the definition of a job records."""

    #: compact JSON of the document before the change, without credentials
    document: str
    #: compact JSON of the names of the changed fields
    fields: str
    #: who changed it: `role:actor`
    by: str


class RevisionRow(NamedTuple):
    """A stored revision."""

    #: the version of the job before the change
    version: int
    document: str
    fields: str
    replaced_ms: int
    replaced_by: str


class JobChange(NamedTuple):
    """A change of a job, and what follows for its runs."""

    job: JobRow
    #: cancel its planned runs that have not started, with this reason
    withdraw: str | None = None
    #: the runs of ticks that were due before the change and not yet planned
    runs: tuple[NewRun, ...] = ()
    #: another lane for its pending and retrying runs, another requirement for them and the running ones
    move: Move | None = None
    #: with `withdraw`: whether the changed job has this tick too. Then a run that was recorded ahead of its
    #: instant is not withdrawn; it starts with the changed job
    keeps: Callable[[int], bool] | None = None
    #: what is recorded of the job before the change, if its definition changes; by `change_job`, and for
    #: internal jobs
    revision: NewRevision | None = None
    #: whether its budget changes, so that its blocks are checked again; by `change_job` only
    budget: bool = False

    def withdrawal_reason(self, tick_ms: int) -> str | None:
        """Return the reason to withdraw a recorded tick that has not started; None: it stays."""
        return None if self.keeps is not None and self.keeps(tick_ms) else self.withdraw


class BeatResult(NamedTuple):
    """What a worker's heartbeat finds."""

    #: which of the runs that the worker holds are not its own any more
    lost: set[str]
    #: set if the database has a schema that this code does not support
    incompatible: IncompatibleSchema | None = None


class RunFilter(NamedTuple):
    """Which runs to list; None does not filter."""

    workspace: str
    agent: str | None = None
    job_id: str | None = None
    #: some of `wakeful.run.run.LISTED_STATES`
    states: tuple[str, ...] = ()
    trigger: str | None = None
    dead: bool = False
    #: only runs with an id lower than this one: ids are in the order of creation
    before: str | None = None
    limit: int = 50
    instance_id: str | None = None
    #: only runs with this id or a higher one
    since: str | None = None
    #: how many of the first ones are left out; not of dead letters
    offset: int = 0
    #: only runs that wait for a person to confirm their work (`verify`: `manual`)
    to_confirm: bool = False


#: Labels that a job must have: each a name and its value, or None for any.
LabelFilter = tuple[tuple[str, str | None], ...]


#: The states of jobs by which lists are filtered, the kinds of their schedules, and who creates them.
JOB_STATES: Final = ("active", "paused", "failing", "approval", "inactive", "ended")
SCHEDULE_KINDS: Final = ("cron", "every", "at", "after", "none")
CREATORS: Final = ("person", "agent")
#: How lists of jobs are ordered: by agent and name, or by the next tick.
JobOrder = Literal["name", "next"]


class JobFilter(NamedTuple):
    """Which jobs to list; None does not filter."""

    workspace: str
    agent: str | None = None
    include_disabled: bool = True
    #: only jobs that come after this (agent, name)
    after: tuple[str, str] | None = None
    limit: int = 1000
    labels: LabelFilter = ()
    name: str | None = None
    #: a part of `agent/name`
    q: str | None = None
    #: one of `JOB_STATES`
    state: str | None = None
    #: one of `CREATORS`
    creator: str | None = None
    created_by: str | None = None
    #: one of `SCHEDULE_KINDS`
    schedule_kind: str | None = None
    target_kind: str | None = None
    #: whether internal jobs are listed
    internal: bool = True
    #: with `next`, only jobs that have a next tick
    order: JobOrder = "name"
    #: with the order `next`: only jobs that come after this (wake_ms, id)
    after_tick: tuple[int, str] | None = None
    #: with the order `name`: how many of the first ones are left out
    offset: int = 0


class WorkflowRow(NamedTuple):
    """A version of a workflow."""

    workspace: str
    id: str
    version: int
    #: compact JSON
    dag: str
    created_ms: int
