"""Jobs and runs in SQLite, as people see and change them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence

from wakeful.clock import Clock
from wakeful.errors import AlreadyExists
from wakeful.outcome import Finished
from wakeful.run import NewRun, check_cancellable
from wakeful.store.accounts import Inherited
from wakeful.store.port import tell_worker
from wakeful.store.quotas import Allowance, owners
from wakeful.store.row_mapping import view_of
from wakeful.store.rows import AttemptView, JobChange, JobFilter, JobRow, RunFilter, RunView
from wakeful.store.sqlite import list_statements as lists
from wakeful.store.sqlite import statements as sql
from wakeful.store.sqlite.accounts import check_agent, make_agents
from wakeful.store.sqlite.ahead import settle_ahead
from wakeful.store.sqlite.connection import TransactionEvents
from wakeful.store.sqlite.insert_runs import bear
from wakeful.store.sqlite.outcomes import Follow, cancel, drop_job, settle, withdraw
from wakeful.store.sqlite.pull import move
from wakeful.store.sqlite.quotas import charge

_ENABLED = JobRow._fields.index("enabled")
_DEAD = RunView._fields.index("dead")


# --- jobs -----------------------------------------------------------------------------------------------


def create_jobs(
    db: sqlite3.Connection,
    tell: TransactionEvents,
    now_ms: int,
    jobs: Sequence[JobRow],
    allowance: Allowance | None,
    agents: Mapping[tuple[str, str], Inherited] | None = None,
) -> None:
    """Add jobs, all or none."""
    make_agents(db, now_ms, owners(jobs), agents)
    try:
        db.executemany(sql.CREATE_JOB, jobs)
    except sqlite3.IntegrityError as error:
        db.execute("ROLLBACK")
        db.execute("BEGIN IMMEDIATE")
        seen = set()
        for new in jobs:
            if new[1:4] in seen or job(db, *new[1:4]) is not None:
                raise _taken(new) from error
            seen.add(new[1:4])
        raise
    if allowance is not None:
        charge(db, now_ms, jobs, allowance)
    tell.changed(new[:4] for new in jobs)
    tell("jobs")


def job(db: sqlite3.Connection, workspace: str, agent: str, name: str) -> JobRow | None:
    """The job of that name."""
    row = db.execute(sql.JOB, (workspace, agent, name)).fetchone()
    return None if row is None else job_row(row)


def job_by_id(db: sqlite3.Connection, job_id: str, deleted: bool = False) -> JobRow | None:
    """The job of that id."""
    row = db.execute(sql.ANY_JOB_BY_ID if deleted else sql.JOB_BY_ID, (job_id,)).fetchone()
    return None if row is None else job_row(row)


def list_jobs(db: sqlite3.Connection, only: JobFilter) -> list[JobRow]:
    """The jobs that the filter lets through, by agent and name."""
    return [job_row(row) for row in db.execute(*lists.list_jobs(only))]


def change_job(
    db: sqlite3.Connection,
    tell: TransactionEvents,
    clock: Clock,
    job_id: str,
    change: Callable[[JobRow], JobChange | None],
    agent: Inherited | None = None,
) -> tuple[JobRow | None, bool]:
    """Write what `change` makes of the job. Returns it as it is now, and whether anything was written."""
    old = job_by_id(db, job_id)
    if old is None:
        return None, False
    if agent is not None:
        check_agent(db, old.workspace, old.agent, agent)
    changed = change(old)
    if changed is None:
        return old, False
    # Not the time from before the wait for the lock: what has started meanwhile goes on.
    return write_change(db, tell, clock.now_ms(), old, changed), True


def write_change(
    db: sqlite3.Connection, tell: TransactionEvents, now_ms: int, old: JobRow, changed: JobChange
) -> JobRow:
    """Write this change of a job. Returns the job as it is now."""
    new = changed.job._replace(
        id=old.id,
        workspace=old.workspace,
        created_ms=old.created_ms,
        created_by=old.created_by,
        version=old.version + 1,
    )
    try:
        db.execute(sql.CHANGE_JOB, new)
    except sqlite3.IntegrityError as error:
        raise _taken(new) from error
    if new.agent != old.agent:
        make_agents(db, now_ms, owners([new]))
    settle_ahead(db, tell, now_ms, new.id, changed.withdrawn)
    if changed.withdraw is not None:
        withdraw(db, tell, new.id, new.updated_ms, changed.withdraw)
    if changed.move is not None:
        move(db, tell, now_ms, new.id, changed.move)
    if changed.born:
        bear(db, tell, now_ms, changed.born)
    tell.changed([new[:4]])
    tell("jobs")
    return new


def delete_job(
    db: sqlite3.Connection,
    tell: TransactionEvents,
    job_id: str,
    now_ms: int,
    reason: str,
    born: Callable[[JobRow], Sequence[NewRun]],
    clock: Clock,
) -> bool:
    """Delete the job, with a record of the ticks that were due and not yet planned."""
    row = job_by_id(db, job_id)
    if row is None:
        return False
    due = born(row)
    if due:
        bear(db, tell, now_ms, due)
    settle_ahead(db, tell, max(now_ms, clock.now_ms()), job_id, lambda tick: reason)
    return drop_job(db, tell, job_id, now_ms, reason)


def _taken(row: JobRow) -> AlreadyExists:
    return AlreadyExists(
        f"agent '{row.agent}' already has a job '{row.name}'; update that one, or choose another name"
    )


def job_row(row: Sequence[object]) -> JobRow:
    """A job, from its columns."""
    return JobRow._make((*row[:_ENABLED], bool(row[_ENABLED]), *row[_ENABLED + 1 :]))


# --- runs -----------------------------------------------------------------------------------------------


def add_runs(
    db: sqlite3.Connection, tell: TransactionEvents, now_ms: int, runs: Sequence[NewRun]
) -> list[RunView]:
    """Add runs that are no ticks, all or none. Returns them as they are stored."""
    ids = json.dumps([run.id for run in runs])
    taken = db.execute(sql.WHICH_EXIST, (ids,)).fetchone()
    if taken is not None:
        raise AlreadyExists(f"there is a run '{taken[0]}' already")
    if len(bear(db, tell, now_ms, runs)) < len(runs):
        raise AlreadyExists("a tick among these runs has its run already")
    tell("runs")
    return [view_of(run, now_ms) for run in runs]


def cancel_run(
    db: sqlite3.Connection, tell: TransactionEvents, run_id: str, now_ms: int, reason: str, running: bool
) -> RunView | None:
    """Cancel a run that waits or, with `running`, stop one that runs."""
    found = run(db, run_id)
    if found is None:
        return None
    check_cancellable(run_id, found.state, running=running)
    cancel(db, tell, now_ms, [(run_id, reason)])
    return run(db, run_id)


def complete_run(
    db: sqlite3.Connection, tell: TransactionEvents, now_ms: int, finished: Finished, follow: Follow
) -> bool:
    """Write the outcome of a run that was reported from outside. See `Store.complete_run`."""
    row = db.execute(sql.HOLDER, (finished.run_id, finished.attempt)).fetchone()
    if row is None or not settle(db, tell, now_ms, row[0], [finished], follow):
        return False
    tell_worker(tell, row[0], finished)
    return True


def run(db: sqlite3.Connection, run_id: str) -> RunView | None:
    """The run of that id."""
    row = db.execute(sql.RUN, (run_id,)).fetchone()
    return None if row is None else run_view(row)


def list_runs(db: sqlite3.Connection, only: RunFilter) -> list[RunView]:
    """The runs that the filter lets through, newest first."""
    return [run_view(row) for row in db.execute(*lists.list_runs(only))]


def attempts(db: sqlite3.Connection, run_id: str) -> list[AttemptView]:
    """The attempts before the last, in order."""
    return [AttemptView(*row) for row in db.execute(sql.ATTEMPTS, (run_id,))]


def run_view(row: Sequence[object]) -> RunView:
    """A run, from its columns."""
    given = (*row[:_DEAD], bool(row[_DEAD]), *row[_DEAD + 1 :])
    return RunView(*given)  # type: ignore[arg-type]
