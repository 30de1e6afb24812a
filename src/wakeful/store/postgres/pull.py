"""Runs that wait for an executor, in PostgreSQL: they expire, or move to another lane with their job."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from wakeful.run.consequences import Consequences
from wakeful.run.outcome import Finished
from wakeful.store.port import TURN_MS
from wakeful.store.postgres import pull_statements as sql
from wakeful.store.postgres.outcomes import finish
from wakeful.store.rows import UnfinishedRun
from wakeful.values.clock import Clock

if TYPE_CHECKING:
    from wakeful.store.postgres.connection import Db, TransactionEvents


async def expire(
    db: Db,
    events: TransactionEvents,
    clock: Clock,
    now_ms: int,
    limit: int,
    judge: Callable[[UnfinishedRun], Finished],
    consequences: Consequences,
) -> list[str]:
    """End runs that no executor claimed in time. See `Store.expire`."""
    await db.execute(sql.RESTART_WAIT, now_ms, now_ms + TURN_MS, limit)
    expired = [UnfinishedRun(*row) for row in await db.fetch(sql.EXPIRED, now_ms, limit)]
    if not expired:
        return []
    await db.execute(sql.MARK_EXPIRED, [run.id for run in expired])
    ended = await finish(db, events, clock, now_ms, None, [judge(run) for run in expired], consequences)
    await db.execute(sql.CLEAR_START, list(ended))
    return [run.id for run in expired if run.id in ended]
