"""What the dashboard reads: its home page, and the figures of open pages. All reads are bounded.

None of them visits more rows than its limit suggests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from wakeful.job.capabilities import Requirement


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


class FigureStore(Protocol):
    """The part of a store that the figures of the dashboard are read from."""

    async def troubles(
        self, workspace: str, agent: str | None, day: int, waiting_since_ms: int, limit: int
    ) -> Troubles:
        """Return what needs attention, each number up to `limit`; `agent` None: of all agents.

        `day` is that of the budgets (UTC, counted from 1970). Unclaimed runs wait since `waiting_since_ms` or
        longer.
        """
        ...

    async def blocked_runs(
        self, workspace: str, agent: str | None, now_ms: int, missing: Sequence[Requirement], limit: int
    ) -> int:
        """Return the number of due runs that require any of these, up to `limit`."""
        ...

    async def live_workers(self, since_ms: int) -> list[LiveWorker]:
        """Return the workers with a heartbeat since then, by name."""
        ...

    async def start_delays(self, workspace: str, agent: str | None, since_ms: int, limit: int) -> list[int]:
        """Return how late the first attempts of the newest runs since then started, in milliseconds.

        At most `limit` runs are read. Retries are left out: they start late on purpose.
        """
        ...

    async def upcoming_runs(
        self, workspace: str, agent: str | None, until_ms: int, scanned: int, limit: int
    ) -> list[UpcomingRun]:
        """Return the next ticks until then, soonest first.

        At most `scanned` jobs of all workspaces are read.
        """
        ...


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


class LiveCounts(NamedTuple):
    """Live runs by state, and whether the limit was reached for running and for waiting ones."""

    states: dict[str, int]
    more_running: bool
    more_waiting: bool


class LiveStore(Protocol):
    """The part of a store that open dashboards read."""

    async def run_changes(self, ids: Sequence[str]) -> list[RunChange]:
        """Return those of these runs that exist, in any order."""
        ...

    async def live_figures(self, workspace: str, agent: str | None, alive_since_ms: int) -> LiveFigures:
        """Return the figures of a workspace or, with `agent`, of one agent.

        `workers` counts those with a heartbeat since `alive_since_ms`.
        """
        ...
