"""Ticks that are recorded as running ahead of their instant, when their job changes before it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from wakeful.store.sqlite import statements as sql
from wakeful.store.sqlite.connection import TransactionEvents
from wakeful.store.sqlite.waiting_runs import release_runs


def settle_ahead(
    db: sqlite3.Connection,
    events: TransactionEvents,
    now_ms: int,
    job_id: str,
    reason_of: Callable[[int], str | None],
) -> None:
    """Cancel or release the ticks of this job that are recorded as running before their instant.

    `reason_of` returns the reason to cancel a tick; None releases it, so that it starts with the changed job.
    In both cases `stop:` notifies its worker.
    """
    ahead = db.execute(sql.AHEAD, (job_id, now_ms)).fetchall()
    if not ahead:
        return
    reasons = {row[0]: reason_of(row[4]) for row in ahead}
    cancelled = [(run_id, reason) for run_id, reason in reasons.items() if reason is not None]
    db.executemany(sql.WITHDRAW, [(reason, now_ms, run_id) for run_id, reason in cancelled])
    for run_id, reason in cancelled:
        events.cancelled.append((run_id, job_id, reason))
        events.ended([run_id])
        events.publish("runs")
        events.publish(f"stop:{run_id}")
    released = [row[:4] for row in ahead if reasons[row[0]] is None and not row[5]]
    release_runs(db, events, now_ms, released)
    for run_id, attempt, *_ in released:
        events.publish(f"stop:{run_id}:{attempt}")
