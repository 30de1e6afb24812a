"""Spending as reports read it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wakeful.store.costs import BlockRow, BudgetRow, DayRange, JobTitle, SpendingRow
from wakeful.store.sql.driver import Session

#: the primary key: a range of days, once for each owner. char(36) is the dollar sign of a path, which would
#: become the mark of a parameter
OF_OWNERS: Final = {
    "postgresql": """
    SELECT s.agent, s.job, s.day, s.tokens, s.cost FROM unnest($2::text[], $3::text[]) o (agent, job)
    JOIN spending s
        ON s.workspace = $1 AND s.agent = o.agent AND s.job = o.job AND s.day BETWEEN $4 AND $5""",
    "sqlite": """
    SELECT s.agent, s.job, s.day, s.tokens, s.cost FROM json_each($2) a
    CROSS JOIN spending s
        ON s.workspace = $1 AND s.agent = a.value
        AND s.job = json_extract($3, char(36) || '[' || a.key || ']') AND s.day BETWEEN $4 AND $5""",
}
#: the primary key of agents: a range of it; that of spending for each
AGENT_BUDGETS: Final = """
    SELECT a.name, a.budget, coalesce(s.tokens, 0), coalesce(s.cost, 0.0) FROM agents a
    LEFT JOIN spending s ON s.workspace = a.workspace AND s.agent = a.name AND s.job = '' AND s.day = $2
    WHERE a.workspace = $1 AND a.budget IS NOT NULL ORDER BY a.name LIMIT $3"""
#: the primary key of budget_blocks: a range of it; that of spending for each
JOB_BLOCKS: Final = """
    SELECT b.agent, b.job, b.cap, b.most, coalesce(s.tokens, 0), coalesce(s.cost, 0.0) FROM budget_blocks b
    LEFT JOIN spending s
        ON s.workspace = b.workspace AND s.agent = b.agent AND s.job = b.job AND s.day = b.day
    WHERE b.day = $1 AND b.workspace = $2 AND b.job <> '' LIMIT $3"""
#: the primary key, once for each
JOB_TITLES: Final = """
    SELECT id::text, name, deleted_at IS NOT NULL, work FROM jobs WHERE id = ANY($1::uuid[])"""

_OF_JOBS: Final = "job <> ''"
_OF_AGENTS: Final = "job = '' AND agent <> ''"


def top_statement(kind: str, days: DayRange, *, jobs: bool, agent: bool) -> str:
    """Return the statement for the most expensive owners of each day.

    `jobs`: jobs rather than agents; `agent`: of one agent. The end of an index for each day, backwards:
    spending_of_jobs, spending_of_agents or spending_of_agent_jobs.
    """
    owners = _OF_JOBS if jobs else _OF_AGENTS
    where = "workspace = $1" + (" AND agent = $4" if agent else "")
    index = "spending_of_agent_jobs" if agent else "spending_of_jobs" if jobs else "spending_of_agents"
    source = f"spending INDEXED BY {index}" if kind == "sqlite" else "spending"
    top = (
        f"SELECT agent, job, tokens, cost FROM {source} WHERE {where} AND {owners} AND day = {{}}"
        " ORDER BY cost DESC, tokens DESC LIMIT $2"
    )
    if kind == "sqlite":  # it has no LATERAL
        each = " UNION ALL ".join(
            f"SELECT * FROM ({top.format(day)})" for day in range(days.first, days.last + 1)
        )
        source = f"({each}) top"
    else:
        source = (
            f"generate_series({days.first}, {days.last}) d (day) "
            f"CROSS JOIN LATERAL ({top.format('d.day')}) top"
        )
    return (
        f"SELECT top.agent, top.job FROM {source} "
        "GROUP BY top.agent, top.job ORDER BY sum(top.cost) DESC, sum(top.tokens) DESC LIMIT $3"
    )


async def top(
    session: Session,
    kind: str,
    workspace: str,
    agent: str | None,
    jobs: bool,
    days: DayRange,
    per_day: int,
    limit: int,
) -> list[tuple[str, str]]:
    """Return the owners that are the most expensive of a day."""
    statement = top_statement(kind, days, jobs=jobs, agent=agent is not None)
    args = [workspace, per_day, limit] if agent is None else [workspace, per_day, limit, agent]
    return [(row[0], row[1]) for row in await session.rows(statement, *args)]


async def spending(
    session: Session, kind: str, workspace: str, owners: Sequence[tuple[str, str]], days: DayRange
) -> list[SpendingRow]:
    """Return what these owners used on each day."""
    agents, jobs = [agent for agent, _ in owners], [job for _, job in owners]
    rows = await session.rows(OF_OWNERS[kind], workspace, agents, jobs, *days)
    return [SpendingRow(*row) for row in rows]


async def agent_budgets(session: Session, workspace: str, day: int, limit: int) -> list[BudgetRow]:
    """Return agents that have a budget, with their use."""
    return [BudgetRow(*row) for row in await session.rows(AGENT_BUDGETS, workspace, day, limit)]


async def job_blocks(session: Session, workspace: str, day: int, limit: int) -> list[BlockRow]:
    """Return the budgets of jobs that are used up."""
    return [BlockRow(*row) for row in await session.rows(JOB_BLOCKS, day, workspace, limit)]


async def job_titles(session: Session, job_ids: Sequence[str]) -> list[JobTitle]:
    """Return the names of these jobs."""
    rows = await session.rows(JOB_TITLES, list(job_ids))
    return [JobTitle(row[0], row[1], bool(row[2]), row[3]) for row in rows]
