"""Counts in PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from wakeful.store.stats import Backlog, WorkspaceStats

if TYPE_CHECKING:
    from wakeful.store.postgres.connection import Db

#: jobs_name: the workspace's part of it
COUNT_JOBS: Final = """
    SELECT count(*) FILTER (WHERE enabled), count(*) FROM jobs WHERE workspace = $1 AND deleted_at IS NULL"""
#: live_runs, all of it; the runs' primary key, once for each
COUNT_LIVE: Final = """
    SELECT l.state, count(*), count(DISTINCT r.worker) FILTER (WHERE l.is_pull)
    FROM live_runs l CROSS JOIN LATERAL (
        SELECT workspace, worker FROM runs WHERE id = l.run_id OFFSET 0) r
    WHERE r.workspace = $1 GROUP BY 1"""
#: cursors_wake, in its order, up to the first of the workspace; the jobs' primary key, once for each
NEXT_TICK: Final = """
    SELECT c.next_at FROM cursors c JOIN jobs j ON j.id = c.job_id
    WHERE c.wake_at IS NOT NULL AND CASE WHEN c.next_at IS NOT NULL THEN j.workspace = $1 END
    ORDER BY c.wake_at LIMIT 1"""
#: runs_dead, all of it: it holds the dead letters and nothing else
COUNT_DEAD: Final = "SELECT count(*) FROM runs WHERE dead"
#: live_runs_due, all of it: it holds what waits and nothing else
COUNT_DUE: Final = "SELECT lane, is_pull, count(*) FROM live_runs WHERE due_at <= $1 GROUP BY lane, is_pull"


async def workspace_stats(db: Db, workspace: str) -> WorkspaceStats:
    """Return the counts of a workspace."""
    jobs = await db.fetchrow(COUNT_JOBS, workspace)
    active, all_jobs = (0, 0) if jobs is None else jobs
    counted = await db.fetch(COUNT_LIVE, workspace)
    live: dict[str, int] = {row[0]: row[1] for row in counted}
    next_ms = await db.fetchval(NEXT_TICK, workspace)
    return WorkspaceStats(active, all_jobs - active, live, next_ms, sum(row[2] for row in counted))


async def backlog(db: Db, now_ms: int) -> Backlog:
    """Return the waiting runs."""
    due = {(row[0], row[1]): int(row[2]) for row in await db.fetch(COUNT_DUE, now_ms)}
    return Backlog(await db.fetchval(COUNT_DEAD), due)
