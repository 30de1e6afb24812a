"""Runs per second through Celery: from the instant of the jobs to the last stored outcome.

    python -m benchmarks.celery_tasks                  1,000 jobs on both stores, with 30 and 200 slots
    python -m benchmarks.celery_tasks --jobs 5000 --json

**Ours** is an application with `celery` jobs that are all due at one instant. Each run is sent to the
broker, executed by `celery worker` (a pool of 20 threads, in a process of its own), its result is read from
the result backend and stored.

**The floor** is the same traffic without runs: as many threads as there are slots send a task and wait for
its result. Nothing is stored but the results of Celery.

The broker and the result backend are one Redis server, in a process of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Final

from celery import Celery

from benchmarks.bare.databases import STORES, fresh
from benchmarks.queue import SLOTS, Row, storm
from wakeful.settings import Settings

JOBS: Final = 1_000
PATIENCE_S: Final = 60.0
TASK: Final = {"kind": "celery", "task": "benchmarks.work"}

app = Celery("benchmarks", broker=os.environ.get("REDIS_URL"), backend=os.environ.get("REDIS_URL"))


@app.task(name="benchmarks.work")  # type: ignore[untyped-decorator]
def work(n: int) -> str:
    """Return at once."""
    return "x"


@contextlib.contextmanager
def redis_server() -> Iterator[str]:
    """Run a Redis server; yield its URL."""
    program = shutil.which("redis-server", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if program is None:
        raise SystemExit("install redis-server")
    with tempfile.TemporaryDirectory(prefix="redis-") as folder:
        address = Path(folder) / "redis.sock"
        command = [program, "--port", "0", "--unixsocket", str(address), "--dir", folder]
        server = subprocess.Popen([*command, "--appendonly", "yes"], stdout=subprocess.DEVNULL)
        try:
            yield f"redis+socket://{address}"
        finally:
            server.terminate()
            server.wait()


@contextlib.contextmanager
def celery_worker(url: str) -> Iterator[None]:
    """Start a worker; yield when it answers."""
    command = [
        sys.executable, "-m", "celery", "-A", "benchmarks.celery_tasks:app", "worker",
        "--pool", "threads", "--concurrency", "20", "--loglevel", "ERROR",
        "--without-gossip", "--without-mingle",
    ]  # fmt: skip
    environment = {**os.environ, "REDIS_URL": url}
    worker = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + PATIENCE_S
        while not _answers():
            if time.monotonic() > until or worker.poll() is not None:
                raise SystemExit("the Celery worker did not start")
        yield
    finally:
        worker.terminate()
        worker.wait()


def _answers() -> bool:
    with contextlib.suppress(OSError, *app.connection().connection_errors):  # Redis is starting
        return bool(app.control.ping(timeout=0.5))
    time.sleep(0.1)
    return False


def floor(messages: int, in_flight: int) -> float:
    """Return the tasks per second of the bare threads."""

    def execute(number: int) -> None:
        assert work.delay(n=number).get(timeout=PATIENCE_S) == "x"

    with ThreadPoolExecutor(in_flight) as threads:
        began = time.perf_counter()
        for _ in threads.map(execute, range(messages)):
            pass
        return messages / (time.perf_counter() - began)


def measure(wanted: argparse.Namespace, url: str) -> Iterator[Row]:
    """Measure the floor and ours for each number of slots, on each store."""
    app.conf.update(broker_url=url, result_backend=url)
    with celery_worker(url):
        floors = {slots: floor(wanted.jobs, slots) for slots in wanted.slots}
        for store in wanted.store:
            for slots in wanted.slots:
                with fresh(store) as database:
                    run = storm(database, Settings(db=database), TASK, wanted.jobs, slots, celery=app)
                    rate = asyncio.run(run)
                yield Row(store, slots, rate, floors[slots], rate / floors[slots])


def main() -> None:
    """Print the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", choices=STORES, nargs="+", default=list(STORES))
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--slots", type=int, nargs="+", default=list(SLOTS))
    parser.add_argument("--json", action="store_true")
    wanted = parser.parse_args()
    logging.disable(logging.WARNING)
    with redis_server() as url:
        rows = list(measure(wanted, url))
    if wanted.json:
        print(json.dumps([asdict(row) for row in rows]))
        return
    print(f"{wanted.jobs} Celery tasks due at one instant\n")
    print(f"{'store':<10}{'slots':>6}{'per second':>12}{'floor':>8}{'ratio':>7}")
    for row in rows:
        print(
            f"{row.store:<10}{row.slots:>6}{row.per_second:>12.0f}{row.floor_per_second:>8.0f}{row.ratio:>7.2f}"
        )


if __name__ == "__main__":
    main()
