"""What pages and metrics show: counts, samples, processes, agents, dead letters. All reads are bounded."""

from __future__ import annotations

from typing import Final, NamedTuple

from wakeful.job.start_rules import Requirement

#: How many characters of an error are read: `failure_cause` reads no more.
ERROR_READ: Final = 2_000


class ConnectionUse(NamedTuple):
    """The connections of a database server."""

    #: how many the server accepts from ordinary roles
    limit: int
    #: how many are open that are not of this server of Wakeful
    others: int
    #: how many a process of this server opens at most
    per_process: int


class WorkspaceStats(NamedTuple):
    """Counts of a workspace."""

    active_jobs: int
    paused_jobs: int
    #: the number of pending, retrying and running runs; a state without runs is absent
    live: dict[str, int]
    #: the next tick of all its jobs
    next_ms: int | None
    #: the number of executors that hold its runs
    executors: int = 0
    #: the number of open and acknowledged incidents
    open_incidents: int = 0
    acknowledged_incidents: int = 0


class RecentRun(NamedTuple):
    """The fields of a run that latency statistics use."""

    state: str
    trigger: str
    attempt: int
    fire_ms: int
    started_ms: int | None


class DueRuns(NamedTuple):
    """Runs that are due and not yet taken."""

    number: int
    #: when the first of them that can start was due; None if none can. A run that waits for another run of
    #: its job cannot start
    oldest_ms: int | None


class DueRequirement(NamedTuple):
    """Due runs that need a process with a certain function or agent class."""

    requirement: Requirement
    number: int
    oldest_ms: int


class Backlog(NamedTuple):
    """The work that waits, of all workspaces, and the workers that are alive."""

    #: by lane, the due runs that workers take
    lanes: dict[str, DueRuns]
    #: the due runs that executors claim
    pull: DueRuns
    #: of these, the number by workspace and agent, the largest first
    pull_by_agent: list[tuple[str, str, int]]
    dead_letters: int
    #: when the planner must look at the next job; in the past if a job waits for the planner
    next_wake_ms: int | None
    #: the number of workers with a recent heartbeat
    workers: int
    #: the number of incidents that are open, and of those that are acknowledged
    open_incidents: int
    acknowledged_incidents: int


class WorkerRow(NamedTuple):
    """A process that takes runs."""

    name: str
    beat_ms: int
    started_ms: int
    #: what it can launch, as JSON (`wakeful.job.start_rules`)
    capabilities: str


class HolderRow(NamedTuple):
    """A worker or an executor, and the runs that it holds."""

    name: str
    #: whether it is an executor, which claims runs over HTTP
    is_executor: bool
    runs: int
    #: of an executor: its latest heartbeat for one of these runs
    beat_ms: int | None


class Troubles(NamedTuple):
    """What needs attention in a workspace. Each number is counted up to a limit."""

    #: failed runs that were neither replayed nor discarded
    dead_letters: int
    #: enabled jobs whose last run failed
    failing_jobs: int
    #: incidents that are not closed, and those of them that nobody has acknowledged
    open_incidents: int
    new_incidents: int
    #: daily caps that are reached
    exhausted_budgets: int
    #: pull runs that wait for an executor since before a given time
    unclaimed_runs: int


class LiveWorker(NamedTuple):
    """A process that launches runs."""

    name: str
    beat_ms: int
    started_ms: int


class UpcomingRun(NamedTuple):
    """The next tick of a job."""

    job_id: str
    agent: str
    job: str
    at_ms: int


#: How many live runs, and how many next ticks, are read at most for the figures: of all workspaces.
LIVE_LIMIT: Final = 10_000
#: How many dead letters and open incidents of the workspace are read at most, the newest.
NEWEST_LIMIT: Final = 1_000


class RunChange(NamedTuple):
    """The fields of a changed run that summaries use."""

    id: str
    workspace: str
    agent: str
    job_id: str | None
    state: str


class LiveFigures(NamedTuple):
    """Current figures of a workspace or an agent."""

    running: int
    pending: int
    retrying: int
    dead_letters: int
    open_incidents: int
    acknowledged_incidents: int
    #: the number of workers with a recent heartbeat, of all workspaces
    workers: int
    #: the next tick of all its jobs; None: there is none, or it is not among those that were read
    next_tick_ms: int | None
    #: the fields whose real value may be higher, because a limit was reached
    more: tuple[str, ...] = ()
    #: what waits for a person
    inbox: int = 0


class AgentOverview(NamedTuple):
    """What an agent has. A count ends at the limit of the call."""

    name: str
    jobs: int
    sessions: int
    instances: int
    #: the version of its class; None: it has no class
    class_version: int | None
    #: the job of its heartbeat, and the newest run of that job
    heartbeat_job: str | None
    heartbeat_run: str | None


class RunOutcome(NamedTuple):
    """What a bar of the last outcomes shows of a run."""

    id: str
    state: str
    trigger: str
    fire_ms: int
    started_ms: int | None
    finished_ms: int | None

    @property
    def duration_ms(self) -> int | None:
        """How long it ran; None if it has not ended, or did not start."""
        if self.started_ms is None or self.finished_ms is None:
            return None
        return max(0, self.finished_ms - self.started_ms)


class DayCost(NamedTuple):
    """What runs used on a day (UTC, counted from 1970)."""

    day: int
    tokens: int
    cost: float


class JobOverview(NamedTuple):
    """What a list shows of a job besides its fields."""

    #: its last runs, oldest first
    runs: tuple[RunOutcome, ...] = ()
    #: the days on which its runs used something, oldest first
    costs: tuple[DayCost, ...] = ()
    #: the ids of its open incidents, oldest first
    incidents: tuple[str, ...] = ()


class DeadLetterFilter(NamedTuple):
    """Which dead letters to read; None does not filter. Ids are in the order of creation."""

    workspace: str
    agent: str | None = None
    #: only ids above this one, and not above the other; oldest first if `oldest_first`
    after: str | None = None
    through: str | None = None
    #: only ids below this one
    before: str | None = None
    oldest_first: bool = False
    limit: int = 50
