"""Bounded reads for the home page and open dashboards. The rows are in `store/stats.py`.

A statement that counts does it within a subquery with a limit. Where the databases have different tables or
need a hint, there is a statement for each; all are in PostgreSQL's dialect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from wakeful.job.start_rules import Requirement
from wakeful.run.inbox import COUNTED
from wakeful.store.sql.base import SqlBase, reads
from wakeful.store.sql.driver import Row, SqlSession, Statement, Texts
from wakeful.store.sql.inbox import count_inbox
from wakeful.store.stats import (
    LIVE_LIMIT,
    NEWEST_LIMIT,
    LiveFigures,
    LiveWorker,
    RunChange,
    Troubles,
    UpcomingRun,
)
from wakeful.values.ids import first_id

# `{}` is a condition on the agent, or nothing.

#: runs_dead: its end, backwards
_DEAD: Final = """
    SELECT count(*) FROM (
        SELECT 1 FROM runs /*+ INDEXED BY runs_dead */ WHERE workspace = $1 AND dead{}
        ORDER BY id DESC LIMIT $2) n"""
#: jobs_failing_by_name: the part of the workspace, or of the agent
_FAILING: Final = """
    SELECT count(*) FROM (
        SELECT 1 FROM jobs WHERE workspace = $1 AND failures > 0 AND deleted_at IS NULL AND enabled{}
        LIMIT $2) n"""
#: job_incidents_open: the part of the workspace
_INCIDENTS: Final = """
    SELECT count(*), coalesce(sum(CASE WHEN acknowledged_at IS NULL THEN 1 ELSE 0 END), 0) FROM (
        SELECT acknowledged_at FROM job_incidents /*+ INDEXED BY job_incidents_open */
        WHERE workspace = $1 AND closed_at IS NULL{} LIMIT $2) n"""
#: the primary key: a range
_BLOCKS: Final = """
    SELECT count(*) FROM (
        SELECT 1 FROM budget_blocks WHERE day = $3 AND workspace = $1{} LIMIT $2) n"""
#: runs_claimable or live_runs_claimable (of an agent): its beginning
_UNCLAIMED: Final = Texts(
    sqlite="""
    SELECT count(*) FROM (
        SELECT 1 FROM runs WHERE workspace = $1 AND state IN ('pending', 'retrying') AND is_pull
            AND due_at <= $3{} LIMIT $2) n""",
    postgresql="""
    SELECT count(*) FROM (
        SELECT 1 FROM live_runs WHERE workspace = $1 AND is_pull AND due_at <= $3{} LIMIT $2) n""",
)
#: runs_due or live_runs_due: what waits and requires one of these; the row of each
_BLOCKED: Final = Texts(
    sqlite="""
    SELECT requires, requires_version, count(*) FROM (
        SELECT requires, requires_version FROM runs INDEXED BY runs_due
        WHERE state IN ('pending', 'retrying') AND due_at <= $3 AND is_pull = 0
            AND requires = ANY($4::text[]) AND workspace = $1{} LIMIT $2) n GROUP BY 1, 2""",
    postgresql="""
    SELECT requires, requires_version, count(*) FROM (
        SELECT requires, requires_version FROM live_runs
        WHERE due_at <= $3 AND NOT is_pull AND requires = ANY($4::text[]) AND workspace = $1{} LIMIT $2) n
    GROUP BY 1, 2""",
)
#: runs_of_workspace, or runs_of_agent in SQLite: its end, backwards
_DELAYS: Final = Texts(
    sqlite="""
    SELECT started_at - fire_at FROM (
        SELECT started_at, fire_at, attempt FROM runs WHERE workspace = $1 AND id >= $3{}
        ORDER BY id DESC LIMIT $2) n
    WHERE started_at IS NOT NULL AND attempt = 1""",
    postgresql="""
    SELECT (extract(epoch FROM started_at - fire_at) * 1000)::bigint FROM (
        SELECT started_at, fire_at, attempt FROM runs WHERE workspace = $1 AND id >= $3{}
        ORDER BY id DESC LIMIT $2) n
    WHERE started_at IS NOT NULL AND attempt = 1""",
)
#: jobs_wake or cursors_wake: its beginning; the jobs' primary key for each
_UPCOMING: Final = Texts(
    sqlite="""
    SELECT id, agent, name, next_at FROM (
        SELECT id, workspace, agent, name, next_at, deleted_at FROM jobs INDEXED BY jobs_wake
        WHERE wake_at IS NOT NULL AND wake_at <= $3 ORDER BY wake_at LIMIT $4) n
    WHERE workspace = $1 AND next_at IS NOT NULL AND deleted_at IS NULL{}
    ORDER BY next_at, agent, name LIMIT $2""",
    postgresql="""
    SELECT j.id::text, j.agent, j.name, c.next_at FROM (
        SELECT job_id, next_at FROM cursors WHERE wake_at IS NOT NULL AND wake_at <= $3
        ORDER BY wake_at LIMIT $4) c
    CROSS JOIN LATERAL (
        SELECT id, workspace, agent, name, deleted_at FROM jobs WHERE id = c.job_id OFFSET 0) j
    WHERE j.workspace = $1 AND c.next_at IS NOT NULL AND j.deleted_at IS NULL{}
    ORDER BY c.next_at, j.agent, j.name LIMIT $2""",
)
#: the table, all of it
LIVE_WORKERS: Final = "SELECT name, beat_at, started_at FROM workers WHERE beat_at >= $1 ORDER BY name"


#: The statements by name, and the number of the parameter for the agent.
_STATEMENTS: Final[Mapping[str, tuple[Statement, int]]] = {
    "dead": (_DEAD, 3),
    "failing": (_FAILING, 3),
    "incidents": (_INCIDENTS, 3),
    "blocks": (_BLOCKS, 4),
    "unclaimed": (_UNCLAIMED, 4),
    "blocked": (_BLOCKED, 5),
    "delays": (_DELAYS, 4),
    "upcoming": (_UPCOMING, 5),
}


def statements(*, of_agent: bool) -> dict[str, Statement]:
    """Return the statements for a workspace or an agent, by name.

    Their parameters are the workspace, the limit, others, and the agent.
    """
    return {
        name: _with_condition(statement, f" AND agent = ${number}" if of_agent else "")
        for name, (statement, number) in _STATEMENTS.items()
    }


def _with_condition(statement: Statement, condition: str) -> Statement:
    if isinstance(statement, str):
        return statement.format(condition)
    return Texts(*(text.format(condition) for text in statement))


class Reader:
    """Runs the statements of a workspace, or of an agent."""

    def __init__(self, session: SqlSession, workspace: str, agent: str | None) -> None:
        self._session = session
        self._statements = statements(of_agent=agent is not None)
        self._workspace = workspace
        self._agent = () if agent is None else (agent,)

    async def rows(self, name: str, limit: int, *others: object) -> Sequence[Row]:
        """Return the rows of a statement."""
        given = self._workspace, limit, *others, *self._agent
        return await self._session.rows(self._statements[name], *given)

    async def count(self, name: str, limit: int, *others: object) -> int:
        """Return the number that a statement counts."""
        return int((await self.rows(name, limit, *others))[0][0])


async def troubles(
    session: SqlSession,
    workspace: str,
    agent: str | None,
    day: int,
    waiting_since_ms: int,
    limit: int,
) -> Troubles:
    """Return what needs attention, each number up to `limit`; `agent` None: of all agents.

    `day` is that of the budgets (UTC, counted from 1970). Unclaimed runs wait since `waiting_since_ms` or
    longer.
    """
    read = Reader(session, workspace, agent)
    ((open_incidents, new_incidents),) = await read.rows("incidents", limit)
    return Troubles(
        await read.count("dead", limit),
        await read.count("failing", limit),
        open_incidents,
        int(new_incidents),
        await read.count("blocks", limit, day),
        await read.count("unclaimed", limit, waiting_since_ms),
    )


async def blocked_runs(
    session: SqlSession,
    workspace: str,
    agent: str | None,
    now_ms: int,
    missing: Sequence[Requirement],
    limit: int,
) -> dict[Requirement, int]:
    """Return the number of due runs that require one of these, by requirement; `limit` runs are counted."""
    names = [each.name for each in missing]
    rows = await Reader(session, workspace, agent).rows("blocked", limit, now_ms, names)
    found = {Requirement(name, version): number for name, version, number in rows}
    return {each: found[each] for each in missing if each in found}


async def live_workers(session: SqlSession, since_ms: int) -> list[LiveWorker]:
    """Return the workers with a heartbeat since then, by name."""
    return [LiveWorker(*row) for row in await session.rows(LIVE_WORKERS, since_ms)]


async def start_delays(
    session: SqlSession, workspace: str, agent: str | None, since_ms: int, limit: int
) -> list[int]:
    """Return how late the first attempts of the newest runs since then started, in milliseconds.

    At most `limit` runs are read. Retries are left out: they start late on purpose.
    """
    rows = await Reader(session, workspace, agent).rows("delays", limit, first_id(since_ms))
    return [max(0, delay_ms) for (delay_ms,) in rows]


async def upcoming_runs(
    session: SqlSession, workspace: str, agent: str | None, until_ms: int, scanned: int, limit: int
) -> list[UpcomingRun]:
    """Return the next ticks until then, soonest first.

    At most `scanned` jobs of all workspaces are read.
    """
    rows = await Reader(session, workspace, agent).rows("upcoming", limit, until_ms, scanned)
    return [UpcomingRun(*row) for row in rows]


class SqlFigures(SqlBase):
    """Figures."""

    troubles = reads(troubles)
    blocked_runs = reads(blocked_runs)
    live_workers = reads(live_workers)
    start_delays = reads(start_delays)
    upcoming_runs = reads(upcoming_runs)


#: runs_running and runs_waiting, or live_runs_held and live_runs, at most so many entries of each; the runs'
#: primary key, once for each
LIVE_COUNTS: Final = Texts(
    sqlite="""
    SELECT state, count(*), count(*) FILTER (WHERE workspace = $1 AND ($2 IS NULL OR agent = $2))
    FROM runs NOT INDEXED WHERE rowid IN (
        SELECT * FROM (SELECT rowid FROM runs INDEXED BY runs_running WHERE state = 'running' LIMIT $3)
        UNION ALL SELECT * FROM (
            SELECT rowid FROM runs INDEXED BY runs_waiting WHERE state IN ('pending', 'retrying') LIMIT $3))
    GROUP BY state""",
    postgresql="""
    SELECT l.state, count(*), count(*) FILTER (WHERE r.workspace = $1 AND ($2::text IS NULL OR r.agent = $2))
    FROM (
        (SELECT run_id, state FROM live_runs WHERE coalesce(state, '') = 'running' LIMIT $3)
        UNION ALL
        (SELECT run_id, state FROM live_runs WHERE state IN ('pending', 'retrying') LIMIT $3)) l
    CROSS JOIN LATERAL (SELECT workspace, agent FROM runs WHERE id = l.run_id OFFSET 0) r
    GROUP BY 1""",
)
#: jobs_wake or cursors_wake, in its order, at most so many entries; the jobs' primary key, once for each
LIVE_NEXT_TICK: Final = Texts(
    sqlite="""
    SELECT next_at FROM (
        SELECT next_at, workspace, agent FROM jobs INDEXED BY jobs_wake WHERE wake_at > 0
        ORDER BY wake_at LIMIT $3)
    WHERE next_at IS NOT NULL AND workspace = $1 AND ($2 IS NULL OR agent = $2) LIMIT 1""",
    postgresql="""
    SELECT c.next_at FROM (
        SELECT job_id, next_at, wake_at FROM cursors WHERE wake_at IS NOT NULL
        ORDER BY wake_at LIMIT $3) c
    CROSS JOIN LATERAL (SELECT workspace, agent FROM jobs WHERE id = c.job_id OFFSET 0) j
    WHERE c.next_at IS NOT NULL AND j.workspace = $1 AND ($2::text IS NULL OR j.agent = $2)
    ORDER BY c.wake_at LIMIT 1""",
)
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


async def run_changes(session: SqlSession, ids: Sequence[str]) -> list[RunChange]:
    """Return those of these runs that exist."""
    return [RunChange(*row) for row in await session.rows(RUN_CHANGES, list(ids))]


class SqlLive(SqlBase):
    """Figures and changed runs."""

    async def run_changes(self, ids: Sequence[str]) -> list[RunChange]:
        """Return those of these runs that exist, in any order."""
        return await self._read(run_changes, ids) if ids else []

    async def live_figures(self, workspace: str, agent: str | None, alive_since_ms: int) -> LiveFigures:
        """Return the figures of a workspace or, with `agent`, of one agent.

        `workers` counts those with a heartbeat since `alive_since_ms`.
        """

        async def read(session: SqlSession) -> LiveFigures:
            live = await session.rows(LIVE_COUNTS, workspace, agent, LIVE_LIMIT)
            states: dict[str, int] = {}
            running_read = waiting_read = 0
            for state, read_rows, number in live:
                states[state] = number
                if state == "running":
                    running_read += read_rows
                else:
                    waiting_read += read_rows
            more_running, more_waiting = running_read >= LIVE_LIMIT, waiting_read >= LIVE_LIMIT
            next_ms = await session.value(LIVE_NEXT_TICK, workspace, agent, LIVE_LIMIT)
            dead_read, dead = await session.row(DEAD_LETTERS, workspace, agent, NEWEST_LIMIT) or (0, 0)
            incidents_read, incidents, acknowledged = await session.row(
                OPEN_INCIDENTS, workspace, agent, NEWEST_LIMIT
            ) or (0, 0, 0)
            waiting = await count_inbox(session, workspace, agent)
            workers = await session.value(WORKERS, alive_since_ms) or 0
            limits = {
                "running": more_running,
                "pending": more_waiting,
                "retrying": more_waiting,
                "dead_letters": dead_read >= NEWEST_LIMIT,
                "open_incidents": incidents_read >= NEWEST_LIMIT,
                "acknowledged_incidents": incidents_read >= NEWEST_LIMIT,
                "inbox": COUNTED in waiting.values(),
            }
            return LiveFigures(
                running=states.get("running", 0),
                pending=states.get("pending", 0),
                retrying=states.get("retrying", 0),
                dead_letters=dead,
                open_incidents=incidents - acknowledged,
                acknowledged_incidents=acknowledged,
                inbox=sum(waiting.values()),
                workers=workers,
                next_tick_ms=next_ms,
                more=tuple(name for name, reached in limits.items() if reached),
            )

        return await self._read(read)
