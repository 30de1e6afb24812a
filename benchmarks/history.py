"""The cost of history: how much longer the store takes with many past runs than with none.

    python -m benchmarks.history                             500,000 past runs, on both stores
    python -m benchmarks.history --runs 10000000 --store sqlite
    python -m benchmarks.history --jobs 10000000             25 GB of disk
    python -m benchmarks.history --json

**Planning** and **finishing** are 10,000 jobs (all, if there are fewer) due at one instant: their runs are
inserted and their outcomes written, a thousand in a transaction, three times. **Lists** are pages: the newest
100 runs of all jobs, and the newest 3 of one job. **Pruning** deletes 10,000 finished runs, a thousand in a
transaction: with a history the oldest, without one those that just ended.

The times are those of the store, without the engine, per run or per page, in the median of all transactions.
The ratio is the time with history to that without. **Storage** is how much the database grows per job and
per past run, with indexes; a past run has no output. It is also how much the counts of 28 days take per job
and day, if each job runs once a day. **Index** is how long PostgreSQL takes to build an index of all runs
while they can be written, as after an upgrade; per 100,000,000 runs it is extrapolated.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import logging
import sqlite3
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from statistics import median
from typing import Final, NamedTuple

from benchmarks.bare.databases import STORES, check_disk, fresh
from benchmarks.bare.floors import sleeping_job
from benchmarks.bare.past_runs import HOUR_MS, add_past_runs
from wakeful.run.consequences import consequences
from wakeful.run.outcome import Finished
from wakeful.run.run import NewRun
from wakeful.store.connect import store_at
from wakeful.store.plans import DueJob, JobPlan
from wakeful.store.port import Store
from wakeful.store.rows import RunFilter
from wakeful.store.sql.driver import SqlSession
from wakeful.store.sql.run_counts import DAY_MS, PERIOD_DAYS, WRITE_PERIODS, DayCount, add_to_days
from wakeful.values.ids import new_id

BATCH: Final = 1_000
#: The jobs that are due.
DUE: Final = 10_000
#: The jobs whose counts are measured.
COUNTED: Final = 20_000
ROUNDS: Final = 3
PAGES: Final = 50
WORKER: Final = "floor"
WAYS: Final = ("planning", "finishing", "newest runs", "runs of a job", "pruning")


class Result(NamedTuple):
    """Microseconds per run, or per page of a list."""

    store: str
    way: str
    past_runs: int
    without_us: float
    with_us: float
    ratio: float


def _plan(job: DueJob, now_ms: int) -> JobPlan:
    """Return the plan of a job on time: one run, that starts here."""
    key = hashlib.sha256(f"{job.id}:{now_ms}".encode()).hexdigest()
    run = NewRun(
        new_id(now_ms), job.id, job.workspace, job.agent, job.name, now_ms, now_ms, "schedule", None,
        "running", None, 1, None, 1, WORKER, "cron", True, None, now_ms, None, key, None, None,
    )  # fmt: skip
    return JobPlan(job.id, now_ms + HOUR_MS, now_ms + HOUR_MS, job.run_count + 1, True, None, (run,))


class Storage(NamedTuple):
    """Bytes in the database."""

    store: str
    per_job: float
    per_run: float
    #: of the counts of a job and day, with one run
    per_day: float
    #: seconds to build an index of all runs; None: SQLite, or no runs
    index_s: float | None


async def measure(url: str, jobs: int, runs: int) -> tuple[dict[str, float], Storage]:
    """Return the microseconds of each way, with so many past runs, and the storage."""
    now_ms = time.time_ns() // 1_000_000
    store = store_at(url)
    await store.open()
    empty = await database_size(url)
    ids: list[str] = []
    for start in range(0, jobs, BATCH):
        rows = [sleeping_job(number, now_ms) for number in range(start, min(start + BATCH, jobs))]
        if start < DUE:
            rows = [row._replace(next_ms=now_ms, wake_ms=now_ms) for row in rows]
        await store.create_jobs(rows)
        ids += [row.id for row in rows if len(ids) < COUNTED]
    with_jobs = await database_size(url)
    if runs:
        await store.close()
        await add_past_runs(url, runs, jobs, now_ms - HOUR_MS)
        store = store_at(url)
        await store.open()
    with_runs = await database_size(url)
    try:
        per_day = await _add_counts(store, url, ids, now_ms // DAY_MS // PERIOD_DAYS) if runs else 0
        storage = Storage(
            store.kind, (with_jobs - empty) / jobs, (with_runs - with_jobs) / max(1, runs), per_day,
            await _build_index(url) if runs and store.kind == "postgresql" else None,
        )  # fmt: skip
        return await _measure(store, ids[:PAGES], now_ms), storage
    finally:
        await store.close()


async def _add_counts(store: Store, url: str, job_ids: list[str], period: int) -> float:
    """Count one run of each job on each day of a period, day by day; return the bytes per job and day."""

    async def write(session: SqlSession, some: list[str], days: str) -> None:
        await session.execute(WRITE_PERIODS, some, [period] * len(some), [days] * len(some))

    before, days = await database_size(url), ""
    for day in range(period * PERIOD_DAYS, (period + 1) * PERIOD_DAYS):
        days = add_to_days(days, DayCount(day, "succeeded", 1, 5_000))
        for start in range(0, len(job_ids), BATCH):
            await store._driver.write(store._shared(write), job_ids[start : start + BATCH], days)
    return (await database_size(url) - before) / (len(job_ids) * PERIOD_DAYS)


async def _build_index(url: str) -> float:
    """Return how many seconds the build of an index of all runs takes."""
    import asyncpg

    connection = await asyncpg.connect(url, command_timeout=3_600)
    try:
        began = time.perf_counter()
        await connection.execute("CREATE INDEX CONCURRENTLY bench_index ON wakeful.runs (job_id, id)")
        built = time.perf_counter() - began
        await connection.execute("DROP INDEX wakeful.bench_index")
        return built
    finally:
        await connection.close()


async def database_size(url: str) -> int:
    """Return the bytes of a database."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as db:
            pages, size = db.execute("SELECT * FROM pragma_page_count, pragma_page_size").fetchone()
            return int(pages) * int(size)
    import asyncpg

    connection = await asyncpg.connect(url)
    try:
        return int(await connection.fetchval("SELECT pg_database_size(current_database())"))
    finally:
        await connection.close()


async def _measure(store: Store, job_ids: list[str], now_ms: int) -> dict[str, float]:
    times: dict[str, list[float]] = {way: [] for way in WAYS}

    async def timed(way: str, count: int, work: Awaitable[object]) -> None:
        began = time.perf_counter()
        await work
        times[way].append(1e6 * (time.perf_counter() - began) / count)

    for turn in range(ROUNDS):
        tick_ms = now_ms + turn * HOUR_MS
        while True:
            began = time.perf_counter()
            planned = await store.plan(tick_ms, BATCH, lambda job: _plan(job, tick_ms))  # noqa: B023
            if not planned.runs:
                break
            times["planning"].append(1e6 * (time.perf_counter() - began) / len(planned.runs))
            ended = [
                Finished(run.id, run.job_id, run.attempt, "succeeded", tick_ms, tick_ms + 1)
                for run in planned.runs
            ]
            await timed("finishing", len(ended), store.finish(WORKER, ended, consequences))
    pages: dict[str, Callable[[str], RunFilter]] = {
        "newest runs": lambda job_id: RunFilter("default", limit=100),
        "runs of a job": lambda job_id: RunFilter("default", job_id=job_id, limit=ROUNDS),
    }
    for job_id in job_ids:
        for way, page in pages.items():
            await timed(way, 1, store.runs(page(job_id)))
    for _ in range(10):
        await timed("pruning", BATCH, store.prune(now_ms + ROUNDS * HOUR_MS, BATCH))
    return {way: median(found) for way, found in times.items()}


def compare(store: str, jobs: int, runs: int) -> tuple[list[Result], Storage]:
    """Measure a store with history and without."""
    with fresh(store) as url:
        without, _ = asyncio.run(measure(url, jobs, 0))
    with fresh(store) as url:
        history, storage = asyncio.run(measure(url, jobs, runs))
    results = [
        Result(store, way, runs, without[way], history[way], history[way] / without[way]) for way in WAYS
    ]
    return results, storage


def main() -> None:
    """Measure all stores."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=500_000, help="past runs")
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--store", choices=STORES, nargs="+", default=list(STORES))
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    check_disk(arguments.jobs, arguments.runs)
    measured = [compare(store, arguments.jobs, arguments.runs) for store in arguments.store]
    results = [result for found, _ in measured for result in found]
    if arguments.json:
        found = {
            "times": [result._asdict() for result in results],
            "storage": [storage._asdict() for _, storage in measured],
        }
        print(json.dumps(found))
        return
    print(f"{'store':10}{'way':16}{'past runs':>12}{'without':>13}{'with':>13}{'ratio':>8}")
    for r in results:
        print(
            f"{r.store:10}{r.way:16}{r.past_runs:12}{r.without_us:10.1f} us{r.with_us:10.1f} us{r.ratio:8.2f}"
        )
    for _, storage in measured:
        print(
            f"{storage.store}: {storage.per_job:.0f} bytes per job, {storage.per_run:.0f} per past run, "
            f"{storage.per_day:.0f} for the counts of a job and day"
        )
        if storage.index_s is not None:
            minutes = storage.index_s / arguments.runs * 1e8 / 60
            print(
                f"{storage.store}: an index of {arguments.runs:,} runs in {storage.index_s:.1f} s, "
                f"{minutes:.0f} minutes per 100,000,000 (extrapolated)"
            )


if __name__ == "__main__":
    main()
