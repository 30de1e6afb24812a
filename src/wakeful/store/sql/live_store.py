"""The figures of open dashboards, and changed runs, in both databases. See `store/live.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

from wakeful.store.live import LIVE_LIMIT, NEWEST_LIMIT, LiveFigures, RunChange
from wakeful.store.sql.base import SqlBase
from wakeful.store.sql.driver import Session

D = TypeVar("D")

#: the primary key, once for each
RUN_CHANGES: Final = """
    SELECT id::text, workspace, agent, job_id::text, state FROM runs WHERE id = ANY($1::uuid[])"""
#: runs_dead: its end, backwards; the primary key for each
DEAD_LETTERS: Final = """
    SELECT count(*), count(*) FILTER (WHERE $2::text IS NULL OR newest.agent = $2) FROM (
        SELECT agent FROM runs /*+ INDEXED BY runs_dead */ WHERE dead AND workspace = $1
        ORDER BY id DESC LIMIT $3) newest"""
#: job_incidents_open: its end, backwards
OPEN_INCIDENTS: Final = """
    SELECT count(*), count(*) FILTER (WHERE $2::text IS NULL OR newest.agent = $2),
        count(newest.acknowledged_at) FILTER (WHERE $2::text IS NULL OR newest.agent = $2)
    FROM (
        SELECT agent, acknowledged_at FROM job_incidents /*+ INDEXED BY job_incidents_open */
        WHERE workspace = $1 AND closed_at IS NULL
        ORDER BY id DESC LIMIT $3) newest"""
#: the table, all of it
WORKERS: Final = "SELECT count(*) FROM workers WHERE beat_at >= $1"


async def run_changes(session: Session, ids: Sequence[str]) -> list[RunChange]:
    """Return those of these runs that exist."""
    return [RunChange(*row) for row in await session.rows(RUN_CHANGES, list(ids))]


class SqlLive(SqlBase[D]):
    """Figures and changed runs in an SQL database. Each method is that of `port.Store`."""

    async def run_changes(self, ids: Sequence[str]) -> list[RunChange]:
        return await self._read(run_changes, ids) if ids else []

    async def live_figures(self, workspace: str, agent: str | None, alive_since_ms: int) -> LiveFigures:
        async def read(db: D) -> LiveFigures:
            live = await self._operations.live.live_counts(db, workspace, agent, LIVE_LIMIT)
            next_tick = await self._operations.live.next_tick(db, workspace, agent, LIVE_LIMIT)
            session = self._driver.session(db)
            dead = await session.row(DEAD_LETTERS, workspace, agent, NEWEST_LIMIT) or (0, 0)
            incidents = await session.row(OPEN_INCIDENTS, workspace, agent, NEWEST_LIMIT) or (0, 0, 0)
            workers = await session.row(WORKERS, alive_since_ms) or (0,)
            limits = {
                "running": live.more_running,
                "pending": live.more_waiting,
                "retrying": live.more_waiting,
                "dead_letters": dead[0] >= NEWEST_LIMIT,
                "open_incidents": incidents[0] >= NEWEST_LIMIT,
                "acknowledged_incidents": incidents[0] >= NEWEST_LIMIT,
            }
            return LiveFigures(
                running=live.states.get("running", 0),
                pending=live.states.get("pending", 0),
                retrying=live.states.get("retrying", 0),
                dead_letters=dead[1],
                open_incidents=incidents[1] - incidents[2],
                acknowledged_incidents=incidents[2],
                workers=workers[0],
                next_tick_ms=next_tick,
                more=tuple(name for name, reached in limits.items() if reached),
            )

        return await self._driver.read(read)
