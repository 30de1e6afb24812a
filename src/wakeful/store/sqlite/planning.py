"""Planning in SQLite: claim, decide, insert, cancel, advance. The write lock excludes other planners."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Sequence
from typing import Final

from wakeful.run.run import NewRun
from wakeful.store.mailbox_rules import refused_ticks
from wakeful.store.plans import DECISIONS_AT_ONCE, CatchupState, DueJob, JobPlan, Planned
from wakeful.store.sql.new_runs import check_written
from wakeful.store.sqlite import statements as sql
from wakeful.store.sqlite.connection import TransactionEvents
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
    ended: list[tuple[str, str, str, str]] = []
    awake: list[tuple[int, str]] = []
    caught_up: list[tuple[str, CatchupState]] = []
    missed_before: list[tuple[str, int]] = []
    for number, row in enumerate(claimed, 1):
        if number % DECISIONS_AT_ONCE == 0:
            # This runs in a thread: the event loop gets the interpreter lock.
            time.sleep(0)  # noqa: ASYNC251
        job_id, rowid = row[0], row[11]
        live = tuple(running.get(job_id, ())), tuple(waiting.get(job_id, ()))
        due = DueJob._make((*row[:11], *live, *row[12:]))
        planned = decide(due)
        if planned is None:
            continue
        (
            _, next_ms, wake_ms, run_count, enabled, reason, new, superseded, catchup, missed, resumed,
            decided,
        ) = planned  # fmt: skip
        runs += new
        if catchup is not None:
            caught_up.append((job_id, catchup))
            missed_before += missed
        if superseded:
            cancelled += superseded
        if resumed:
            awake.append((now_ms, job_id))
        if enabled and reason is None and not resumed:
            ahead.append((next_ms, wake_ms, run_count, rowid))
        else:
            halted.append((next_ms, wake_ms, run_count, enabled, reason, decided, rowid))
            ended.append(row[:4])
    written = write_runs(db, events, now_ms, runs)
    check_written(runs, written, len(claimed))
    cancel(db, events, now_ms, cancelled)
    sql.ADVANCE.execute(db, ahead)
    db.executemany(sql.ADVANCE_AND_DISABLE, halted)
    if awake:
        db.executemany(END_PAUSE, awake)
    if written is not runs and (refused := refused_ticks(written)):
        over = db.execute(sql.REFUSED, (json.dumps(refused),)).fetchall()
        db.executemany(sql.END_REFUSED, [row[:1] for row in over])
        ended += over
    write_catchup(db, caught_up, missed_before)
    events.changed(ended)
    return Planned(len(claimed), list(written))


async def next_wake_ms(db: sqlite3.Connection) -> int | None:
    wake: int | None = db.execute(sql.NEXT_WAKE).fetchone()[0]
    return wake
