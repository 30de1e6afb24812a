"""The rate of creating recurring jobs: one by one and in bulk, compared with bare inserts of the same rows.

    python -m benchmarks.register
    python -m benchmarks.register --jobs 20000 --store postgres --json

**Singly** is `app.jobs.create` with a hundred concurrent calls, as in a busy server: each document is
validated by itself, and concurrent ones share a commit. **In bulk** is `app.jobs.create_many` with a
thousand documents per call, each with its own name and payload, over sixty cron expressions. **The floor**
is the store's insert of prepared rows in the same batches: singly, one commit per row.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from benchmarks.bare.databases import STORES, fresh
from benchmarks.bare.floors import sleeping_job
from wakeful import Wakeful

AT_ONCE = 100
BULK = 1_000


@dataclass(frozen=True, slots=True)
class Result:
    """Jobs per second."""

    store: str
    way: str
    floor_per_second: float
    ours_per_second: float
    ratio: float


def documents(prefix: str, jobs: int) -> Iterator[dict[str, object]]:
    for number in range(jobs):
        yield {
            "name": f"{prefix}-{number}",
            "schedule": {"kind": "cron", "expr": f"{number % 60} 9 * * MON-FRI", "tz": "Europe/Berlin"},
            "target": {"kind": "function", "name": "nothing"},
            "payload": {"number": number},
        }


async def register(url: str, store: str, jobs: int) -> list[Result]:
    """Measure both ways, each with its floor."""
    app = Wakeful(url)

    @app.function("nothing")
    async def nothing() -> None: ...

    async with app:
        now_ms = time.time_ns() // 1_000_000
        rows = [sleeping_job(number, now_ms, "floor") for number in range(2 * jobs)]
        few = max(AT_ONCE, jobs // 10)
        alone = list(documents("single", few))

        async def insert(start: int) -> None:
            for number in range(start, few, AT_ONCE):
                await app.store.create_jobs([rows[number]])

        async def create(start: int) -> None:
            for document in alone[start::AT_ONCE]:
                await app.jobs.create(**document)  # type: ignore[arg-type]

        floor_singly = few / await _timed(asyncio.gather(*[insert(start) for start in range(AT_ONCE)]))
        singly = few / await _timed(asyncio.gather(*[create(start) for start in range(AT_ONCE)]))
        began = time.perf_counter()
        for start in range(0, jobs, BULK):
            await app.store.create_jobs(rows[jobs + start : jobs + min(start + BULK, jobs)])
        floor_bulk = jobs / (time.perf_counter() - began)
        waiting = list(documents("bulk", jobs))
        began = time.perf_counter()
        for start in range(0, jobs, BULK):
            await app.jobs.create_many(waiting[start : start + BULK])
        bulk = jobs / (time.perf_counter() - began)
    return [
        Result(store, "singly", floor_singly, singly, singly / floor_singly),
        Result(store, "in bulk", floor_bulk, bulk, bulk / floor_bulk),
    ]


async def _timed(work: asyncio.Future[list[None]]) -> float:
    began = time.perf_counter()
    await work
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--store", choices=STORES, nargs="+", default=list(STORES))
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    results: list[Result] = []
    for store in arguments.store:
        with fresh(store) as url:
            results += asyncio.run(register(url, store, arguments.jobs))
    if arguments.json:
        print(json.dumps([asdict(result) for result in results]))
        return
    print(f"{'store':10}{'way':10}{'floor/s':>10}{'ours/s':>10}{'ratio':>8}")
    for r in results:
        print(f"{r.store:10}{r.way:10}{r.floor_per_second:10.0f}{r.ours_per_second:10.0f}{r.ratio:8.2f}")


if __name__ == "__main__":
    main()
