"""The schedules of instances in PostgreSQL: their jobs, locked and changed together with the instance.

A schedule is added or deleted by a transaction that holds the lock of its instance. Jobs are locked before
instances; so a transaction finds them first, locks them, then the instance, and then checks that they are
still the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from asyncpg import SerializationError

from wakeful.run.consequences import JOB_DELETED, Withdrawal
from wakeful.store.job_changes import overdue_runs, schedule_change
from wakeful.store.postgres import statements as sql
from wakeful.store.postgres.accounts import HOLD_EXISTING
from wakeful.store.postgres.cancellation import delete_jobs, withdraw
from wakeful.store.postgres.inheritance import write_changes
from wakeful.store.postgres.insert_runs import insert_runs
from wakeful.store.postgres.jobs import create_jobs
from wakeful.store.postgres.session import PostgresSession
from wakeful.store.quotas import QuotaOwner
from wakeful.store.rows import JobRow
from wakeful.store.sql.incidents import close_of_jobs
from wakeful.store.sql.new_runs import check_written
from wakeful.values.clock import Clock

if TYPE_CHECKING:
    from wakeful.store.postgres.connection import Db, TransactionEvents

#: jobs_schedule: a range of it for each instance
SCHEDULE_IDS: Final = """
    SELECT j.id::text FROM unnest($1::uuid[]) i (id) CROSS JOIN LATERAL (
        SELECT id FROM jobs WHERE instance_id = i.id AND deleted_at IS NULL OFFSET 0) j"""
#: jobs_schedule: a range of it, in its order; the cursors' primary key
SCHEDULES: Final = sql.jobs_where(
    "j.instance_id = $1 AND j.deleted_at IS NULL ORDER BY j.schedule_origin, j.schedule_id"
)


async def schedules(db: Db, instance_id: str) -> list[JobRow]:
    """Return the jobs of the schedules of an instance, by origin and id."""
    return [JobRow(*row) for row in await db.fetch(SCHEDULES, instance_id)]


async def schedule_ids(db: Db, instance_ids: Sequence[str]) -> set[str]:
    """Return the ids of the jobs of all schedules of these instances."""
    if not instance_ids:
        return set()
    return {row[0] for row in await db.fetch(SCHEDULE_IDS, list(instance_ids))}


async def hold_agents(db: Db, owners: Sequence[QuotaOwner]) -> frozenset[QuotaOwner]:
    """Lock these agents against changes, as far as they exist: agents are locked before jobs.

    Returns those that are not active.
    """
    if not owners:
        return frozenset()
    rows = await db.fetch(HOLD_EXISTING, [owner[0] for owner in owners], [owner[1] for owner in owners])
    return frozenset((row["workspace"], row["name"]) for row in rows if not row["active"])


async def lock_schedules(db: Db, job_ids: Sequence[str]) -> dict[str, JobRow]:
    """Lock these jobs, whose cursors are locked, and return those that exist."""
    rows = await db.fetch(sql.LOCK_JOBS, list(job_ids)) if job_ids else ()
    return {row[0]: JobRow(*row) for row in rows}


async def check_unchanged(db: Db, instance_ids: Sequence[str], found: set[str]) -> None:
    """Repeat the transaction if schedules were added before these instances were locked."""
    if not await schedule_ids(db, instance_ids) <= found:
        raise SerializationError("schedules of the instance were added meanwhile")


async def change_schedules(
    db: Db,
    events: TransactionEvents,
    clock: Clock,
    now_ms: int,
    rows: Mapping[str, JobRow],
    created: Sequence[JobRow],
    changed: Sequence[JobRow],
    deleted: Sequence[str],
) -> None:
    """Write these changes of schedules. `rows` are their jobs before, by id; they are locked."""
    gone = [rows[job_id] for job_id in deleted if job_id in rows]
    if gone:
        ids = [row.id for row in gone]
        due = [run for row in gone for run in overdue_runs(row, now_ms)]
        check_written(due, await insert_runs(db, events, now_ms, due))
        await delete_jobs(db, events, dict.fromkeys(ids, now_ms))
        withdrawals = [Withdrawal(job_id, now_ms, JOB_DELETED, manual=True) for job_id in ids]
        await withdraw(db, events, withdrawals, max(now_ms, clock.now_ms()))
        await close_of_jobs(PostgresSession(db), events, ids, now_ms, JOB_DELETED)
        await db.execute(sql.DELETE_JOBS_WITHOUT_RUNS, ids)
    if changed:
        changes = [(rows[new.id], schedule_change(rows[new.id], new, now_ms)) for new in changed]
        await write_changes(db, events, now_ms, changes)
    if created:
        await create_jobs(db, events, now_ms, created, None)
