"""The delay of ticks: a hundred jobs spread over a minute, compared with a bare asyncio timer.

    python -m benchmarks.precision              both stores, a minute each
    python -m benchmarks.precision --seconds 20 --store sqlite
    python -m benchmarks.precision --json

Each job is due once, at its own millisecond. Its delay is from that instant to the first line of its
function; by then the run is durably recorded. **The floor** is a bare `loop.call_at` for the same instants
in the same run: the delay of the operating system and the event loop. The minimum shows that nothing is
early.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import random
import time
from dataclasses import asdict, dataclass

from benchmarks.bare.databases import STORES, fresh
from wakeful import Wakeful
from wakeful.launch.port import Launch

JOBS = 100


@dataclass(frozen=True, slots=True)
class Result:
    """Delays in ms."""

    name: str
    least: float
    p50: float
    p99: float
    worst: float


def summary(name: str, late: list[float]) -> Result:
    late = sorted(late)
    return Result(name, late[0], late[len(late) // 2], late[int(len(late) * 0.99) - 1], late[-1])


async def precision(url: str, store: str, jobs: int, seconds: int) -> tuple[Result, Result]:
    """Measure Wakeful, and a bare timer for the same instants."""
    app = Wakeful(url)
    ours: list[float] = []
    bare: list[float] = []
    done = asyncio.Event()

    @app.function("note")
    async def note(run: Launch) -> None:
        ours.append(time.time() * 1000 - run.scheduled_ms)
        if len(ours) == jobs:
            done.set()

    async with app:
        loop = asyncio.get_running_loop()
        begin_ms = int(time.time() * 1000) + 3_000
        chosen = random.Random(1)
        instants = [begin_ms + chosen.randrange(seconds * 1000) for _ in range(jobs)]
        await app.jobs.create_many(
            {
                "name": f"job-{number}",
                "schedule": {"kind": "at", "atMs": at_ms},
                "target": {"kind": "function", "name": "note"},
            }
            for number, at_ms in enumerate(instants)
        )
        for at_ms in instants:
            when = loop.time() + at_ms / 1000 - time.time()
            loop.call_at(when, lambda at_ms: bare.append(time.time() * 1000 - at_ms), at_ms)
        await asyncio.wait_for(done.wait(), seconds + 30)
        await asyncio.sleep(0.1)
    return summary(f"ours on {store}", ours), summary("bare timer", bare)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--store", choices=STORES, nargs="+", default=list(STORES))
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    results: list[Result] = []
    for store in arguments.store:
        with fresh(store) as url:
            results += asyncio.run(precision(url, store, arguments.jobs, arguments.seconds))
    if arguments.json:
        print(json.dumps([asdict(result) for result in results]))
        return
    print(f"{'delay in ms':20}{'least':>8}{'p50':>8}{'p99':>8}{'worst':>8}")
    for r in results:
        print(f"{r.name:20}{r.least:8.2f}{r.p50:8.2f}{r.p99:8.2f}{r.worst:8.2f}")


if __name__ == "__main__":
    main()
