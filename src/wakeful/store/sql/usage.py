"""Usage, budget blocks and alert events, written in the transaction that causes them.

See `wakeful.store.sql.budgets`, `wakeful.store.sql.reports` and `wakeful.store.sql.incidents`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from wakeful.document.guards import MOST_COST
from wakeful.job.start_rules import BudgetOwner
from wakeful.run.usage import MOST_TOKENS, OwnerUsage, Spent, budget_changes, incident_details, utc_day
from wakeful.store.changelog import BUDGET_EXHAUSTED, TransactionEvents, block_id
from wakeful.store.internal_jobs import ALERT_JOBS
from wakeful.store.sql.driver import SqlSession
from wakeful.store.sql.incidents import HAS_ALERTS

#: the primary key: a range of it for each workspace
ANY_CAP: Final = "SELECT day FROM budget_blocks WHERE day = $1 AND workspace = ANY($2::text[]) LIMIT 1"
#: the primary keys of runs and reservations, once for each
OWNERS: Final = """
    SELECT o.id::text, o.workspace, o.agent, coalesce(o.job_id::text, ''), r.used_tokens, r.used_cost
    FROM runs o LEFT JOIN reservations r ON r.run_id = o.id AND r.attempt = o.attempt
    WHERE o.id = ANY($1::uuid[])"""
#: the primary key, once for each, in the order given
ADD_SPENDING: Final = f"""
    INSERT INTO spending AS s (workspace, agent, job, day, tokens, cost)
    SELECT u.workspace, u.agent, u.job, u.day, u.tokens, u.cost
    FROM unnest($1::text[], $2::text[], $3::text[], $4::integer[], $5::bigint[], $6::float8[])
        u (workspace, agent, job, day, tokens, cost)
    WHERE true ON CONFLICT (workspace, agent, job, day) DO UPDATE
    SET tokens = least(s.tokens + EXCLUDED.tokens, {MOST_TOKENS}),
        cost = least(s.cost + EXCLUDED.cost, {MOST_COST:.1f})"""
#: the primary key, once for each, in the order given. Waits for transactions that add to this spending, and
#: they wait for this one
LOCK_SPENDING: Final = """
    INSERT INTO spending AS s (workspace, agent, job, day, tokens, cost)
    SELECT o.workspace, o.agent, o.job, $4::integer, 0, 0
    FROM unnest($1::text[], $2::text[], $3::text[]) o (workspace, agent, job)
    WHERE true ON CONFLICT (workspace, agent, job, day) DO UPDATE SET tokens = s.tokens"""
#: the primary key
DELETE_UNUSED: Final = """
    DELETE FROM spending
    WHERE workspace = $1 AND agent = $2 AND job = $3 AND day = $4 AND tokens = 0 AND cost = 0"""
#: the primary keys of spending, budget_blocks, workspaces, agents and jobs, once for each
USAGE: Final = """
    SELECT o.workspace, o.agent, o.job, coalesce(s.tokens, 0), coalesce(s.cost, 0.0),
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
    ON CONFLICT DO NOTHING"""
#: the primary key
DELETE_BLOCK: Final = """
    DELETE FROM budget_blocks WHERE day = $1 AND workspace = $2 AND agent = $3 AND job = $4 AND cap = $5"""
_NEW: Final = "INSERT INTO incidents (at, kind, workspace, agent, job_id, run_id, count, details)"
#: the primary key of runs, once for each; then `HAS_ALERTS`
MISSED: Final = f"""{_NEW}
    SELECT $1::timestamptz, 'missed', o.workspace, o.agent, o.job_id, o.id, o.covers, '{{}}'
    FROM runs o WHERE o.id = ANY($2::uuid[]) AND o.reason IN ('downtime', 'too_old')
        AND coalesce(o.job_name, '') NOT IN {ALERT_JOBS} AND {HAS_ALERTS}"""
#: `HAS_ALERTS`
CAP_REACHED: Final = f"""{_NEW}
    SELECT $1::timestamptz, 'budget', o.workspace, o.agent, nullif($4, '')::uuid, NULL, 1, $5
    FROM (SELECT $2::text AS workspace, $3::text AS agent) o WHERE {HAS_ALERTS}"""

#: the primary key of runs, once for each; then `HAS_ALERTS`
RUNS_WAIT: Final = f"""{_NEW}
    SELECT $1::timestamptz, 'inbox', o.workspace, o.agent, o.job_id, o.id, 1, '{{}}'
    FROM runs o WHERE o.id = ANY($2::uuid[]) AND {HAS_ALERTS}"""
#: the primary key of jobs, once for each; then `HAS_ALERTS`
JOBS_WAIT: Final = f"""{_NEW}
    SELECT $1::timestamptz, 'inbox', o.workspace, o.agent, o.id, NULL, 1, '{{}}'
    FROM jobs o WHERE o.id = ANY($2::uuid[]) AND {HAS_ALERTS}"""


async def note_waiting_runs(
    session: SqlSession, events: TransactionEvents, now_ms: int, ids: Sequence[str]
) -> None:
    """Record that these runs wait for a person to confirm them, for alerts."""
    await _note_waiting(session, events, RUNS_WAIT, now_ms, ids)


async def note_waiting_jobs(
    session: SqlSession, events: TransactionEvents, now_ms: int, ids: Sequence[str]
) -> None:
    """Record that these jobs wait for approval: in the changelog, and for alerts."""
    events.record_waiting("approval", ids)
    await _note_waiting(session, events, JOBS_WAIT, now_ms, ids)


async def _note_waiting(
    session: SqlSession, events: TransactionEvents, statement: str, now_ms: int, ids: Sequence[str]
) -> None:
    if ids and await session.execute(statement, now_ms, list(ids)):
        events.publish("incidents")


async def read_owners(
    session: SqlSession, run_ids: Sequence[str]
) -> tuple[dict[str, BudgetOwner], dict[str, Spent]]:
    """Return the job of each of these runs, or its agent, and what of runs under a budget is counted."""
    owners: dict[str, BudgetOwner] = {}
    counted: dict[str, Spent] = {}
    for run_id, workspace, agent, job, tokens, cost in await session.rows(OWNERS, list(run_ids)):
        owners[run_id] = BudgetOwner(workspace, agent, job)
        if tokens is not None:
            counted[run_id] = Spent(tokens, cost)
    return owners, counted


async def add_usage(
    session: SqlSession,
    events: TransactionEvents,
    now_ms: int,
    usage: Mapping[tuple[BudgetOwner, int], Spent],
) -> None:
    """Add this usage, and block what reaches a cap.

    The budgets are checked after the addition: only then are the totals known, which other transactions add
    to as well.
    """
    rows = [(*owner, day, *spent) for (owner, day), spent in usage.items()]
    await session.execute(ADD_SPENDING, *map(list, zip(*rows, strict=True)))
    await update_blocks(session, events, now_ms, [owner for owner, _ in usage])


class CapReached(Exception):
    """A cap of a workspace, or of an agent or a job of it, is reached: whether it applies must be read."""


async def check_caps(session: SqlSession, day: int, workspaces: Iterable[str]) -> None:
    """Raise CapReached if any cap of these workspaces is reached on that day."""
    if await session.value(ANY_CAP, day, list(workspaces)) is not None:
        raise CapReached


async def check_budgets(
    session: SqlSession, events: TransactionEvents, now_ms: int, owners: Sequence[BudgetOwner]
) -> None:
    """Check these budgets, which this transaction has changed.

    An outcome that is written meanwhile has read the old caps: it holds the row of its spending, which is
    locked here. So its block is visible then, or it reads the new caps.
    """
    events.publish("budget_blocks")  # also if no cap is reached: replicas must know who has a budget
    day, checked = utc_day(now_ms), sorted(set(owners))
    await session.execute(LOCK_SPENDING, *map(list, zip(*checked, strict=True)), day)
    await update_blocks(session, events, now_ms, checked)
    await session.execute_many(DELETE_UNUSED, [(*owner, day) for owner in checked])


async def update_blocks(
    session: SqlSession, events: TransactionEvents, now_ms: int, owners: Sequence[BudgetOwner]
) -> None:
    """Block the owners that have reached a cap today, and unblock the others."""
    day = utc_day(now_ms)
    rows = await session.rows(USAGE, *map(list, zip(*sorted(set(owners)), strict=True)), day)
    for change in budget_changes(OwnerUsage(*row) for row in rows):
        events.publish("budget_blocks")
        if change.most is None:
            await session.execute(DELETE_BLOCK, day, *change.owner, change.cap)
        elif await session.execute(ADD_BLOCK, day, *change.owner, change.cap, change.most):
            events.record_fact(BUDGET_EXHAUSTED, block_id(day, *change.owner, change.cap))
            if await session.execute(CAP_REACHED, now_ms, *change.owner, incident_details(change)):
                events.publish("incidents")
