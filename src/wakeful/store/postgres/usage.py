"""What runs use, in PostgreSQL, and what becomes of it, written with what it tells of. See `guarding`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from wakeful.outcome import Finished
from wakeful.start_rules import BudgetOwner
from wakeful.store.postgres import budget_statements as sql
from wakeful.store.quotas import day_of
from wakeful.store.usage import Weighed, additions, changes, details_of

if TYPE_CHECKING:
    from wakeful.store.postgres.connection import Db, TransactionEvents


async def spend(db: Db, tell: TransactionEvents, now_ms: int, finished: Iterable[Finished]) -> None:
    """Add what these used, of which each says so, and hold what has had its fill."""
    used = [outcome for outcome in finished if outcome.usage is not None]
    rows = await db.fetch(sql.WHOSE, [outcome.run_id for outcome in used])
    added = additions(used, {row[0]: BudgetOwner(*row[1:]) for row in rows})
    if added:
        new = [(*owner, day, *spent) for (owner, day), spent in added.items()]
        await db.execute(sql.ADD_SPENDING, *map(list, zip(*new, strict=True)))
        await weigh(db, tell, now_ms, [owner for owner, _ in added])


async def weigh(db: Db, tell: TransactionEvents, now_ms: int, owners: Sequence[BudgetOwner]) -> None:
    """Hold what is over its budget today, and no longer what is not."""
    day = day_of(now_ms)
    columns = map(list, zip(*sorted(set(owners)), strict=True))
    rows = await db.fetch(sql.WEIGHED, *columns, day)
    for change in changes(Weighed(*row) for row in rows):
        tell("holds")
        if change.most is None:
            await db.execute(sql.LET_GO, day, *change.owner, change.cap)
        elif await db.fetchval(sql.HOLD, day, *change.owner, change.cap, change.most) and await db.fetchval(
            sql.REACHED, now_ms, *change.owner, details_of(change)
        ):
            tell("incidents")


async def note_failed(db: Db, tell: TransactionEvents, now_ms: int, run_ids: Sequence[str]) -> None:
    """These runs have failed, and their jobs' failures are counted."""
    if await db.fetchval(sql.FAILED, now_ms, list(run_ids)):
        tell("incidents")


async def note_missed(db: Db, tell: TransactionEvents, now_ms: int, run_ids: Sequence[str]) -> None:
    """These ticks were missed."""
    if await db.fetchval(sql.MISSED, now_ms, list(run_ids)):
        tell("incidents")
