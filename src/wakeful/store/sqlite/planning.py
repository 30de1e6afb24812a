"""Planning in SQLite: claim, decide, insert, cancel, advance. The write lock excludes other planners."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Sequence
from typing import Final

from wakeful.run.run import NewRun
from wakeful.store.changelog import ChangedJob, TransactionEvents
from wakeful.store.mailbox_rules import refused_ticks
from wakeful.store.plans import DECISIONS_AT_ONCE, CatchupState, DueJob, JobPlan, Planned
from wakeful.store.sql.new_runs import check_written
from wakeful.store.sqlite import statements as sql
from wakeful.store.sqlite.insert_runs import write_runs
from wakeful.store.sqlite.waiting_runs import cancel

#: the jobs' primary key
SET_STATE: Final = "UPDATE jobs SET missed = ?, spread_from = ?, spread_until = ? WHERE id = ?"
#: the runs' primary key
SET_MISSED: Final = "UPDATE runs SET missed = ? WHERE id = ?"
#: the jobs' primary key
END_PAUSE: Final = """
    UPDATE jobs SET pause_note = NULL, pause_until = NULL, failures = 0, version = version + 1, updated_at = ?
    WHERE id = ?"""


def write_catchup(
    db: sqlite3.Connection, jobs: Sequence[tuple[str, CatchupState]], runs: Sequence[tuple[str, int]]
) -> None:
    """Write the catch-up states of jobs, and the number of missed ticks before each of these runs."""
    if jobs:
        db.executemany(SET_STATE, [(*state, job_id) for job_id, state in jobs])
    if runs:
        db.executemany(SET_MISSED, [(missed, run_id) for run_id, missed in runs])


async def plan(
    db: sqlite3.Connection,
    events: TransactionEvents,
    now_ms: int,
    until_ms: int,
    limit: int,
    decide: Callable[[DueJob], JobPlan | None],
) -> Planned:
    claimed = db.execute(sql.CLAIM, (until_ms, limit)).fetchall()
    if not claimed:
        return Planned(0, [])
    running: dict[str, list[str]] = {}
    waiting: dict[str, list[str]] = {}
    for job_id, run_id, state in db.execute(sql.LIVE_RUNS, (until_ms, limit)):
        (waiting if state == "pending" else running).setdefault(job_id, []).append(run_id)
    runs: list[NewRun] = []
    ahead: list[tuple[int | None, int | None, int, int]] = []
    halted: list[tuple[int | None, int | None, int, bool, str | None, str | None, int]] = []
    cancelled: list[tuple[str, str]] = []
    ended: list[ChangedJob] = []
    awake: list[tuple[int, str]] = []
    caught_up: list[tuple[str, CatchupState]] = []
    missed_before: list[tuple[str, int]] = []
    for number, (*columns, rowid) in enumerate(claimed, 1):
        if number % DECISIONS_AT_ONCE == 0:
            # This runs in a thread: the event loop gets the interpreter lock.
            time.sleep(0)  # noqa: ASYNC251
        job = DueJob(*columns)
        if job.id in running or job.id in waiting:
            live, pending = running.get(job.id, ()), waiting.get(job.id, ())
            job = job._replace(running=tuple(live), waiting=tuple(pending))
        made = decide(job)
        if made is None:
            continue
        runs += made.runs
        if made.catchup is not None:
            caught_up.append((job.id, made.catchup))
            missed_before += made.missed
        if made.cancelled:
            cancelled += made.cancelled
        if made.resumed:
            awake.append((now_ms, job.id))
        steps = made.next_ms, made.wake_ms, made.run_count
        if made.enabled and made.disabled_reason is None and not made.resumed:
            ahead.append((*steps, rowid))
        else:
            halted.append((*steps, made.enabled, made.disabled_reason, made.decided_ticks, rowid))
            ended.append(ChangedJob(job.id, job.workspace, job.agent, job.name))
    written = write_runs(db, events, now_ms, runs)
    check_written(runs, written, len(claimed))
    cancel(db, events, now_ms, cancelled)
    sql.ADVANCE.execute(db, ahead)
    db.executemany(sql.ADVANCE_AND_DISABLE, halted)
    if awake:
        db.executemany(END_PAUSE, awake)
    if written is not runs and (refused := refused_ticks(written)):
        over = [ChangedJob(*row) for row in db.execute(sql.REFUSED, (json.dumps(refused),))]
        db.executemany(sql.END_REFUSED, [(each.id,) for each in over])
        ended += over
    write_catchup(db, caught_up, missed_before)
    events.record_changed_jobs(ended)
    return Planned(len(claimed), list(written))


async def next_wake_ms(db: sqlite3.Connection) -> int | None:
    wake: int | None = db.execute(sql.NEXT_WAKE).fetchone()[0]
    return wake
