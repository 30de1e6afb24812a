"""Jobs in SQLite."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from wakeful.errors import AlreadyExists
from wakeful.run.consequences import JOB_DELETED, JOB_DISABLED, Withdrawal
from wakeful.run.run import NewRun
from wakeful.store.accounts import Inherited
from wakeful.store.job_changes import precheck_edit
from wakeful.store.quotas import Allowance, owners
from wakeful.store.rows import JobChange, JobFilter, JobRow
from wakeful.store.sql import prechecks
from wakeful.store.sql.incidents import close_of_jobs
from wakeful.store.sql.job_conditions import FEW
from wakeful.store.sql.new_runs import check_written
from wakeful.store.sqlite import list_statements as lists
from wakeful.store.sqlite import statements as sql
from wakeful.store.sqlite.accounts import add_agents, check_agent
from wakeful.store.sqlite.ahead import settle_ahead
from wakeful.store.sqlite.cancellation import delete_job as mark_deleted
from wakeful.store.sqlite.cancellation import delete_without_runs, withdraw
from wakeful.store.sqlite.connection import TransactionEvents, begin_again
from wakeful.store.sqlite.insert_runs import write_runs
from wakeful.store.sqlite.quotas import charge
from wakeful.store.sqlite.session import SqliteSession
from wakeful.store.sqlite.waiting_runs import move
from wakeful.values.clock import Clock

#: the primary key, once for each
JOBS_BY_IDS: Final = f"""
    SELECT {sql.JOB_COLUMNS} FROM jobs WHERE id IN (SELECT value FROM json_each(?)) AND deleted_at IS NULL"""
_ENABLED: Final = JobRow._fields.index("enabled")


async def create_jobs(
    db: sqlite3.Connection,
    events: TransactionEvents,
    now_ms: int,
    jobs: Sequence[JobRow],
    allowance: Allowance | None,
    agents: Mapping[tuple[str, str], Inherited] | None,
) -> None:
    """Add jobs, all or none."""
    add_agents(db, now_ms, owners(jobs), agents)
    try:
        sql.CREATE_JOB.execute(db, jobs)
    except sqlite3.IntegrityError as error:
        begin_again(db)
        seen = set()
        for new in jobs:
            if new[1:4] in seen or _job(db, *new[1:4]) is not None:
                raise _taken(new) from error
            seen.add(new[1:4])
        raise
    if allowance is not None:
        charge(db, now_ms, jobs, allowance)
    events.changed(new[:4] for new in jobs)
    events.publish("jobs")


async def job(db: sqlite3.Connection, workspace: str, agent: str, name: str) -> JobRow | None:
    """Return the job of that name."""
    return _job(db, workspace, agent, name)


def _job(db: sqlite3.Connection, workspace: str, agent: str, name: str) -> JobRow | None:
    row = db.execute(sql.JOB, (workspace, agent, name)).fetchone()
    return None if row is None else job_row(row)


async def job_by_id(db: sqlite3.Connection, job_id: str, deleted: bool) -> JobRow | None:
    """Return the job of that id."""
    return _job_by_id(db, job_id, deleted)


async def jobs_by_ids(db: sqlite3.Connection, ids: Sequence[str]) -> list[JobRow]:
    """Return those of these jobs that exist."""
    return [job_row(row) for row in db.execute(JOBS_BY_IDS, (json.dumps(list(ids)),))]


def _job_by_id(db: sqlite3.Connection, job_id: str, deleted: bool = False) -> JobRow | None:
    row = db.execute(sql.ANY_JOB_BY_ID if deleted else sql.JOB_BY_ID, (job_id,)).fetchone()
    return None if row is None else job_row(row)


async def list_jobs(db: sqlite3.Connection, only: JobFilter) -> list[JobRow]:
    """Return the jobs that match, in the order that is asked for."""
    few = False
    if only.order == "next":
        found = await count_jobs(db, only, FEW)
        if not found:
            return []
        few = found < FEW
    return [job_row(row) for row in db.execute(*lists.list_jobs(only, few))]


async def count_jobs(db: sqlite3.Connection, only: JobFilter, most: int) -> int:
    """Return the number of jobs that match, at most `most`."""
    return int(db.execute(*lists.count_jobs(only, most)).fetchone()[0])


async def change_job(
    db: sqlite3.Connection,
    events: TransactionEvents,
    clock: Clock,
    job_id: str,
    change: Callable[[JobRow], JobChange | None],
    agent: Inherited | None,
) -> tuple[JobRow | None, bool]:
    """Write what `change` returns. Returns the job afterwards, and whether it was written."""
    old = _job_by_id(db, job_id)
    if old is None:
        return None, False
    if agent is not None:
        check_agent(db, old.workspace, old.agent, agent)
    changed = change(old)
    if changed is None:
        return old, False
    # The time is read after the wait for the lock: runs that started meanwhile go on.
    return await write_change(db, events, clock.now_ms(), old, changed), True


async def change_jobs(
    db: sqlite3.Connection,
    events: TransactionEvents,
    clock: Clock,
    job_ids: Sequence[str],
    change: Callable[[JobRow], JobChange | None],
    agents: Mapping[tuple[str, str], Inherited] | None,
) -> list[JobRow]:
    """Write what `change` returns for each job. Returns the changed jobs."""
    for owner, inherited in (agents or {}).items():
        check_agent(db, *owner, inherited)
    now_ms = clock.now_ms()
    rows = [job_row(row) for row in db.execute(JOBS_BY_IDS, (json.dumps(list(job_ids)),)).fetchall()]
    changes = [(old, changed) for old in rows if (changed := change(old)) is not None]
    return [await write_change(db, events, now_ms, old, changed) for old, changed in changes]


async def write_change(
    db: sqlite3.Connection, events: TransactionEvents, now_ms: int, old: JobRow, changed: JobChange
) -> JobRow:
    """Write this change of a job. Returns the job afterwards."""
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
        add_agents(db, now_ms, owners([new]))
    edit = precheck_edit(old, new)
    if edit is not None:
        await prechecks.revise(SqliteSession(db), [new.id], reset=edit == "reset")
    settle_ahead(db, events, now_ms, new.id, changed.withdrawn)
    if changed.withdraw is not None:
        withdraw(db, events, Withdrawal(new.id, new.updated_ms, changed.withdraw), None)
    if changed.move is not None:
        move(db, events, now_ms, new.id, changed.move)
    if changed.runs:
        check_written(changed.runs, write_runs(db, events, now_ms, changed.runs))
    if old.enabled and not new.enabled:
        await close_of_jobs(SqliteSession(db), events, [new.id], now_ms, JOB_DISABLED)
    events.changed([new[:4]])
    events.publish("jobs")
    return new


async def delete_job(
    db: sqlite3.Connection,
    events: TransactionEvents,
    clock: Clock,
    job_id: str,
    now_ms: int,
    reason: str,
    due_runs: Callable[[JobRow], Sequence[NewRun]],
) -> bool:
    """Delete the job, and add the runs of ticks that were due and not yet planned."""
    row = _job_by_id(db, job_id)
    if row is None:
        return False
    due = due_runs(row)
    if due:
        check_written(due, write_runs(db, events, now_ms, due))
    if not mark_deleted(db, events, job_id, now_ms):
        return False
    withdraw(db, events, Withdrawal(job_id, now_ms, reason, manual=True), max(now_ms, clock.now_ms()))
    await close_of_jobs(SqliteSession(db), events, [job_id], now_ms, JOB_DELETED)
    delete_without_runs(db, [job_id])
    return True


def _taken(row: JobRow) -> AlreadyExists:
    return AlreadyExists(
        f"agent '{row.agent}' already has a job '{row.name}'; update that one, or choose another name"
    )


def job_row(row: Sequence[object]) -> JobRow:
    """Return a job from its columns."""
    return JobRow._make((*row[:_ENABLED], bool(row[_ENABLED]), *row[_ENABLED + 1 :]))
