"""The facade for reports: spending, processes and deliveries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from wakeful.store.costs import BlockRow, BudgetRow, DayRange, JobTitle, SpendingRow
from wakeful.store.deliveries import DeliveryView
from wakeful.store.processes import HolderRow, WorkerRow
from wakeful.store.sql import costs, processes, queries
from wakeful.store.sql.base import SqlBase

D = TypeVar("D")


class SqlReports(SqlBase[D]):
    """Reports from an SQL database. Each method is that of `port.Store`."""

    async def spending(
        self, workspace: str, owners: Sequence[tuple[str, str]], days: DayRange
    ) -> list[SpendingRow]:
        return await self._read(costs.spending, self._driver.kind, workspace, owners, days) if owners else []

    async def top_agents(
        self, workspace: str, days: DayRange, per_day: int, limit: int
    ) -> list[tuple[str, str]]:
        return await self._read(costs.top, self._driver.kind, workspace, None, False, days, per_day, limit)

    async def top_jobs(
        self, workspace: str, agent: str | None, days: DayRange, per_day: int, limit: int
    ) -> list[tuple[str, str]]:
        return await self._read(costs.top, self._driver.kind, workspace, agent, True, days, per_day, limit)

    async def agent_budgets(self, workspace: str, day: int, limit: int) -> list[BudgetRow]:
        return await self._read(costs.agent_budgets, workspace, day, limit)

    async def job_blocks(self, workspace: str, day: int, limit: int) -> list[BlockRow]:
        return await self._read(costs.job_blocks, workspace, day, limit)

    async def job_titles(self, job_ids: Sequence[str]) -> list[JobTitle]:
        return await self._read(costs.job_titles, job_ids) if job_ids else []

    async def worker_rows(self, limit: int) -> list[WorkerRow]:
        return await self._read(processes.worker_rows, limit)

    async def holders(self, workspace: str | None, limit: int) -> list[HolderRow]:
        return await self._read(processes.holders, self._driver.kind, workspace, limit)

    async def recent_deliveries(
        self, workspace: str, since_ms: int, considered: int, limit: int
    ) -> list[DeliveryView]:
        return await self._read(queries.recent_deliveries, workspace, since_ms, considered, limit)
