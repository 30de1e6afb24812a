"""The cost of an idle engine: a million jobs of which none is due, compared with a thousand.

    python -m benchmarks.idle
    python -m benchmarks.idle --jobs 1000 1000000 --store sqlite --seconds 20 --json
    python -m benchmarks.idle --jobs 10000000                24 GB of disk, ten minutes

The engine runs in a separate process. After its start the benchmark measures its CPU time as a share of a
core, and its resident memory. The comparison shows whether the cost depends on the number of jobs. Processes
of the database are not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.bare.databases import STORES, check_disk, fresh
from benchmarks.bare.floors import sleeping_job
from wakeful import Wakeful
from wakeful.store.connect import store_at

BULK = 10_000


@dataclass(frozen=True, slots=True)
class Result:
    """One idle engine."""

    store: str
    jobs: int
    cpu_percent: float
    memory_mb: float


async def fill(url: str, jobs: int) -> None:
    """Add jobs that are due in a year or later."""
    store = store_at(url)
    await store.open()
    now_ms = time.time_ns() // 1_000_000
    for start in range(0, jobs, BULK):
        await store.create_jobs(
            [sleeping_job(number, now_ms) for number in range(start, min(start + BULK, jobs))]
        )
        if jobs > BULK:
            print(f"\rfilling {start + BULK:,} of {jobs:,}", end="", file=sys.stderr, flush=True)
    if jobs > BULK:
        print(file=sys.stderr)
    await store.close()


async def idle(url: str, seconds: float) -> None:
    """Run an idle engine and print its cost."""
    async with Wakeful(url):
        await asyncio.sleep(3)
        began = time.process_time()
        await asyncio.sleep(seconds)
        spent = time.process_time() - began
    print(json.dumps({"cpu_percent": spent / seconds * 100, "memory_mb": memory_mb()}))


def memory_mb() -> float:
    """Return the resident memory of this process."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024


def measure(store: str, jobs: int, seconds: float) -> Result:
    """Fill a database and measure an engine on it."""
    with fresh(store) as url:
        asyncio.run(fill(url, jobs))
        command = [sys.executable, "-m", "benchmarks.idle", "--url", url, "--seconds", str(seconds)]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        cost = json.loads(output.strip().splitlines()[-1])
        return Result(store, jobs, cost["cpu_percent"], cost["memory_mb"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--jobs", type=int, nargs="+", default=[1_000, 1_000_000])
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--store", choices=STORES, nargs="+", default=list(STORES))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--url", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    if arguments.url:
        asyncio.run(idle(arguments.url, arguments.seconds))
        return
    check_disk(max(arguments.jobs))
    results = [
        measure(store, jobs, arguments.seconds) for store in arguments.store for jobs in arguments.jobs
    ]
    if arguments.json:
        print(json.dumps([asdict(result) for result in results]))
        return
    print(f"{'store':10}{'jobs':>10}{'CPU':>12}{'memory':>12}")
    for r in results:
        print(f"{r.store:10}{r.jobs:10,}{r.cpu_percent:10.2f} %{r.memory_mb:9.0f} MB")


if __name__ == "__main__":
    main()
