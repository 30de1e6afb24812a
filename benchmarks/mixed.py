"""All loads at once: waiting workers, open dashboards, API requests and webhooks, compared with each alone.

    python -m benchmarks.mixed                              two minutes of all loads, on both stores
    python -m benchmarks.mixed --store sqlite --seconds 20 --alone 10
    python -m benchmarks.mixed --dashboards 0 --json        without one of them: what it contributes

One server (`wakeful serve`) with default lanes. Each load is in a process of its own:

- **workers**: `wakeful.remote.Worker`s whose claims wait, since there are no runs for them
- **dashboards**: pages that follow the events and fetch what has changed, as `benchmarks.dashboards_open`
- **requests**: at a fixed rate, whether or not the earlier ones have been answered. Four of five are reads
  (a job, a run, the jobs, the runs of a job), the fifth starts a run.
- **webhooks**: jobs that are due every second, evenly spread over it

The **delay of a tick** is from its instant to the arrival of its webhook. The time of a **read** is from its
sending to the end of the response. First the requests are measured alone, then the webhooks alone, then all
loads together; the ratio is that of the p99 together to the p99 alone. The clients use the same cores as the
server: on two cores a part of the ratio is theirs. The goal is a ratio below 2.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from subprocess import Popen
from typing import Final

import aiohttp

from benchmarks import dashboards_open
from benchmarks.api_during_storm import JOBS, percentile
from benchmarks.bare.cpu_time import cpu_seconds
from benchmarks.bare.databases import STORES, fresh
from benchmarks.bare.parts import ask, read_line, start, stop
from benchmarks.bare.receiver import Receiver, find_header
from benchmarks.remote_workers import idle_workers
from benchmarks.soak import started
from wakeful import Wakeful

MODULE: Final = "benchmarks.mixed"
GOAL: Final = 2.0
RUNS: Final = "/api/workspaces/default/runs"
#: The job whose runs the requests start and read.
MANUAL: Final = "manual"
#: The length of the lists that they read.
PAGE: Final = 20
#: Seconds from the start of a load until it is measured.
SETTLE_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class Result:
    """One of the two times, in ms, in a load alone and in all loads together."""

    store: str
    figure: str
    alone_p50_ms: float
    alone_p99_ms: float
    mixed_p50_ms: float
    mixed_p99_ms: float
    ratio: float
    samples: int
    #: of the server, as a share of a core
    alone_cpu_percent: float
    mixed_cpu_percent: float


@dataclass(frozen=True, slots=True)
class Loads:
    """The sizes of the loads."""

    workers: int
    dashboards: int
    requests_per_s: int
    webhooks_per_s: int


# --- the parts: each prints a line when it is ready, and its times in ms after each line of its input -------


async def report(counts: Callable[[], object]) -> None:
    """Print the counts after each line of the input, until it ends."""
    while await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(counts()), flush=True)


class TickReceiver(Receiver):
    """A receiver of webhooks that notes how late each is."""

    #: of all connections
    delays_ms: list[float] = []

    def note(self, head: bytes) -> None:
        """Note the delay of a webhook."""
        due = datetime.fromisoformat(find_header(head, b"x-wakeful-scheduled-at").upper())
        self.delays_ms.append(1000 * (time.time() - due.timestamp()))


async def receive() -> None:
    """Receive webhooks."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(TickReceiver, "127.0.0.1", 0, backlog=1000)
    print(json.dumps({"url": f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"}), flush=True)
    await report(lambda: {"ms": take_all(TickReceiver.delays_ms)})


async def wait_for_runs(url: str, key: str, workers: int) -> None:
    """Run workers that wait."""
    async with idle_workers(url, key, workers):
        print("{}", flush=True)
        await report(dict)


async def request(url: str, key: str, per_second: int) -> None:
    """Send requests at a fixed rate."""
    times: list[float] = []
    sending: set[asyncio.Task[object]] = set()
    failed: list[asyncio.Task[object]] = []
    headers = {"Authorization": f"Bearer {key}"}
    async with aiohttp.ClientSession(url, headers=headers) as session:

        async def start_run() -> str:
            async with session.post(f"{JOBS}/{MANUAL}/run", json={}) as response:
                response.raise_for_status()
                return str((await response.json())["id"])

        async def read(path: str) -> None:
            began = time.perf_counter()
            async with session.get(path) as response:
                await response.read()
                response.raise_for_status()
            times.append(1000 * (time.perf_counter() - began))

        def note(task: asyncio.Task[object]) -> None:
            sending.discard(task)
            if not task.cancelled() and task.exception():
                failed.append(task)

        async def send_all() -> None:
            began = asyncio.get_running_loop().time()
            for number, path in enumerate(itertools.cycle([*reads, None])):
                await asyncio.sleep(began + number / per_second - asyncio.get_running_loop().time())
                task: asyncio.Task[object] = asyncio.create_task(read(path) if path else start_run())
                sending.add(task)
                task.add_done_callback(note)

        def counts() -> dict[str, list[float]]:
            for task in failed:
                task.result()
            return {"ms": take_all(times)}

        run = await start_run()
        job, page = f"{JOBS}/{MANUAL}", f"limit={PAGE}"
        reads = [job, f"{RUNS}/{run}", f"{JOBS}?{page}", f"{job}/runs?{page}"]
        work = asyncio.create_task(send_all())
        print("{}", flush=True)
        try:
            await report(counts)
        finally:
            work.cancel()
            await asyncio.gather(work, *sending, return_exceptions=True)


def take_all(times: list[float]) -> list[float]:
    """Empty a list, and return what it had."""
    taken = times[:]
    del times[: len(taken)]
    return taken


# --- the measurement ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def part(module: str, *arguments: str) -> Iterator[tuple[Popen[str], dict[str, str]]]:
    """Start a part, and yield it with what it prints when it is ready."""
    process = start(module, *arguments)
    try:
        yield process, read_line(process)
    finally:
        stop(process)


async def create_jobs(database: str, documents: Iterable[dict[str, object]]) -> None:
    """Create jobs beside the server."""
    async with Wakeful(database, secret_key="soak", allow_private_targets=True) as app:
        await app.jobs.create_many(documents)


def idle_jobs() -> Iterator[dict[str, object]]:
    """Yield the documents of the jobs that the requests read; they come first in the list of jobs."""
    for name in (MANUAL, *(f"idle-{number}" for number in range(PAGE))):
        yield {"name": name, "schedule": "@yearly", "target": {"kind": "echo"}, "overlapPolicy": "allow"}


def webhook_jobs(hook: str, count: int) -> Iterator[dict[str, object]]:
    """Yield the documents of jobs that are due every second, each at another time of it."""
    now_ms = time.time_ns() // 1_000_000
    for number in range(count):
        yield {
            "name": f"job-{number}",
            "schedule": {"kind": "every", "everyMs": 1000},
            "startAt": now_ms + 1000 * number // count,
            "target": {"kind": "webhook", "url": hook},
        }


def measure(store: str, database: str, loads: Loads, seconds: float, alone_s: float) -> list[Result]:
    """Measure one server: requests alone, webhooks alone, all together."""
    with started(database) as (server, address, key), part(MODULE, "--receive") as (receiver, hook):
        asyncio.run(create_jobs(database, idle_jobs()))
        sender = (MODULE, "--request", address, key, str(loads.requests_per_s))

        def times_of(*parts: Popen[str], for_s: float) -> tuple[list[list[float]], float]:
            for each in parts:
                ask(each)
            began, spent = time.monotonic(), cpu_seconds(server.pid)
            time.sleep(for_s)
            share = (cpu_seconds(server.pid) - spent) / (time.monotonic() - began) * 100
            return [ask(each)["ms"] for each in parts], share

        with part(*sender) as (requests, _):
            time.sleep(SETTLE_S)
            [reads], requests_cpu = times_of(requests, for_s=alone_s)
        asyncio.run(create_jobs(database, webhook_jobs(hook["url"], loads.webhooks_per_s)))
        time.sleep(SETTLE_S)
        [delays], webhooks_cpu = times_of(receiver, for_s=alone_s)
        with contextlib.ExitStack() as others:
            if loads.workers:
                others.enter_context(part(MODULE, "--wait", address, key, str(loads.workers)))
            if loads.dashboards:
                browse = ("--browse", address, key, "--dashboards", str(loads.dashboards))
                others.enter_context(part(dashboards_open.MODULE, *browse))
            requests, _ = others.enter_context(part(*sender))
            time.sleep(SETTLE_S)
            [mixed_reads, mixed_delays], cpu = times_of(requests, receiver, for_s=seconds)
    return [
        compare(store, "read", reads, mixed_reads, requests_cpu, cpu),
        compare(store, "delay of a tick", delays, mixed_delays, webhooks_cpu, cpu),
    ]


def compare(
    store: str, figure: str, alone: list[float], mixed: list[float], alone_cpu: float, mixed_cpu: float
) -> Result:
    """Return the percentiles of the times of one figure, and the ratio."""
    alone, mixed = sorted(alone), sorted(mixed)
    p99, mixed_p99 = percentile(alone, 99), percentile(mixed, 99)
    return Result(
        store,
        figure,
        percentile(alone, 50),
        p99,
        percentile(mixed, 50),
        mixed_p99,
        mixed_p99 / p99 if p99 else 0.0,
        len(mixed),
        alone_cpu,
        mixed_cpu,
    )


def main() -> None:
    """Measure all stores."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--store", choices=STORES, nargs="+", default=list(STORES))
    parser.add_argument("--seconds", type=float, default=120, help="of all loads together")
    parser.add_argument("--alone", type=float, default=30, help="seconds of each load alone")
    parser.add_argument("--workers", type=int, default=200)
    parser.add_argument("--dashboards", type=int, default=200)
    parser.add_argument("--requests", type=int, default=50, help="per second")
    parser.add_argument("--webhooks", type=int, default=200, help="per second")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--receive", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--wait", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--request", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.receive:
        asyncio.run(receive())
    elif given.wait:
        address, key, workers = given.wait
        asyncio.run(wait_for_runs(address, key, int(workers)))
    elif given.request:
        address, key, per_second = given.request
        asyncio.run(request(address, key, int(per_second)))
    else:
        measure_stores(given)


def measure_stores(given: argparse.Namespace) -> None:
    """Measure the stores, and print the results."""
    loads = Loads(given.workers, given.dashboards, given.requests, given.webhooks)
    results: list[Result] = []
    for store in given.store:
        with fresh(store) as database:
            results += measure(store, database, loads, given.seconds, given.alone)
    if given.json:
        print(json.dumps([asdict(result) for result in results]))
        return
    print(
        f"{'store':10}{'figure':17}{'alone p50':>12}{'p99':>11}{'all p50':>12}{'p99':>11}{'ratio':>7}", end=""
    )
    print(f"{'samples':>9}{'server cpu':>18}")
    for r in results:
        times = (r.alone_p50_ms, r.alone_p99_ms, r.mixed_p50_ms, r.mixed_p99_ms)
        print(f"{r.store:10}{r.figure:17}", end="")
        print("".join(f"{ms:{width}.1f} ms" for ms, width in zip(times, (9, 8, 9, 8), strict=True)), end="")
        print(f"{r.ratio:7.2f}{r.samples:9}{r.alone_cpu_percent:8.0f} %{r.mixed_cpu_percent:6.0f} %")
    print(f"goal: a ratio below {GOAL:g}")


if __name__ == "__main__":
    main()
