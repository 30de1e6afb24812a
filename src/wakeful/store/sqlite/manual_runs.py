"""Runs that are asked for by hand and judged against the live runs of their job, in SQLite."""

from __future__ import annotations

import sqlite3
from typing import Final

from wakeful.run import NewRun
from wakeful.store.row_mapping import view_of
from wakeful.store.rows import LiveRuns, ManualRunRule, RunView
from wakeful.store.sqlite.connection import TransactionEvents
from wakeful.store.sqlite.insert_runs import bear
from wakeful.store.sqlite.outcomes import cancel

#: runs_running and runs_waiting: those that run or are between two attempts, and those that wait their turn
LIVE: Final = """
    SELECT id, state FROM runs INDEXED BY runs_running WHERE job_id = ?1 AND state = 'running'
    UNION ALL
    SELECT id, state FROM runs INDEXED BY runs_waiting
    WHERE job_id = ?1 AND state IN ('pending', 'retrying')
        AND (state = 'retrying' OR (serial AND trigger IN ('schedule', 'user', 'agent')))"""


def add_judged_run(
    db: sqlite3.Connection, tell: TransactionEvents, now_ms: int, run: NewRun, judge: ManualRunRule
) -> RunView:
    """Add what `judge` makes of the run, and cancel what gives way to it. See `Store.add_judged_run`."""
    found = db.execute(LIVE, (run.job_id,)).fetchall()
    live = LiveRuns(
        tuple(run_id for run_id, state in found if state != "pending"),
        tuple(run_id for run_id, state in found if state == "pending"),
    )
    judged = judge(run, live)
    cancel(db, tell, now_ms, list(judged.cancelled))
    bear(db, tell, now_ms, [judged.run])
    tell("runs")
    return view_of(judged.run, now_ms)
