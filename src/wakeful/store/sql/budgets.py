"""Spending, budget blocks, alert events and cool-downs. Each database adds spending in its own way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from wakeful.alert_rules import Alert, AlertEvent, Recipients
from wakeful.run import NewRun
from wakeful.start_rules import BudgetBlock, BudgetOwner
from wakeful.store.sql.alert_statements import RECIPIENT_COLUMNS, recipient_joins
from wakeful.store.sql.driver import Session
from wakeful.usage import Spent, capped, day_of

_RECIPIENTS: Final = AlertEvent._fields.index("recipients")

#: the primary key
SPENT: Final = """
    SELECT tokens, cost FROM spending WHERE workspace = $1 AND agent = $2 AND job = $3 AND day = $4"""
#: the primary key: a range of it
BLOCKS: Final = "SELECT day, workspace, agent, job, cap, most FROM budget_blocks WHERE day = $1"


#: the primary key, in its order; for each, those of jobs, agents and workspaces, and twice jobs_name
EVENTS: Final = f"""
    SELECT i.id, i.at, i.kind, i.workspace, i.agent, i.job_id::text, i.run_id::text, i.count, i.details,
        (SELECT name FROM jobs WHERE id = i.job_id), {RECIPIENT_COLUMNS}
    FROM incidents i {recipient_joins()}
    ORDER BY i.id LIMIT $1 FOR UPDATE OF i SKIP LOCKED"""
#: the primary key, once for each
DROP_EVENTS: Final = "DELETE FROM incidents WHERE id = ANY($1::bigint[])"
#: the primary key; writes nothing while the cool-down runs
START_COOLDOWN: Final = """
    INSERT INTO alert_cooldowns AS t (workspace, subject, kind, at) VALUES ($1, $2, $3, $4)
    ON CONFLICT (workspace, subject, kind) DO UPDATE SET at = EXCLUDED.at WHERE t.at <= $5"""

#: spending_day
PRUNE_SPENDING: Final = "DELETE FROM spending WHERE day < $1"
#: the primary key: its beginning
PRUNE_BLOCKS: Final = "DELETE FROM budget_blocks WHERE day < $1"
#: all of it: it has a row for each job or cap, and kind
PRUNE_COOLDOWNS: Final = "DELETE FROM alert_cooldowns WHERE at < $1"


async def spent(session: Session, owner: BudgetOwner, day: int) -> Spent:
    """Return what was used on that day."""
    row = await session.row(SPENT, *owner, day)
    return Spent() if row is None else capped(*row)


async def budget_blocks(session: Session, day: int) -> list[BudgetBlock]:
    """Return the caps that are reached on that day."""
    return [BudgetBlock(*row) for row in await session.rows(BLOCKS, day)]


async def take_alert_events(
    session: Session, now_ms: int, limit: int, judge: Callable[[AlertEvent], Sequence[Alert]]
) -> tuple[list[AlertEvent], list[NewRun]]:
    """Remove events. Returns them, and the runs of the alerts whose cool-down is over."""
    rows = map(tuple, await session.rows(EVENTS, limit))
    events = [AlertEvent._make((*row[:_RECIPIENTS], Recipients(*row[_RECIPIENTS:]))) for row in rows]
    if not events:
        return [], []
    alerts: dict[tuple[str, str, str], Alert] = {}
    for event in events:
        for alert in judge(event):
            alerts.setdefault((alert.workspace, alert.subject, alert.kind), alert)
    runs = [
        run
        for key, alert in sorted(alerts.items())  # cool-downs are locked in this order
        if await session.execute(START_COOLDOWN, *key, now_ms, now_ms - alert.cooldown_ms)
        for run in alert.runs
    ]
    await session.execute(DROP_EVENTS, [event.id for event in events])
    return events, runs


async def prune(session: Session, before_ms: int) -> None:
    """Delete spending, blocks and cool-downs from before then."""
    await session.execute(PRUNE_SPENDING, day_of(before_ms))
    await session.execute(PRUNE_BLOCKS, day_of(before_ms))
    await session.execute(PRUNE_COOLDOWNS, before_ms)
