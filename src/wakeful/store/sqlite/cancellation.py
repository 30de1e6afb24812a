"""Cancelling runs in SQLite, and deleting a job with its runs that have not started."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

from wakeful.run.consequences import Withdrawal
from wakeful.store.sqlite import statements as sql
from wakeful.store.sqlite.connection import TransactionEvents
from wakeful.store.sqlite.mailbox import expose


def cancel(
    db: sqlite3.Connection, events: TransactionEvents, now_ms: int, runs: Sequence[tuple[str, str]]
) -> None:
    """Cancel these live runs, each for its reason. The workers of running ones are notified."""
    instances = set()
    for run_id, reason in runs:
        found = db.execute(sql.STATE, (run_id,)).fetchone()
        if db.execute(sql.CANCEL, (reason, now_ms, run_id)).rowcount:
            state, job_id, instance_id = found
            _announce(events, [(run_id, state)])
            events.cancelled.append((run_id, job_id, reason))
            if instance_id is not None:
                instances.add(instance_id)
    expose(db, events, now_ms, instances)


def withdraw(
    db: sqlite3.Connection, events: TransactionEvents, withdrawal: Withdrawal, now_ms: int | None
) -> None:
    """Cancel the runs of this job that have not started. Without `now_ms`, only those that are pending."""
    job_id, at_ms, reason, manual = withdrawal
    runs = db.execute(sql.NOT_STARTED, (job_id, manual, now_ms)).fetchall()
    if runs:
        db.executemany(sql.WITHDRAW, [(reason, at_ms, run_id) for run_id, _, _ in runs])
        _announce(events, [(run_id, state) for run_id, state, _ in runs])
        events.cancelled += [(run_id, job_id, reason) for run_id, _, _ in runs]
        expose(db, events, at_ms, {instance for _, _, instance in runs if instance is not None})


def delete_job(db: sqlite3.Connection, events: TransactionEvents, job_id: str, now_ms: int) -> bool:
    """Mark the job as deleted. Return whether it was not deleted before."""
    if not db.execute(sql.MARK_DELETED, (now_ms, job_id)).rowcount:
        return False
    events.changed(db.execute(sql.JOB_NAMES, (job_id,)))
    return True


def delete_without_runs(db: sqlite3.Connection, job_ids: Iterable[str]) -> None:
    """Delete those of these jobs that are marked as deleted and have no runs, with their revisions."""
    rows = [(job_id,) for job_id in job_ids]
    db.executemany(sql.DELETE_JOB_WITHOUT_RUNS, rows)
    db.executemany(sql.DELETE_REVISIONS_WITHOUT_JOB, rows)


def _announce(events: TransactionEvents, cancelled: Sequence[tuple[str, str]]) -> None:
    """Announce runs that were cancelled, each with the state that it had."""
    events.ended([run_id for run_id, _ in cancelled])
    events.publish("runs")
    for run_id, state in cancelled:
        if state == "running":
            events.publish(f"stop:{run_id}")
