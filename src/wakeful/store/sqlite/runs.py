"""Runs in SQLite, as users see and change them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Final

from wakeful.errors import AlreadyExists
from wakeful.run.consequences import Consequences
from wakeful.run.outcome import Finished
from wakeful.run.run import NewRun, check_cancellable
from wakeful.store.changelog import TransactionEvents
from wakeful.store.plans import LiveRuns, ManualRunRule
from wakeful.store.row_mapping import view_of_new_run
from wakeful.store.rows import RunView
from wakeful.store.sql.new_runs import hold_jobs
from wakeful.store.sql.runs import read_run
from wakeful.store.sqlite import statements as sql
from wakeful.store.sqlite.insert_runs import write_runs
from wakeful.store.sqlite.outcomes import settle
from wakeful.store.sqlite.session import SqliteSession
from wakeful.store.sqlite.waiting_runs import cancel
from wakeful.values.clock import Clock

#: runs_running and runs_waiting: running and retrying runs, and those that wait for their turn
LIVE: Final = """
    SELECT id, state FROM runs INDEXED BY runs_running WHERE job_id = ?1 AND state = 'running'
    UNION ALL
    SELECT id, state FROM runs INDEXED BY runs_waiting
    WHERE job_id = ?1 AND state IN ('pending', 'retrying')
        AND (state = 'retrying'
            OR (serial OR instance_id IS NOT NULL) AND trigger IN ('schedule', 'user', 'agent', 'event'))"""


async def add_runs(
    db: sqlite3.Connection,
    events: TransactionEvents,
    now_ms: int,
    runs: Sequence[NewRun],
    versions: Sequence[int | None] = (),
) -> list[RunView]:
    await hold_jobs(SqliteSession(db), runs, versions)
    ids = json.dumps([run.id for run in runs])
    for (run_id,) in db.execute(sql.WHICH_EXIST, (ids,)):
        raise AlreadyExists(f"there is a run '{run_id}' already")
    written = write_runs(db, events, now_ms, runs, strict=True)
    if len(written) < len(runs):
        raise AlreadyExists("a tick among these runs has its run already")
    return [view_of_new_run(run, now_ms) for run in written]


async def add_manual_run(
    db: sqlite3.Connection,
    events: TransactionEvents,
    now_ms: int,
    run: NewRun,
    judge: ManualRunRule,
    version: int | None = None,
) -> RunView:
    await hold_jobs(SqliteSession(db), [run], [version])
    found = db.execute(LIVE, (run.job_id,)).fetchall()
    live = LiveRuns(
        tuple(run_id for run_id, state in found if state != "pending"),
        tuple(run_id for run_id, state in found if state == "pending"),
    )
    judged = judge(run, live)
    cancel(db, events, now_ms, list(judged.cancelled))
    (added,) = write_runs(db, events, now_ms, [judged.run], strict=True)
    events.publish("runs")
    return view_of_new_run(added, now_ms)


async def cancel_run(
    db: sqlite3.Connection, events: TransactionEvents, run_id: str, now_ms: int, reason: str, running: bool
) -> RunView | None:
    found = await read_run(SqliteSession(db), run_id)
    if found is None:
        return None
    check_cancellable(run_id, found.state, running=running)
    cancel(db, events, now_ms, [(run_id, reason)])
    return await read_run(SqliteSession(db), run_id)


async def cancel_runs(
    db: sqlite3.Connection, events: TransactionEvents, now_ms: int, runs: Sequence[tuple[str, str]]
) -> None:
    cancel(db, events, now_ms, runs)


async def complete_run(
    db: sqlite3.Connection,
    events: TransactionEvents,
    clock: Clock,
    now_ms: int,
    finished: Finished,
    consequences: Consequences,
) -> bool:
    row = db.execute(sql.HOLDER, (finished.run_id, finished.attempt)).fetchone()
    if row is None:
        return False
    worker, is_pull, instance_id = row
    finished = finished._replace(instance_id=instance_id)
    if not await settle(db, events, clock, now_ms, worker, [finished], consequences):
        return False
    if worker is not None and not is_pull:
        events.publish(f"stop:{finished.run_id}:{finished.attempt}")
    return True
