"""The rows that go between the engine and a store: plain tuples in the words of the tables.

Instants are epoch milliseconds; a store turns them into what its database likes. Texts named `timing`,
`policy` and `work` are the compact JSON of `wakeful.document`; equal values have equal texts, so that
reading them is a cache's business.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from wakeful.run import NewRun


class JobRow(NamedTuple):
    """A job, all of it."""

    id: str
    workspace: str
    agent: str
    name: str
    timing: str | None
    policy: str
    work: str
    #: compact JSON, kept verbatim, or None
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
    #: who created it: `role:actor`, as in `admin:key:1f`; '' where that was not recorded
    created_by: str = ""
    #: of a paused job: why, and until when; `wake_ms` is the same instant then, and `next_ms` is None
    pause_note: str | None = None
    pause_until_ms: int | None = None


class DueJob(NamedTuple):
    """What planning and launching need of a due job, with the facts about its live runs."""

    id: str
    workspace: str
    agent: str
    name: str
    timing: str | None
    policy: str
    work: str
    payload: str | None
    anchor_ms: int
    #: for a paused job, when its pause ends
    next_ms: int
    run_count: int
    #: ids of its runs that are running or between two attempts
    running: tuple[str, ...]
    #: ids of its ticks that are pending; what somebody asked for gives way to no tick
    waiting: tuple[str, ...]
    #: what the previous pass left for the next one (`CatchupState`)
    missed: int = 0
    spread_from_ms: int | None = None
    spread_until_ms: int | None = None
    #: of a paused job: when its pause ends, and whether its agent is active
    pause_until_ms: int | None = None
    agent_active: bool | None = None
    #: its encrypted webhook secret, and the one before it while it is still accepted
    secret: bytes | None = None
    old_secret: bytes | None = None
    old_secret_until_ms: int | None = None


class LiveRuns(NamedTuple):
    """The ids of the live runs of a job: those under way, and those that wait their turn."""

    running: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()


class JudgedRun(NamedTuple):
    """What becomes of a run that was asked for by hand."""

    run: NewRun
    #: live runs to cancel, with the reason
    cancelled: tuple[tuple[str, str], ...] = ()


#: What becomes of such a run, given the live runs of its job.
ManualRunRule = Callable[[NewRun, LiveRuns], JudgedRun]


class CatchupState(NamedTuple):
    """What a planning pass leaves for the next one: see `planning.Standing.missed` and `planning.Spread`."""

    missed: int = 0
    spread_from_ms: int | None = None
    spread_until_ms: int | None = None


class JobPlan(NamedTuple):
    """What planning decided for one due job, to be written whole."""

    job_id: str
    #: the cursor as it was claimed and as it is to be
    next_ms: int | None
    wake_ms: int | None
    run_count: int
    enabled: bool
    disabled_reason: str | None
    #: the runs born of its ticks, in the order of the ticks
    runs: tuple[NewRun, ...]
    #: live runs to cancel, with the reason: replaced by, or superseded by, a newer one
    cancelled: tuple[tuple[str, str], ...] = ()
    #: what is left for the next pass; None: as it was
    catchup: CatchupState | None = None
    #: the ids of runs before which ticks were missed, with how many
    missed: tuple[tuple[str, int], ...] = ()
    #: the job's pause is over: `enabled` and `disabled_reason` hold from now on
    resumed: bool = False


class TakenRun(NamedTuple):
    """A run that this worker now holds, with what its launch needs."""

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
    #: why the attempt before did not work; `due`: somebody asked for it by hand, if it was due
    reason: str | None = None
    #: how many attempts of this run have failed and count towards `max_attempts`
    failed_attempts: int = 0
    #: its job's encrypted webhook secret, and the one before it while it is still accepted
    secret: bytes | None = None
    old_secret: bytes | None = None
    old_secret_until_ms: int | None = None
    #: how many ticks were missed before it
    missed: int = 0
    #: its job's schedule and anchor, which tell the tick before it
    timing: str | None = None
    anchor_ms: int | None = None


class LostRun(NamedTuple):
    """A run whose worker is dead, or that nobody claimed in time."""

    id: str
    job_id: str | None
    attempt: int
    policy: str
    started_ms: int | None
    worker: str | None
    failed_attempts: int = 0
    #: the answer to a callback launch; None for a run that is not parked
    response_code: int | None = None


class RunView(NamedTuple):
    """A run as it is shown: everything that is known of it."""

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
    #: failed, and nobody has replayed or discarded it
    dead: bool
    created_ms: int
    #: what became of delivering its output (`model.DeliveryState`; `pending` until it is over), and why
    delivery: str = "not_requested"
    delivery_error: str | None = None
    #: of a tick: how many ticks were missed since the one before it that became a run
    missed: int = 0
    #: how many of its attempts have failed and count towards `max_attempts`; `attempt` counts every launch
    failed_attempts: int = 0
    #: the status with which the target of its last attempt answered, where it has one
    response_code: int | None = None


class DeadLetter(NamedTuple):
    """A failed run that nobody has replayed or discarded, and what its job says of launching it now."""

    run: RunView
    policy: str
    work: str


class AttemptView(NamedTuple):
    """One try at a run that was not its last, or the last one of a run that is over."""

    attempt: int
    worker: str | None
    started_ms: int | None
    finished_ms: int | None
    error: str | None
    response_code: int | None = None


class Move(NamedTuple):
    """Another lane, for the runs of a job that wait."""

    lane: str
    #: how long each waits there to be claimed, from now or from when it is due; None: a worker takes it
    claim_ms: int | None


class JobChange(NamedTuple):
    """What becomes of a job that somebody edits."""

    job: JobRow
    #: cancel its runs that are planned and have not started, with this reason
    withdraw: str | None = None
    #: what became of the ticks that were due before the change, and that no planner had come to yet
    runs: tuple[NewRun, ...] = ()
    #: where its runs wait from now on that wait already, pending or between two attempts
    move: Move | None = None
    #: with `withdraw`: whether the job has this tick after the change too. Then a run that was recorded ahead
    #: of its instant is not withdrawn; it starts as the job is now
    keeps: Callable[[int], bool] | None = None

    def withdrawn(self, tick_ms: int) -> str | None:
        """For which reason a tick is withdrawn that is recorded and has not started; None: it stays."""
        return None if self.keeps is not None and self.keeps(tick_ms) else self.withdraw


class ClaimedRun(NamedTuple):
    """A run that an executor holds from now on: what its launch needs, and how it is shown."""

    taken: TakenRun
    view: RunView


class RenewedRun(NamedTuple):
    """A claimed run whose lease a heartbeat renewed, and what decides whether it took too long."""

    id: str
    started_ms: int | None
    policy: str


class RunFilter(NamedTuple):
    """Which runs to list; what is None does not narrow."""

    workspace: str
    agent: str | None = None
    job_id: str | None = None
    states: tuple[str, ...] = ()
    trigger: str | None = None
    dead: bool = False
    #: only runs with an id lower than this one: ids are in the order of creation
    before: str | None = None
    limit: int = 50


#: Labels that a job must have: each a name and its value, or None for any.
LabelFilter = tuple[tuple[str, str | None], ...]


class JobFilter(NamedTuple):
    """Which jobs to list; what is None does not narrow."""

    workspace: str
    agent: str | None = None
    include_disabled: bool = True
    #: only jobs that come after this (agent, name)
    after: tuple[str, str] | None = None
    limit: int = 1000
    labels: LabelFilter = ()
