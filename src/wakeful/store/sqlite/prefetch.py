"""Prefetched runs in SQLite: those that were claimed before a slot was free."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

from wakeful.store.sqlite import statements as sql
from wakeful.store.sqlite.connection import TransactionEvents

#: the primary key
GIVE_BACK: Final = """
    UPDATE runs SET state = 'retrying', worker = NULL, due_at = fire_at, error = 'released',
        is_pull = claim_timeout_ms IS NOT NULL, claim_deadline = claim_timeout_ms + max(fire_at, ?4)
    WHERE id = ?1 AND attempt = ?2 AND worker = ?3 AND state = 'running' AND started_at IS NULL"""
#: the primary key
RECORD_START: Final = """
    UPDATE runs SET started_at = ?
    WHERE id = ? AND attempt = ? AND worker = ? AND state = 'running' AND started_at IS NULL"""


async def give_back(
    db: sqlite3.Connection,
    events: TransactionEvents,
    worker: str,
    now_ms: int,
    runs: Sequence[tuple[str, int]],
) -> int:
    """Release prefetched runs that have not started. See `Store.give_back`."""
    released = [each for each in runs if db.execute(GIVE_BACK, (*each, worker, now_ms)).rowcount]
    if released:
        rows = [(*each, worker, None, now_ms, "released", None, None) for each in released]
        db.executemany(sql.ADD_ATTEMPT, rows)
        events.retried([run_id for run_id, _ in released])
        events.publish("runs")
    return len(released)


async def record_starts(db: sqlite3.Connection, worker: str, starts: Sequence[tuple[str, int, int]]) -> None:
    """Write when prefetched runs started. See `Store.record_starts`."""
    db.executemany(RECORD_START, [(at_ms, run_id, attempt, worker) for run_id, attempt, at_ms in starts])
