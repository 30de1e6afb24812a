"""Budgets and cost: what runs used per day, and which caps are reached.

- `spending`: what runs used (`Finished.usage`) per day (UTC, counted from 1970) of a job, an agent and a
  workspace. The transaction of an outcome adds to it, whether or not the attempt succeeded. An owner is an
  agent and a job of a workspace; the job '' stands for the whole agent, the agent '' for the whole workspace.
- `budget_blocks`: caps that are reached. Budgets belong to jobs (in their `work`), agents and workspaces.
  Whenever use is added, or a budget changes, the budgets concerned are checked in the same transaction.
  Topic: `budget_blocks`.
- `reservations`: what running attempts under a budget have reserved, and what they have used so far.

Alert events and cool-downs: `incidents`. What runs used: `usage`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from wakeful.job.start_rules import BudgetBlock, BudgetOwner
from wakeful.run.alerts import SKEW_MS, Alert, AlertEvent
from wakeful.run.run import NewRun
from wakeful.run.usage import (
    Ledger,
    ReservationDecision,
    ReservationFacts,
    ReservationRequest,
    Reserved,
    Spent,
    add,
    budget_from_text,
    budget_levels,
    decide_reservation,
    limit_usage,
    utc_day,
)
from wakeful.store.changelog import TransactionEvents
from wakeful.store.sql import incidents
from wakeful.store.sql.base import SqlBase, publishes, reads, writes
from wakeful.store.sql.driver import SqlSession, urgent
from wakeful.store.sql.incidents import RECIPIENT_COLUMNS, read_recipients, recipient_joins
from wakeful.store.sql.usage import add_usage

_RECIPIENTS: Final = AlertEvent._fields.index("recipients")

#: the primary key
SPENT: Final = """
    SELECT tokens, cost FROM spending WHERE workspace = $1 AND agent = $2 AND job = $3 AND day = $4"""
#: the primary key: a range of it
BLOCKS: Final = "SELECT day, workspace, agent, job, cap, most FROM budget_blocks WHERE day = $1"
#: the primary key: a range of it
BLOCKS_OF: Final = f"{BLOCKS} AND workspace = $2"
#: workspaces_budget and agents_budget, all of them
BUDGET_OWNERS: Final = """
    SELECT name, '' FROM workspaces /*+ INDEXED BY workspaces_budget */ WHERE budget IS NOT NULL
    UNION ALL SELECT workspace, name FROM agents /*+ INDEXED BY agents_budget */ WHERE budget IS NOT NULL"""
#: the primary key of workspaces; agents_budget or the primary key, once for each
BUDGET_OWNERS_OF: Final = """
    SELECT name, '' FROM workspaces WHERE name = $1 AND budget IS NOT NULL
    UNION ALL SELECT workspace, name FROM agents
    WHERE workspace = $1 AND name = ANY($2::text[]) AND budget IS NOT NULL"""
#: the primary key
RUNNING: Final = """
    SELECT coalesce(job_id::text, ''), state FROM runs
    WHERE id = $1 AND attempt = $2 AND state IN ('running', 'cancelled') FOR NO KEY UPDATE"""
#: the primary keys of workspaces, agents and jobs
BUDGETS: Final = """
    SELECT (SELECT work FROM jobs WHERE id = nullif($3, '')::uuid AND deleted_at IS NULL),
        (SELECT budget FROM agents WHERE workspace = $1 AND name = $2),
        (SELECT budget FROM workspaces WHERE name = $1)"""
#: the primary key of spending, up to three times
SPENT_BY_LEVEL: Final = """
    SELECT agent, job, tokens, cost FROM spending
    WHERE workspace = $1 AND agent IN ('', $2) AND job IN ('', $3) AND day = $4"""
#: reservations_held: those of a workspace; the primary key of runs for each. A run that awaits its
#: verification has ended its work. The sum may exceed a whole number of the database
RESERVED: Final = """
    SELECT r.agent, r.job, sum(r.tokens * 1.0)::float8, sum(r.cost) FROM reservations r
    /*+ INDEXED BY reservations_held */
    JOIN runs o ON o.id = r.run_id AND o.attempt = r.attempt AND o.state = 'running'
        AND NOT (o.awaiting_callback AND o.due_at IS NULL)
    WHERE r.workspace = $1 AND (r.tokens > 0 OR r.cost > 0) AND r.run_id <> $2
    GROUP BY r.agent, r.job"""
#: the primary key
LEDGER: Final = """
    SELECT attempt, earlier_tokens, earlier_cost, used_tokens, used_cost FROM reservations
    WHERE run_id = $1"""
#: the primary key
WRITE_RESERVATION: Final = """
    INSERT INTO reservations (run_id, attempt, workspace, agent, job, earlier_tokens, earlier_cost,
        used_tokens, used_cost, tokens, cost) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
    ON CONFLICT (run_id) DO UPDATE SET attempt = EXCLUDED.attempt,
        earlier_tokens = EXCLUDED.earlier_tokens, earlier_cost = EXCLUDED.earlier_cost,
        used_tokens = EXCLUDED.used_tokens, used_cost = EXCLUDED.used_cost,
        tokens = EXCLUDED.tokens, cost = EXCLUDED.cost"""
#: the primary key
SETTLE: Final = """
    UPDATE reservations SET used_tokens = $2, used_cost = $3, tokens = 0, cost = 0 WHERE run_id = $1"""
#: all of it, and the primary key of runs for each: it has a row for each run under a budget
PRUNE_RESERVATIONS: Final = """
    DELETE FROM reservations WHERE NOT EXISTS (SELECT 1 FROM runs
        WHERE id = reservations.run_id AND state IN ('pending', 'running', 'retrying'))"""

#: the primary key, in its order; for each, those of jobs, agents and workspaces, and twice jobs_name
EVENTS: Final = f"""
    SELECT i.id, i.at, i.kind, i.workspace, i.agent, i.job_id::text, i.run_id::text, i.count, i.details,
        (SELECT name FROM jobs WHERE id = i.job_id), {RECIPIENT_COLUMNS}
    FROM incidents i {recipient_joins()}
    ORDER BY i.id LIMIT $1 FOR UPDATE OF i SKIP LOCKED"""
#: the primary key, once for each
DROP_EVENTS: Final = "DELETE FROM incidents WHERE id = ANY($1::bigint[])"
#: the primary key; writes nothing while the cool-down runs. One of the future was written by a wrong clock
START_COOLDOWN: Final = """
    INSERT INTO alert_cooldowns AS t (workspace, subject, kind, at) VALUES ($1, $2, $3, $4)
    ON CONFLICT (workspace, subject, kind) DO UPDATE SET at = EXCLUDED.at WHERE t.at <= $5 OR t.at > $6"""

#: spending_day
PRUNE_SPENDING: Final = "DELETE FROM spending WHERE day < $1"
#: the primary key: its beginning
PRUNE_BLOCKS: Final = "DELETE FROM budget_blocks WHERE day < $1"
#: all of it: it has a row for each job or cap, and kind
PRUNE_COOLDOWNS: Final = "DELETE FROM alert_cooldowns WHERE at < $1"


async def read_spent(session: SqlSession, owner: BudgetOwner, day: int) -> Spent:
    """Return what was used on that day."""
    row = await session.row(SPENT, *owner, day)
    return Spent() if row is None else limit_usage(*row)


async def budget_blocks(session: SqlSession, day: int, workspace: str | None = None) -> list[BudgetBlock]:
    """Return the caps that are reached on that day; of one workspace, or of all."""
    rows = await (session.rows(BLOCKS, day) if workspace is None else session.rows(BLOCKS_OF, day, workspace))
    return [BudgetBlock(*row) for row in rows]


async def budget_owners(session: SqlSession) -> set[BudgetOwner]:
    """Return all agents and workspaces that have a budget."""
    return {BudgetOwner(*row) for row in await session.rows(BUDGET_OWNERS)}


async def find_budget_owners(session: SqlSession, workspace: str, agents: Sequence[str]) -> set[BudgetOwner]:
    """Return those of a workspace and these agents of it that have a budget."""
    return {BudgetOwner(*row) for row in await session.rows(BUDGET_OWNERS_OF, workspace, list(agents))}


async def running_owner(session: SqlSession, request: ReservationRequest) -> tuple[BudgetOwner, bool] | None:
    """Lock the run. Return its job, or its agent if it has no job, and whether the attempt is running.

    If it is not, it was stopped; None: it has ended otherwise.
    """
    row = await session.row(RUNNING, request.run_id, request.attempt)
    if row is None:
        return None
    job, state = row
    return BudgetOwner(request.workspace, request.agent, job), state == "running"


async def reservation_facts(
    session: SqlSession, request: ReservationRequest, owner: BudgetOwner, day: int, *, running: bool
) -> ReservationFacts | None:
    """Return what a reservation depends on; None if the run has no budget.

    None also if the attempt was stopped, and what it had reserved is not known any more.
    """
    texts = await session.row(BUDGETS, *owner)
    assert texts is not None
    work, of_agent, of_workspace = texts
    levels = budget_levels(owner)
    budgets = {
        level: caps
        for level, text in zip(levels, (work, of_agent, of_workspace)[-len(levels) :], strict=True)
        if (caps := budget_from_text(text, of_job=bool(level.job)))
    }
    if not budgets:
        return None
    # Before what was used: an outcome that is written in between is then counted twice, and never not at all.
    reserved: dict[BudgetOwner, Spent] = {}
    for agent, job, tokens, cost in await session.rows(RESERVED, owner.workspace, request.run_id):
        for level in budget_levels(BudgetOwner(owner.workspace, agent, job)):
            reserved[level] = add(reserved.get(level, Spent()), limit_usage(tokens, cost))
    spent = {
        BudgetOwner(owner.workspace, agent, job): limit_usage(tokens, cost)
        for agent, job, tokens, cost in await session.rows(SPENT_BY_LEVEL, *owner, day)
    }
    row = await session.row(LEDGER, request.run_id)
    ledger: Ledger | None = None
    if row is not None:
        attempt, earlier_tokens, earlier_cost, tokens, cost = row
        ledger = Ledger(attempt, Spent(earlier_tokens, earlier_cost), Spent(tokens, cost))
    if not running and (ledger is None or ledger.attempt != request.attempt):
        return None
    return ReservationFacts(budgets, spent, reserved, ledger, running)


async def write_reservation(
    session: SqlSession, run_id: str, owner: BudgetOwner, decision: ReservationDecision
) -> None:
    """Write what a run has used and reserved."""
    ledger = decision.ledger
    await session.execute(
        WRITE_RESERVATION, run_id, ledger.attempt, *owner, *ledger.earlier, *ledger.used, *decision.reserved
    )


async def reserve(
    session: SqlSession, events: TransactionEvents, now_ms: int, request: ReservationRequest
) -> Reserved:
    """Reserve what the next step of a running attempt may use, and count what it has used so far.

    Reservations of one workspace are made one after another. A reservation ends when the run ends, is lost or
    is tried again. Without a budget nothing is written. Of an attempt that was stopped, what it has used is
    counted.

    The lock on the budgets of the workspace comes before the locks on rows: nobody waits for it with one.
    """
    await session.lock_name(f"wakeful budgets {request.workspace}")
    day = utc_day(now_ms)
    found = await running_owner(session, request)
    if found is None:
        return Reserved(lost=True)
    owner, running = found
    facts = await reservation_facts(session, request, owner, day, running=running)
    if facts is None:
        return Reserved(lost=not running)
    decision = decide_reservation(request, facts, day)
    if decision.added != Spent():
        levels = sorted(budget_levels(owner))
        await add_usage(session, events, now_ms, {(level, day): decision.added for level in levels})
    await write_reservation(session, request.run_id, owner, decision)
    return decision.answer


async def settle(session: SqlSession, settled: Mapping[str, Spent]) -> None:
    """Record what attempts have used in all, and release what they had reserved."""
    await session.execute_many(SETTLE, [(run_id, *used) for run_id, used in sorted(settled.items())])


async def take_alert_events(
    session: SqlSession, now_ms: int, limit: int, judge: Callable[[AlertEvent], Sequence[Alert]]
) -> tuple[list[AlertEvent], list[NewRun]]:
    """Remove events. Returns them, and the runs of the alerts whose cool-down is over."""
    rows = map(iter, await session.rows(EVENTS, limit))
    events = [AlertEvent._make((*islice(row, _RECIPIENTS), read_recipients(row))) for row in rows]
    if not events:
        return [], []
    alerts: dict[tuple[str, str, str], Alert] = {}
    for event in events:
        for alert in judge(event):
            alerts.setdefault((alert.workspace, alert.subject, alert.kind), alert)
    runs = [
        run
        for key, alert in sorted(alerts.items())  # cool-downs are locked in this order
        if await session.execute(START_COOLDOWN, *key, now_ms, now_ms - alert.cooldown_ms, now_ms + SKEW_MS)
        for run in alert.runs
    ]
    await session.execute(DROP_EVENTS, [event.id for event in events])
    return events, runs


async def prune(session: SqlSession, before_ms: int) -> None:
    """Delete spending, blocks and cool-downs from before then, and what ended runs had reserved."""
    await session.execute(PRUNE_RESERVATIONS)
    await session.execute(PRUNE_SPENDING, utc_day(before_ms))
    await session.execute(PRUNE_BLOCKS, utc_day(before_ms))
    await session.execute(PRUNE_COOLDOWNS, before_ms)


class SqlBudgets(SqlBase):
    """Budgets and alerts."""

    read_spent = reads(read_spent)

    budget_blocks = urgent(reads(budget_blocks))
    budget_owners = urgent(reads(budget_owners))
    reserve = publishes(reserve)

    async def raise_alerts(
        self, now_ms: int, limit: int, judge: Callable[[AlertEvent], Sequence[Alert]]
    ) -> int:
        """Remove up to `limit` events, oldest first, and add the runs of the alerts that `judge` returns.

        An alert is dropped while the cool-down of its kind and subject runs, whichever replica sent the last
        one; all destinations of an alert count as one. Returns the number of events.
        """

        async def run(db: Any, events: TransactionEvents) -> int:
            session = self._driver.session(db)
            taken, runs = await take_alert_events(session, now_ms, limit, judge)
            failed = [event for event in taken if event.kind == "failed"]
            if failed:
                await incidents.adopt_failures(session, events, failed)
            if runs:
                await self._operations.insert_runs.insert_runs(db, events, now_ms, runs)
            return len(taken)

        return await self._driver.write(run)

    prune_budgets = writes(prune)
