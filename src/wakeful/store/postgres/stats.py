"""Counts in PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from wakeful.forecast.peaks import TimingCount
from wakeful.job.start_rules import Requirement
from wakeful.store.postgres import statements
from wakeful.store.sql.job_conditions import FEW
from wakeful.store.stats import (
    Backlog,
    ConnectionUse,
    DueRequirement,
    DueRuns,
    LiveCounts,
    WorkspaceStats,
    backlog_of,
)

if TYPE_CHECKING:
    from wakeful.store.postgres.connection import Db

#: jobs_name: the workspace's part of it
COUNT_JOBS: Final = """
    SELECT count(*) FILTER (WHERE enabled), count(*) FROM jobs
    WHERE workspace = $1 AND ($2::text IS NULL OR agent = $2) AND deleted_at IS NULL"""
#: live_runs, all of it; the runs' primary key, once for each
COUNT_LIVE: Final = """
    SELECT l.state, count(*), count(DISTINCT r.worker) FILTER (WHERE l.is_pull)
    FROM live_runs l CROSS JOIN LATERAL (
        SELECT workspace, agent, worker FROM runs WHERE id = l.run_id OFFSET 0) r
    WHERE r.workspace = $1 AND ($2::text IS NULL OR r.agent = $2) GROUP BY 1"""
#: cursors_wake, in its order, up to the first of the workspace or agent; the jobs' primary key, once for each
NEXT_TICK: Final = """
    SELECT c.next_at FROM cursors c JOIN jobs j ON j.id = c.job_id
    WHERE c.wake_at IS NOT NULL AND CASE WHEN c.next_at IS NOT NULL
        THEN j.workspace = $1 AND ($2::text IS NULL OR j.agent = $2) END
    ORDER BY c.wake_at LIMIT 1"""
#: jobs_name: the part of the workspace or agent, which has few jobs; the cursors' primary key, once for each
NEXT_TICK_OF_FEW: Final = """
    SELECT min(c.next_at) FROM jobs j
    CROSS JOIN LATERAL (SELECT next_at FROM cursors WHERE job_id = j.id OFFSET 0) c
    WHERE j.workspace = $1 AND ($2::text IS NULL OR j.agent = $2) AND j.deleted_at IS NULL"""
#: live_runs_due, all of it: it holds what waits and nothing else. For each lane and requirement its first
#: entries once more, as `PICK` reads them
DUE_BY_LANE: Final = f"""
    SELECT d.lane, d.is_pull, sum(d.count)::bigint, min(CASE WHEN d.is_pull THEN d.oldest ELSE (
        SELECT l.due_at FROM live_runs l
        WHERE l.lane = d.lane AND NOT l.is_pull AND l.requires = d.requires AND l.due_at <= $1
            AND (NOT l.serial OR {statements.HAS_THE_TURN})
        ORDER BY l.due_at LIMIT 1) END)
    FROM (
        SELECT lane, is_pull, requires, count(*), min(due_at) AS oldest FROM live_runs WHERE due_at <= $1
        GROUP BY lane, is_pull, requires) d
    GROUP BY d.lane, d.is_pull"""
#: live_runs_claimable or live_runs_claimable_of_agent, all of it: what executors may claim and nothing else
DUE_BY_AGENT: Final = """
    SELECT workspace, agent, count(*) FROM live_runs WHERE is_pull AND due_at <= $1
    GROUP BY workspace, agent ORDER BY count(*) DESC, workspace, agent LIMIT $2"""
#: runs_dead and workers, all of them: the dead letters and the recent workers; cursors_wake: its first entry
TOTALS: Final = f"""
    SELECT (SELECT count(*) FROM runs WHERE dead), ({statements.NEXT_WAKE}),
        (SELECT count(*) FROM workers WHERE beat_at >= $1)"""
#: the primary key of workspaces, at most one row of it: whether our tables can be read
READ_ONLY: Final = """
    SELECT current_setting('transaction_read_only') = 'on',
        (SELECT name FROM workspaces ORDER BY name LIMIT 1)"""
#: live_runs_held, all of it; the runs' primary key for each; `LOST` has the same condition
EXPIRED_LEASES: Final = """
    SELECT count(*) FROM live_runs l CROSS JOIN LATERAL (
        SELECT workspace, state, awaiting_callback, due_at, beat_at, worker, started_at, fire_at FROM runs
        WHERE id = l.run_id OFFSET 0) r
    LEFT JOIN workers w ON w.name = r.worker
    WHERE coalesce(l.state, '') = 'running' AND r.state = 'running' AND ($1::text IS NULL OR r.workspace = $1)
        AND CASE WHEN r.awaiting_callback THEN r.due_at < $2
            ELSE coalesce(r.beat_at, w.beat_at, r.started_at, r.fire_at) < $2 END"""
#: live_runs_due, all of it: it holds what waits and nothing else
DUE_REQUIREMENTS: Final = """
    SELECT requires, requires_version, count(*), min(due_at) FROM live_runs
    WHERE due_at <= $1 AND requires <> '' AND NOT is_pull GROUP BY 1, 2 ORDER BY 4"""
SIZE: Final = "SELECT pg_database_size(current_database())"
#: the connections of the server, which is the view pg_stat_activity without the names of databases and roles
CONNECTION_USE: Final = """
    SELECT current_setting('max_connections')::integer
            - current_setting('superuser_reserved_connections')::integer
            - coalesce(nullif(current_setting('reserved_connections', true), ''), '0')::integer,
        count(*)::integer
    FROM pg_stat_get_activity(NULL)
    WHERE datid IS NOT NULL
        AND NOT coalesce(application_name = $1 OR starts_with(application_name, $1 || ' '), false)"""

#: jobs_name: the part of the workspace, or of the agent; the row of each job
TIMINGS: Final = """
    SELECT timing, policy, CASE WHEN position('"everyMs"' IN timing) > 0 THEN
        (extract(epoch FROM anchor_at) * 1000)::bigint
            % (timing::json -> 'schedule' ->> 'everyMs')::bigint / 60000
        ELSE 0 END AS phase, count(*), min(agent || '/' || name)
    FROM jobs
    WHERE workspace = $1 AND deleted_at IS NULL AND enabled AND timing IS NOT NULL
    GROUP BY timing, policy, phase"""
TIMINGS_OF_AGENT: Final = TIMINGS.replace("workspace = $1", "workspace = $1 AND agent = $2")
#: How many timings are read at once.
_AT_ONCE: Final = 1_000
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
LIVE_NEXT_TICK: Final = """
    SELECT c.next_at FROM (
        SELECT job_id, next_at, wake_at FROM cursors WHERE wake_at IS NOT NULL
        ORDER BY wake_at LIMIT $3) c
    CROSS JOIN LATERAL (SELECT workspace, agent FROM jobs WHERE id = c.job_id OFFSET 0) j
    WHERE c.next_at IS NOT NULL AND j.workspace = $1 AND ($2::text IS NULL OR j.agent = $2)
    ORDER BY c.wake_at LIMIT 1"""


async def is_read_only(db: Db) -> bool:
    """Return whether the server accepts no writes."""
    return bool(await db.fetchval(READ_ONLY))


#: job_incidents_open: the workspace's part of it
COUNT_INCIDENTS: Final = """
    SELECT count(*) - count(acknowledged_at), count(acknowledged_at) FROM job_incidents
    WHERE workspace = $1 AND ($2::text IS NULL OR agent = $2) AND closed_at IS NULL"""
#: job_incidents_open, all of it: it holds open incidents and nothing else
COUNT_ALL_INCIDENTS: Final = """
    SELECT count(*) - count(acknowledged_at), count(acknowledged_at) FROM job_incidents
    WHERE closed_at IS NULL"""


async def workspace_stats(db: Db, workspace: str, agent: str | None) -> WorkspaceStats:
    jobs = await db.fetchrow(COUNT_JOBS, workspace, agent)
    active, all_jobs = (0, 0) if jobs is None else jobs
    counted = await db.fetch(COUNT_LIVE, workspace, agent)
    live: dict[str, int] = {row[0]: row[1] for row in counted}
    # A workspace with few jobs, or without ticks, does not read those of all.
    next_tick = NEXT_TICK_OF_FEW if all_jobs < FEW else NEXT_TICK
    next_ms = await db.fetchval(next_tick, workspace, agent)
    executors = sum(row[2] for row in counted)
    incidents = await db.fetchrow(COUNT_INCIDENTS, workspace, agent) or (0, 0)
    return WorkspaceStats(active, all_jobs - active, live, next_ms, executors, *incidents)


async def backlog(db: Db, now_ms: int, alive_since_ms: int, agents: int) -> Backlog:
    due = [
        (lane, is_pull, DueRuns(n, oldest))
        for lane, is_pull, n, oldest in await db.fetch(DUE_BY_LANE, now_ms)
    ]
    by_agent = [(row[0], row[1], row[2]) for row in await db.fetch(DUE_BY_AGENT, now_ms, agents)]
    totals = await db.fetchrow(TOTALS, alive_since_ms)
    incidents = await db.fetchrow(COUNT_ALL_INCIDENTS)
    assert totals is not None
    assert incidents is not None
    return backlog_of(due, by_agent, *totals, *incidents)


async def due_requirements(db: Db, now_ms: int) -> list[DueRequirement]:
    rows = await db.fetch(DUE_REQUIREMENTS, now_ms)
    return [DueRequirement(Requirement(name, version), *rest) for name, version, *rest in rows]


async def expired_leases(db: Db, workspace: str | None, before_ms: int) -> int:
    return int(await db.fetchval(EXPIRED_LEASES, workspace, before_ms))


async def database_size(db: Db) -> int:
    return int(await db.fetchval(SIZE))


async def connection_use(db: Db, name: str, per_process: int) -> ConnectionUse:
    """Return the connections of the server; those of this name, or of it and more, are not of others."""
    row = await db.fetchrow(CONNECTION_USE, name)
    assert row is not None
    return ConnectionUse(row[0], row[1], per_process)


async def timings_page(
    db: Db, workspace: str, agent: str | None, after: tuple[str, str]
) -> tuple[list[TimingCount], None]:
    """Return the timings of all enabled jobs of a workspace or agent: one page."""
    query, args = (TIMINGS, [workspace]) if agent is None else (TIMINGS_OF_AGENT, [workspace, agent])
    found: list[TimingCount] = []
    async with db.transaction():
        cursor = await db.cursor(query, *args)
        while rows := await cursor.fetch(_AT_ONCE):  # the driver decodes on the event loop
            found += [TimingCount(*row) for row in rows]
    return found, None


async def live_counts(db: Db, workspace: str, agent: str | None, limit: int) -> LiveCounts:
    """Return the live runs by state; at most so many running and so many waiting ones are read."""
    rows = await db.fetch(LIVE_COUNTS, workspace, agent, limit)
    running = sum(row[1] for row in rows if row[0] == "running")
    waiting = sum(row[1] for row in rows if row[0] != "running")
    return LiveCounts({row[0]: row[2] for row in rows}, running >= limit, waiting >= limit)


async def next_tick(db: Db, workspace: str, agent: str | None, limit: int) -> int | None:
    """Return the next tick, if it is among the next so many wakes of all workspaces."""
    next_ms: int | None = await db.fetchval(LIVE_NEXT_TICK, workspace, agent, limit)
    return next_ms
