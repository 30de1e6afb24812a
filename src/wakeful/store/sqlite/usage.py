"""What runs use, in SQLite, and what becomes of it, written with what it tells of. See `guarding`."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence

from wakeful.outcome import Finished
from wakeful.start_rules import BudgetOwner
from wakeful.store.quotas import day_of
from wakeful.store.sqlite import budget_statements as sql
from wakeful.store.sqlite.connection import TransactionEvents
from wakeful.store.usage import Weighed, additions, changes, details_of


def spend(db: sqlite3.Connection, tell: TransactionEvents, now_ms: int, finished: Iterable[Finished]) -> None:
    """Add what these used, of which each says so, and hold what has had its fill."""
    used = [outcome for outcome in finished if outcome.usage is not None]
    runs = json.dumps([outcome.run_id for outcome in used])
    owners = {row[0]: BudgetOwner(*row[1:]) for row in db.execute(sql.WHOSE, (runs,))}
    added = additions(used, owners)
    if added:
        db.executemany(sql.ADD_SPENDING, [(*owner, day, *spent) for (owner, day), spent in added.items()])
        weigh(db, tell, now_ms, [owner for owner, _ in added])


def weigh(
    db: sqlite3.Connection, tell: TransactionEvents, now_ms: int, owners: Sequence[BudgetOwner]
) -> None:
    """Hold what is over its budget today, and no longer what is not."""
    day = day_of(now_ms)
    rows = db.execute(sql.WEIGHED, (json.dumps(list(dict.fromkeys(owners))), day)).fetchall()
    for change in changes(Weighed(*row) for row in rows):
        tell("holds")
        if change.most is None:
            db.execute(sql.LET_GO, (day, *change.owner, change.cap))
            continue
        db.execute(sql.HOLD, (day, *change.owner, change.cap, change.most))
        if db.execute(sql.REACHED, (now_ms, *change.owner, details_of(change))).rowcount:
            tell("incidents")


def note_failed(db: sqlite3.Connection, tell: TransactionEvents, now_ms: int, run_ids: Sequence[str]) -> None:
    """These runs have failed, and their jobs' failures are counted."""
    if db.execute(sql.FAILED, (now_ms, json.dumps(list(run_ids)))).rowcount:
        tell("incidents")


def note_missed(db: sqlite3.Connection, tell: TransactionEvents, now_ms: int, run_ids: Sequence[str]) -> None:
    """These ticks were missed."""
    if db.execute(sql.MISSED, (now_ms, json.dumps(list(run_ids)))).rowcount:
        tell("incidents")
