"""Usage, budget blocks and alert events in PostgreSQL, written in the transaction that causes them.

See `wakeful.store.sql.reports` and `wakeful.store.sql.incidents`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

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
from wakeful.store.postgres.session import PostgresSession
from wakeful.store.sql import budgets
from wakeful.store.sql.incidents import HAS_ALERTS

if TYPE_CHECKING:
    from wakeful.store.postgres.connection import Db, TransactionEvents

#: the primary keys of runs and reservations, once for each
OWNERS: Final = """
    SELECT o.id::text, o.workspace, o.agent, coalesce(o.job_id::text, ''), r.used_tokens, r.used_cost
    FROM runs o LEFT JOIN reservations r ON r.run_id = o.id AND r.attempt = o.attempt
    WHERE o.id = ANY($1::uuid[])"""
#: no table
LOCK_BUDGETS: Final = "SELECT pg_advisory_xact_lock(hashtextextended('wakeful budgets ' || $1, 0))"
#: the primary key, once for each, in the order given
ADD_SPENDING: Final = f"""
    INSERT INTO spending AS s (workspace, agent, job, day, tokens, cost)
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::integer[], $5::bigint[], $6::float8[])
    ON CONFLICT (workspace, agent, job, day) DO UPDATE
    SET tokens = least(s.tokens + EXCLUDED.tokens, {MOST_TOKENS}),
        cost = least(s.cost + EXCLUDED.cost, {MOST_COST:.1f})"""
#: the primary key, once for each, in the order given. Waits for transactions that add to this spending, and
#: they wait for this one
LOCK_SPENDING: Final = """
    INSERT INTO spending AS s (workspace, agent, job, day, tokens, cost)
    SELECT workspace, agent, job, $4, 0, 0 FROM unnest($1::text[], $2::text[], $3::text[])
        o (workspace, agent, job)
    ON CONFLICT (workspace, agent, job, day) DO UPDATE SET tokens = s.tokens"""
#: the primary key, once for each
DELETE_UNUSED: Final = """
    DELETE FROM spending s USING unnest($1::text[], $2::text[], $3::text[]) o (workspace, agent, job)
    WHERE s.workspace = o.workspace AND s.agent = o.agent AND s.job = o.job AND s.day = $4
        AND s.tokens = 0 AND s.cost = 0"""
#: the primary keys of spending, budget_blocks, workspaces, agents and jobs, once for each
USAGE: Final = """
    SELECT o.workspace, o.agent, o.job, coalesce(s.tokens, 0), coalesce(s.cost, 0),
        CASE WHEN o.job <> ''
            THEN (SELECT work FROM jobs WHERE id = nullif(o.job, '')::uuid AND deleted_at IS NULL)
            WHEN o.agent <> ''
            THEN (SELECT budget FROM agents WHERE workspace = o.workspace AND name = o.agent)
            ELSE (SELECT budget FROM workspaces WHERE name = o.workspace) END,
        (SELECT string_agg(cap, ',') FROM budget_blocks h
            WHERE h.day = $4 AND h.workspace = o.workspace AND h.agent = o.agent AND h.job = o.job)
    FROM unnest($1::text[], $2::text[], $3::text[]) o (workspace, agent, job)
    LEFT JOIN spending s
        ON s.workspace = o.workspace AND s.agent = o.agent AND s.job = o.job AND s.day = $4"""
#: the primary key; writes nothing if another transaction has added the block
ADD_BLOCK: Final = """
    INSERT INTO budget_blocks (day, workspace, agent, job, cap, most) VALUES ($1, $2, $3, $4, $5, $6)
    ON CONFLICT DO NOTHING RETURNING true"""
#: the primary key
DELETE_BLOCK: Final = """
    DELETE FROM budget_blocks WHERE day = $1 AND workspace = $2 AND agent = $3 AND job = $4 AND cap = $5"""

_NOT_ALERT_JOB: Final = f"coalesce(o.job_name, '') NOT IN {ALERT_JOBS}"
_NEW: Final = "INSERT INTO incidents (at, kind, workspace, agent, job_id, run_id, count, details)"
#: the primary key of runs, once for each; then `HAS_ALERTS`
MISSED: Final = f"""
    WITH noted AS (
        {_NEW}
        SELECT $1, 'missed', o.workspace, o.agent, o.job_id, o.id, o.covers, '{{}}'
        FROM runs o WHERE o.id = ANY($2::uuid[])
            AND o.reason IN ('downtime', 'too_old') AND {_NOT_ALERT_JOB} AND {HAS_ALERTS} RETURNING 1)
    SELECT EXISTS (SELECT FROM noted)"""
#: `HAS_ALERTS`
CAP_REACHED: Final = f"""
    WITH noted AS (
        {_NEW}
        SELECT $1, 'budget', o.workspace, o.agent, nullif($4, '')::uuid, NULL, 1, $5
        FROM (SELECT $2::text AS workspace, $3::text AS agent) o WHERE {HAS_ALERTS} RETURNING 1)
    SELECT EXISTS (SELECT FROM noted)"""


async def read_owners(db: Db, run_ids: Sequence[str]) -> tuple[dict[str, BudgetOwner], dict[str, Spent]]:
    """Return the job of each of these runs, or its agent, and what of runs under a budget is counted."""
    rows = await db.fetch(OWNERS, list(run_ids))
    owners: dict[str, BudgetOwner] = {}
    counted: dict[str, Spent] = {}
    for run_id, workspace, agent, job, tokens, cost in rows:
        owners[run_id] = BudgetOwner(workspace, agent, job)
        if tokens is not None:
            counted[run_id] = Spent(tokens, cost)
    return owners, counted


async def reserve(db: Db, events: TransactionEvents, now_ms: int, request: ReservationRequest) -> Reserved:
    """Reserve what the next step of an attempt may use. See `Store.reserve`.

    The lock on the budgets of the workspace comes before the locks on rows: nobody waits for it with one.
    """
    await db.execute(LOCK_BUDGETS, request.workspace)
    session, day = PostgresSession(db), utc_day(now_ms)
    found = await budgets.running_owner(session, request)
    if found is None:
        return Reserved(lost=True)
    owner, running = found
    facts = await budgets.reservation_facts(session, request, owner, day, running=running)
    if facts is None:
        return Reserved(lost=not running)
    decision = decide_reservation(request, facts, day)
    if decision.added != Spent():
        usage = {(level, day): decision.added for level in sorted(budget_levels(owner))}
        await add_usage(db, events, now_ms, usage)
    await budgets.write_reservation(session, request.run_id, owner, decision)
    return decision.answer


async def add_usage(
    db: Db, events: TransactionEvents, now_ms: int, usage: Mapping[tuple[BudgetOwner, int], Spent]
) -> None:
    """Add this usage, and block what reaches a cap.

    The budgets are checked after the addition: only then are the totals known, which other transactions add
    to as well.
    """
    rows = [(*owner, day, *spent) for (owner, day), spent in usage.items()]
    await db.execute(ADD_SPENDING, *map(list, zip(*rows, strict=True)))
    await _update_blocks(db, events, now_ms, [owner for owner, _ in usage])


async def check_budgets(
    db: Db, events: TransactionEvents, now_ms: int, owners: Sequence[BudgetOwner]
) -> None:
    """Check these budgets, which this transaction has changed.

    An outcome that is written meanwhile has read the old caps: it holds the row of its spending, which is
    locked here. So its block is visible then, or it reads the new caps.
    """
    events.publish("budget_blocks")  # also if no cap is reached: replicas must know who has a budget
    day = utc_day(now_ms)
    columns = [*map(list, zip(*sorted(set(owners)), strict=True))]
    await db.execute(LOCK_SPENDING, *columns, day)
    await _update_blocks(db, events, now_ms, owners)
    await db.execute(DELETE_UNUSED, *columns, day)


async def _update_blocks(
    db: Db, events: TransactionEvents, now_ms: int, owners: Sequence[BudgetOwner]
) -> None:
    """Block the owners that have reached a cap today, and unblock the others."""
    day = utc_day(now_ms)
    columns = map(list, zip(*sorted(set(owners)), strict=True))
    rows = await db.fetch(USAGE, *columns, day)
    for change in budget_changes(OwnerUsage(*row) for row in rows):
        events.publish("budget_blocks")
        if change.most is None:
            await db.execute(DELETE_BLOCK, day, *change.owner, change.cap)
        elif await db.fetchval(ADD_BLOCK, day, *change.owner, change.cap, change.most) and await db.fetchval(
            CAP_REACHED, now_ms, *change.owner, incident_details(change)
        ):
            events.publish("incidents")


async def note_missed(db: Db, events: TransactionEvents, now_ms: int, run_ids: Sequence[str]) -> None:
    """Add an alert event for each of these missed ticks."""
    if await db.fetchval(MISSED, now_ms, list(run_ids)):
        events.publish("incidents")
