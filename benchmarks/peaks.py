"""Load peaks: how long the week of many jobs takes, and how long it delays the event loop.

    python -m benchmarks.peaks                       100,000 jobs with 1,000 timings on both stores
    python -m benchmarks.peaks --jobs 10000 --timings 100 --store sqlite
    python -m benchmarks.peaks --json

A third of the timings are daily cron expressions in several zones, a third are dense (every few minutes), and
a third are intervals, whose jobs begin at different minutes. **Query** is the one statement that counts jobs
by timing. **Compute** is the week, in a thread. **Delay** is how late the event loop wakes from sleeps of a
millisecond meanwhile: the median and the longest. **Save** is a job that is created while the week is
computed, compared with one before it (medians).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from statistics import median

from benchmarks.bare.databases import STORES, fresh
from wakeful import Wakeful
from wakeful.engine.engine import EngineConfig
from wakeful.forecast.peaks import compute_week

ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu")
BATCH = 10_000
SAVES = 20


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one store."""

    store: str
    jobs: int
    timings: int
    query_ms: float
    compute_ms: float
    delay_ms: float
    longest_delay_ms: float
    save_before_ms: float
    save_during_ms: float


def schedules(count: int) -> list[dict[str, object]]:
    """Return that many different timings."""
    found: list[dict[str, object]] = []
    for number in range(count):
        tz, minute, hour = ZONES[number % 4], number // 12 % 60, number // 3 % 24
        if number % 3 == 0:
            found.append({"kind": "cron", "expr": f"{minute} {hour} * * {number // 720 % 7}-6", "tz": tz})
        elif number % 3 == 1:
            dense = f"{number // 60 % 7}-59/{2 + number % 5} {hour}-23 * * *"
            found.append({"kind": "cron", "expr": dense, "tz": tz})
        else:
            found.append({"kind": "every", "everyMs": 60_000 * (1 + number // 3)})
    return found


def documents(jobs: int, timings: int) -> Iterator[dict[str, object]]:
    """Return the documents of the jobs."""
    every = schedules(timings)
    for number in range(jobs):
        yield {"name": f"job-{number}", "schedule": every[number % timings], "target": {"kind": "pull"}}


async def delays(stop: asyncio.Event, found: list[float]) -> None:
    """Record how late each sleep of a millisecond ends."""
    while not stop.is_set():
        began = time.perf_counter()
        await asyncio.sleep(0.001)
        found.append((time.perf_counter() - began - 0.001) * 1_000)


async def saves(app: Wakeful, prefix: str, until: asyncio.Event | None) -> float:
    """Create jobs and return the median time in ms: `SAVES` jobs, or as many as fit until the event."""
    took: list[float] = []
    while len(took) < SAVES if until is None else not until.is_set():
        began = time.perf_counter()
        await app.jobs.create(f"{prefix}-{len(took)}", schedule="0 0 29 2 *", target={"kind": "pull"})
        took.append((time.perf_counter() - began) * 1_000)
    return median(took) if took else 0.0


async def measure(url: str, store: str, jobs: int, timings: int) -> Result:
    """Return the result of one store."""
    app = Wakeful(url, config=EngineConfig(tick_ms=60_000))
    async with app:
        batch: list[dict[str, object]] = []
        for document in documents(jobs, timings):
            batch.append(document)
            if len(batch) == BATCH:
                await app.jobs.create_many(batch)
                batch = []
        if batch:
            await app.jobs.create_many(batch)
        before = await saves(app, "before", None)
        began = time.perf_counter()
        counts = await app.services.store.timings("default")
        query_ms = (time.perf_counter() - began) * 1_000
        began = time.perf_counter()
        compute_week(counts, app.services.now_ms())
        compute_ms = (time.perf_counter() - began) * 1_000
        stop, late = asyncio.Event(), list[float]()
        watch = asyncio.create_task(delays(stop, late))
        saving = asyncio.create_task(saves(app, "during", stop))
        await app.jobs.peaks()
        stop.set()
        await watch
        during = await saving
    return Result(store, jobs, timings, query_ms, compute_ms, median(late), max(late), before, during)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the load peaks of many jobs.")
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--timings", type=int, default=1_000)
    parser.add_argument("--store", choices=STORES)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    for store in [given.store] if given.store else STORES:
        with fresh(store) as url:
            result = asyncio.run(measure(url, store, given.jobs, given.timings))
        if given.json:
            print(json.dumps(asdict(result)))
            continue
        print(f"{store}: {result.jobs:,} jobs with {result.timings:,} timings")
        print(f"  query {result.query_ms:,.0f} ms, compute {result.compute_ms:,.0f} ms")
        print(
            f"  event loop late: {result.delay_ms:.1f} ms (median), {result.longest_delay_ms:.1f} ms at most"
        )
        print(f"  saving a job: {result.save_before_ms:.1f} ms, meanwhile {result.save_during_ms:.1f} ms")


if __name__ == "__main__":
    main()
