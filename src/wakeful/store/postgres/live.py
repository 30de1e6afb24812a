"""Live runs by state and the next tick in PostgreSQL, of a workspace or an agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from wakeful.store.figures import LiveCounts

if TYPE_CHECKING:
    from wakeful.store.postgres.connection import Db

#: live_runs_held and live_runs, at most so many entries of each; the runs' primary key, once for each
LIVE_COUNTS: Final = """
    SELECT l.state, count(*), count(*) FILTER (WHERE r.workspace = $1 AND ($2::text IS NULL OR r.agent = $2))
    FROM (
        (SELECT run_id, state FROM live_runs WHERE coalesce(state, '') = 'running' LIMIT $3)
        UNION ALL
        (SELECT run_id, state FROM live_runs WHERE state IN ('pending', 'retrying') LIMIT $3)) l
    CROSS JOIN LATERAL (SELECT workspace, agent FROM runs WHERE id = l.run_id OFFSET 0) r
    GROUP BY 1"""
#: cursors_wake, in its order, at most so many entries; the jobs' primary key, once for each
NEXT_TICK: Final = """
    SELECT c.next_at FROM (
        SELECT job_id, next_at, wake_at FROM cursors WHERE wake_at IS NOT NULL
        ORDER BY wake_at LIMIT $3) c
    CROSS JOIN LATERAL (SELECT workspace, agent FROM jobs WHERE id = c.job_id OFFSET 0) j
    WHERE c.next_at IS NOT NULL AND j.workspace = $1 AND ($2::text IS NULL OR j.agent = $2)
    ORDER BY c.wake_at LIMIT 1"""


async def live_counts(db: Db, workspace: str, agent: str | None, limit: int) -> LiveCounts:
    """Return the live runs by state; at most so many running and so many waiting ones are read."""
    rows = await db.fetch(LIVE_COUNTS, workspace, agent, limit)
    running = sum(row[1] for row in rows if row[0] == "running")
    waiting = sum(row[1] for row in rows if row[0] != "running")
    return LiveCounts({row[0]: row[2] for row in rows}, running >= limit, waiting >= limit)


async def next_tick(db: Db, workspace: str, agent: str | None, limit: int) -> int | None:
    """Return the next tick, if it is among the next so many wakes of all workspaces."""
    next_ms: int | None = await db.fetchval(NEXT_TICK, workspace, agent, limit)
    return next_ms
