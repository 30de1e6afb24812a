"""Guardrails in PostgreSQL: what was used, what is on hold for it, and who is told of trouble.

See `store/guarding.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from wakeful.alert_rules import Alert, Incident
from wakeful.start_rules import BudgetBlock, BudgetOwner
from wakeful.store.budgets import Spent
from wakeful.store.postgres import budget_statements as sql
from wakeful.store.postgres.connection import Pool
from wakeful.store.postgres.insert_runs import bear
from wakeful.store.postgres.usage import weigh
from wakeful.store.quotas import day_of
from wakeful.store.usage import capped

if TYPE_CHECKING:
    from wakeful.store.postgres.connection import Db, TransactionEvents


async def raise_alerts(
    db: Db, tell: TransactionEvents, now_ms: int, limit: int, judge: Callable[[Incident], Sequence[Alert]]
) -> int:
    """Take incidents away, and write the runs of the alerts they call for."""
    incidents = [Incident(*row) for row in await db.fetch(sql.INCIDENTS, limit)]
    if not incidents:
        return 0
    wanted: dict[tuple[str, str, str], Alert] = {}
    for incident in incidents:
        for alert in judge(incident):
            wanted.setdefault((alert.workspace, alert.subject, alert.kind), alert)
    runs = [
        run
        for key, alert in sorted(wanted.items())  # whoever notes several, does it in this order
        if await db.fetchval(sql.NOTE_ALERT, *key, now_ms, now_ms - alert.cooldown_ms)
        for run in alert.runs
    ]
    await db.execute(sql.DROP_INCIDENTS, [incident.id for incident in incidents])
    await bear(db, tell, now_ms, runs)
    return len(incidents)


async def _prune(db: Db, before_ms: int) -> None:
    await db.execute(sql.PRUNE_SPENDING, day_of(before_ms))
    await db.execute(sql.PRUNE_HOLDS, day_of(before_ms))
    await db.execute(sql.PRUNE_ALERTED, before_ms)


async def _spent(db: Db, owner: BudgetOwner, day: int) -> Spent:
    row = await db.fetchrow(sql.SPENT, *owner, day)
    return Spent() if row is None else capped(*row)


async def _holds(db: Db, day: int) -> list[BudgetBlock]:
    return [BudgetBlock(*row) for row in await db.fetch(sql.HOLDS, day)]


class PostgresGuarding:
    """What a PostgreSQL database keeps of guardrails. Each method is that of `guarding.Guarding`."""

    _pool: Pool

    async def spent(self, owner: BudgetOwner, day: int) -> Spent:
        """What was used on that day."""
        return await self._pool.read(lambda db: _spent(db, owner, day))

    async def holds(self, day: int) -> list[BudgetBlock]:
        """The caps that were reached on that day."""
        return await self._pool.read(lambda db: _holds(db, day))

    async def weigh(self, now_ms: int, owners: Sequence[BudgetOwner]) -> None:
        """Look anew which of these are over their budgets."""
        await self._pool.write(lambda db, tell: weigh(db, tell, now_ms, owners))

    async def raise_alerts(
        self, now_ms: int, limit: int, judge: Callable[[Incident], Sequence[Alert]]
    ) -> int:
        """Take incidents away, and write the runs of the alerts they call for."""
        return await self._pool.write(lambda db, tell: raise_alerts(db, tell, now_ms, limit, judge))

    async def prune_guards(self, before_ms: int) -> None:
        """Forget what was before then."""
        await self._pool.write(lambda db, _: _prune(db, before_ms))
