"""Runs per second of workers outside the server, compared with bare loops; and the cost of idle workers.

    python -m benchmarks.remote_workers
    python -m benchmarks.remote_workers --store sqlite --runs 1000 --json

**one by one** is a bare loop of the HTTP client: it claims up to 10 runs, and completes each with its own
request. **together** is the same loop with one request for the outcomes. **worker** is
`wakeful.remote.Worker` with 10 slots and a function that returns at once, in 1 and in 4 processes; its time
includes that to add the runs. The server is one process of its own; its CPU time per run is shown, without
that of the database. **idle** is the CPU time of the server, as a share of a core, while 200 workers wait.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta

from benchmarks.bare.databases import STORES, fresh
from wakeful import AsyncClient, Wakeful
from wakeful.client.rest import RestClient
from wakeful.remote import Worker
from wakeful.values.json_value import Json

RUNS, BACKFILL, WORKERS = 1_000, 1_000, 200
AGENT = "default"
_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Row:
    """One way to execute runs."""

    store: str
    name: str
    processes: int
    runs_per_second: float
    server_ms_per_run: float


@contextlib.contextmanager
def serving(database: str) -> Iterator[tuple[str, str, int]]:
    """Start a server; yield its URL, an admin key and its process id."""
    key = asyncio.run(_prepare(database))
    command = [
        sys.executable,
        "-m",
        "wakeful",
        "serve",
        "--db",
        database,
        "--port",
        "0",
        "--log-level",
        "warning",
    ]
    server = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "WAKEFUL_LOG_FORMAT": "json"}
    )
    assert server.stdout is not None
    try:
        for line in server.stdout:
            if "http://" in line:
                yield "http://" + line.split("http://", 1)[1].split()[0].strip('",'), key, server.pid
                break
    finally:
        server.terminate()
        server.wait()


async def _prepare(database: str) -> str:
    async with Wakeful(database) as app:
        key = await app.services.auth.keys.first_key()
    assert key is not None
    return key


async def add_runs(url: str, key: str, runs: int) -> None:
    """Add runs that wait for a worker."""
    async with AsyncClient(url, key) as client:
        for start in range(0, runs, BACKFILL):
            name = f"job-{time.time_ns()}"
            await client.jobs.create(
                name, schedule="* * * * *", target={"kind": "pull"}, overlap_policy="allow", payload={"n": 1}
            )
            await client.jobs.pause(name)
            end = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=1)
            await client.jobs.backfill(name, end - timedelta(minutes=min(BACKFILL, runs - start) - 1), end)


async def loop(url: str, key: str, *, together: bool) -> int:
    """Claim and complete runs until there are none; return their number."""
    done = 0
    rest = RestClient(url, key)
    async with rest:
        while runs := await rest.claim_runs(worker="bare", limit=10):
            reports = [_report(run["id"], run["attempt"]) for run in runs]
            if together:
                await rest.complete_runs(runs=reports)
            else:
                for report in reports:
                    await rest.complete_run(str(report.pop("id")), report)
            done += len(runs)
    return done


def _report(run_id: str, attempt: int) -> dict[str, Json]:
    return {"id": run_id, "attempt": attempt, "status": "succeeded", "output": "x"}


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


async def work(url: str, key: str, name: str) -> None:
    """Run a worker until this process is terminated."""
    worker = Worker(url, key, name=name)
    worker.handler(_nothing)
    print("started", flush=True)
    await worker.serve(signals=True)


async def _nothing() -> str:
    return "x"


async def waiting(url: str, key: str) -> int:
    async with AsyncClient(url, key) as client:
        status = await client.status()
    runs = status["runs"]
    assert isinstance(runs, dict)
    return sum(int(str(runs.get(state) or 0)) for state in ("pending", "running", "retrying"))


@contextlib.contextmanager
def workers_started(url: str, key: str, processes: int) -> Iterator[None]:
    """Start workers; yield when they run."""
    command = [sys.executable, "-m", "benchmarks.remote_workers", "--work", url, key]
    workers = [
        subprocess.Popen([*command, f"worker-{number}"], stdout=subprocess.PIPE)
        for number in range(processes)
    ]
    try:
        for worker in workers:
            assert worker.stdout is not None
            worker.stdout.readline()
        yield
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.wait()


def measure(store: str, runs: int) -> list[Row]:
    """Measure all ways on one database."""
    rows: list[Row] = []
    with fresh(store) as database, serving(database) as (url, key, pid):
        ways = [("one by one", 1), ("together", 1), ("worker", 1), ("worker", 4)]
        for name, processes in ways:
            bare = name != "worker"
            with contextlib.nullcontext() if bare else workers_started(url, key, processes):
                if bare:
                    asyncio.run(add_runs(url, key, runs))
                began, cpu = time.perf_counter(), cpu_s(pid)
                if bare:
                    assert asyncio.run(loop(url, key, together=name == "together")) == runs
                else:
                    asyncio.run(add_runs(url, key, runs))
                    while asyncio.run(waiting(url, key)):
                        time.sleep(0.05)
                seconds, spent = time.perf_counter() - began, cpu_s(pid) - cpu
            rows.append(Row(store, name, processes, runs / seconds, spent / runs * 1000))
    return rows


@contextlib.asynccontextmanager
async def idle_workers(url: str, key: str, count: int) -> AsyncIterator[None]:
    """Run workers that have nothing to do."""
    workers = [Worker(url, key, name=f"idle-{number}") for number in range(count)]
    for worker in workers:
        worker.handler(_nothing)
    tasks = [asyncio.create_task(worker.serve()) for worker in workers]
    try:
        yield
    finally:
        for worker in workers:
            worker.stop()
        await asyncio.gather(*tasks)


async def idle(url: str, key: str, pid: int, count: int, seconds: float) -> float:
    """Return the share of a core that the server uses while workers wait."""
    async with idle_workers(url, key, count):
        await asyncio.sleep(3)
        before = cpu_s(pid)
        await asyncio.sleep(seconds)
        return (cpu_s(pid) - before) / seconds * 100


def measure_idle(store: str, seconds: float) -> dict[str, float]:
    with fresh(store) as database, serving(database) as (url, key, pid):
        return {str(n): asyncio.run(idle(url, key, pid, n, seconds)) for n in (0, WORKERS)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--store", choices=STORES, action="append")
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--work", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        asyncio.run(work(*given.work))
        return
    result: dict[str, object] = {}
    for store in given.store or STORES:
        rows, waits = measure(store, given.runs), measure_idle(store, given.seconds)
        result[store] = {"rows": [asdict(row) for row in rows], "idle_percent": waits}
        if given.json:
            continue
        for row in rows:
            print(
                f"{store:9} {row.name:11} {row.processes} process(es)  {row.runs_per_second:8,.0f} runs/s  "
                f"{row.runs_per_second / rows[0].runs_per_second:5.1f} x  "
                f"server {row.server_ms_per_run:5.2f} ms/run"
            )
        for count, percent in waits.items():
            print(f"{store:9} {count:>3} waiting workers: {percent:.1f} % of a core")
    if given.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
