"""The cost of the database alone: the rows and statements of the storm benchmark."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
import time

from wakeful.store.connect import store_at
from wakeful.store.rows import JobRow
from wakeful.store.sqlite import statements as lite
from wakeful.values.ids import new_id

WORKER = "floor"
HOUR_MS = 3_600_000


async def floor_rate(url: str, jobs: int, batch: int) -> float:
    """Return the jobs per second through claim, insert, advance and complete, as bare batched SQL."""
    now_ms = time.time_ns() // 1_000_000
    store = store_at(url)
    await store.open()
    try:
        await store.create_jobs([_job(number, now_ms) for number in range(jobs)])
    finally:
        await store.close()
    if url.startswith("sqlite"):
        return await asyncio.to_thread(_sqlite, url.removeprefix("sqlite:///"), jobs, batch, now_ms)
    from benchmarks.bare.postgres import postgres_floor

    return await postgres_floor(url, jobs, batch, now_ms)


def _job(number: int, now_ms: int) -> JobRow:
    return JobRow(
        id=new_id(now_ms),
        workspace="default",
        agent="default",
        name=f"job-{number}",
        timing='{"schedule":{"everyMs":3600000,"kind":"every"}}',
        policy="{}",
        work='{"target":{"kind":"function","name":"nothing"}}',
        payload=f'{{"number":{number}}}',
        after_job=None,
        after_on=None,
        description="",
        labels="{}",
        secret=None,
        old_secret=None,
        old_secret_until_ms=None,
        enabled=True,
        disabled_reason=None,
        anchor_ms=now_ms,
        next_ms=now_ms,
        wake_ms=now_ms,
        run_count=0,
        failures=0,
        version=1,
        created_ms=now_ms,
        updated_ms=now_ms,
    )


def sleeping_job(number: int, now_ms: int, prefix: str = "job") -> JobRow:
    """Return a job that is due in a year."""
    later_ms = now_ms + 365 * 24 * HOUR_MS + number
    return _job(number, now_ms)._replace(name=f"{prefix}-{number}", next_ms=later_ms, wake_ms=later_ms)


def _sqlite(path: str, jobs: int, batch: int, now_ms: int) -> float:
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA synchronous=FULL")
    began = time.perf_counter()
    done = 0
    while done < jobs:
        db.execute("BEGIN IMMEDIATE")
        claimed = db.execute(lite.CLAIM, (now_ms, batch)).fetchall()
        db.execute(lite.LIVE_RUNS, (now_ms, batch)).fetchall()
        ids = [new_id(now_ms) for _ in claimed]
        lite.INSERT_RUNNING.execute(
            db,
            [
                (run, job_id, workspace, agent, name, now_ms, now_ms, "schedule", 1, 1, "cron",
                 hashlib.sha256(job_id.encode()).hexdigest(), "", WORKER, now_ms, 1, now_ms)
                for run, (job_id, workspace, agent, name, *_) in zip(ids, claimed, strict=True)
            ],
        )  # fmt: skip
        next_ms = now_ms + HOUR_MS
        lite.ADVANCE.execute(db, [(next_ms, next_ms, 1, rowid) for *_, rowid in claimed])
        db.execute("COMMIT")
        db.execute("BEGIN IMMEDIATE")
        lite.SUCCEED.execute(db, [(run, 1, now_ms, now_ms) for run in ids], WORKER)
        db.execute("COMMIT")
        done += len(claimed)
    took = time.perf_counter() - began
    db.close()
    return jobs / took
