"""How attempts end in SQLite: the outcome behind its fence, and all that follows from it, in one go.

`finish` trusts that nearly always the caller still holds all it reports: it writes first and counts, and
only when the count is short starts again and looks which it does hold.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Sequence

from wakeful.outcome import Finished
from wakeful.run import Follower, NewRun
from wakeful.store.consequences import JobEffects, job_effects
from wakeful.store.port import PARKED
from wakeful.store.sqlite import statements as sql
from wakeful.store.sqlite.connection import TransactionEvents
from wakeful.store.sqlite.deliveries import add_deliveries
from wakeful.store.sqlite.insert_runs import write_runs
from wakeful.store.sqlite.usage import note_failed, spend
from wakeful.stored_text import cleaned

Follow = Callable[[Follower], NewRun]


async def finish(
    db: sqlite3.Connection,
    tell: TransactionEvents,
    now_ms: int,
    worker: str,
    finished: Sequence[Finished],
    follow: Follow,
) -> set[str]:
    """Write these outcomes, as far as the worker still holds their runs. See `Store.finish`."""
    if _write(db, worker, finished) < len(finished):
        db.execute("ROLLBACK")
        db.execute("BEGIN IMMEDIATE")
        return settle(db, tell, now_ms, worker, finished, follow)
    _consequences(db, tell, now_ms, worker, finished, follow)
    return {outcome.run_id for outcome in finished}


def settle(
    db: sqlite3.Connection,
    tell: TransactionEvents,
    now_ms: int,
    worker: str,
    finished: Sequence[Finished],
    follow: Follow,
) -> set[str]:
    """As `finish`, but looking first: for a transaction that has written something else already."""
    held = _held(db, worker, finished)
    _write(db, worker, held)
    _consequences(db, tell, now_ms, worker, held, follow)
    return {outcome.run_id for outcome in held}


def _held(db: sqlite3.Connection, worker: str, finished: Iterable[Finished]) -> list[Finished]:
    """The outcomes of runs that the worker holds in that attempt; the first one, where there are two."""
    first: dict[str, Finished] = {}
    for outcome in finished:
        first.setdefault(outcome.run_id, outcome)
    held = set(db.execute(sql.WHICH_ARE_HELD, (json.dumps(list(first)), worker)))
    return [outcome for outcome in first.values() if (outcome.run_id, outcome.attempt) in held]


def _write(db: sqlite3.Connection, worker: str, finished: Iterable[Finished]) -> int:
    """Write the outcomes whose fence holds; returns how many."""
    silent, spoken, answered, other = [], [], [], []
    for outcome in finished:
        run_id, _, attempt, state, started, ended, due, output, error, reason, usage, *_ = outcome
        code = outcome.response_code
        output = None if output is None else cleaned(output)
        error = None if error is None else cleaned(error)
        if state == "succeeded" and error is None and reason is None and usage is None:
            if code is not None:
                answered.append((started, ended, output, code, run_id, attempt, worker))
            elif output is None:
                silent.append((started, ended, run_id, attempt, worker))
            else:
                spoken.append((started, ended, output, run_id, attempt, worker))
            continue
        over = state not in ("retrying", "running")
        name = worker if over else PARKED if state == "running" else None
        other.append(
            (due if state == "retrying" else None, state, started, ended if over else None,
             None if over else due, name, output, error, reason, usage, 1 if state == "failed" else 0,
             outcome.failed_attempts, code, run_id, attempt, worker)
        )  # fmt: skip
    written = 0
    for statement, rows in (
        (sql.SUCCEED, silent),
        (sql.SUCCEED_WITH_OUTPUT, spoken),
        (sql.SUCCEED_WITH_RESPONSE, answered),
        (sql.FINISH, other),
    ):
        if rows:
            written += db.executemany(statement, rows).rowcount
    return written


def _consequences(
    db: sqlite3.Connection,
    tell: TransactionEvents,
    now_ms: int,
    worker: str,
    finished: Sequence[Finished],
    follow: Follow,
) -> None:
    retrying = [
        (f.run_id, f.attempt, worker, f.started_ms, f.finished_ms, f.error, f.response_code)
        for f in finished
        if f.state == "retrying"
    ]
    if retrying:
        db.executemany(sql.ADD_ATTEMPT, retrying)
        tell("runs")
    tell.ended([outcome.run_id for outcome in finished if outcome.state != "running"])
    effects = _job_effects(db, finished)
    failed = [outcome.run_id for outcome in finished if outcome.state == "failed"]
    if failed:
        note_failed(db, tell, now_ms, failed)
    if any(outcome.usage is not None for outcome in finished):
        spend(db, tell, now_ms, finished)
    for job_id, (at_ms, reason) in effects.disabled.items():
        _disable(db, tell, job_id, at_ms, reason)
    for job_id, at_ms in effects.deleted.items():
        drop_job(db, tell, job_id, at_ms, "job_deleted")
    _chain(db, tell, now_ms, finished, follow)
    add_deliveries(db, tell, now_ms, finished)
    if db.execute(sql.ANY_WAITING).fetchone() is not None:
        jobs = json.dumps([outcome.job_id for outcome in finished if outcome.job_id is not None])
        if db.execute(sql.ANY_WAITING_OF, (jobs,)).fetchone() is not None:
            tell("runs")


def _job_effects(db: sqlite3.Connection, finished: Sequence[Finished]) -> JobEffects:
    """What these do to their jobs, and write the failures of these. Read before anything else is written."""
    failed = {f.job_id for f in finished if f.state == "failed" and f.job_id is not None}
    if db.execute(sql.ANY_FAILING).fetchone() is not None:
        fine = {f.job_id for f in finished if f.state == "succeeded" and f.job_id not in failed}
        db.executemany(sql.FORGET_FAILURES, [(job_id,) for job_id in fine])
    failures = {
        job_id: row[0]
        for job_id in failed
        if (row := db.execute(sql.FAILURES, (job_id,)).fetchone()) is not None
    }
    ending = [f for f in finished if f.job_id is not None and (f.delete_job or f.disable_job is not None)]
    ticking = {f.job_id for f in ending if f.job_id and db.execute(sql.HAS_A_TICK, (f.job_id,)).fetchone()}
    edited = {f.run_id for f in ending if db.execute(sql.HAS_MOVED_ON, (f.run_id,)).fetchone()}
    effects = job_effects(finished, failures, ticking, edited)
    db.executemany(sql.SET_FAILURES, [(count, job_id) for job_id, count in effects.failures.items()])
    return effects


def _chain(
    db: sqlite3.Connection, tell: TransactionEvents, now_ms: int, finished: Sequence[Finished], follow: Follow
) -> None:
    """Give the jobs that fire after these their runs, and so the heartbeats that these wake."""
    followers = []
    if db.execute(sql.ANY_FOLLOWER).fetchone() is not None:
        over = json.dumps([f.run_id for f in finished if f.state in ("succeeded", "failed")])
        followers = [Follower(*row) for row in db.execute(sql.FOLLOWERS, (over,))]
    waking = [f.run_id for f in finished if f.wake_heartbeat]
    if waking:
        followers += [Follower(*row) for row in db.execute(sql.HEARTBEATS, (json.dumps(waking),))]
    if followers:
        write_runs(db, tell, now_ms, [follow(follower) for follower in followers])


def _disable(db: sqlite3.Connection, tell: TransactionEvents, job_id: str, now_ms: int, reason: str) -> None:
    if db.execute(sql.DISABLE_JOB, (reason, now_ms, job_id)).rowcount:
        tell.changed(db.execute(sql.JOB_NAMES, (job_id,)))
        withdraw(db, tell, job_id, now_ms, "job_disabled")


def drop_job(db: sqlite3.Connection, tell: TransactionEvents, job_id: str, now_ms: int, reason: str) -> bool:
    """Delete the job and cancel its pending runs; one that never had a run is gone at once."""
    if not db.execute(sql.MARK_DELETED, (now_ms, job_id)).rowcount:
        return False
    tell.changed(db.execute(sql.JOB_NAMES, (job_id,)))
    _cancel_waiting(db, tell, sql.WHICH_PENDING, sql.CANCEL_PENDING, (reason, now_ms, job_id))
    db.execute(sql.DELETE_JOB_WITHOUT_RUNS, (job_id,))
    return True


def withdraw(db: sqlite3.Connection, tell: TransactionEvents, job_id: str, now_ms: int, reason: str) -> None:
    """Cancel the job's ticks that are pending."""
    _cancel_waiting(db, tell, sql.WHICH_PLANNED, sql.WITHDRAW, (reason, now_ms, job_id))


def _cancel_waiting(
    db: sqlite3.Connection, tell: TransactionEvents, which: str, cancel_them: str, given: tuple[str, int, str]
) -> None:
    waiting = [run_id for (run_id,) in db.execute(which, given[2:])]
    if waiting:
        db.execute(cancel_them, given)
        tell.ended(waiting)
        tell("runs")


def cancel(
    db: sqlite3.Connection, tell: TransactionEvents, now_ms: int, runs: Sequence[tuple[str, str]]
) -> None:
    """Cancel these live runs, each for its reason; whoever runs one is told to stop."""
    for run_id, reason in runs:
        state = db.execute(sql.STATE, (run_id,)).fetchone()
        if db.execute(sql.CANCEL, (reason, now_ms, run_id)).rowcount:
            tell.ended([run_id])
            tell("runs")
            if state == ("running",):
                tell(f"stop:{run_id}")
