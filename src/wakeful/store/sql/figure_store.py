"""The facade for the figures of the dashboard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from wakeful.job.capabilities import Requirement
from wakeful.store.figures import LiveWorker, Troubles, UpcomingRun
from wakeful.store.sql import figures
from wakeful.store.sql.base import SqlBase

D = TypeVar("D")


class SqlFigures(SqlBase[D]):
    """Figures in an SQL database. Each method is that of `port.Store`."""

    async def troubles(
        self, workspace: str, agent: str | None, day: int, waiting_since_ms: int, limit: int
    ) -> Troubles:
        kind = self._driver.kind
        return await self._read(figures.troubles, kind, workspace, agent, day, waiting_since_ms, limit)

    async def blocked_runs(
        self, workspace: str, agent: str | None, now_ms: int, missing: Sequence[Requirement], limit: int
    ) -> int:
        kind = self._driver.kind
        return await self._read(figures.blocked_runs, kind, workspace, agent, now_ms, missing, limit)

    async def live_workers(self, since_ms: int) -> list[LiveWorker]:
        return await self._read(figures.live_workers, since_ms)

    async def start_delays(self, workspace: str, agent: str | None, since_ms: int, limit: int) -> list[int]:
        return await self._read(figures.start_delays, self._driver.kind, workspace, agent, since_ms, limit)

    async def upcoming_runs(
        self, workspace: str, agent: str | None, until_ms: int, scanned: int, limit: int
    ) -> list[UpcomingRun]:
        kind = self._driver.kind
        return await self._read(figures.upcoming_runs, kind, workspace, agent, until_ms, scanned, limit)
