"""Runs that wait for an executor, in SQLite: they expire, or move to another lane with their job."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from wakeful.run.consequences import Consequences
from wakeful.run.outcome import Finished
from wakeful.store.port import TURN_MS
from wakeful.store.rows import UnfinishedRun
from wakeful.store.sqlite import pull_statements as sql
from wakeful.store.sqlite.connection import TransactionEvents
from wakeful.store.sqlite.outcomes import settle
from wakeful.values.clock import Clock


async def expire(
    db: sqlite3.Connection,
    events: TransactionEvents,
    clock: Clock,
    now_ms: int,
    limit: int,
    judge: Callable[[UnfinishedRun], Finished],
    consequences: Consequences,
) -> list[str]:
    """End runs that no executor claimed in time. See `Store.expire`."""
    blocked = db.execute(sql.BLOCKED, (now_ms + TURN_MS, now_ms, limit)).fetchall()
    db.executemany(sql.RESTART_WAIT, [(now_ms, rowid) for (rowid,) in blocked])
    expired = [UnfinishedRun(*row) for row in db.execute(sql.EXPIRED, (now_ms, limit))]
    if not expired:
        return []
    db.executemany(sql.MARK_EXPIRED, [(run.id,) for run in expired])
    ended = await settle(db, events, clock, now_ms, None, [judge(run) for run in expired], consequences)
    db.executemany(sql.CLEAR_START, [(run_id,) for run_id in ended])
    return [run.id for run in expired if run.id in ended]
