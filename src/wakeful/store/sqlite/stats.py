"""Counts in SQLite."""

from __future__ import annotations

import sqlite3
from typing import Final

from wakeful.store.sqlite.statements import LIVE_ROWS
from wakeful.store.stats import Backlog, WorkspaceStats

#: jobs_name: the workspace's part of it
COUNT_JOBS: Final = """
    SELECT coalesce(sum(enabled), 0), count(*) FROM jobs INDEXED BY jobs_name
    WHERE workspace = ? AND deleted_at IS NULL"""
#: runs_running and runs_waiting, all of them
COUNT_LIVE: Final = f"""
    SELECT state, count(*), count(DISTINCT iif(is_pull, worker, NULL))
    FROM runs NOT INDEXED
    WHERE workspace = ? AND rowid IN ({LIVE_ROWS}) GROUP BY state"""
#: jobs_wake, in its order, up to the first of the workspace
NEXT_TICK: Final = """
    SELECT next_at FROM jobs INDEXED BY jobs_wake
    WHERE wake_at > 0 AND next_at IS NOT NULL AND workspace = ? ORDER BY wake_at LIMIT 1"""
#: runs_dead, all of it: it holds the dead letters and nothing else
COUNT_DEAD: Final = "SELECT count(*) FROM runs INDEXED BY runs_dead WHERE dead"
#: runs_due, all of it: it holds what waits and nothing else
COUNT_DUE: Final = """
    SELECT lane, is_pull, count(*) FROM runs INDEXED BY runs_due
    WHERE state IN ('pending', 'retrying') AND due_at <= ? GROUP BY lane, is_pull"""


async def workspace_stats(db: sqlite3.Connection, workspace: str) -> WorkspaceStats:
    """Return the counts of a workspace."""
    active, jobs = db.execute(COUNT_JOBS, (workspace,)).fetchone()
    counted = db.execute(COUNT_LIVE, (workspace,)).fetchall()
    live: dict[str, int] = {row[0]: row[1] for row in counted}
    tick = db.execute(NEXT_TICK, (workspace,)).fetchone()
    next_ms = None if tick is None else tick[0]
    return WorkspaceStats(active, jobs - active, live, next_ms, sum(row[2] for row in counted))


async def backlog(db: sqlite3.Connection, now_ms: int) -> Backlog:
    """Return the waiting runs."""
    dead = db.execute(COUNT_DEAD).fetchone()[0]
    due = {(lane, bool(is_pull)): count for lane, is_pull, count in db.execute(COUNT_DUE, (now_ms,))}
    return Backlog(dead, due)
