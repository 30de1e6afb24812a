"""Usage, budget blocks and alert events in SQLite, written in the transaction that causes them.

See `wakeful.store.sql.reports` and `wakeful.store.sql.incidents`.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Final

from wakeful.document.guards import MOST_COST
from wakeful.job.start_rules import BudgetOwner
from wakeful.run.usage import (
    MOST_TOKENS,
    OwnerUsage,
    ReservationRequest,
    Reserved,
    Spent,
    budget_changes,
    budget_levels,
    decide_reservation,
    incident_details,
    utc_day,
)
from wakeful.store.internal_jobs import ALERT_JOBS
from wakeful.store.sql import budgets
from wakeful.store.sql.incidents import HAS_ALERTS
from wakeful.store.sqlite.connection import TransactionEvents
from wakeful.store.sqlite.session import SqliteSession

#: the primary keys of runs and reservations, once for each
OWNERS: Final = """
    SELECT o.id, o.workspace, o.agent, coalesce(o.job_id, ''), r.used_tokens, r.used_cost
    FROM runs o LEFT JOIN reservations r ON r.run_id = o.id AND r.attempt = o.attempt
    WHERE o.id IN (SELECT value FROM json_each(?))"""
#: the primary key
ADD_SPENDING: Final = f"""
    INSERT INTO spending (workspace, agent, job, day, tokens, cost) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (workspace, agent, job, day) DO UPDATE
    SET tokens = min(tokens + excluded.tokens, {MOST_TOKENS}),
        cost = min(cost + excluded.cost, {MOST_COST:.1f})"""
#: the primary keys of spending, budget_blocks, workspaces, agents and jobs, once for each
USAGE: Final = """
    SELECT o.workspace, o.agent, o.job, coalesce(s.tokens, 0), coalesce(s.cost, 0.0),
        CASE WHEN o.job <> '' THEN (SELECT work FROM jobs WHERE id = o.job AND deleted_at IS NULL)
            WHEN o.agent <> ''
            THEN (SELECT budget FROM agents WHERE workspace = o.workspace AND name = o.agent)
            ELSE (SELECT budget FROM workspaces WHERE name = o.workspace) END,
        (SELECT group_concat(cap) FROM budget_blocks h
            WHERE h.day = ?2 AND h.workspace = o.workspace AND h.agent = o.agent AND h.job = o.job)
    FROM (SELECT json_extract(value, '$[0]') AS workspace, json_extract(value, '$[1]') AS agent,
            json_extract(value, '$[2]') AS job FROM json_each(?1)) o
    LEFT JOIN spending s
        ON s.workspace = o.workspace AND s.agent = o.agent AND s.job = o.job AND s.day = ?2"""
#: the primary key
ADD_BLOCK: Final = (
    "INSERT INTO budget_blocks (day, workspace, agent, job, cap, most) VALUES (?, ?, ?, ?, ?, ?)"
)
#: the primary key
DELETE_BLOCK: Final = (
    "DELETE FROM budget_blocks WHERE day = ? AND workspace = ? AND agent = ? AND job = ? AND cap = ?"
)

_NOT_ALERT_JOB: Final = f"coalesce(o.job_name, '') NOT IN {ALERT_JOBS}"
#: the primary key of runs, once for each; then `HAS_ALERTS`
MISSED: Final = f"""
    INSERT INTO incidents (at, kind, workspace, agent, job_id, run_id, count, details)
    SELECT ?1, 'missed', o.workspace, o.agent, o.job_id, o.id, o.covers, '{{}}'
    FROM runs o WHERE o.id IN (SELECT value FROM json_each(?2))
        AND o.reason IN ('downtime', 'too_old') AND {_NOT_ALERT_JOB} AND {HAS_ALERTS}"""
#: `HAS_ALERTS`
CAP_REACHED: Final = f"""
    INSERT INTO incidents (at, kind, workspace, agent, job_id, run_id, count, details)
    SELECT ?1, 'budget', o.workspace, o.agent, nullif(?4, ''), NULL, 1, ?5
    FROM (SELECT ?2 AS workspace, ?3 AS agent) o WHERE {HAS_ALERTS}"""


def read_owners(
    db: sqlite3.Connection, run_ids: Sequence[str]
) -> tuple[dict[str, BudgetOwner], dict[str, Spent]]:
    """Return the job of each of these runs, or its agent, and what of runs under a budget is counted."""
    rows = db.execute(OWNERS, (json.dumps(run_ids),)).fetchall()
    owners: dict[str, BudgetOwner] = {}
    counted: dict[str, Spent] = {}
    for run_id, workspace, agent, job, tokens, cost in rows:
        owners[run_id] = BudgetOwner(workspace, agent, job)
        if tokens is not None:
            counted[run_id] = Spent(tokens, cost)
    return owners, counted


async def reserve(
    db: sqlite3.Connection, events: TransactionEvents, now_ms: int, request: ReservationRequest
) -> Reserved:
    session, day = SqliteSession(db), utc_day(now_ms)
    found = await budgets.running_owner(session, request)
    if found is None:
        return Reserved(lost=True)
    owner, running = found
    facts = await budgets.reservation_facts(session, request, owner, day, running=running)
    if facts is None:
        return Reserved(lost=not running)
    decision = decide_reservation(request, facts, day)
    if decision.added != Spent():
        add_usage(db, events, now_ms, {(level, day): decision.added for level in budget_levels(owner)})
    await budgets.write_reservation(session, request.run_id, owner, decision)
    return decision.answer


def add_usage(
    db: sqlite3.Connection,
    events: TransactionEvents,
    now_ms: int,
    usage: Mapping[tuple[BudgetOwner, int], Spent],
) -> None:
    """Add this usage, and block what reaches a cap."""
    db.executemany(ADD_SPENDING, [(*owner, day, *spent) for (owner, day), spent in usage.items()])
    update_blocks(db, events, now_ms, [owner for owner, _ in usage])


def update_blocks(
    db: sqlite3.Connection, events: TransactionEvents, now_ms: int, owners: Sequence[BudgetOwner]
) -> None:
    """Block the owners that have reached a cap today, and unblock the others."""
    day = utc_day(now_ms)
    rows = db.execute(USAGE, (json.dumps(list(dict.fromkeys(owners))), day)).fetchall()
    for change in budget_changes(OwnerUsage(*row) for row in rows):
        events.publish("budget_blocks")
        if change.most is None:
            db.execute(DELETE_BLOCK, (day, *change.owner, change.cap))
            continue
        db.execute(ADD_BLOCK, (day, *change.owner, change.cap, change.most))
        if db.execute(CAP_REACHED, (now_ms, *change.owner, incident_details(change))).rowcount:
            events.publish("incidents")


def note_missed(
    db: sqlite3.Connection, events: TransactionEvents, now_ms: int, run_ids: Sequence[str]
) -> None:
    """Add an alert event for each of these missed ticks."""
    if db.execute(MISSED, (now_ms, json.dumps(list(run_ids)))).rowcount:
        events.publish("incidents")


async def check_budgets(
    db: sqlite3.Connection, events: TransactionEvents, now_ms: int, owners: Sequence[BudgetOwner]
) -> None:
    """Check these budgets, which this transaction has changed."""
    events.publish("budget_blocks")  # also if no cap is reached: replicas must know who has a budget
    update_blocks(db, events, now_ms, owners)
