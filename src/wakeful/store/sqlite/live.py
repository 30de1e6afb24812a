"""Live runs by state and the next tick in SQLite, of a workspace or an agent."""

from __future__ import annotations

import sqlite3
from typing import Final

from wakeful.store.figures import LiveCounts

#: runs_running and runs_waiting, at most so many entries of each; the row of each
LIVE_COUNTS: Final = """
    SELECT state, count(*), count(*) FILTER (WHERE workspace = ?1 AND (?2 IS NULL OR agent = ?2))
    FROM runs NOT INDEXED WHERE rowid IN (
        SELECT * FROM (SELECT rowid FROM runs INDEXED BY runs_running WHERE state = 'running' LIMIT ?3)
        UNION ALL SELECT * FROM (
            SELECT rowid FROM runs INDEXED BY runs_waiting WHERE state IN ('pending', 'retrying') LIMIT ?3))
    GROUP BY state"""
#: jobs_wake, in its order, at most so many entries
NEXT_TICK: Final = """
    SELECT next_at FROM (
        SELECT next_at, workspace, agent FROM jobs INDEXED BY jobs_wake WHERE wake_at > 0
        ORDER BY wake_at LIMIT ?3)
    WHERE next_at IS NOT NULL AND workspace = ?1 AND (?2 IS NULL OR agent = ?2) LIMIT 1"""


async def live_counts(db: sqlite3.Connection, workspace: str, agent: str | None, limit: int) -> LiveCounts:
    """Return the live runs by state; at most so many running and so many waiting ones are read."""
    rows = db.execute(LIVE_COUNTS, (workspace, agent, limit)).fetchall()
    running = sum(row[1] for row in rows if row[0] == "running")
    waiting = sum(row[1] for row in rows if row[0] != "running")
    return LiveCounts({row[0]: row[2] for row in rows}, running >= limit, waiting >= limit)


async def next_tick(db: sqlite3.Connection, workspace: str, agent: str | None, limit: int) -> int | None:
    """Return the next tick, if it is among the next so many wakes of all workspaces."""
    row = db.execute(NEXT_TICK, (workspace, agent, limit)).fetchone()
    return None if row is None else int(row[0])
