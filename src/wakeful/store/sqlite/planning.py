"""Planning in SQLite: claim, decide, insert, cancel, advance. The write lock excludes other planners."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable

from wakeful.store.changelog import ChangedJob, TransactionEvents
from wakeful.store.mailbox_rules import refused_ticks
from wakeful.store.plans import DECISIONS_AT_ONCE, DueJob, JobPlan, Planned
from wakeful.store.sql.new_runs import check_written
from wakeful.store.sql.planning import PlanningPass
from wakeful.store.sqlite import statements as sql
from wakeful.store.sqlite.insert_runs import write_runs
from wakeful.store.sqlite.session import SqliteSession
from wakeful.store.sqlite.waiting_runs import cancel


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
    made = PlanningPass()
    rowids: dict[str, int] = {}
    for number, (*columns, rowid) in enumerate(claimed, 1):
        if number % DECISIONS_AT_ONCE == 0:
            # This runs in a thread: the event loop gets the interpreter lock.
            time.sleep(0)  # noqa: ASYNC251
        job = DueJob(*columns)
        if job.id in running or job.id in waiting:
            live, pending = running.get(job.id, ()), waiting.get(job.id, ())
            job = job._replace(running=tuple(live), waiting=tuple(pending))
        decided = decide(job)
        if decided is not None:
            made.add(job, decided)
            rowids[job.id] = rowid
    written = write_runs(db, events, now_ms, made.runs)
    check_written(made.runs, written, len(claimed))
    cancel(db, events, now_ms, made.cancelled)
    sql.ADVANCE.execute(
        db, [(each.next_ms, each.wake_ms, each.run_count, rowids[each.job_id]) for each in made.plans]
    )
    db.executemany(
        sql.HALT,
        [
            (each.enabled, each.disabled_reason, each.decided_ticks, rowids[each.job_id])
            for each in made.halted
        ],
    )
    await made.write_states(SqliteSession(db), events, now_ms)
    if written is not made.runs and (refused := refused_ticks(written)):
        over = [ChangedJob(*row) for row in db.execute(sql.REFUSED, (json.dumps(refused),))]
        db.executemany(sql.END_REFUSED, [(each.id,) for each in over])
        events.record_changed_jobs(over)
    return Planned(len(claimed), list(written))
