"""Jobs in PostgreSQL. A text that is not a UUID is the id of no job: it is not found, and not an error."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from asyncpg import UniqueViolationError

from wakeful.errors import AlreadyExists
from wakeful.run.consequences import JOB_DELETED, Withdrawal
from wakeful.run.run import NewRun
from wakeful.store.accounts import Inherited
from wakeful.store.postgres import list_statements as lists
from wakeful.store.postgres import statements as sql
from wakeful.store.postgres.accounts import check_agents, hold_agent_of, hold_agents
from wakeful.store.postgres.cancellation import delete_jobs, withdraw
from wakeful.store.postgres.inheritance import AT_ONCE, write_changes
from wakeful.store.postgres.insert_runs import insert_runs
from wakeful.store.postgres.quotas import charge
from wakeful.store.postgres.session import PostgresSession
from wakeful.store.postgres.transactions import Breaks, savepoint
from wakeful.store.quotas import Allowance, owners
from wakeful.store.rows import JobChange, JobFilter, JobRow
from wakeful.store.sql.incidents import close_of_jobs
from wakeful.store.sql.job_conditions import FEW
from wakeful.store.sql.new_runs import check_written
from wakeful.values.clock import Clock
from wakeful.values.ids import is_id

if TYPE_CHECKING:
    from wakeful.store.postgres.connection import Db, TransactionEvents

#: the primary keys, once for each
JOBS_BY_IDS: Final = sql.jobs_where(
    "c.job_id = ANY(string_to_array($1, ',')::uuid[]) AND j.deleted_at IS NULL"
)


async def create_jobs(
    db: Db,
    events: TransactionEvents,
    now_ms: int,
    jobs: Sequence[JobRow],
    allowance: Allowance | None,
    agents: Mapping[tuple[str, str], Inherited] | None = None,
) -> None:
    """Add jobs, all or none."""
    await hold_agents(db, now_ms, owners(jobs), agents)
    try:
        async with savepoint(db):  # the transaction continues after a conflict
            await db.execute(sql.CREATE_JOBS, jobs)
    except UniqueViolationError as error:
        seen = set()
        for new in jobs:
            if new[1:4] in seen or await job(db, *new[1:4]) is not None:
                raise _taken(new) from error
            seen.add(new[1:4])
        raise
    if allowance is not None:
        await charge(db, now_ms, jobs, allowance)
    events.changed(new[:4] for new in jobs)
    events.publish("jobs")


async def job(db: Db, workspace: str, agent: str, name: str) -> JobRow | None:
    """Return the job of that name."""
    row = await db.fetchrow(sql.JOB, workspace, agent, name)
    return None if row is None else JobRow(*row)


async def job_by_id(db: Db, job_id: str, deleted: bool = False) -> JobRow | None:
    """Return the job of that id."""
    query = sql.ANY_JOB_BY_ID if deleted else sql.JOB_BY_ID
    row = await db.fetchrow(query, job_id) if is_id(job_id) else None
    return None if row is None else JobRow(*row)


async def jobs_by_ids(db: Db, ids: Sequence[str]) -> list[JobRow]:
    """Return those of these jobs that exist."""
    return [JobRow(*row) for row in await db.fetch(JOBS_BY_IDS, ",".join(filter(is_id, ids)))]


async def list_jobs(db: Db, only: JobFilter) -> list[JobRow]:
    """Return the jobs that match, in the order that is asked for."""
    few = False
    if only.order == "next":
        found = await count_jobs(db, only, FEW)
        if not found:
            return []
        few = found < FEW
    if only.after_tick is not None and not is_id(only.after_tick[1]):
        return []
    query, args = lists.list_jobs(only, few)
    return [JobRow(*row) for row in await db.fetch(query, *args)]


async def count_jobs(db: Db, only: JobFilter, most: int) -> int:
    """Return the number of jobs that match, at most `most`."""
    query, args = lists.count_jobs(only, most)
    return int(await db.fetchval(query, *args))


async def change_job(
    db: Db,
    events: TransactionEvents,
    clock: Clock,
    job_id: str,
    change: Callable[[JobRow], JobChange | None],
    agent: Inherited | None = None,
) -> tuple[JobRow | None, bool]:
    """Write what `change` returns. Returns the job afterwards, and whether it was written."""
    if agent is not None and is_id(job_id):
        await hold_agent_of(db, job_id, agent)
    row = await db.fetchrow(sql.LOCK_JOB, job_id) if is_id(job_id) else None
    if row is None:
        return None, False
    old = JobRow(*row)
    changed = change(old)
    if changed is None:
        return old, False
    now_ms = clock.now_ms()  # read after the wait for the lock: runs that started meanwhile go on
    try:
        (new,) = await write_changes(db, events, now_ms, [(old, changed)])
    except UniqueViolationError as error:
        raise _taken(changed.job) from error
    if new.agent != old.agent:
        await hold_agents(db, now_ms, owners([new]))
    return new, True


async def change_jobs(
    db: Db,
    events: TransactionEvents,
    clock: Clock,
    job_ids: Sequence[str],
    change: Callable[[JobRow], JobChange | None],
    agents: Mapping[tuple[str, str], Inherited] | None,
) -> list[JobRow]:
    """Write what `change` returns for each job. Returns the changed jobs."""
    if agents:
        await check_agents(db, agents)
    known = [job_id for job_id in job_ids if is_id(job_id)]
    await db.execute(sql.LOCK_CURSORS, known)
    changes = []
    breaks = Breaks(AT_ONCE)
    for row in await db.fetch(sql.LOCK_JOBS, known):
        old = JobRow(*row)
        changed = change(old)
        if changed is not None:
            changes.append((old, changed))
        if breaks.is_due():
            await asyncio.sleep(0)
    return await write_changes(db, events, clock.now_ms(), changes)


async def delete_job(
    db: Db,
    events: TransactionEvents,
    clock: Clock,
    job_id: str,
    now_ms: int,
    reason: str,
    due_runs: Callable[[JobRow], Sequence[NewRun]],
) -> bool:
    """Delete the job and cancel its runs that have not started. The row of a job without runs is deleted."""
    row = await db.fetchrow(sql.LOCK_JOB, job_id) if is_id(job_id) else None
    if row is None:
        return False
    due = due_runs(JobRow(*row))
    check_written(due, await insert_runs(db, events, now_ms, due))
    if not await delete_jobs(db, events, {job_id: now_ms}):
        return False
    withdrawal = Withdrawal(job_id, now_ms, reason, manual=True)
    await withdraw(db, events, [withdrawal], max(now_ms, clock.now_ms()))
    await close_of_jobs(PostgresSession(db), events, [job_id], now_ms, JOB_DELETED)
    await db.execute(sql.DELETE_JOBS_WITHOUT_RUNS, [job_id])
    return True


def _taken(row: JobRow) -> AlreadyExists:
    return AlreadyExists(
        f"agent '{row.agent}' already has a job '{row.name}'; update that one, or choose another name"
    )
