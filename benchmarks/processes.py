"""All cores of one machine: `wakeful serve` with 1, 2 and 4 processes on PostgreSQL.

    python -m benchmarks.processes                          about a minute
    python -m benchmarks.processes --processes 1 2 8 --storm 50000
    python -m benchmarks.processes --pin                    PostgreSQL alone on the last core
    python -m benchmarks.processes --json

Three loads, each from the due instant to the last outcome in the database:

- **storm**: recurring jobs that are due at one instant and call an empty function
- **webhooks**: the same, with a webhook each to a receiver in a process of its own
- **claims**: pull runs that are claimed and completed over HTTP by two client processes

Every load is checked: each job has one run, each run one launch (by its idempotency key). The ratio is to one
process. Server, clients, receiver and PostgreSQL share the machine: with N cores, the rates cannot grow N
times. `--pin` gives PostgreSQL the last core and everything else the others, so that the ratio is that of
the server alone, as long as the core of the database is not full. The CPU time of the server and of
PostgreSQL per run shows how many processes a core of the database serves. `WAKEFUL_BENCH_POSTGRES` names a
PostgreSQL on another machine, whose CPU time is not known.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg

from benchmarks.bare.cpu_time import cpu_seconds, process_tree
from benchmarks.bare.databases import fresh
from benchmarks.bare.receiver import Receiver, find_header
from wakeful import Wakeful

LANE = 400
CLIENTS = 2
CONNECTIONS = 8
CLAIMED = 20
CORES = os.sched_getaffinity(0)
#: The app of the server: a function that writes the key of each launch to a file of its process.
APP = """
import os
from wakeful import Wakeful

app = Wakeful()
file = None

@app.function("note")
async def note(run):
    global file
    if file is None:
        file = os.open(f"launches-{os.getpid()}", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    os.write(file, run.idempotency_key.encode() + b"\\n")
"""


@dataclass(frozen=True, slots=True)
class Row:
    """A load with a number of processes."""

    load: str
    processes: int
    runs: int
    per_second: float
    ratio: float
    #: CPU time per run, in microseconds
    server_us: float
    database_us: float | None


class Cpu:
    """The CPU time of the server and of a database on this machine, since it was created."""

    def __init__(self, server: int, database: int | None) -> None:
        self._pids = server, database
        self._before = self._now()

    def _now(self) -> tuple[float, float | None]:
        server, database = self._pids
        return cpu_seconds(server), None if database is None else cpu_seconds(database)

    def per_run_us(self, runs: int) -> tuple[float, float | None]:
        """Return the microseconds per run of both."""
        (server, database), (server_before, database_before) = self._now(), self._before
        if database is None or database_before is None:
            return (server - server_before) / runs * 1e6, None
        return (server - server_before) / runs * 1e6, (database - database_before) / runs * 1e6


async def postmaster(database: str) -> int | None:
    """Return the process of a PostgreSQL on this machine."""
    connection = await asyncpg.connect(database)
    try:
        file = Path(await connection.fetchval("SHOW data_directory")) / "postmaster.pid"
        return int(file.read_text().splitlines()[0]) if file.exists() else None
    finally:
        await connection.close()


def pin(database: int | None) -> None:
    """Give a PostgreSQL on this machine the last core, and this process and its later children the others."""
    *others, last = sorted(CORES)
    if database is None or not others:
        raise SystemExit("--pin needs two cores, and PostgreSQL on this machine")
    for pid in process_tree(database):
        os.sched_setaffinity(pid, {last})
    os.sched_setaffinity(0, others)


class CountingReceiver(Receiver):
    """A receiver of webhooks that responds at once and counts the idempotency keys."""

    keys: Counter[str] = Counter()

    def note(self, head: bytes) -> None:
        """Count the key of a request."""
        self.keys[find_header(head, b"webhook-id")] += 1


async def receive() -> None:
    """Receive webhooks until stdin closes, then print the count of each key."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(CountingReceiver, "127.0.0.1", 0, backlog=1000)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    print(json.dumps(CountingReceiver.keys))


async def claim(url: str, key: str, name: str) -> None:
    """Claim and complete runs until there are none; print the ids of those that were claimed."""
    claimed: list[str] = []

    async def work(session: aiohttp.ClientSession, number: int) -> None:
        empty = 0
        while empty < 3:
            body = {"worker": f"{name}-{number}", "limit": CLAIMED, "waitMs": 200}
            async with session.post("/api/workspaces/default/runs/claim", json=body) as response:
                runs = (await response.json())["runs"]
            empty = 0 if runs else empty + 1
            for run in runs:
                claimed.append(run["id"])
                done = {"status": "succeeded", "attempt": run["attempt"]}
                path = f"/api/workspaces/default/runs/{run['id']}/complete"
                async with session.post(path, json=done) as response:
                    assert response.status == 200, await response.text()

    headers = {"authorization": f"Bearer {key}"}
    async with aiohttp.ClientSession(url, headers=headers) as session:
        await asyncio.gather(*[work(session, number) for number in range(CONNECTIONS)])
    print(json.dumps(claimed))


@contextmanager
def server(folder: Path, database: str, processes: int) -> Iterator[dict[str, Any]]:
    """Run `wakeful serve` with processes, and yield what it prints at its start."""
    (folder / "bench_app.py").write_text(APP)
    arguments = ["serve", "--port", "0", "--db", database, "--app", "bench_app:app", "--json"]
    environment = {
        **os.environ,
        "HOME": str(folder),
        "XDG_CONFIG_HOME": str(folder),
        "WAKEFUL_SECRET_KEY": "bench",
        "WAKEFUL_ALLOW_PRIVATE_TARGETS": "yes",
        "WAKEFUL_LANE_CRON": str(LANE),
        "WAKEFUL_LOG_LEVEL": "error",
        "WAKEFUL_PROCESSES": str(processes),
    }
    command = [sys.executable, "-m", "wakeful", *arguments]
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        printed = ""
        while not printed.endswith("}\n"):
            line = running.stdout.readline()
            if not line:
                raise SystemExit("the server did not start")
            printed += line
        try:
            yield {**json.loads(printed), "pid": running.pid}
        finally:
            running.terminate()


async def create(database: str, load: str, count: int, target: dict[str, Any], lead_s: float) -> float:
    """Create jobs that are all due at one instant, and return it."""
    async with Wakeful(database, secret_key="bench", allow_private_targets=True) as app:
        due = time.time() + lead_s + count / 2_000
        await app.jobs.create_many(
            {
                "name": f"{load}-{number}",
                "schedule": {"kind": "every", "everyMs": 3_600_000},
                "startAt": round(due * 1000),
                "target": target,
                "payload": {"number": number},
            }
            for number in range(count)
        )
    if time.time() > due:
        raise SystemExit("creating the jobs took longer than the time until they are due")
    return due


async def finished(database: str, load: str, count: int) -> tuple[float, float, Counter[str]]:
    """Wait until all runs of a load have succeeded; return the first start, the last end, the keys."""
    connection = await asyncpg.connect(database)
    try:
        like = f"{load}-%"
        query = "SELECT count(*) FROM wakeful.runs WHERE job_name LIKE $1 AND state = 'succeeded'"
        async with asyncio.timeout(120):
            while await connection.fetchval(query, like) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        rows = await connection.fetch(
            "SELECT idempotency_key, extract(epoch FROM started_at)::float8, "
            "extract(epoch FROM finished_at)::float8, attempt FROM wakeful.runs WHERE job_name LIKE $1",
            like,
        )
    finally:
        await connection.close()
    assert len(rows) == count, f"{len(rows)} runs of {count} jobs"
    assert {row[3] for row in rows} == {1}, "a run was launched again"
    return min(row[1] for row in rows), max(row[2] for row in rows), Counter(row[0] for row in rows)


def storm(folder: Path, database: str, count: int, cpu: Callable[[], Cpu]) -> tuple[float, Cpu]:
    """Return the function runs per second."""
    due = asyncio.run(create(database, "storm", count, {"kind": "function", "name": "note"}, 2))
    used = cpu()
    _, last, keys = asyncio.run(finished(database, "storm", count))
    launches = Counter(line for file in folder.glob("launches-*") for line in file.read_text().splitlines())
    check_once(keys, launches)
    return count / (last - due), used


def webhooks(database: str, count: int, cpu: Callable[[], Cpu]) -> tuple[float, Cpu]:
    """Return the webhooks per second."""
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.processes", "--receive"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as receiver:
        assert receiver.stdin is not None
        assert receiver.stdout is not None
        target = {"kind": "webhook", "url": f"http://127.0.0.1:{int(receiver.stdout.readline())}/hook"}
        due = asyncio.run(create(database, "webhook", count, target, 2))
        used = cpu()
        _, last, keys = asyncio.run(finished(database, "webhook", count))
        receiver.stdin.close()
        check_once(keys, Counter(json.loads(receiver.stdout.readline())))
    return count / (last - due), used


def claims(database: str, started: dict[str, Any], count: int, cpu: Callable[[], Cpu]) -> tuple[float, Cpu]:
    """Return the runs per second that are claimed and completed over HTTP, from the first claim on."""
    due = asyncio.run(create(database, "claim", count, {"kind": "pull"}, 1))
    time.sleep(max(0.0, due + 1 - time.time()))  # planned: the clients measure claims alone
    used = cpu()
    key = Path(started["keyFile"]).read_text().strip()
    program = [sys.executable, "-m", "benchmarks.processes", "--claim", started["url"], key]
    clients = [
        subprocess.Popen([*program, f"client-{number}"], stdout=subprocess.PIPE, text=True)
        for number in range(CLIENTS)
    ]
    claimed = Counter(each for client in clients for each in json.loads(client.communicate()[0]))
    first, last, _ = asyncio.run(finished(database, "claim", count))
    assert len(claimed) == count, f"{len(claimed)} of {count} runs were claimed"
    assert set(claimed.values()) == {1}, "a run was claimed twice"
    return count / (last - first), used


def check_once(runs: Counter[str], launches: Counter[str]) -> None:
    """Stop if a run was launched twice, or not at all."""
    assert set(runs.values()) == {1}, "two runs have one key"
    assert runs.keys() == launches.keys(), f"{len(launches)} launched keys of {len(runs)} runs"
    assert set(launches.values()) == {1}, "a run was launched twice"


def measure(processes: list[int], sizes: dict[str, int], *, pinned: bool) -> list[Row]:
    """Measure each load with each number of processes; the first is the base of the ratio."""
    rows: list[Row] = []
    base: dict[str, float] = {}
    for count in processes:
        with tempfile.TemporaryDirectory(prefix="wakeful-bench-") as place, fresh("postgres") as database:
            folder = Path(place)
            database_pid = asyncio.run(postmaster(database))
            if pinned:
                pin(database_pid)
            with server(folder, database, count) as started:
                cpu = partial(Cpu, started["pid"], database_pid)
                for load, size in sizes.items():
                    if load == "storm":
                        rate, used = storm(folder, database, size, cpu)
                    elif load == "webhooks":
                        rate, used = webhooks(database, size, cpu)
                    else:
                        rate, used = claims(database, started, size, cpu)
                    ratio = rate / base.setdefault(load, rate)
                    rows.append(Row(load, count, size, rate, ratio, *used.per_run_us(size)))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--storm", type=int, default=5_000, help="jobs of the storm; 0: without it")
    parser.add_argument("--webhooks", type=int, default=2_000)
    parser.add_argument("--claims", type=int, default=1_000)
    parser.add_argument("--pin", action="store_true", help="give PostgreSQL a core of its own, the last one")
    parser.add_argument("--json", action="store_true", help="print the numbers for a program")
    parser.add_argument("--receive", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--claim", nargs=3, help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    if wanted.receive:
        asyncio.run(receive())
        return
    if wanted.claim:
        asyncio.run(claim(*wanted.claim))
        return
    sizes = {"storm": wanted.storm, "webhooks": wanted.webhooks, "claims": wanted.claims}
    rows = measure(wanted.processes, {load: size for load, size in sizes.items() if size}, pinned=wanted.pin)
    if wanted.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
        return
    cores = (
        f"1 core for PostgreSQL, {len(CORES) - 1} for the rest"
        if wanted.pin
        else f"{len(CORES)} cores for all"
    )
    print(f"{cores}; nothing was lost or doubled\n")
    print(
        f"{'load':<10}{'processes':>10}{'runs':>8}{'per second':>12}{'ratio':>8}"
        f"{'server cpu':>13}{'database cpu':>15}"
    )
    for row in sorted(rows, key=lambda row: list(sizes).index(row.load)):
        database = "" if row.database_us is None else f"{row.database_us:>12.0f} us"
        print(
            f"{row.load:<10}{row.processes:>10}{row.runs:>8}{row.per_second:>12.0f}{row.ratio:>8.2f}"
            f"{row.server_us:>10.0f} us{database}"
        )


if __name__ == "__main__":
    main()
