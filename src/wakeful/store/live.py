"""What open dashboards read: figures of a workspace or an agent, and changed runs. All reads are bounded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

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
