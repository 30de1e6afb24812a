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
from wakeful.store.columns import reader, select_list
from wakeful.store.plans import LiveRuns, ManualRunRule
from wakeful.store.row_mapping import view_of
from wakeful.store.rows import AttemptView, DeadLetter, RunFilter, RunView
from wakeful.store.sql.new_runs import hold_jobs
from wakeful.store.sqlite import list_statements as lists
from wakeful.store.sqlite import statements as sql
from wakeful.store.sqlite.connection import TransactionEvents
from wakeful.store.sqlite.insert_runs import write_runs
from wakeful.store.sqlite.outcomes import settle
from wakeful.store.sqlite.session import SqliteSession
from wakeful.store.sqlite.waiting_runs import cancel
from wakeful.store.stats import DeadLetterFilter, DeadLetterRow
from wakeful.values.clock import Clock

#: the primary key, once for each
RUNS_BY_IDS: Final = f"SELECT {sql.RUN_VIEW} FROM runs WHERE id IN (SELECT value FROM json_each(?))"
#: runs_running and runs_waiting: running and retrying runs, and those that wait for their turn
LIVE: Final = """
    SELECT id, state FROM runs INDEXED BY runs_running WHERE job_id = ?1 AND state = 'running'
    UNION ALL
    SELECT id, state FROM runs INDEXED BY runs_waiting
    WHERE job_id = ?1 AND state IN ('pending', 'retrying')
        AND (state = 'retrying'
            OR (serial OR instance_id IS NOT NULL) AND trigger IN ('schedule', 'user', 'agent'))"""
_LETTER: Final = f"""
    SELECT {select_list(RunView._fields, "r", {"delivery": "'not_requested'", "delivery_error": "NULL"})},
        coalesce(j.policy, '{{}}'), coalesce(j.work, '{{}}')"""
#: the primary keys of runs and jobs, once for each
LETTERS: Final = f"""{_LETTER}
    FROM json_each(?2) e CROSS JOIN runs r ON r.id = e.value LEFT JOIN jobs j ON j.id = r.job_id
    WHERE r.workspace = ?1 AND r.dead ORDER BY e.key"""
#: runs_dead: the beginning of it, in its order; the jobs' primary key for what is found
OLDEST_LETTERS: Final = f"""{_LETTER}
    FROM runs r INDEXED BY runs_dead LEFT JOIN jobs j ON j.id = r.job_id
    WHERE r.workspace = ?1 AND r.dead ORDER BY r.id LIMIT ?2"""
run_view: Final = reader(RunView)


async def add_runs(
    db: sqlite3.Connection,
    events: TransactionEvents,
    now_ms: int,
    runs: Sequence[NewRun],
    version: int | None = None,
) -> list[RunView]:
    await hold_jobs(SqliteSession(db), runs, version)
    ids = json.dumps([run.id for run in runs])
    for (run_id,) in db.execute(sql.WHICH_EXIST, (ids,)):
        raise AlreadyExists(f"there is a run '{run_id}' already")
    written = write_runs(db, events, now_ms, runs, strict=True)
    if len(written) < len(runs):
        raise AlreadyExists("a tick among these runs has its run already")
    events.publish("runs")
    return [view_of(run, now_ms) for run in written]


async def add_manual_run(
    db: sqlite3.Connection,
    events: TransactionEvents,
    now_ms: int,
    run: NewRun,
    judge: ManualRunRule,
    version: int | None = None,
) -> RunView:
    await hold_jobs(SqliteSession(db), [run], version)
    found = db.execute(LIVE, (run.job_id,)).fetchall()
    live = LiveRuns(
        tuple(run_id for run_id, state in found if state != "pending"),
        tuple(run_id for run_id, state in found if state == "pending"),
    )
    judged = judge(run, live)
    cancel(db, events, now_ms, list(judged.cancelled))
    (added,) = write_runs(db, events, now_ms, [judged.run], strict=True)
    events.publish("runs")
    return view_of(added, now_ms)


async def cancel_run(
    db: sqlite3.Connection, events: TransactionEvents, run_id: str, now_ms: int, reason: str, running: bool
) -> RunView | None:
    found = _run(db, run_id)
    if found is None:
        return None
    check_cancellable(run_id, found.state, running=running)
    cancel(db, events, now_ms, [(run_id, reason)])
    return _run(db, run_id)


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


async def run(db: sqlite3.Connection, run_id: str) -> RunView | None:
    return _run(db, run_id)


async def runs_by_ids(db: sqlite3.Connection, ids: Sequence[str]) -> list[RunView]:
    return [run_view(row) for row in db.execute(RUNS_BY_IDS, (json.dumps(list(ids)),))]


def _run(db: sqlite3.Connection, run_id: str) -> RunView | None:
    row = db.execute(sql.RUN, (run_id,)).fetchone()
    return None if row is None else run_view(row)


async def list_runs(db: sqlite3.Connection, only: RunFilter) -> list[RunView]:
    """Return the runs that match, newest first."""
    return [run_view(row) for row in db.execute(*lists.list_runs(only))]


async def dead_letters(db: sqlite3.Connection, only: DeadLetterFilter) -> list[DeadLetterRow]:
    return [DeadLetterRow(*row) for row in db.execute(*lists.dead_letters(only))]


async def attempts(db: sqlite3.Connection, run_id: str) -> list[AttemptView]:
    return [AttemptView(*row) for row in db.execute(sql.ATTEMPTS, (run_id,))]


async def lock_dead_letters(
    db: sqlite3.Connection, workspace: str, which: Sequence[str] | int
) -> list[DeadLetter]:
    if isinstance(which, int):
        rows = db.execute(OLDEST_LETTERS, (workspace, which))
    else:
        rows = db.execute(LETTERS, (workspace, json.dumps(list(dict.fromkeys(which)))))
    return [DeadLetter(run_view(columns), policy, work) for *columns, policy, work in rows]
