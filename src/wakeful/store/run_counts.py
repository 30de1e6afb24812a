"""Counts of finished runs, by hour and by job and day.

They are counted after the fact, from the changelog: what a transaction finished is counted once, whatever
stops in between, because the position in the changelog and the counts change in one transaction. Runs that
finished before the first pass are counted by a scan of the table, newest first.

A run counts at the time when it finished. A missed run counts as all the ticks that it covers.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS


class CountedRuns(NamedTuple):
    """The result of a pass."""

    #: how many runs it counted
    runs: int
    #: whether there is more to count
    more: bool


class HourCount(NamedTuple):
    """Runs that finished within an hour (UTC, counted from 1970)."""

    hour: int
    state: str
    runs: int

    @property
    def at_ms(self) -> int:
        """The beginning of the hour."""
        return self.hour * HOUR_MS


class DayCount(NamedTuple):
    """Runs of a job that finished on a day (UTC, counted from 1970)."""

    day: int
    state: str
    runs: int
    #: the time that these runs took, added up
    duration_ms: int

    @property
    def at_ms(self) -> int:
        """The beginning of the day."""
        return self.day * DAY_MS


class RunCountStore(Protocol):
    """The part of a store that holds the counts of finished runs."""

    async def count_runs(self, now_ms: int, limit: int) -> CountedRuns:
        """Count finished runs that are not counted yet: about `limit` from the changelog or the table.

        Nothing is counted while another process counts.
        """
        ...

    async def run_counts(
        self, workspace: str, agent: str | None, from_ms: int, until_ms: int
    ) -> list[HourCount]:
        """Return the counts of the hours that begin in [from_ms, until_ms), by hour and state.

        `agent` None: of all agents of the workspace. Runs that are not counted yet are added, if they are
        few; here and in `job_run_counts`.
        """
        ...

    async def job_run_counts(self, job_id: str, from_ms: int) -> list[DayCount]:
        """Return the counts of a job from the day of `from_ms` on, by day and state."""
        ...

    async def prune_run_counts(self, before_ms: int, limit: int) -> int:
        """Delete up to `limit` counts each of older hours and days. Returns how many."""
        ...
