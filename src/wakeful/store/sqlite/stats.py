"""Counts in SQLite."""

from __future__ import annotations

import sqlite3
from typing import Final

from wakeful.forecast.peaks import TimingCount
from wakeful.job.start_rules import Requirement
from wakeful.store.sql.job_conditions import FEW
from wakeful.store.sqlite import statements
from wakeful.store.sqlite.statements import LIVE_ROWS
from wakeful.store.stats import Backlog, DueRequirement, DueRuns, LiveCounts, WorkspaceStats, backlog_of

#: jobs_name: the workspace's part of it
COUNT_JOBS: Final = """
    SELECT coalesce(sum(enabled), 0), count(*) FROM jobs INDEXED BY jobs_name
    WHERE workspace = ?1 AND (?2 IS NULL OR agent = ?2) AND deleted_at IS NULL"""
#: runs_running and runs_waiting, all of them
COUNT_LIVE: Final = f"""
    SELECT state, count(*), count(DISTINCT iif(is_pull, worker, NULL))
    FROM runs NOT INDEXED
    WHERE workspace = ?1 AND (?2 IS NULL OR agent = ?2) AND rowid IN ({LIVE_ROWS}) GROUP BY state"""
#: jobs_wake, in its order, up to the first of the workspace or agent
NEXT_TICK: Final = """
    SELECT next_at FROM jobs INDEXED BY jobs_wake
    WHERE wake_at > 0 AND next_at IS NOT NULL AND workspace = ?1 AND (?2 IS NULL OR agent = ?2)
    ORDER BY wake_at LIMIT 1"""
#: jobs_name: the part of the workspace or agent, which has few jobs; the row of each
NEXT_TICK_OF_FEW: Final = """
    SELECT min(next_at) FROM jobs INDEXED BY jobs_name
    WHERE workspace = ?1 AND (?2 IS NULL OR agent = ?2) AND deleted_at IS NULL AND wake_at > 0"""
#: runs_due, all of it: it holds what waits and nothing else. For each lane and requirement its first entries
#: once more, as `TAKE` reads them
DUE_BY_LANE: Final = f"""
    SELECT due.lane, due.is_pull, sum(due.number), min(iif(due.is_pull, due.oldest, (
        SELECT r.due_at FROM runs r INDEXED BY runs_due
        WHERE r.lane = due.lane AND r.is_pull = 0 AND r.requires = due.requires AND r.due_at <= ?1
            AND r.state IN ('pending', 'retrying') AND (NOT r.serial OR ({statements.HAS_THE_TURN}))
        ORDER BY r.due_at LIMIT 1)))
    FROM (
        SELECT lane, is_pull, requires, count(*) AS number, min(due_at) AS oldest
        FROM runs INDEXED BY runs_due WHERE state IN ('pending', 'retrying') AND due_at <= ?1
        GROUP BY lane, is_pull, requires) due
    GROUP BY due.lane, due.is_pull"""
#: runs_claimable_of_agent, all of it: it holds what executors may claim and nothing else
DUE_BY_AGENT: Final = """
    SELECT workspace, agent, count(*) FROM runs INDEXED BY runs_claimable_of_agent
    WHERE state IN ('pending', 'retrying') AND is_pull AND due_at <= ?
    GROUP BY workspace, agent ORDER BY count(*) DESC, workspace, agent LIMIT ?"""
#: runs_dead and workers, all of them: the dead letters and the recent workers; jobs_wake: its first entry
TOTALS: Final = f"""
    SELECT (SELECT count(*) FROM runs INDEXED BY runs_dead WHERE dead), ({statements.NEXT_WAKE}),
        (SELECT count(*) FROM workers WHERE beat_at >= ?)"""

#: job_incidents_open: the workspace's part of it
COUNT_INCIDENTS: Final = """
    SELECT count(*) - count(acknowledged_at), count(acknowledged_at) FROM job_incidents
    WHERE workspace = ?1 AND (?2 IS NULL OR agent = ?2) AND closed_at IS NULL"""
#: job_incidents_open, all of it: it holds open incidents and nothing else
COUNT_ALL_INCIDENTS: Final = """
    SELECT count(*) - count(acknowledged_at), count(acknowledged_at)
    FROM job_incidents INDEXED BY job_incidents_open WHERE closed_at IS NULL"""
#: runs_running, all of it; `LOST` has the same condition
EXPIRED_LEASES: Final = """
    SELECT count(*) FROM runs r INDEXED BY runs_running LEFT JOIN workers w ON w.name = r.worker
    WHERE r.state = 'running' AND (?1 IS NULL OR r.workspace = ?1)
    AND CASE WHEN r.awaiting_callback THEN r.due_at < ?2
        ELSE coalesce(r.beat_at, w.beat_at, r.started_at, r.fire_at) < ?2 END"""
#: runs_due, all of it: it holds what waits and nothing else
DUE_REQUIREMENTS: Final = """
    SELECT requires, requires_version, count(*), min(due_at) FROM runs INDEXED BY runs_due
    WHERE state IN ('pending', 'retrying') AND due_at <= ? AND requires <> '' AND is_pull = 0
    GROUP BY 1, 2 ORDER BY 4"""
#: jobs_name: a range of the workspace, or of the agent; the row of each job
TIMINGS: Final = """
    SELECT timing, policy, iif(instr(timing, '"everyMs"'),
        anchor_at % json_extract(timing, '$.schedule.everyMs') / 60000, 0) AS phase, count(*),
        min(agent || '/' || name)
    FROM jobs INDEXED BY jobs_name
    WHERE workspace = ?1 AND (agent, name) > (?2, ?3) AND (agent, name) <= (?4, ?5) AND deleted_at IS NULL
        AND enabled AND timing IS NOT NULL
    GROUP BY timing, policy, phase"""
TIMINGS_OF_AGENT: Final = TIMINGS.replace(
    "(agent, name) > (?2, ?3) AND (agent, name) <= (?4, ?5)", "agent = ?6 AND name > ?3 AND name <= ?5"
)
#: jobs_name: so many entries
TIMINGS_PAGE: Final = """
    SELECT agent, name FROM jobs INDEXED BY jobs_name
    WHERE workspace = ?1 AND (agent, name) > (?2, ?3) AND deleted_at IS NULL
    ORDER BY agent, name LIMIT 1 OFFSET ?4"""
TIMINGS_PAGE_OF_AGENT: Final = TIMINGS_PAGE.replace("(agent, name) > (?2, ?3)", "agent = ?5 AND name > ?3")
#: How many jobs one call of `timings_page` reads, so that other reads need not wait long.
_AT_ONCE: Final = 2_000
#: Sorts after all names.
_LAST: Final = ("~", "~")
SIZE: Final = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
#: runs_running and runs_waiting, at most so many entries of each; the row of each
LIVE_COUNTS: Final = """
    SELECT state, count(*), count(*) FILTER (WHERE workspace = ?1 AND (?2 IS NULL OR agent = ?2))
    FROM runs NOT INDEXED WHERE rowid IN (
        SELECT * FROM (SELECT rowid FROM runs INDEXED BY runs_running WHERE state = 'running' LIMIT ?3)
        UNION ALL SELECT * FROM (
            SELECT rowid FROM runs INDEXED BY runs_waiting WHERE state IN ('pending', 'retrying') LIMIT ?3))
    GROUP BY state"""
#: jobs_wake, in its order, at most so many entries
LIVE_NEXT_TICK: Final = """
    SELECT next_at FROM (
        SELECT next_at, workspace, agent FROM jobs INDEXED BY jobs_wake WHERE wake_at > 0
        ORDER BY wake_at LIMIT ?3)
    WHERE next_at IS NOT NULL AND workspace = ?1 AND (?2 IS NULL OR agent = ?2) LIMIT 1"""


async def workspace_stats(db: sqlite3.Connection, workspace: str, agent: str | None) -> WorkspaceStats:
    of = workspace, agent
    active, jobs = db.execute(COUNT_JOBS, of).fetchone()
    counted = db.execute(COUNT_LIVE, of).fetchall()
    live: dict[str, int] = {row[0]: row[1] for row in counted}
    # A workspace with few jobs, or without ticks, does not read those of all.
    tick = db.execute(NEXT_TICK_OF_FEW if jobs < FEW else NEXT_TICK, of).fetchone()
    next_ms = None if tick is None else tick[0]
    executors = sum(row[2] for row in counted)
    incidents = db.execute(COUNT_INCIDENTS, of).fetchone()
    return WorkspaceStats(active, jobs - active, live, next_ms, executors, *incidents)


async def backlog(db: sqlite3.Connection, now_ms: int, alive_since_ms: int, agents: int) -> Backlog:
    due = [
        (lane, bool(is_pull), DueRuns(number, oldest_ms))
        for lane, is_pull, number, oldest_ms in db.execute(DUE_BY_LANE, (now_ms,))
    ]
    by_agent = db.execute(DUE_BY_AGENT, (now_ms, agents)).fetchall()
    totals = db.execute(TOTALS, (alive_since_ms,)).fetchone()
    return backlog_of(due, by_agent, *totals, *db.execute(COUNT_ALL_INCIDENTS).fetchone())


async def due_requirements(db: sqlite3.Connection, now_ms: int) -> list[DueRequirement]:
    rows = db.execute(DUE_REQUIREMENTS, (now_ms,))
    return [DueRequirement(Requirement(name, version), *rest) for name, version, *rest in rows]


async def expired_leases(db: sqlite3.Connection, workspace: str | None, before_ms: int) -> int:
    return int(db.execute(EXPIRED_LEASES, (workspace, before_ms)).fetchone()[0])


async def database_size(db: sqlite3.Connection) -> int:
    return int(db.execute(SIZE).fetchone()[0])


async def timings_page(
    db: sqlite3.Connection, workspace: str, agent: str | None, after: tuple[str, str]
) -> tuple[list[TimingCount], tuple[str, str] | None]:
    """Return the timings of the next jobs after that (agent, name), and the last of them; None: of all."""
    of = () if agent is None else (agent,)
    page, counts = (TIMINGS_PAGE, TIMINGS) if agent is None else (TIMINGS_PAGE_OF_AGENT, TIMINGS_OF_AGENT)
    last: tuple[str, str] | None = db.execute(page, (workspace, *after, _AT_ONCE - 1, *of)).fetchone()
    rows = db.execute(counts, (workspace, *after, *(last or _LAST), *of))
    return [TimingCount(*row) for row in rows], last


async def live_counts(db: sqlite3.Connection, workspace: str, agent: str | None, limit: int) -> LiveCounts:
    """Return the live runs by state; at most so many running and so many waiting ones are read."""
    rows = db.execute(LIVE_COUNTS, (workspace, agent, limit)).fetchall()
    running = sum(row[1] for row in rows if row[0] == "running")
    waiting = sum(row[1] for row in rows if row[0] != "running")
    return LiveCounts({row[0]: row[2] for row in rows}, running >= limit, waiting >= limit)


async def next_tick(db: sqlite3.Connection, workspace: str, agent: str | None, limit: int) -> int | None:
    """Return the next tick, if it is among the next so many wakes of all workspaces."""
    row = db.execute(LIVE_NEXT_TICK, (workspace, agent, limit)).fetchone()
    return None if row is None else int(row[0])
