"""The facade for what pages show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from wakeful.store.accounts import AgentRow
from wakeful.store.overviews import AgentOverview, DeadLetterFilter, DeadLetterRow, JobOverview
from wakeful.store.rows import RunView
from wakeful.store.sessions import SessionKey, SessionMessage
from wakeful.store.sql import job_overviews, overviews
from wakeful.store.sql.base import SqlBase

D = TypeVar("D")


class SqlOverviews(SqlBase[D]):
    """What pages show. Each method is that of `port.Store`."""

    async def agents_page(
        self, workspace: str, after: str | None, limit: int, search: str = ""
    ) -> list[AgentRow]:
        return await self._read(overviews.agents_page, workspace, after, limit, search)

    async def agent_overviews(
        self, workspace: str, names: Sequence[str], most: int
    ) -> dict[str, AgentOverview]:
        return await self._read(overviews.agent_overviews, workspace, names, most)

    async def job_overviews(
        self, job_ids: Sequence[str], runs: int, since_day: int
    ) -> dict[str, JobOverview]:
        return await self._read(job_overviews.job_overviews, self._driver.kind, job_ids, runs, since_day)

    async def waiting_messages(self, key: SessionKey, limit: int) -> list[SessionMessage]:
        return await self._read(overviews.waiting_messages, key, limit)

    async def recent_turns(self, key: SessionKey, limit: int) -> list[RunView]:
        return await self._in_order(await self._read(overviews.recent_turns, key, limit))

    async def mailbox(self, instance_id: str, limit: int) -> list[RunView]:
        waiting = await self._driver.read(self._operations.instances.mailbox, instance_id, limit)
        return [run for run in await self._in_order(waiting) if run.state == "pending"]

    async def dead_letters(self, only: DeadLetterFilter) -> list[DeadLetterRow]:
        return await self._driver.read(self._operations.runs.dead_letters, only)

    async def _in_order(self, ids: Sequence[str]) -> list[RunView]:
        if not ids:
            return []
        found = {run.id: run for run in await self._driver.read(self._operations.runs.runs_by_ids, ids)}
        return [found[run_id] for run_id in ids if run_id in found]
