"""Deliveries in SQLite. See `store/deliveries.py`."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Final

from wakeful.store.deliveries import UNKNOWN_ERROR, Delivery, DeliveryResult
from wakeful.store.sqlite.connection import TransactionEvents

#: the primary keys of runs and agents
ADD: Final = """
    INSERT INTO deliveries (run_id, state, channel, send_to, attempt, due_at, at)
    SELECT r.id, 'pending', coalesce(?2, a.channel),
        coalesce(?3, CASE WHEN coalesce(?2, a.channel) = a.channel THEN a.send_to END), 0, ?4, ?4
    FROM runs r LEFT JOIN agents a ON a.workspace = r.workspace AND a.name = r.agent
    WHERE r.id = ?1
    ON CONFLICT (run_id) DO NOTHING"""
#: the primary keys of runs and agents
ADD_EMITTED: Final = """
    INSERT INTO deliveries (run_id, state, channel, send_to, attempt, due_at, at)
    SELECT r.id, 'pending', a.channel, a.send_to, 0, ?2, ?2
    FROM runs r CROSS JOIN agents a ON a.workspace = r.workspace AND a.name = r.agent
    WHERE r.id = ?1 AND a.channel IS NOT NULL
    ON CONFLICT (run_id) DO NOTHING"""
#: deliveries_due: its beginning
TIME_OUT: Final = f"""
    UPDATE deliveries INDEXED BY deliveries_due SET state = 'unknown', due_at = NULL, at = ?1,
        error = '{UNKNOWN_ERROR}'
    WHERE due_at <= ?1 AND state = 'sending'"""
#: deliveries_due, in its order; the primary key of runs, once for each
DUE: Final = """
    SELECT r.id, r.workspace, r.agent, r.job_name, d.channel, d.send_to, r.output, d.attempt + 1,
        r.job_id, r.idempotency_key, r.attempt, r.emitted
    FROM deliveries d INDEXED BY deliveries_due CROSS JOIN runs r ON r.id = d.run_id
    WHERE d.due_at <= ? AND d.state = 'pending'
        AND coalesce(d.channel, '') NOT IN (SELECT value FROM json_each(?))
    ORDER BY d.due_at LIMIT ?"""
#: the primary key
TAKE: Final = """
    UPDATE deliveries SET state = 'sending', worker = ?, due_at = ?, at = ?, attempt = attempt + 1
    WHERE run_id = ?"""
#: the primary key
FINISH: Final = """
    UPDATE deliveries SET state = ?, due_at = ?, error = ?, at = ?
    WHERE run_id = ? AND attempt = ? AND worker = ? AND state = 'sending'"""


def add_deliveries(
    db: sqlite3.Connection,
    events: TransactionEvents,
    now_ms: int,
    deliveries: Sequence[tuple[str, str | None, str | None]],
) -> None:
    """Add deliveries of the outputs of runs: run, channel and recipient, else those of the agent."""
    db.executemany(ADD, [(*each, now_ms) for each in deliveries])
    events.publish("deliveries")


def add_emitted(
    db: sqlite3.Connection, events: TransactionEvents, now_ms: int, run_ids: Sequence[str]
) -> None:
    """Add deliveries of the signals that these runs emitted, to the channels of agents that have one."""
    if db.executemany(ADD_EMITTED, [(run_id, now_ms) for run_id in run_ids]).rowcount:
        events.publish("deliveries")


async def take_deliveries(
    db: sqlite3.Connection,
    events: TransactionEvents,
    now_ms: int,
    worker: str,
    until_ms: int,
    limit: int,
    without: Sequence[str],
) -> tuple[list[Delivery], int]:
    timed_out = db.execute(TIME_OUT, (now_ms,)).rowcount
    taken = [Delivery(*row) for row in db.execute(DUE, (now_ms, json.dumps(list(without)), limit))]
    db.executemany(TAKE, [(worker, until_ms, now_ms, each.run_id) for each in taken])
    return taken, timed_out


async def finish_deliveries(
    db: sqlite3.Connection,
    events: TransactionEvents,
    now_ms: int,
    worker: str,
    results: Sequence[DeliveryResult],
) -> set[str]:
    written = set()
    for run_id, attempt, became, due_ms, error in results:
        if db.execute(FINISH, (became, due_ms, error, now_ms, run_id, attempt, worker)).rowcount:
            written.add(run_id)
            if became == "pending":
                events.publish("deliveries")
    return written
