"""The facade for the counts of finished runs."""

from __future__ import annotations

from typing import TypeVar

from wakeful.store.run_counts import CountedRuns, DayCount, HourCount
from wakeful.store.sql import run_counts
from wakeful.store.sql.base import SqlBase

D = TypeVar("D")


class SqlRunCounts(SqlBase[D]):
    """Counts of finished runs in an SQL database. Each method is that of `port.Store`."""

    async def last_change(self) -> int:
        raise NotImplementedError

    async def count_runs(self, now_ms: int, limit: int) -> CountedRuns:
        last = await self.last_change()  # in PostgreSQL, this numbers the changes
        position = await self._read(run_counts.position)
        if position is None:
            # Not the time from before the wait for an answer: what finished meanwhile may be in `last`.
            now_ms = max(now_ms, self.clock.now_ms())
            await self._driver.write(self._shared(run_counts.begin), last, now_ms)
        elif position.is_current(last, now_ms):
            return CountedRuns(0, more=False)
        return await self._driver.write(self._shared(run_counts.count), self._driver.kind, now_ms, limit)

    async def run_counts(
        self, workspace: str, agent: str | None, from_ms: int, until_ms: int
    ) -> list[HourCount]:
        return await self._read(run_counts.hours, self._driver.kind, workspace, agent, from_ms, until_ms)

    async def job_run_counts(self, job_id: str, from_ms: int) -> list[DayCount]:
        return await self._read(run_counts.days, self._driver.kind, job_id, from_ms)

    async def prune_run_counts(self, before_ms: int, limit: int) -> int:
        return await self._driver.write(self._shared(run_counts.prune), before_ms, limit)
