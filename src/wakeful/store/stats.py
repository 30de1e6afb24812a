"""Counts and samples for status pages and metrics."""

from __future__ import annotations

from typing import NamedTuple, Protocol


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


class RecentRun(NamedTuple):
    """The fields of a run that latency statistics use."""

    state: str
    trigger: str
    attempt: int
    fire_ms: int
    started_ms: int | None


class Backlog(NamedTuple):
    """Waiting runs of all workspaces."""

    dead_letters: int
    #: by lane and whether executors claim them, the number of runs that are due and not yet taken
    due: dict[tuple[str, bool], int]


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

    async def workspace_stats(self, workspace: str) -> WorkspaceStats:
        """Return the counts of a workspace."""
        ...

    async def recent_runs(self, workspace: str, since_ms: int, limit: int) -> list[RecentRun]:
        """Return the newest runs of a workspace that were created since then."""
        ...

    async def backlog(self, now_ms: int) -> Backlog:
        """Return the waiting runs."""
        ...

    async def workers(self, since_ms: int) -> list[str]:
        """Return the names of the workers with a heartbeat since then."""
        ...
