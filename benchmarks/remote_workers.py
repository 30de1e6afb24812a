"""Runs per second of workers outside the server, compared with bare loops; and the cost of idle workers.

    python -m benchmarks.remote_workers
    python -m benchmarks.remote_workers --store sqlite --runs 1000 --json

**one by one** is a bare loop of the HTTP client: it claims up to 10 runs, and completes each with its own
request. **together** is the same loop with one request for the outcomes. **worker** is
`wakeful.remote.Worker` with 10 slots and a function that returns at once, in 1 and in 4 processes; its time
includes that to add the runs. The server is one process of its own; its CPU time per run is shown, without
that of the database.

**claims** are claims alone: one run at a time, on one connection and on eight, and 100 at a time. Their floor
is a bare server in the same run that reads one row for each request (`benchmarks.bare.http_floor`). The CPU
time is that of the server for each request; the ratio is that to the floor.

**waiting** is the CPU time of the server and of the database, as a share of a core: without workers, with 200
that wait for the same runs, and with 200 that wait for the runs of an agent each.
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
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta

import aiohttp
import asyncpg

from benchmarks.bare.cpu_time import cpu_seconds, parent_of
from benchmarks.bare.databases import STORES, fresh
from benchmarks.bare.http_floor import bare_server
from wakeful import AsyncClient, Wakeful
from wakeful.client.rest import RestClient
from wakeful.remote import Worker
from wakeful.values.json_value import Json

RUNS, BACKFILL, WORKERS = 1_000, 1_000, 200
PARTS = ("runs", "claims", "waiting")
#: Runs of a claim, and connections.
CLAIMS = ((1, 1), (1, 8), (100, 1))
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


@dataclass(frozen=True, slots=True)
class ClaimRow:
    """Claims of so many runs, on so many connections; 0 runs: requests to the bare server."""

    store: str
    runs: int
    connections: int
    requests_per_second: float
    server_ms: float


@dataclass(frozen=True, slots=True)
class Waiting:
    """What workers that wait cost, in percent of a core."""

    workers: str
    server: float
    database: float


@contextlib.contextmanager
def serving(
    database: str, program: Sequence[str] = ("-m", "wakeful"), key: str | None = None
) -> Iterator[tuple[str, str, int]]:
    """Start a server; yield its URL, an admin key and its process id. `key` is one that it has already."""
    key = key or asyncio.run(_prepare(database))
    command = [
        sys.executable,
        *program,
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


async def claim_all(url: str, key: str, runs: int, connections: int) -> int:
    """Claim all runs that wait, so many with each request; return the number of requests."""
    sent = 0

    async def claim() -> None:
        nonlocal sent
        async with RestClient(url, key) as rest:
            while await rest.claim_runs(worker="bench", limit=runs):
                sent += 1

    await asyncio.gather(*(claim() for _ in range(connections)))
    return sent


async def read_rows(url: str, requests: int) -> int:
    """Send requests to the bare server, one by one; return their number."""
    async with aiohttp.ClientSession(url) as session:
        for _ in range(requests):
            async with session.get("/rows/1") as response:
                await response.read()
    return requests


async def _add_read_job(url: str, key: str) -> None:
    async with AsyncClient(url, key) as client:
        await client.jobs.create("read", schedule="@yearly", target={"kind": "pull"})


def measure_claims(store: str, runs: int) -> list[ClaimRow]:
    """Measure claims, and the bare server on the same database."""
    rows: list[ClaimRow] = []

    def measure_requests(of: int, connections: int, pid: int, sending: Coroutine[None, None, int]) -> None:
        began, cpu = time.perf_counter(), cpu_s(pid)
        sent = asyncio.run(sending)
        seconds, spent = time.perf_counter() - began, cpu_s(pid) - cpu
        rows.append(ClaimRow(store, of, connections, sent / seconds, spent / sent * 1000))

    with fresh(store) as database:
        with serving(database) as (url, key, pid):
            asyncio.run(_add_read_job(url, key))
            for of, connections in CLAIMS:
                asyncio.run(add_runs(url, key, runs))
                measure_requests(of, connections, pid, claim_all(url, key, of, connections))
        with bare_server(database) as (url, pid):
            measure_requests(0, 1, pid, read_rows(url, runs))
    return rows


@contextlib.asynccontextmanager
async def idle_workers(url: str, key: str, count: int, *, apart: bool = False) -> AsyncIterator[None]:
    """Run workers that have nothing to do; `apart`: each waits for the runs of another agent."""
    workers = [
        Worker(url, key, name=f"idle-{number}", agents=[f"agent-{number}"] if apart else [])
        for number in range(count)
    ]
    for worker in workers:
        worker.handler(_nothing)
    tasks = [asyncio.create_task(worker.serve()) for worker in workers]
    try:
        yield
    finally:
        for worker in workers:
            worker.stop()
        await asyncio.gather(*tasks)


async def find_postmaster(database: str) -> int | None:
    """Return the process id of the PostgreSQL server on this machine; None: it is SQLite."""
    if not database.startswith("postgres"):
        return None
    connection = await asyncpg.connect(database)
    try:
        return parent_of(await connection.fetchval("SELECT pg_backend_pid()"))
    finally:
        await connection.close()


def measure_idle(store: str, seconds: float) -> list[Waiting]:
    """Measure what workers that wait cost the server and the database."""
    rows: list[Waiting] = []
    with fresh(store) as database, serving(database) as (url, key, pid):
        postmaster = asyncio.run(find_postmaster(database))

        def spent() -> tuple[float, float]:
            return cpu_s(pid), 0.0 if postmaster is None else cpu_seconds(postmaster)

        async def idle(name: str, count: int, apart: bool) -> None:
            async with idle_workers(url, key, count, apart=apart):
                await asyncio.sleep(3)
                before = spent()
                await asyncio.sleep(seconds)
                server, of_database = (after - then for after, then in zip(spent(), before, strict=True))
            rows.append(Waiting(name, server / seconds * 100, of_database / seconds * 100))

        asyncio.run(idle("none", 0, False))
        asyncio.run(idle(f"{WORKERS} alike", WORKERS, False))
        asyncio.run(idle(f"{WORKERS} apart", WORKERS, True))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--store", choices=STORES, action="append")
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--seconds", type=float, default=15.0)  # a worker asks again after so long
    parser.add_argument("--only", choices=PARTS, action="append")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--work", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        asyncio.run(work(*given.work))
        return
    parts = given.only or PARTS
    result: dict[str, object] = {}
    for store in given.store or STORES:
        rows = measure(store, given.runs) if "runs" in parts else []
        claims = measure_claims(store, given.runs) if "claims" in parts else []
        waits = measure_idle(store, given.seconds) if "waiting" in parts else []
        result[store] = {
            "rows": [asdict(row) for row in rows],
            "claims": [asdict(row) for row in claims],
            "waiting": [asdict(row) for row in waits],
        }
        if given.json:
            continue
        for row in rows:
            print(
                f"{store:9} {row.name:11} {row.processes} process(es)  {row.runs_per_second:8,.0f} runs/s  "
                f"{row.runs_per_second / rows[0].runs_per_second:5.1f} x  "
                f"server {row.server_ms_per_run:5.2f} ms/run"
            )
        for claim in claims:
            of = f"claims of {claim.runs}" if claim.runs else "bare server, one row"
            print(
                f"{store:9} {of:20} {claim.connections} connection(s)  "
                f"{claim.requests_per_second:8,.0f} requests/s  server {claim.server_ms:5.2f} ms/request  "
                f"{claim.server_ms / claims[-1].server_ms:5.1f} x"
            )
        for wait in waits:
            total, least = wait.server + wait.database, waits[0].server + waits[0].database
            print(
                f"{store:9} waiting workers: {wait.workers:9}  server {wait.server:5.1f} %  "
                f"database {wait.database:5.1f} %  {total / max(least, 0.01):5.1f} x"
            )
    if given.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
