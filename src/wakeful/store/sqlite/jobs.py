"""Jobs in SQLite: with the agents from which they inherit, and charged to quotas when they are created."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from wakeful.job.self_scheduling import APPROVAL
from wakeful.run.consequences import JOB_DELETED, JOB_DISABLED, Withdrawal
from wakeful.run.run import NewRun
from wakeful.run.usage import utc_day
from wakeful.store.accounts import AgentChanged, AgentRow, Inherited, InheritingChange
from wakeful.store.changelog import TransactionEvents
from wakeful.store.internal_jobs import IN_SQL
from wakeful.store.job_changes import precheck_edit
from wakeful.store.quotas import (
    CREATE_JOB,
    LIVE_JOBS,
    Allowance,
    Charged,
    QuotaOwner,
    charges,
    check_created,
    check_live,
    live_limits,
    owners,
)
from wakeful.store.rows import JobChange, JobRow
from wakeful.store.sql import accounts, prechecks
from wakeful.store.sql.history import delete_of_new_jobs
from wakeful.store.sql.incidents import close_of_jobs
from wakeful.store.sql.jobs import find_name_conflict, job_by_id, job_row, jobs_by_ids, name_taken
from wakeful.store.sql.new_runs import check_written
from wakeful.store.sql.usage import note_waiting_jobs
from wakeful.store.sqlite import statements as sql
from wakeful.store.sqlite.connection import begin_again
from wakeful.store.sqlite.insert_runs import write_runs
from wakeful.store.sqlite.session import SqliteSession
from wakeful.store.sqlite.waiting_runs import delete_job as mark_deleted
from wakeful.store.sqlite.waiting_runs import delete_without_runs, move, settle_ahead, withdraw
from wakeful.values.clock import Clock

#: the primary key; writes nothing if the agent exists
ADD_AGENT: Final = """
    INSERT INTO agents (workspace, name, active, description, version, created_at, updated_at)
    VALUES (?1, ?2, 1, '', 1, ?3, ?3)
    ON CONFLICT DO NOTHING"""
#: the primary key; the columns of `Inherited`
INHERITED: Final = """
    SELECT target, active, secret, old_secret, old_secret_until_at FROM agents
    WHERE workspace = ? AND name = ?"""
#: the primary key. The clock may go back over midnight: the later day counts, unless it is not even tomorrow
CHARGE: Final = """
    INSERT INTO quotas (workspace, agent, bucket, used, day) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (workspace, agent, bucket) DO UPDATE
    SET day = iif(quotas.day = excluded.day + 1, quotas.day, excluded.day),
        used = excluded.used + iif(quotas.day - excluded.day IN (0, 1), quotas.used, 0)"""
#: the primary key, twice for each owner
CHARGED: Final = """
    SELECT c.workspace, c.agent, c.most, c.used, l.most
    FROM json_each(?1) o CROSS JOIN quotas c ON c.workspace = json_extract(o.value, '$[0]')
        AND c.agent = json_extract(o.value, '$[1]') AND c.bucket = ?2
    LEFT JOIN quotas l ON l.workspace = c.workspace AND l.agent = c.agent AND l.bucket = ?3"""
#: jobs_name: of a range of it, as many as the limit and one more. A stored count would make transactions that
#: delete jobs wait for those that create some
LIVE_OF_AGENT: Final = f"""
    SELECT count(*) FROM (SELECT 1 FROM jobs INDEXED BY jobs_name
        WHERE workspace = ? AND agent = ? AND deleted_at IS NULL AND name NOT IN ({IN_SQL})
        AND instance_id IS NULL LIMIT ? + 1)"""
LIVE_OF_WORKSPACE: Final = f"""
    SELECT count(*) FROM (SELECT 1 FROM jobs INDEXED BY jobs_name
        WHERE workspace = ? AND deleted_at IS NULL AND name NOT IN ({IN_SQL})
        AND instance_id IS NULL LIMIT ? + 1)"""


def add_agents(
    db: sqlite3.Connection,
    now_ms: int,
    owners: Iterable[QuotaOwner],
    expected: Mapping[QuotaOwner, Inherited] | None = None,
) -> None:
    """Add those of these agents that do not exist. Raise AgentChanged if one differs from `expected`."""
    db.executemany(ADD_AGENT, [(*owner, now_ms) for owner in owners])
    for owner, inherited in (expected or {}).items():
        check_agent(db, *owner, inherited)


def check_agent(db: sqlite3.Connection, workspace: str, name: str, expected: Inherited) -> None:
    """Raise AgentChanged if the agent exists and differs from `expected`."""
    row = db.execute(INHERITED, (workspace, name)).fetchone()
    if row is not None and row != expected:  # 1 == True
        raise AgentChanged(name)


def charge(db: sqlite3.Connection, now_ms: int, jobs: Sequence[JobRow], allowance: Allowance) -> None:
    """Charge these new jobs to their workspaces and agents."""
    added = charges(jobs)
    day = utc_day(now_ms)
    db.executemany(CHARGE, [(*owner, CREATE_JOB, count, day) for owner, count in added.items()])
    rows = db.execute(CHARGED, (json.dumps(list(added)), CREATE_JOB, LIVE_JOBS))
    charged = [Charged(*row) for row in rows]
    check_created(charged, added, allowance)
    limits = live_limits(charged, allowance)
    check_live({owner: _live(db, *owner, limit) for owner, limit in limits.items()}, limits)


def _live(db: sqlite3.Connection, workspace: str, agent: str, limit: int) -> int:
    """Count the jobs of an owner, up to one more than the limit."""
    if agent:
        count: int = db.execute(LIVE_OF_AGENT, (workspace, agent, limit)).fetchone()[0]
    else:
        count = db.execute(LIVE_OF_WORKSPACE, (workspace, limit)).fetchone()[0]
    return count


async def create_jobs(
    db: sqlite3.Connection,
    events: TransactionEvents,
    now_ms: int,
    jobs: Sequence[JobRow],
    allowance: Allowance | None,
    agents: Mapping[tuple[str, str], Inherited] | None,
) -> None:
    await delete_of_new_jobs(SqliteSession(db), [new.key for new in jobs])
    add_agents(db, now_ms, owners(jobs), agents)
    try:
        sql.CREATE_JOB.execute(db, jobs)
    except sqlite3.IntegrityError as error:
        begin_again(db)
        taken = await find_name_conflict(SqliteSession(db), jobs)
        if taken is None:
            raise
        raise name_taken(taken) from error
    if allowance is not None:
        charge(db, now_ms, jobs, allowance)
    events.record_changed_jobs((new.id, *new.key) for new in jobs)
    waiting = [new.id for new in jobs if new.disabled_reason == APPROVAL]
    await note_waiting_jobs(SqliteSession(db), events, now_ms, waiting)
    events.publish("jobs")


async def change_job(
    db: sqlite3.Connection,
    events: TransactionEvents,
    clock: Clock,
    job_id: str,
    change: Callable[[JobRow], JobChange | None],
    agent: Inherited | None,
) -> tuple[JobRow | None, bool]:
    old = await job_by_id(SqliteSession(db), job_id)
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
    for owner, inherited in (agents or {}).items():
        check_agent(db, *owner, inherited)
    now_ms = clock.now_ms()
    rows = await jobs_by_ids(SqliteSession(db), job_ids)
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
        raise name_taken(new) from error
    if new.agent != old.agent:
        add_agents(db, now_ms, owners([new]))
    edit = precheck_edit(old, new)
    if edit is not None:
        await prechecks.revise(SqliteSession(db), [new.id], reset=edit == "reset")
    settle_ahead(db, events, now_ms, new.id, new.policy, changed.withdrawal_reason)
    if changed.withdraw is not None:
        withdraw(db, events, Withdrawal(new.id, new.updated_ms, changed.withdraw), None)
    if changed.move is not None:
        move(db, events, now_ms, new.id, changed.move)
    if changed.runs:
        check_written(changed.runs, write_runs(db, events, now_ms, changed.runs))
    if old.enabled and not new.enabled:
        await close_of_jobs(SqliteSession(db), events, [new.id], now_ms, JOB_DISABLED)
    events.record_changed_jobs([(new.id, *new.key)])
    if new.disabled_reason == APPROVAL != old.disabled_reason:
        await note_waiting_jobs(SqliteSession(db), events, now_ms, [new.id])
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
    row = await job_by_id(SqliteSession(db), job_id)
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


async def put_agent(
    db: sqlite3.Connection,
    events: TransactionEvents,
    clock: Clock,
    workspace: str,
    name: str,
    change: Callable[[AgentRow | None], AgentRow | None],
    follow: InheritingChange | None,
) -> tuple[AgentRow | None, bool]:
    _before, row, written = await accounts.put_agent(SqliteSession(db), workspace, name, change)
    if follow is not None and row is not None:
        for each in db.execute(sql.JOBS_OF_AGENT, (workspace, name)).fetchall():
            job = job_row(each)
            changed = follow(row, job)
            if changed is not None:
                await write_change(db, events, clock.now_ms(), job, changed)
    return row, written
