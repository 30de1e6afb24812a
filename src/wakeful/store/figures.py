"""Bounded reads for the home page of the dashboard. None of them visits more rows than its limit suggests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

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
