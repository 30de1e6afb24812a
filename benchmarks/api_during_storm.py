"""The API during a storm: response times of a read and a create while thousands of runs are due at once.

    python -m benchmarks.api_during_storm                     100,000 runs on both stores
    python -m benchmarks.api_during_storm --jobs 20000 --store postgres
    python -m benchmarks.api_during_storm --lane 20000 --json

A server (`wakeful serve`) has so many jobs that are due at one instant; their target is `echo`. Two clients
in another process send requests one after the other: one reads a job, one creates a job. The storm lasts from
the due instant until the last run is over. The times before it are printed too, for comparison: the server is
idle then except for these clients.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import time
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

import aiohttp

from benchmarks.bare.databases import STORES, fresh
from benchmarks.bare.floors import sleeping_job
from benchmarks.soak import started
from wakeful.store.connect import store_at
from wakeful.store.port import Store
from wakeful.store.rows import JobRow, RunFilter

JOBS: Final = "/api/workspaces/default/agents/default/jobs"
BATCH: Final = 1_000
#: the time before the storm, besides that for the creation of the jobs
CALM_S: Final = 6
MOST_S: Final = 120
UNFINISHED: Final = RunFilter("default", states=("pending", "retrying", "running"), limit=1)


class Result(NamedTuple):
    """Response times in ms."""

    store: str
    jobs: int
    request: str
    calm_p50_ms: float
    calm_p99_ms: float
    storm_p50_ms: float
    storm_p99_ms: float
    storm_max_ms: float
    requests: int
    storm_seconds: float


def _due_job(number: int, now_ms: int, due_ms: int) -> JobRow:
    work = '{"target":{"kind":"echo"}}'
    return sleeping_job(number, now_ms)._replace(
        work=work, anchor_ms=due_ms, next_ms=due_ms, wake_ms=due_ms, timing=_EVERY
    )


_EVERY: Final = '{"schedule":{"everyMs":36000000,"kind":"every"}}'


async def measure(store_name: str, url: str, jobs: int) -> list[Result]:
    """Start a server, wait for the storm, and measure requests until it is over."""
    store = store_at(url)
    await store.open()
    try:
        with started(url) as (_, address, key):
            now_ms = time.time_ns() // 1_000_000
            due_ms = now_ms + 1000 * (CALM_S + jobs // 5_000)
            rows = [_due_job(number, now_ms, due_ms) for number in range(jobs)]
            for start in range(0, jobs, BATCH):
                await store.create_jobs(rows[start : start + BATCH])
            if time.time() > due_ms / 1000 - CALM_S / 2:
                raise SystemExit("creating the jobs took too long: the machine is too busy")
            return await _requests(store, store_name, address, key, jobs, due_ms / 1000)
    finally:
        await store.close()


async def _requests(
    store: Store, store_name: str, address: str, key: str, jobs: int, due: float
) -> list[Result]:
    over = asyncio.Event()
    times: dict[str, list[tuple[float, float]]] = {"read": [], "create": []}
    headers = {"Authorization": f"Bearer {key}"}
    async with aiohttp.ClientSession(address, headers=headers) as session:

        async def repeat(name: str, send: Callable[[int], Awaitable[None]]) -> None:
            number = 0
            while not over.is_set():
                began = time.time()
                await send(number)
                times[name].append((began, 1000 * (time.time() - began)))
                number += 1
                await asyncio.sleep(0.005)

        async def read(number: int) -> None:
            async with session.get(f"{JOBS}/job-{number % jobs}") as response:
                await response.read()
                response.raise_for_status()

        async def create(number: int) -> None:
            document = {"name": f"new-{number}", "schedule": "0 9 * * *", "target": {"kind": "echo"}}
            async with session.post(JOBS, json=document) as response:
                await response.read()
                response.raise_for_status()

        clients = [
            asyncio.create_task(repeat("read", read)),
            asyncio.create_task(repeat("create", create)),
        ]
        await asyncio.sleep(max(0.0, due + 0.5 - time.time()))
        while time.time() < due + MOST_S:
            wake_ms = await store.next_wake_ms()
            if (wake_ms is None or wake_ms > due * 1000) and not await store.runs(UNFINISHED):
                break
            await asyncio.sleep(0.1)
        end = time.time()
        over.set()
        await asyncio.gather(*clients)
    return [_result(store_name, jobs, name, found, due, end) for name, found in times.items()]


def _result(
    store: str, jobs: int, name: str, found: list[tuple[float, float]], due: float, end: float
) -> Result:
    calm = sorted(ms for began, ms in found[20:] if began < due - 0.5)
    storm = sorted(ms for began, ms in found if due <= began < end)
    return Result(
        store,
        jobs,
        name,
        percentile(calm, 50),
        percentile(calm, 99),
        percentile(storm, 50),
        percentile(storm, 99),
        max(storm, default=0.0),
        len(storm),
        end - due,
    )


def percentile(values: list[float], part: int) -> float:
    """Return that percentile of sorted values; 0 if there are none."""
    return values[min(len(values) - 1, len(values) * part // 100)] if values else 0.0


def main() -> None:
    """Measure all stores."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--store", choices=STORES, nargs="+", default=list(STORES))
    parser.add_argument("--lane", type=int, default=0, help="the size of the lane; 0: that of a new server")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    if arguments.lane:
        os.environ["WAKEFUL_LANE_CRON"] = str(arguments.lane)
    results: list[Result] = []
    for store in arguments.store:
        with fresh(store) as url:
            results += asyncio.run(measure(store, url, arguments.jobs))
    if arguments.json:
        print(json.dumps([result._asdict() for result in results]))
        return
    print(
        f"{'store':10}{'request':9}{'calm p50':>11}{'p99':>11}{'storm p50':>12}{'p99':>11}{'max':>12}"
        f"{'requests':>10}{'storm':>9}"
    )
    for r in results:
        print(
            f"{r.store:10}{r.request:9}{r.calm_p50_ms:8.1f} ms{r.calm_p99_ms:8.1f} ms{r.storm_p50_ms:9.1f} ms"
            f"{r.storm_p99_ms:8.1f} ms{r.storm_max_ms:9.1f} ms{r.requests:10}{r.storm_seconds:7.1f} s"
        )


if __name__ == "__main__":
    main()
