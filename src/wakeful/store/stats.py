"""Counts, samples and processes, for status pages and metrics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from wakeful.forecast.peaks import TimingCount
from wakeful.job.capabilities import Capabilities, Requirement


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


def backlog_of(
    due: Iterable[tuple[str, bool, DueRuns]],
    pull_by_agent: list[tuple[str, str, int]],
    dead_letters: int,
    next_wake_ms: int | None,
    workers: int,
    open_incidents: int,
    acknowledged_incidents: int,
) -> Backlog:
    """Return the backlog from due runs, each with its lane and whether executors claim it, and totals."""
    lanes: dict[str, DueRuns] = {}
    pulled: list[DueRuns] = []
    for lane, is_pull, runs in due:
        if is_pull:
            pulled.append(runs)
        else:
            lanes[lane] = runs
    oldest = min((runs.oldest_ms for runs in pulled if runs.oldest_ms is not None), default=None)
    pull = DueRuns(sum(runs.number for runs in pulled), oldest)
    return Backlog(
        lanes,
        pull,
        pull_by_agent,
        dead_letters,
        next_wake_ms,
        workers,
        open_incidents,
        acknowledged_incidents,
    )


class StatsStore(Protocol):
    """The part of a store that only reads, for observers."""

    @property
    def kind(self) -> str:
        """The database: `sqlite` or `postgresql`."""
        ...

    @property
    def notifies_other_processes(self) -> bool:
        """Whether `listen` also reports changes by other processes on the same database."""
        ...

    async def workspace_stats(self, workspace: str, agent: str | None = None) -> WorkspaceStats:
        """Return the counts of a workspace, or of one of its agents."""
        ...

    async def recent_runs(
        self, workspace: str, since_ms: int, limit: int, agent: str | None = None
    ) -> list[RecentRun]:
        """Return the newest runs of a workspace, or of one of its agents, that were created since then."""
        ...

    async def backlog(self, now_ms: int, alive_since_ms: int, agents: int) -> Backlog:
        """Return the work that waits, and the number of workers with a heartbeat since then.

        `pull_by_agent` has at most so many agents.
        """
        ...

    async def workers(self, since_ms: int) -> list[str]:
        """Return the names of the workers with a heartbeat since then."""
        ...

    async def capabilities(self, since_ms: int) -> list[Capabilities]:
        """Return what the processes of the workers with a heartbeat since then can launch."""
        ...

    async def due_requirements(self, now_ms: int) -> list[DueRequirement]:
        """Return the due runs that require something, by requirement, longest due first."""
        ...

    async def expired_leases(self, workspace: str | None, before_ms: int) -> int:
        """Return the number of running runs whose lease or callback time ended before then; None: of all.

        `rescue` ends them within seconds: if there are any, no replica does it.
        """
        ...

    async def dead_letters_by_reason(self, workspace: str | None, limit: int) -> list[tuple[str, int]]:
        """Return the number of dead letters by reason, most frequent first; at most the newest are counted.

        `workspace` None: of all workspaces. A dead letter without a reason counts as ''.
        """
        ...

    async def delivery_counts(
        self, workspace: str | None, since_ms: int, limit: int
    ) -> list[tuple[str, str, int]]:
        """Return the number of deliveries by channel and state, of runs that were created since then.

        At most the newest deliveries are counted. `workspace` None: of all workspaces.
        """
        ...

    async def timings(self, workspace: str, agent: str | None = None) -> list[TimingCount]:
        """Return the timings of the enabled jobs of a workspace or agent, each with its number of jobs.

        Jobs with the same timing and policy are counted together; those with an interval, if their ticks are
        in the same minutes. Each count has the first of its jobs as an example.
        """
        ...

    async def database_size(self) -> int:
        """Return the size of the database in bytes."""
        ...

    async def connection_use(self) -> ConnectionUse | None:
        """Return the connections of the database server; None if the database is a file."""
        ...


class WorkerRow(NamedTuple):
    """A process that takes runs."""

    name: str
    beat_ms: int
    started_ms: int
    #: what it can launch, as JSON (`wakeful.job.capabilities`)
    capabilities: str


class HolderRow(NamedTuple):
    """A worker or an executor, and the runs that it holds."""

    name: str
    #: whether it is an executor, which claims runs over HTTP
    is_executor: bool
    runs: int
    #: of an executor: its latest heartbeat for one of these runs
    beat_ms: int | None


class ProcessStore(Protocol):
    """The part of a store that reads processes, for observers."""

    async def worker_rows(self, limit: int) -> list[WorkerRow]:
        """Return the processes that the database knows, newest start first.

        One that stopped is removed; one that ended without notice, when another takes its runs.
        """
        ...

    async def holders(self, workspace: str | None, limit: int) -> list[HolderRow]:
        """Return who holds running runs of a workspace, or of all (None), most runs first."""
        ...
