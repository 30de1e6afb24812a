"""The floor on PostgreSQL: the store's statements over asyncpg."""

from __future__ import annotations

import hashlib
import time
from typing import Any

from wakeful.run.run import NewRun
from wakeful.store.postgres import statements as sql
from wakeful.store.postgres.connection import Pool
from wakeful.values.ids import new_id

WORKER = "floor"
HOUR_MS = 3_600_000


async def postgres_floor(url: str, jobs: int, batch: int, now_ms: int) -> float:
    """Return the jobs per second through claim, insert, advance and complete, as bare batched SQL."""
    pool = Pool(url)
    await pool.open()
    runs: list[NewRun] = []

    async def begin(db: Any, tell: object) -> None:
        claimed = await db.fetch(sql.CLAIM, now_ms, batch)
        ids = ",".join([job["job_id"] for job in claimed])
        ticks, counts = (sql.numbers([job[name] for job in claimed]) for name in ("next_ms", "run_count"))
        facts = await db.fetch(sql.FACTS, ids, ticks, counts)
        runs[:] = [
            NewRun(
                new_id(now_ms), job["id"], job["workspace"], job["agent"], job["name"], now_ms, now_ms,
                "schedule", None, "running", None, 1, None, 1, WORKER, "cron", True, None, now_ms, None,
                hashlib.sha256(job["id"].encode()).hexdigest(), None, None,
            )
            for job in facts
        ]  # fmt: skip
        await db.execute(sql.INSERT_RUNS, [run.column_values for run in runs], now_ms)
        later, once = sql.numbers([now_ms + HOUR_MS] * len(claimed)), sql.numbers([1] * len(claimed))
        await db.execute(sql.ADVANCE, ids, later, later, once)

    async def end(db: Any, tell: object) -> None:
        once, now = sql.numbers([1] * len(runs)), sql.numbers([now_ms] * len(runs))
        no_code = sql.numbers([None] * len(runs))
        ids = ",".join([run.id for run in runs])
        await db.fetchrow(sql.SUCCEED, WORKER, False, ids, once, now, now, no_code)

    try:
        await pool.read(lambda db: db.fetchval("SELECT 1"))
        began = time.perf_counter()
        done = 0
        while done < jobs:
            await pool.write(begin)
            await pool.write(end)
            done += len(runs)
        return jobs / (time.perf_counter() - began)
    finally:
        await pool.close()
