"""Counts of jobs, runs and workers, and what waits. The rows are in `store/stats.py`."""

from __future__ import annotations

from typing import Final

from wakeful.forecast.peaks import TimingCount
from wakeful.job.start_rules import Capabilities, Requirement, capabilities_from_text
from wakeful.store.sql.base import reads
from wakeful.store.sql.changelog import SqlChangelog
from wakeful.store.sql.driver import SqlSession, Texts
from wakeful.store.sql.jobs import FEW
from wakeful.store.sql.running import HAS_THE_TURN
from wakeful.store.stats import (
    Backlog,
    ConnectionUse,
    DueRequirement,
    DueRuns,
    RecentRun,
    WorkspaceStats,
)
from wakeful.values.ids import first_id

#: jobs_name: the workspace's part of it
COUNT_JOBS: Final = """
    SELECT count(*) FILTER (WHERE enabled), count(*) FROM jobs /*+ INDEXED BY jobs_name */
    WHERE workspace = $1 AND ($2::text IS NULL OR agent = $2) AND deleted_at IS NULL"""
#: SQLite: all of runs_running and runs_waiting, the row of each: an index by workspace would be
#: written twice for each run. PostgreSQL: live_runs_of_workspace, its part
COUNT_LIVE: Final = Texts(
    sqlite="""
    SELECT state, count(*), count(DISTINCT worker) FILTER (WHERE is_pull) FROM runs NOT INDEXED
    WHERE workspace = $1 AND ($2 IS NULL OR agent = $2) AND rowid IN (
        SELECT rowid FROM runs INDEXED BY runs_running WHERE state = 'running' UNION ALL
        SELECT rowid FROM runs INDEXED BY runs_waiting WHERE state IN ('pending', 'retrying'))
    GROUP BY state""",
    postgresql="""
    SELECT state, count(*), count(DISTINCT worker) FILTER (WHERE is_pull) FROM live_runs
    WHERE workspace = $1 AND ($2::text IS NULL OR agent = $2) GROUP BY 1""",
)
#: jobs_wake or cursors_wake, in its order, up to the first of the workspace or agent; the jobs' primary key,
#: once for each
NEXT_TICK: Final = Texts(
    sqlite="""
    SELECT next_at FROM jobs INDEXED BY jobs_wake
    WHERE wake_at > 0 AND next_at IS NOT NULL AND workspace = $1 AND ($2 IS NULL OR agent = $2)
    ORDER BY wake_at LIMIT 1""",
    postgresql="""
    SELECT c.next_at FROM cursors c JOIN jobs j ON j.id = c.job_id
    WHERE c.wake_at IS NOT NULL AND CASE WHEN c.next_at IS NOT NULL
        THEN j.workspace = $1 AND ($2::text IS NULL OR j.agent = $2) END
    ORDER BY c.wake_at LIMIT 1""",
)
#: jobs_name: the part of the workspace or agent, which has few jobs; the row of each, or its cursor
NEXT_TICK_OF_FEW: Final = Texts(
    sqlite="""
    SELECT min(next_at) FROM jobs INDEXED BY jobs_name
    WHERE workspace = $1 AND ($2 IS NULL OR agent = $2) AND deleted_at IS NULL AND wake_at > 0""",
    postgresql="""
    SELECT min(c.next_at) FROM jobs j
    CROSS JOIN LATERAL (SELECT next_at FROM cursors WHERE job_id = j.id OFFSET 0) c
    WHERE j.workspace = $1 AND ($2::text IS NULL OR j.agent = $2) AND j.deleted_at IS NULL""",
)
#: job_incidents_open: the workspace's part of it
COUNT_INCIDENTS: Final = """
    SELECT count(*) - count(acknowledged_at), count(acknowledged_at) FROM job_incidents
    WHERE workspace = $1 AND ($2::text IS NULL OR agent = $2) AND closed_at IS NULL"""
#: job_incidents_open, all of it: it holds open incidents and nothing else
COUNT_ALL_INCIDENTS: Final = """
    SELECT count(*) - count(acknowledged_at), count(acknowledged_at)
    FROM job_incidents /*+ INDEXED BY job_incidents_open */ WHERE closed_at IS NULL"""
#: runs_due or live_runs_due, all of it: it holds what waits and nothing else. For each lane and requirement
#: its first entries once more, as `take` reads them
DUE_BY_LANE: Final = Texts(
    sqlite=f"""
    SELECT due.lane, due.is_pull, sum(due.number), min(iif(due.is_pull, due.oldest, (
        SELECT r.due_at FROM runs r INDEXED BY runs_due
        WHERE r.lane = due.lane AND r.is_pull = 0 AND r.requires = due.requires AND r.due_at <= $1
            AND r.state IN ('pending', 'retrying') AND (NOT r.serial OR ({HAS_THE_TURN.sqlite}))
        ORDER BY r.due_at LIMIT 1)))
    FROM (
        SELECT lane, is_pull, requires, count(*) AS number, min(due_at) AS oldest
        FROM runs INDEXED BY runs_due WHERE state IN ('pending', 'retrying') AND due_at <= $1
        GROUP BY lane, is_pull, requires) due
    GROUP BY due.lane, due.is_pull""",
    postgresql=f"""
    SELECT d.lane, d.is_pull, sum(d.count)::bigint, min(CASE WHEN d.is_pull THEN d.oldest ELSE (
        SELECT l.due_at FROM live_runs l
        WHERE l.lane = d.lane AND NOT l.is_pull AND l.requires = d.requires AND l.due_at <= $1
            AND (NOT l.serial OR {HAS_THE_TURN.postgresql})
        ORDER BY l.due_at LIMIT 1) END)
    FROM (
        SELECT lane, is_pull, requires, count(*), min(due_at) AS oldest FROM live_runs WHERE due_at <= $1
        GROUP BY lane, is_pull, requires) d
    GROUP BY d.lane, d.is_pull""",
)
#: (live_)runs_claimable or (live_)runs_claimable_of_agent, all of it: what executors may claim, nothing else
DUE_BY_AGENT: Final = Texts(
    sqlite="""
    SELECT workspace, agent, count(*) FROM runs INDEXED BY runs_claimable_of_agent
    WHERE state IN ('pending', 'retrying') AND is_pull AND due_at <= $1
    GROUP BY workspace, agent ORDER BY count(*) DESC, workspace, agent LIMIT $2""",
    postgresql="""
    SELECT workspace, agent, count(*) FROM live_runs WHERE is_pull AND due_at <= $1
    GROUP BY workspace, agent ORDER BY count(*) DESC, workspace, agent LIMIT $2""",
)
_TOTALS: Final = """
    SELECT (SELECT count(*) FROM runs /*+ INDEXED BY runs_dead */ WHERE dead),
        (SELECT min(wake_at) FROM {} WHERE wake_at IS NOT NULL),
        (SELECT count(*) FROM workers WHERE beat_at >= $1)"""
#: runs_dead and workers, all of them: the dead letters and the recent workers; jobs_wake or cursors_wake: its
#: first entry
TOTALS: Final = Texts(
    sqlite=_TOTALS.format("jobs INDEXED BY jobs_wake"), postgresql=_TOTALS.format("cursors")
)
#: runs_running or live_runs_held, all of it; the runs' primary key for each; `LOST` has the same condition
EXPIRED_LEASES: Final = Texts(
    sqlite="""
    SELECT count(*) FROM runs r INDEXED BY runs_running LEFT JOIN workers w ON w.name = r.worker
    WHERE r.state = 'running' AND ($1 IS NULL OR r.workspace = $1)
        AND CASE WHEN r.awaiting_callback THEN r.due_at < $2
            ELSE coalesce(r.beat_at, w.beat_at, r.started_at, r.fire_at) < $2 END""",
    postgresql="""
    SELECT count(*) FROM live_runs l CROSS JOIN LATERAL (
        SELECT workspace, state, awaiting_callback, due_at, beat_at, worker, started_at, fire_at FROM runs
        WHERE id = l.run_id OFFSET 0) r
    LEFT JOIN workers w ON w.name = r.worker
    WHERE coalesce(l.state, '') = 'running' AND r.state = 'running' AND ($1::text IS NULL OR r.workspace = $1)
        AND CASE WHEN r.awaiting_callback THEN r.due_at < $2
            ELSE coalesce(r.beat_at, w.beat_at, r.started_at, r.fire_at) < $2 END""",
)
_DUE_REQUIREMENTS: Final = """
    SELECT requires, requires_version, count(*), min(due_at) FROM {}
    AND due_at <= $1 AND requires <> '' GROUP BY 1, 2 ORDER BY 4"""
#: runs_due or live_runs_due, all of it: it holds what waits and nothing else
DUE_REQUIREMENTS: Final = Texts(
    sqlite=_DUE_REQUIREMENTS.format(
        "runs INDEXED BY runs_due WHERE state IN ('pending', 'retrying') AND is_pull = 0"
    ),
    postgresql=_DUE_REQUIREMENTS.format("live_runs WHERE NOT is_pull"),
)
SIZE: Final = Texts(
    sqlite="SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()",
    postgresql="SELECT pg_database_size(current_database())",
)
#: How many jobs are read at once for their timings, so that other calls need not wait long.
TIMINGS_AT_ONCE: Final = 2_000
#: All jobs of the page are in a group, so that the last one is known; those without a timing are not counted
_TIMINGS: Final = """
    SELECT timing, policy, CASE WHEN kind = 'every' THEN {phase} ELSE 0 END AS phase, count(*),
        min(agent || '/' || name), max(agent || {separator} || name)
    FROM (
        SELECT CASE WHEN enabled THEN timing END AS timing, policy, anchor_at, agent, name, {kind} AS kind
        FROM jobs /*+ INDEXED BY jobs_name */
        WHERE workspace = $1 AND {after} AND deleted_at IS NULL ORDER BY agent, name LIMIT $4) page
    GROUP BY 1, 2, 3"""


def _timings(after: str) -> Texts:
    """Return the statement that counts the timings of the jobs after an agent and a name."""
    return Texts(
        sqlite=_TIMINGS.format(
            after=after,
            separator="char(1)",
            phase="anchor_at % json_extract(timing, '$.schedule.everyMs') / 60000",
            # Rows of schema 13 have no kind.
            kind="""coalesce(schedule_kind,
            CASE WHEN json_valid(timing) THEN json_extract(timing, '$.schedule.kind') END)""",
        ),
        postgresql=_TIMINGS.format(
            after=after,
            separator="chr(1)",
            phase="""(extract(epoch FROM anchor_at) * 1000)::bigint
            % (timing::json -> 'schedule' ->> 'everyMs')::bigint / 60000""",
            kind="schedule_kind",
        ),
    )


_AFTER: Final = "(agent, name) > ($2, $3)"
_AFTER_OF_AGENT: Final = "agent = $2 AND name > $3"
#: jobs_name: so many entries of the workspace, or of the agent; the row of each job
TIMINGS: Final = _timings(_AFTER)
TIMINGS_OF_AGENT: Final = _timings(_AFTER_OF_AGENT)
#: runs_of_workspace: its end, backwards
RECENT_RUNS: Final = """
    SELECT state, trigger, attempt, fire_at, started_at FROM runs
    WHERE workspace = $1 AND id >= $2 AND (CAST($4 AS text) IS NULL OR agent = $4)
    ORDER BY id DESC LIMIT $3"""
#: the table, all of it
WORKERS: Final = "SELECT name FROM workers WHERE beat_at >= $1 ORDER BY name"
#: the table, all of it
CAPABILITIES: Final = "SELECT capabilities FROM workers WHERE beat_at >= $1"
#: runs_dead: its end, backwards; the primary key for each
DEAD_LETTERS: Final = """
    SELECT newest.reason, count(*) FROM (
        SELECT coalesce(reason, '') AS reason FROM runs /*+ INDEXED BY runs_dead */
        WHERE dead AND workspace = $1 ORDER BY id DESC LIMIT $2) newest
    GROUP BY 1 ORDER BY 2 DESC, 1"""
#: runs_dead, all of it; the primary key for each
ALL_DEAD_LETTERS: Final = """
    SELECT newest.reason, count(*) FROM (
        SELECT coalesce(reason, '') AS reason FROM runs /*+ INDEXED BY runs_dead */ WHERE dead
        LIMIT $1) newest
    GROUP BY 1 ORDER BY 2 DESC, 1"""
#: schema_version, all of it
SCHEMA: Final = "SELECT max(version) FROM schema_version"


async def schema(session: SqlSession) -> int:
    """Return the newest migration of the database."""
    return int(await session.value(SCHEMA) or 0)


async def workspace_stats(session: SqlSession, workspace: str, agent: str | None = None) -> WorkspaceStats:
    """Return the counts of a workspace, or of one of its agents."""
    of = workspace, agent
    active, jobs = await session.row(COUNT_JOBS, *of) or (0, 0)
    counted = await session.rows(COUNT_LIVE, *of)
    live: dict[str, int] = {state: number for state, number, _claimed in counted}
    # A workspace with few jobs, or without ticks, does not read those of all.
    next_ms = await session.value(NEXT_TICK_OF_FEW if jobs < FEW else NEXT_TICK, *of)
    executors = sum(claimed for _state, _number, claimed in counted)
    incidents = await session.row(COUNT_INCIDENTS, *of) or (0, 0)
    return WorkspaceStats(active, jobs - active, live, next_ms, executors, *incidents)


async def backlog(session: SqlSession, now_ms: int, alive_since_ms: int, agents: int) -> Backlog:
    """Return the work that waits, and the number of workers with a heartbeat since then.

    `pull_by_agent` has at most so many agents.
    """
    lanes: dict[str, DueRuns] = {}
    pulled, oldest = 0, list[int]()
    for lane, is_pull, number, oldest_ms in await session.rows(DUE_BY_LANE, now_ms):
        if is_pull:
            pulled += number
            oldest += [] if oldest_ms is None else [oldest_ms]
        else:
            lanes[lane] = DueRuns(number, oldest_ms)
    by_agent = [
        (workspace, agent, number)
        for workspace, agent, number in await session.rows(DUE_BY_AGENT, now_ms, agents)
    ]
    totals = await session.row(TOTALS, alive_since_ms) or (0, None, 0)
    incidents = await session.row(COUNT_ALL_INCIDENTS) or (0, 0)
    return Backlog(lanes, DueRuns(pulled, min(oldest, default=None)), by_agent, *totals, *incidents)


async def due_requirements(session: SqlSession, now_ms: int) -> list[DueRequirement]:
    """Return the due runs that require something, by requirement, longest due first."""
    rows = await session.rows(DUE_REQUIREMENTS, now_ms)
    return [DueRequirement(Requirement(name, version), *rest) for name, version, *rest in rows]


async def expired_leases(session: SqlSession, workspace: str | None, before_ms: int) -> int:
    """Return the number of running runs whose lease or callback time ended before then; None: of all.

    `rescue` ends them within seconds: if there are any, no replica does it.
    """
    return int(await session.value(EXPIRED_LEASES, workspace, before_ms) or 0)


async def database_size(session: SqlSession) -> int:
    """Return the size of the database in bytes."""
    return int(await session.value(SIZE) or 0)


async def timings_page(
    session: SqlSession, workspace: str, agent: str | None, after: tuple[str, str]
) -> tuple[list[TimingCount], tuple[str, str] | None]:
    """Return the timings of the next jobs after that (agent, name), and the last of them; None: of all."""
    statement = TIMINGS if agent is None else TIMINGS_OF_AGENT
    found: list[TimingCount] = []
    jobs, last = 0, ""
    for timing, policy, phase, number, example, greatest in await session.rows(
        statement, workspace, *after, TIMINGS_AT_ONCE
    ):
        jobs, last = jobs + number, max(last, greatest)
        if timing is not None:
            found.append(TimingCount(timing, policy, phase, number, example))
    last_agent, _, name = last.partition("\1")
    return found, (last_agent, name) if jobs == TIMINGS_AT_ONCE else None


async def recent_runs(
    session: SqlSession, workspace: str, since_ms: int, limit: int, agent: str | None = None
) -> list[RecentRun]:
    """Return the newest runs of a workspace, or of one of its agents, that were created since then."""
    rows = await session.rows(RECENT_RUNS, workspace, first_id(since_ms), limit, agent)
    return [RecentRun(*row) for row in rows]


async def workers(session: SqlSession, since_ms: int) -> list[str]:
    """Return the names of the workers with a heartbeat since then."""
    return await session.column(WORKERS, since_ms)


async def capabilities(session: SqlSession, since_ms: int) -> list[Capabilities]:
    """Return what the processes of the workers with a heartbeat since then can launch."""
    return list(map(capabilities_from_text, await session.column(CAPABILITIES, since_ms)))


async def dead_letters_by_reason(
    session: SqlSession, workspace: str | None, limit: int
) -> list[tuple[str, int]]:
    """Return the number of dead letters by reason, most frequent first; at most the newest are counted.

    `workspace` None: of all workspaces. A dead letter without a reason counts as ''.
    """
    if workspace is None:
        rows = await session.rows(ALL_DEAD_LETTERS, limit)
    else:
        rows = await session.rows(DEAD_LETTERS, workspace, limit)
    return [(reason, number) for reason, number in rows]


class SqlStats(SqlChangelog):
    """Counts."""

    workspace_stats = reads(workspace_stats)
    recent_runs = reads(recent_runs)
    backlog = reads(backlog)
    workers = reads(workers)
    capabilities = reads(capabilities)
    due_requirements = reads(due_requirements)
    expired_leases = reads(expired_leases)
    dead_letters_by_reason = reads(dead_letters_by_reason)

    async def timings(self, workspace: str, agent: str | None = None) -> list[TimingCount]:
        """Return the timings of the enabled jobs of a workspace or agent, each with its number of jobs.

        Jobs with the same timing and policy are counted together; those with an interval, if their ticks are
        in the same minutes. Each count has the first of its jobs as an example.
        """
        after: tuple[str, str] | None = (agent or "", "")
        found: dict[tuple[str, str, int], TimingCount] = {}
        while after is not None:
            page, after = await self._read(timings_page, workspace, agent, after)
            for each in page:
                known = found.get(each[:3])
                found[each[:3]] = each if known is None else known.merge(each)
        return list(found.values())

    database_size = reads(database_size)

    async def connection_use(self) -> ConnectionUse | None:
        """Return the connections of the database server; None if the database is a file."""
        return None
