"""Cancelling runs in SQLite, and deleting a job with its runs that have not started."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from wakeful.consequences import Withdrawal
from wakeful.store.sqlite import statements as sql
from wakeful.store.sqlite.connection import TransactionEvents


def cancel(
    db: sqlite3.Connection, events: TransactionEvents, now_ms: int, runs: Sequence[tuple[str, str]]
) -> None:
    """Cancel these live runs, each for its reason. The workers of running ones are notified."""
    for run_id, reason in runs:
        state = db.execute(sql.STATE, (run_id,)).fetchone()
        if db.execute(sql.CANCEL, (reason, now_ms, run_id)).rowcount:
            _announce(events, [(run_id, state[0])])
            events.cancelled.append((run_id, state[1], reason))


def withdraw(
    db: sqlite3.Connection, events: TransactionEvents, withdrawal: Withdrawal, now_ms: int | None
) -> None:
    """Cancel the runs of this job that have not started. Without `now_ms`, only those that are pending."""
    job_id, at_ms, reason, manual = withdrawal
    runs = db.execute(sql.NOT_STARTED, (job_id, manual, now_ms)).fetchall()
    if runs:
        db.executemany(sql.WITHDRAW, [(reason, at_ms, run_id) for run_id, _ in runs])
        _announce(events, runs)
        events.cancelled += [(run_id, job_id, reason) for run_id, _ in runs]


def delete_job(db: sqlite3.Connection, events: TransactionEvents, job_id: str, now_ms: int) -> bool:
    """Mark the job as deleted. Return whether it was not deleted before."""
    if not db.execute(sql.MARK_DELETED, (now_ms, job_id)).rowcount:
        return False
    events.changed(db.execute(sql.JOB_NAMES, (job_id,)))
    return True


def _announce(events: TransactionEvents, cancelled: Sequence[tuple[str, str]]) -> None:
    """Announce runs that were cancelled, each with the state that it had."""
    events.ended([run_id for run_id, _ in cancelled])
    events.publish("runs")
    for run_id, state in cancelled:
        if state == "running":
            events.publish(f"stop:{run_id}")
