"""Guardrails in SQLite: what was used, what is on hold for it, and who is told. See `store/guarding.py`."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence

from wakeful.alert_rules import Alert, Incident
from wakeful.start_rules import BudgetBlock, BudgetOwner
from wakeful.store.budgets import Spent
from wakeful.store.quotas import day_of
from wakeful.store.sqlite import budget_statements as sql
from wakeful.store.sqlite.connection import Connection, TransactionEvents
from wakeful.store.sqlite.insert_runs import bear
from wakeful.store.sqlite.usage import weigh
from wakeful.store.usage import capped


def raise_alerts(
    db: sqlite3.Connection,
    tell: TransactionEvents,
    now_ms: int,
    limit: int,
    judge: Callable[[Incident], Sequence[Alert]],
) -> int:
    """Take incidents away, and write the runs of the alerts they call for."""
    incidents = [Incident(*row) for row in db.execute(sql.INCIDENTS, (limit,))]
    if not incidents:
        return 0
    runs = [
        run
        for incident in incidents
        for alert in judge(incident)
        if db.execute(
            sql.NOTE_ALERT,
            (alert.workspace, alert.subject, alert.kind, now_ms, now_ms - alert.cooldown_ms),
        ).rowcount
        for run in alert.runs
    ]
    db.execute(sql.DROP_INCIDENTS, (json.dumps([incident.id for incident in incidents]),))
    if runs:
        bear(db, tell, now_ms, runs)
    return len(incidents)


def _prune(db: sqlite3.Connection, before_ms: int) -> None:
    db.execute(sql.PRUNE_SPENDING, (day_of(before_ms),))
    db.execute(sql.PRUNE_HOLDS, (day_of(before_ms),))
    db.execute(sql.PRUNE_ALERTED, (before_ms,))


def _spent(db: sqlite3.Connection, owner: BudgetOwner, day: int) -> Spent:
    row = db.execute(sql.SPENT, (*owner, day)).fetchone()
    return Spent() if row is None else capped(*row)


class SqliteGuarding:
    """What a SQLite file keeps of guardrails. Each method is that of `guarding.Guarding`."""

    _connection: Connection

    async def spent(self, owner: BudgetOwner, day: int) -> Spent:
        """What was used on that day."""
        return await self._connection.read(lambda db: _spent(db, owner, day))

    async def holds(self, day: int) -> list[BudgetBlock]:
        """The caps that were reached on that day."""
        return await self._connection.read(
            lambda db: [BudgetBlock(*row) for row in db.execute(sql.HOLDS, (day,))]
        )

    async def weigh(self, now_ms: int, owners: Sequence[BudgetOwner]) -> None:
        """Look anew which of these are over their budgets."""
        await self._connection.write(lambda db, tell: weigh(db, tell, now_ms, owners))

    async def raise_alerts(
        self, now_ms: int, limit: int, judge: Callable[[Incident], Sequence[Alert]]
    ) -> int:
        """Take incidents away, and write the runs of the alerts they call for."""
        return await self._connection.write(lambda db, tell: raise_alerts(db, tell, now_ms, limit, judge))

    async def prune_guards(self, before_ms: int) -> None:
        """Forget what was before then."""
        await self._connection.write(lambda db, _: _prune(db, before_ms))
