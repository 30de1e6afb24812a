"""Spending, budget blocks, incidents and cool-downs. Each database adds spending in its own way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from wakeful.alert_rules import Alert, Incident
from wakeful.run import NewRun
from wakeful.start_rules import BudgetBlock, BudgetOwner
from wakeful.store.alerts import (
    AGENT_ALERTS,
    AGENT_CHANNEL,
    WORKSPACE_AGENT,
    WORKSPACE_ALERTS,
    WORKSPACE_CHANNEL,
)
from wakeful.store.sql.driver import Session
from wakeful.usage import Spent, capped, day_of

#: the primary key
SPENT: Final = """
    SELECT tokens, cost FROM spending WHERE workspace = $1 AND agent = $2 AND job = $3 AND day = $4"""
#: the primary key: a range of it
BLOCKS: Final = "SELECT day, workspace, agent, job, cap, most FROM budget_blocks WHERE day = $1"


def _alert_job(alias: str, of_agent: str, of_workspace: str) -> str:
    return f"""
    LEFT JOIN jobs {alias} ON {alias}.workspace = i.workspace AND {alias}.deleted_at IS NULL
        AND {alias}.agent = CASE WHEN a.alerts IS NULL THEN '{WORKSPACE_AGENT}' ELSE i.agent END
        AND {alias}.name = CASE WHEN a.alerts IS NULL THEN '{of_workspace}' ELSE '{of_agent}' END"""


#: the primary key, in its order; for each, those of runs, jobs, agents and workspaces, and twice jobs_name
INCIDENTS: Final = f"""
    SELECT i.id, i.at, i.kind, i.workspace, i.agent, i.job_id::text, i.run_id::text, i.count, i.details,
        (SELECT name FROM jobs WHERE id = i.job_id), (SELECT error FROM runs WHERE id = i.run_id),
        coalesce(a.alerts, w.alerts), s.id::text, s.agent, s.name, s.work,
        c.id::text, c.agent, c.name, c.work
    FROM incidents i LEFT JOIN agents a ON a.workspace = i.workspace AND a.name = i.agent
    LEFT JOIN workspaces w ON w.name = i.workspace
    {_alert_job("s", AGENT_ALERTS, WORKSPACE_ALERTS)}
    {_alert_job("c", AGENT_CHANNEL, WORKSPACE_CHANNEL)}
    ORDER BY i.id LIMIT $1 FOR UPDATE OF i SKIP LOCKED"""
#: the primary key, once for each
DROP_INCIDENTS: Final = "DELETE FROM incidents WHERE id = ANY($1::bigint[])"
#: the primary key; writes nothing while the cool-down runs
START_COOLDOWN: Final = """
    INSERT INTO alert_cooldowns AS t (workspace, subject, kind, at) VALUES ($1, $2, $3, $4)
    ON CONFLICT (workspace, subject, kind) DO UPDATE SET at = EXCLUDED.at WHERE t.at <= $5"""

#: spending_day
PRUNE_SPENDING: Final = "DELETE FROM spending WHERE day < $1"
#: the primary key: its beginning
PRUNE_BLOCKS: Final = "DELETE FROM budget_blocks WHERE day < $1"
#: all of it: it has a row for each job with incidents, and kind
PRUNE_COOLDOWNS: Final = "DELETE FROM alert_cooldowns WHERE at < $1"


async def spent(session: Session, owner: BudgetOwner, day: int) -> Spent:
    """Return what was used on that day."""
    row = await session.row(SPENT, *owner, day)
    return Spent() if row is None else capped(*row)


async def budget_blocks(session: Session, day: int) -> list[BudgetBlock]:
    """Return the caps that are reached on that day."""
    return [BudgetBlock(*row) for row in await session.rows(BLOCKS, day)]


async def take_incidents(
    session: Session, now_ms: int, limit: int, judge: Callable[[Incident], Sequence[Alert]]
) -> tuple[int, list[NewRun]]:
    """Remove incidents. Returns how many, and the runs of the alerts whose cool-down is over."""
    incidents = [Incident(*row) for row in await session.rows(INCIDENTS, limit)]
    if not incidents:
        return 0, []
    alerts: dict[tuple[str, str, str], Alert] = {}
    for incident in incidents:
        for alert in judge(incident):
            alerts.setdefault((alert.workspace, alert.subject, alert.kind), alert)
    runs = [
        run
        for key, alert in sorted(alerts.items())  # cool-downs are locked in this order
        if await session.execute(START_COOLDOWN, *key, now_ms, now_ms - alert.cooldown_ms)
        for run in alert.runs
    ]
    await session.execute(DROP_INCIDENTS, [incident.id for incident in incidents])
    return len(incidents), runs


async def prune(session: Session, before_ms: int) -> None:
    """Delete spending, blocks and cool-downs from before then."""
    await session.execute(PRUNE_SPENDING, day_of(before_ms))
    await session.execute(PRUNE_BLOCKS, day_of(before_ms))
    await session.execute(PRUNE_COOLDOWNS, before_ms)
