"""Throughput: thousands of recurring jobs due at one instant, compared with bare SQL.

    python -m benchmarks.storm                         10,000 jobs on both stores
    python -m benchmarks.storm --jobs 100000 --store postgres
    python -m benchmarks.storm --functions 200         the jobs call 200 functions in turn
    python -m benchmarks.storm --lane 500              at most 500 runs at once: the others wait and are taken
    python -m benchmarks.storm --json

**Ours** is the engine in an application: every job is claimed, its tick recorded as a run, an empty function
called, the outcome written and the job advanced. The history is kept, and every commit is durable. The time
is from the due instant to the last outcome on disk. The delay of the first and the last call is printed too.

**The floor** is the same rows in the same tables by the same statements and batches, without planning,
functions or engine: the cost of the database. Floor and ours take turns; the best round of each counts.

**The peer**, if installed (`pip install 'apscheduler<4' sqlalchemy psycopg2-binary`), is APScheduler 3 on the
same kind of database, with a tenth of the jobs, since it inserts them one by one. It keeps no history.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from benchmarks.bare.databases import STORES, fresh
from benchmarks.bare.floors import floor_rate
from benchmarks.bare.peers import apscheduler_rate, has_apscheduler
from wakeful import Wakeful
from wakeful.engine.engine import EngineConfig
from wakeful.launch.port import Launch
from wakeful.store.rows import RunFilter

ROUNDS = 3
BATCH = 1_000
STILL_RUNNING = RunFilter("default", states=("running",), limit=1)


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one store."""

    store: str
    jobs: int
    floor_per_second: float
    ours_per_second: float
    ratio: float
    first_late_ms: float
    last_late_ms: float
    apscheduler_per_second: float | None = None


async def storm(url: str, jobs: int, functions: int = 1, lane: int = 0) -> tuple[float, float, float]:
    """Return the runs per second, and the delay of the first and the last call in ms."""
    app = Wakeful(url, config=EngineConfig(lanes={"cron": lane or jobs}, batch=BATCH))
    called: list[float] = []

    async def nothing(run: Launch) -> None:
        called.append(time.time())

    for number in range(functions):
        app.function(f"nothing-{number}")(nothing)

    async with app:
        due = int(time.time()) + 4 + jobs // 4_000
        await app.jobs.create_many(documents(jobs, due * 1000, functions))
        if time.time() > due - 1:
            raise SystemExit("creating the jobs took longer than the time until they are due")
        gc.collect()
        await asyncio.sleep(max(0.0, due - time.time()))
        while True:
            await asyncio.sleep(0.005)
            if len(called) == jobs and not await app.store.runs(STILL_RUNNING):
                break
        took = time.time() - due
    return jobs / took, (called[0] - due) * 1000, (called[-1] - due) * 1000


def documents(jobs: int, due_ms: int, functions: int) -> Iterator[dict[str, object]]:
    """Yield the documents of jobs that are all due at that instant."""
    for number in range(jobs):
        yield {
            "name": f"job-{number}",
            "schedule": {"kind": "every", "everyMs": 3_600_000},
            "startAt": due_ms,
            "target": {"kind": "function", "name": f"nothing-{number % functions}"},
            "payload": {"number": number},
        }


def measure(store: str, jobs: int, rounds: int, functions: int = 1, lane: int = 0) -> Result:
    """Measure floor and ours in turns; return the best of each."""
    floors, ours = [], []
    for _ in range(rounds):
        with fresh(store) as url:
            floors.append(asyncio.run(floor_rate(url, jobs, BATCH)))
        with fresh(store) as url:
            ours.append(asyncio.run(storm(url, jobs, functions, lane)))
    floor, (rate, first, last) = max(floors), max(ours)
    peer = None
    if has_apscheduler():
        with fresh(store) as url:
            peer = apscheduler_rate(url, jobs // 10)
    return Result(store, jobs, floor, rate, rate / floor, first, last, peer)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--jobs", type=int, nargs="+", default=[10_000])
    parser.add_argument("--store", choices=STORES, nargs="+", default=list(STORES))
    parser.add_argument("--functions", type=int, default=1, help="how many functions the jobs call")
    parser.add_argument(
        "--lane", type=int, default=0, help="the size of the lane; 0: as many as there are jobs"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    results = [
        measure(store, jobs, arguments.rounds, arguments.functions, arguments.lane)
        for store in arguments.store
        for jobs in arguments.jobs
    ]
    if arguments.json:
        print(json.dumps([asdict(result) for result in results]))
        return
    print(
        f"{'store':10}{'jobs':>8}{'floor/s':>10}{'ours/s':>10}{'ratio':>8}{'first late':>13}{'last late':>13}"
    )
    for r in results:
        print(
            f"{r.store:10}{r.jobs:8}{r.floor_per_second:10.0f}{r.ours_per_second:10.0f}{r.ratio:8.2f}"
            f"{r.first_late_ms:10.1f} ms{r.last_late_ms:10.1f} ms"
        )
        if r.apscheduler_per_second is not None:
            peer = r.apscheduler_per_second
            print(
                f"{'':10}APScheduler 3: {peer:.0f}/s; Wakeful is {r.ours_per_second / peer:.1f} times as fast"
            )


if __name__ == "__main__":
    main()
