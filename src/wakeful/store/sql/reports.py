"""Reports: spending, processes and deliveries. The tables of spending: `budgets`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from wakeful.store.sql.base import SqlBase, reads
from wakeful.store.sql.driver import SqlSession, Texts
from wakeful.store.stats import HolderRow, WorkerRow

#: the primary key: a range of days, once for each owner
OF_OWNERS: Final = """
    SELECT s.agent, s.job, s.day, s.tokens, s.cost FROM unnest($2::text[], $3::text[]) o (agent, job)
    /*+ CROSS */ JOIN spending s
        ON s.workspace = $1 AND s.agent = o.agent AND s.job = o.job AND s.day BETWEEN $4 AND $5"""
#: the primary key of agents: a range of it; that of spending for each
AGENT_BUDGETS: Final = """
    SELECT a.name, a.budget, coalesce(s.tokens, 0), coalesce(s.cost, 0.0) FROM agents a
    LEFT JOIN spending s ON s.workspace = a.workspace AND s.agent = a.name AND s.job = '' AND s.day = $2
    WHERE a.workspace = $1 AND a.budget IS NOT NULL AND ($4::text IS NULL OR a.name = $4)
    ORDER BY a.name LIMIT $3"""
#: the primary key of budget_blocks: a range of it; that of spending for each
JOB_BLOCKS: Final = """
    SELECT b.agent, b.job, b.cap, b.most, coalesce(s.tokens, 0), coalesce(s.cost, 0.0) FROM budget_blocks b
    LEFT JOIN spending s
        ON s.workspace = b.workspace AND s.agent = b.agent AND s.job = b.job AND s.day = b.day
    WHERE b.day = $1 AND b.workspace = $2 AND b.job <> '' AND ($4::text IS NULL OR b.agent = $4)
    LIMIT $3"""
#: the primary key, once for each
JOB_TITLES: Final = """
    SELECT id::text, name, deleted_at IS NOT NULL, work FROM jobs WHERE id = ANY($1::uuid[])"""

_OF_JOBS: Final = "job <> ''"
_OF_AGENTS: Final = "job = '' AND agent <> ''"
_TOP: Final = """
    SELECT top.agent, top.job FROM {}
    GROUP BY top.agent, top.job ORDER BY sum(top.cost) DESC, sum(top.tokens) DESC LIMIT $3"""


class DayRange(NamedTuple):
    """Days, both included."""

    first: int
    last: int


class SpendingRow(NamedTuple):
    """What an owner used on one day."""

    agent: str
    job: str
    day: int
    tokens: int
    cost: float


class BudgetRow(NamedTuple):
    """An agent with a budget, and what it used on one day."""

    agent: str
    #: compact JSON
    budget: str
    tokens: int
    cost: float


class BlockRow(NamedTuple):
    """A budget of a job that is used up."""

    agent: str
    job: str
    cap: str
    most: float
    tokens: int
    cost: float


class JobTitle(NamedTuple):
    """The name of a job, which may have been deleted."""

    id: str
    name: str
    deleted: bool
    #: its `work` as text, with its budget
    work: str


def top_statement(days: DayRange, *, jobs: bool, agent: bool) -> Texts:
    """Return the statement for the most expensive owners of each day.

    `jobs`: jobs rather than agents; `agent`: of one agent. The end of an index for each day, backwards:
    spending_of_jobs, spending_of_agents or spending_of_agent_jobs.
    """
    owners = _OF_JOBS if jobs else _OF_AGENTS
    where = "workspace = $1" + (" AND agent = $4" if agent else "")
    index = "spending_of_agent_jobs" if agent else "spending_of_jobs" if jobs else "spending_of_agents"
    top = (
        f"SELECT agent, job, tokens, cost FROM spending /*+ INDEXED BY {index} */"
        f" WHERE {where} AND {owners} AND day = {{}} ORDER BY cost DESC, tokens DESC LIMIT $2"
    )
    each = " UNION ALL ".join(
        f"SELECT * FROM ({top.format(day)})" for day in range(days.first, days.last + 1)
    )
    return Texts(
        sqlite=_TOP.format(f"({each}) top"),  # it has no LATERAL
        postgresql=_TOP.format(
            f"generate_series({days.first}, {days.last}) d (day)"
            f" CROSS JOIN LATERAL ({top.format('d.day')}) top"
        ),
    )


async def top(
    session: SqlSession,
    workspace: str,
    agent: str | None,
    days: DayRange,
    per_day: int,
    limit: int,
    *,
    jobs: bool,
) -> list[tuple[str, str]]:
    """Return the agents, or the jobs, that are among the `per_day` most expensive of a day, as owners.

    Jobs are those of the workspace, or of one agent. The sums of these days decide which are returned. Owners
    without a cost are compared by tokens.
    """
    statement = top_statement(days, jobs=jobs, agent=agent is not None)
    args = [workspace, per_day, limit] if agent is None else [workspace, per_day, limit, agent]
    return [(agent, job) for agent, job in await session.rows(statement, *args)]


async def spending(
    session: SqlSession, workspace: str, owners: Sequence[tuple[str, str]], days: DayRange
) -> list[SpendingRow]:
    """Return what these owners (agent, job) used on each day."""
    agents, jobs = [agent for agent, _ in owners], [job for _, job in owners]
    rows = await session.rows(OF_OWNERS, workspace, agents, jobs, *days)
    return [SpendingRow(*row) for row in rows]


async def agent_budgets(
    session: SqlSession, workspace: str, day: int, limit: int, agent: str | None = None
) -> list[BudgetRow]:
    """Return agents that have a budget, by name, or only this one, with their use of that day."""
    return [BudgetRow(*row) for row in await session.rows(AGENT_BUDGETS, workspace, day, limit, agent)]


async def job_blocks(
    session: SqlSession, workspace: str, day: int, limit: int, agent: str | None = None
) -> list[BlockRow]:
    """Return the budgets of jobs that are used up on that day, of all agents or of one."""
    return [BlockRow(*row) for row in await session.rows(JOB_BLOCKS, day, workspace, limit, agent)]


async def job_titles(session: SqlSession, job_ids: Sequence[str]) -> list[JobTitle]:
    """Return the names of these jobs, also of deleted ones, as long as their rows exist."""
    rows = await session.rows(JOB_TITLES, list(job_ids))
    return [JobTitle(job_id, name, bool(deleted), work) for job_id, name, deleted, work in rows]


#: the table, all of it: a row for each process
WORKER_ROWS: Final = """
    SELECT name, beat_at, started_at, capabilities FROM workers ORDER BY started_at DESC, name LIMIT $1"""
_HOLDERS: Final = """
    SELECT r.worker, r.is_pull, count(*), max(r.beat_at) FROM {} AND r.worker IS NOT NULL{}
    GROUP BY r.worker, r.is_pull ORDER BY count(*) DESC, r.worker LIMIT $1"""
#: SQLite: all of runs_running, which has only running runs. PostgreSQL: all of live_runs_held, likewise, and
#: the primary key of runs for each
_RUNNING: Final = Texts(
    sqlite="runs r INDEXED BY runs_running WHERE r.state = 'running'",
    postgresql="live_runs l JOIN runs r ON r.id = l.run_id WHERE coalesce(l.state, '') = 'running'",
)


def holders_statement(*, of_workspace: bool) -> Texts:
    """Return the statement for those who hold running runs."""
    condition = " AND r.workspace = $2" if of_workspace else ""
    return Texts(*(_HOLDERS.format(running, condition) for running in _RUNNING))


async def worker_rows(session: SqlSession, limit: int) -> list[WorkerRow]:
    """Return the processes that the database knows, newest start first.

    One that stopped is removed; one that ended without notice, when another takes its runs.
    """
    return [WorkerRow(*row) for row in await session.rows(WORKER_ROWS, limit)]


async def holders(session: SqlSession, workspace: str | None, limit: int) -> list[HolderRow]:
    """Return who holds running runs of a workspace, or of all (None), most runs first."""
    statement = holders_statement(of_workspace=workspace is not None)
    rows = await session.rows(statement, limit, *([] if workspace is None else [workspace]))
    return [HolderRow(name, bool(is_executor), runs, beat_ms) for name, is_executor, runs, beat_ms in rows]


class SqlReports(SqlBase):
    """Reports."""

    spending = reads(spending)
    top_owners = reads(top)
    agent_budgets = reads(agent_budgets)
    job_blocks = reads(job_blocks)

    job_titles = reads(job_titles)
    worker_rows = reads(worker_rows)
    holders = reads(holders)
