"""The schedules of instances in SQLite: jobs, which are written as all jobs are."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Final

from wakeful.run.consequences import JOB_DELETED
from wakeful.store.job_changes import overdue_runs, schedule_change
from wakeful.store.rows import JobRow
from wakeful.store.sqlite import statements as sql
from wakeful.store.sqlite.connection import TransactionEvents
from wakeful.store.sqlite.jobs import create_jobs, delete_job, job_row, write_change
from wakeful.values.clock import Clock

#: jobs_schedule: for each instance a range of it, in its order
SCHEDULES: Final = f"""
    SELECT {", ".join(f"j.{column}" for column in sql.JOB_COLUMNS.split(", "))}
    FROM json_each(?) e CROSS JOIN jobs j INDEXED BY jobs_schedule
        ON j.instance_id = e.value AND j.deleted_at IS NULL
    ORDER BY e.key, j.schedule_origin, j.schedule_id"""


def schedules_of(db: sqlite3.Connection, instances: Iterable[str]) -> list[JobRow]:
    """Return the jobs of the schedules of these instances, by origin and id."""
    given = list(instances)
    return [job_row(row) for row in db.execute(SCHEDULES, (json.dumps(given),))] if given else []


async def change_schedules(
    db: sqlite3.Connection,
    events: TransactionEvents,
    clock: Clock,
    now_ms: int,
    old: Iterable[JobRow],
    created: Sequence[JobRow],
    changed: Iterable[JobRow],
    deleted: Iterable[str],
) -> None:
    """Delete, change and create schedules. `old` has those that are changed, as they are stored."""
    stored = {row.id: row for row in old}
    for job_id in deleted:  # first: a schedule that takes the place of another has its name
        await delete_job(
            db, events, clock, job_id, now_ms, JOB_DELETED, lambda row: overdue_runs(row, now_ms)
        )
    for row in changed:
        before = stored[row.id]
        await write_change(db, events, now_ms, before, schedule_change(before, row, now_ms))
    if created:
        await create_jobs(db, events, now_ms, created, None, None)
