"""Runs in SQLite that start later or not at all: cancelled, withdrawn, released, moved with their job."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from wakeful.run.consequences import Withdrawal
from wakeful.store.changelog import TransactionEvents
from wakeful.store.lane_shares import ON_LOST_FAIL
from wakeful.store.rows import AttemptView, Move
from wakeful.store.sqlite import statements as sql
from wakeful.store.sqlite.mailbox import expose, move_to_mailbox

#: runs_waiting. What a signal requires follows from its instance
MOVE: Final = """
    UPDATE runs INDEXED BY runs_waiting SET lane = ?2, is_pull = ?4 IS NOT NULL,
        claim_timeout_ms = ?4, claim_deadline = max(due_at, ?3) + ?4,
        requires = iif(instance_id IS NULL, ?5, requires)
    WHERE job_id = ?1 AND state IN ('pending', 'retrying')
        AND (lane <> ?2 OR is_pull <> (?4 IS NOT NULL) OR instance_id IS NULL AND requires <> ?5)"""
#: runs_running. The next attempt of a running run has the changed target too: `claim_timeout_ms` says whether
#: an executor claims it. `is_pull` follows when the run waits again
FOLLOW: Final = """
    UPDATE runs INDEXED BY runs_running SET requires = ?2, lane = ?3, claim_timeout_ms = ?4,
        claim_deadline = iif(?4 IS NULL, NULL, claim_deadline)
    WHERE job_id = ?1 AND state = 'running' AND instance_id IS NULL"""


class HeldRun(NamedTuple):
    """A running run that is released, with what its attempt records."""

    id: str
    attempt: int
    worker: str | None
    #: None: it has not started
    started_ms: int | None


def cancel(
    db: sqlite3.Connection, events: TransactionEvents, now_ms: int, runs: Sequence[tuple[str, str]]
) -> None:
    """Cancel these live runs, each for its reason. The workers of running ones are notified."""
    instances = set()
    for run_id, reason in runs:
        found = db.execute(sql.STATE, (run_id,)).fetchone()
        if db.execute(sql.CANCEL, (reason, now_ms, run_id)).rowcount:
            state, job_id, instance_id = found
            _announce(events, {run_id: state})
            events.cancelled.append((run_id, job_id, reason))
            if instance_id is not None:
                instances.add(instance_id)
    expose(db, events, now_ms, instances)


def withdraw(
    db: sqlite3.Connection, events: TransactionEvents, withdrawal: Withdrawal, now_ms: int | None
) -> None:
    """Cancel the runs of this job that have not started. Without `now_ms`, only those that are pending."""
    at_ms, reason = withdrawal.at_ms, withdrawal.reason
    states: dict[str, str] = {}
    instances: set[str] = set()
    for run_id, state, instance_id in db.execute(
        sql.NOT_STARTED, (withdrawal.job_id, withdrawal.manual, now_ms)
    ):
        states[run_id] = state
        if instance_id is not None:
            instances.add(instance_id)
    if states:
        db.executemany(sql.WITHDRAW, [(reason, at_ms, run_id) for run_id in states])
        _announce(events, states)
        events.cancelled += [(run_id, withdrawal.job_id, reason) for run_id in states]
        expose(db, events, at_ms, instances)


def delete_job(db: sqlite3.Connection, events: TransactionEvents, job_id: str, now_ms: int) -> bool:
    """Mark the job as deleted. Return whether it was not deleted before."""
    if not db.execute(sql.MARK_DELETED, (now_ms, job_id)).rowcount:
        return False
    events.record_changed_jobs(db.execute(sql.JOB_NAMES, (job_id,)))
    return True


def delete_without_runs(db: sqlite3.Connection, job_ids: Iterable[str]) -> None:
    """Delete those of these jobs that are marked as deleted and have no runs, with their revisions."""
    rows = [(job_id,) for job_id in job_ids]
    db.executemany(sql.DELETE_JOB_WITHOUT_RUNS, rows)
    db.executemany(sql.DELETE_REVISIONS_WITHOUT_JOB, rows)


def _announce(events: TransactionEvents, cancelled: Mapping[str, str]) -> None:
    """Announce runs that were cancelled, each with the state that it had."""
    events.record_ended(cancelled)
    events.publish("runs")
    for run_id, state in cancelled.items():
        if state == "running":
            events.publish(f"stop:{run_id}")


def release_runs(
    db: sqlite3.Connection,
    events: TransactionEvents,
    now_ms: int,
    held: Sequence[HeldRun],
    instances: Collection[str] = (),
) -> None:
    """Retry these running runs: immediately, or at their instant if that is later.

    `instances` are those of signal runs among them.
    """
    if held:
        attempts = [
            (run.id, *AttemptView(run.attempt, run.worker, run.started_ms, now_ms, "released"))
            for run in held
        ]
        db.executemany(sql.ADD_ATTEMPT, attempts)
        db.executemany(sql.RELEASE, [(now_ms, run.id) for run in held])
        events.record_retried([run.id for run in held])
        events.publish("runs")
        expose(db, events, now_ms, instances)


def move(db: sqlite3.Connection, events: TransactionEvents, now_ms: int, job_id: str, to: Move) -> None:
    """Move unfinished runs to another lane, requirement or mailbox. See `Store.change_job`."""
    instances = move_to_mailbox(db, events, now_ms, job_id, to)
    db.execute(FOLLOW, (job_id, to.requires, to.lane, to.claim_timeout_ms))
    given = job_id, to.lane, now_ms, to.claim_timeout_ms, to.requires
    if db.execute(MOVE, given).rowcount:
        events.publish("runs")
    expose(db, events, now_ms, instances)


def settle_ahead(
    db: sqlite3.Connection,
    events: TransactionEvents,
    now_ms: int,
    job_id: str,
    policy: str,
    reason_of: Callable[[int], str | None],
) -> None:
    """Cancel or release the ticks of this job that are recorded as running before their instant.

    `reason_of` returns the reason to cancel a tick; None releases it, so that it starts with the changed job.
    In both cases `stop:` notifies its worker. That may be too late: the worker starts the tick nevertheless,
    so one that must not start twice by the job's `policy` is not released.
    """
    cancelled: list[tuple[str, str]] = []
    released: list[HeldRun] = []
    for run_id, attempt, worker, tick_ms, was_released in db.execute(sql.AHEAD, (job_id, now_ms)):
        reason = reason_of(tick_ms)
        if reason is not None:
            cancelled.append((run_id, reason))
        elif not was_released and ON_LOST_FAIL not in policy:
            released.append(HeldRun(run_id, attempt, worker, None))
    db.executemany(sql.WITHDRAW, [(reason, now_ms, run_id) for run_id, reason in cancelled])
    for run_id, reason in cancelled:
        events.cancelled.append((run_id, job_id, reason))
        events.record_ended([run_id])
        events.publish("runs")
        events.publish(f"stop:{run_id}")
    release_runs(db, events, now_ms, released)
    for run in released:
        events.publish(f"stop:{run.id}:{run.attempt}")
