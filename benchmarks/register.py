"""The rate of creating recurring jobs: one by one, in bulk and over HTTP, compared with bare inserts.

    python -m benchmarks.register
    python -m benchmarks.register --jobs 20000 --store postgres --json

**Singly** is `app.jobs.create` with a hundred concurrent calls, as in a busy server: each document is
validated by itself, and concurrent ones share a commit. **In bulk** is `app.jobs.create_many` with a
thousand documents per call, each with its own name and payload, over sixty cron expressions. **The floor**
is the store's insert of prepared rows in the same batches: singly, one commit per row.

**HTTP, brief** is `POST …/jobs/bulk?brief=true` to a server (`wakeful serve`) in a process of its own, with
up to ten thousand documents per request, one request after the other; the time includes the client, which
writes the JSON and reads the response. **HTTP, whole** is `client.jobs.create_many`, whose response has the
whole jobs. Their floor is the insert in bulk. The CPU time is that of the process that creates the jobs,
without the database server and the client.
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
from benchmarks.remote_workers import cpu_s, serving
from wakeful import AsyncClient, Wakeful
from wakeful.client.rest import RestClient
from wakeful.service.jobs.job_batches import MAX_BATCH

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
    #: of the process that creates the jobs
    cpu_us: float


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
        cpu = time.process_time()
        singly = few / await _timed(asyncio.gather(*[create(start) for start in range(AT_ONCE)]))
        cpu_singly = (time.process_time() - cpu) / few
        began = time.perf_counter()
        for start in range(0, jobs, BULK):
            await app.store.create_jobs(rows[jobs + start : jobs + min(start + BULK, jobs)])
        floor_bulk = jobs / (time.perf_counter() - began)
        waiting = list(documents("bulk", jobs))
        began, cpu = time.perf_counter(), time.process_time()
        for start in range(0, jobs, BULK):
            await app.jobs.create_many(waiting[start : start + BULK])
        bulk = jobs / (time.perf_counter() - began)
        cpu_bulk = (time.process_time() - cpu) / jobs
    return [
        _result(store, "singly", floor_singly, singly, cpu_singly),
        _result(store, "in bulk", floor_bulk, bulk, cpu_bulk),
    ]


def _result(store: str, way: str, floor: float, ours: float, cpu_s: float) -> Result:
    return Result(store, way, round(floor, 1), round(ours, 1), round(ours / floor, 3), round(cpu_s * 1e6, 1))


async def register_over_http(
    store: str, address: str, key: str, pid: int, jobs: int, floor: float
) -> list[Result]:
    """Measure the requests that create many jobs."""
    results = []
    async with AsyncClient(address, key) as client, RestClient(address, key) as rest:
        for way in ("HTTP, brief", "HTTP, whole"):
            waiting = list(documents("brief" if way == "HTTP, brief" else "whole", jobs))
            for each in waiting:
                each["target"] = {"kind": "pull"}
            began, cpu = time.perf_counter(), cpu_s(pid)
            for start in range(0, jobs, MAX_BATCH):
                some = waiting[start : start + MAX_BATCH]
                if way == "HTTP, brief":
                    await rest.create_jobs("default", jobs=some, brief=True)
                else:
                    await client.jobs.create_many(some)
            rate = jobs / (time.perf_counter() - began)
            results.append(_result(store, way, floor, rate, (cpu_s(pid) - cpu) / jobs))
    return results


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
        with fresh(store) as url, serving(url) as (address, key, pid):
            of_bulk = results[-1].floor_per_second
            results += asyncio.run(register_over_http(store, address, key, pid, arguments.jobs, of_bulk))
    if arguments.json:
        print(json.dumps([asdict(result) for result in results]))
        return
    print(f"{'store':10}{'way':13}{'floor/s':>10}{'ours/s':>10}{'ratio':>8}{'CPU us':>9}")
    for r in results:
        figures = f"{r.floor_per_second:10.0f}{r.ours_per_second:10.0f}{r.ratio:8.2f}{r.cpu_us:9.1f}"
        print(f"{r.store:10}{r.way:13}{figures}")


if __name__ == "__main__":
    main()
