"""Leak test: the growth of memory, open files and database size of a server under load.

    python -m benchmarks.soak
    python -m benchmarks.soak --seconds 3600 --store sqlite postgres --json

The load on a real server (`wakeful serve`) with a new database: jobs that call a webhook every second, jobs
that are created, edited, run and deleted with documents that are never the same twice, dry runs of such
documents, and event streams that are opened and closed. Memory, open files and database size are sampled once
a second. The first samples (`--warm-up`) and those of the first thousand rounds of churn are dropped, since
caches fill. The slope per hour of the others is printed, by least squares. Exit code 1: memory or open files
grow faster than the limit, or there were too few rounds. The database grows with its history: no limit.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import aiohttp
from aiohttp import web

from benchmarks.bare.databases import STORES, fresh

#: Rounds of churn until the caches are full, and the least number of samples.
FULL: Final = 1_000
ENOUGH: Final = 60
FIRING: Final = 100
#: The receiver's response. It is stored, so the database soon exceeds SQLite's cache (80 MB).
ANSWER: Final = "done " * 800
STREAMS: Final = 20
API: Final = "/api/workspaces/default"
JOBS: Final = f"{API}/agents/default/jobs"
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz äöü漢字"
MB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Sample:
    """The resources of a server at one time."""

    second: float
    rounds: int
    memory: int
    files: int
    database: int


@dataclass(frozen=True, slots=True)
class Result:
    """The growth of a server per hour."""

    store: str
    memory_mb: float
    memory_mb_per_hour: float
    files: int
    files_per_hour: float
    database_mb: float
    database_mb_per_hour: float
    done: dict[str, int] = field(default_factory=dict)


class Load:
    """Clients of one server. Each runs until it is cancelled."""

    def __init__(self, session: aiohttp.ClientSession, url: str, receiver: str, seed: int) -> None:
        self._session = session
        self._url = url
        self._receiver = receiver
        self._random = random.Random(seed)
        self._number = 0
        self.done: Counter[str] = Counter()

    async def fires(self) -> None:
        """Create the jobs that run every second."""
        for number in range(FIRING):
            target = {"kind": "webhook", "url": f"{self._receiver}/{number}"}
            await self._request(
                "POST", JOBS, {"name": f"fire-{number}", "schedule": "every 1s", "target": target}
            )

    async def churn(self) -> None:
        """Create, edit, run and delete jobs."""
        while True:
            name = self._name("churn")
            await self._request("POST", JOBS, {"name": name, **self._document()})
            await self._request("PUT", f"{JOBS}/{name}", self._document())
            await self._request("PATCH", f"{JOBS}/{name}", self._document())
            await self._request("GET", f"{JOBS}/{name}")
            await self._request("POST", f"{JOBS}/{name}/run", {})
            await self._request("DELETE", f"{JOBS}/{name}")
            self.done["rounds"] += 1

    async def dry_runs(self) -> None:
        """Validate documents with dry runs."""
        while True:
            await self._request("PUT", f"{JOBS}/{self._name('dry')}?dry_run=true", self._document())
            self.done["dry runs"] += 1

    async def streams(self) -> None:
        """Open an event stream, read a few events, and close it."""
        while True:
            async with self._session.get(f"{self._url}{API}/events") as response:
                for _ in range(self._random.randrange(5, 50)):
                    await response.content.readline()
            self.done["streams"] += 1

    def _document(self) -> dict[str, object]:
        """Return a document that differs from all others in as many parts as possible."""
        pick = self._random
        minute, hour, day = pick.randrange(60), pick.randrange(24), pick.randrange(1, 29)
        words = "".join(pick.choices(_LETTERS, k=pick.randrange(10, 10_000)))
        url = f"{self._receiver}/{pick.getrandbits(64):x}"
        return {
            "schedule": f"{minute},{pick.randrange(60)} {hour} {day},{pick.randrange(1, 29)} * *",
            "tz": pick.choice(["UTC", "Europe/Berlin", "America/New_York", "Asia/Tokyo"]),
            "exclude": [f"2027-{pick.randrange(1, 13):02}-{day:02}", "holidays:DE-BY"],
            "target": {"kind": "webhook", "url": url, "headers": {"x-note": f"{pick.getrandbits(64):x}"}},
            "message": words,
            "labels": {"round": str(self._number)},
            "maxAttempts": pick.randrange(1, 10),
            "timeoutMs": pick.randrange(1_000, 60_000),
        }

    def _name(self, prefix: str) -> str:
        self._number += 1
        return f"{prefix}-{self._number}"

    async def _request(self, method: str, path: str, body: object = None) -> None:
        async with self._session.request(method, self._url + path, json=body) as response:
            if response.status >= 400:
                raise RuntimeError(f"{method} {path}: {response.status} {await response.text()}")
            await response.read()


async def soak(store: str, url: str, seconds: float, warm_up: float) -> Result:
    """Put load on a server and measure its growth."""
    samples: list[Sample] = []
    loop = asyncio.get_running_loop()
    with started(url) as (process, address, key):
        headers = {"Authorization": f"Bearer {key}"}
        async with receiving() as receiver, aiohttp.ClientSession(headers=headers) as session:
            load = Load(session, address, receiver, seed=7)
            await load.fires()
            work = [*[load.churn] * 4, load.dry_runs, *[load.streams] * STREAMS]
            tasks = [asyncio.create_task(each()) for each in work]
            began = loop.time()
            while (now := loop.time() - began) < seconds:
                done, _ = await asyncio.wait(tasks, timeout=1, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
                samples.append(
                    Sample(now, load.done["rounds"], *size_of(process.pid), await database_size(url))
                )
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    kept = [each for each in samples if each.second >= warm_up * seconds and each.rounds >= FULL]
    if len(kept) < ENOUGH:
        churned = f"{load.done['rounds']:,} rounds of churn in {seconds:g} s"
        sys.exit(f"{store}: {churned} are too few to tell the slope from the warm-up; give more --seconds")
    last = kept[-1]
    return Result(
        store,
        last.memory / MB,
        slope(kept, lambda sample: sample.memory / MB),
        last.files,
        slope(kept, lambda sample: sample.files),
        last.database / MB,
        slope(kept, lambda sample: sample.database / MB),
        dict(load.done),
    )


def slope(samples: list[Sample], value: Callable[[Sample], float]) -> float:
    """Return the growth of a value per hour, by least squares."""
    count = len(samples)
    x = [sample.second / 3600 for sample in samples]
    y = [value(sample) for sample in samples]
    x_mean, y_mean = sum(x) / count, sum(y) / count
    spread = sum((each - x_mean) ** 2 for each in x)
    return sum((a - x_mean) * (b - y_mean) for a, b in zip(x, y, strict=True)) / spread if spread else 0.0


def size_of(pid: int) -> tuple[int, int]:
    """Return the resident memory and open files of a process; -1 files if only root may count them."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    memory = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) * 1024
    try:
        return memory, len(os.listdir(f"/proc/{pid}/fd"))
    except PermissionError:
        return memory, -1


async def database_size(url: str) -> int:
    """Return the size of a database on disk, in bytes."""
    if url.startswith("sqlite:///"):
        return _file_sizes(url.removeprefix("sqlite:///"))
    import asyncpg

    connection = await asyncpg.connect(url)
    try:
        return int(await connection.fetchval("SELECT pg_database_size(current_database())"))
    finally:
        await connection.close()


def _file_sizes(path: str) -> int:
    return sum(os.path.getsize(file) for file in (path, f"{path}-wal") if os.path.exists(file))


@contextlib.contextmanager
def started(url: str) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """Start a server on this database; yields its process, URL and admin key."""
    with tempfile.TemporaryDirectory(prefix="wakeful-soak-") as home:
        key_file = Path(home, "key")
        settings = {"WAKEFUL_DB": url, "WAKEFUL_SECRET_KEY": "soak", "WAKEFUL_KEY_FILE": str(key_file)}
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "wakeful",
                "serve",
                "--dev",
                "--port",
                "0",
                "--json",
                "--log-level",
                "error",
            ],
            env={**os.environ, **settings},
            cwd=home,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            lines: list[str] = []
            for line in process.stdout:
                lines.append(line)
                if line == "}\n":
                    break
            yield process, json.loads("".join(lines))["url"], key_file.read_text().strip()
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


@contextlib.asynccontextmanager
async def receiving() -> AsyncIterator[str]:
    """Run a webhook receiver; yields its URL."""

    async def answer(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(text=ANSWER)

    app = web.Application()
    app.router.add_post("/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--warm-up", type=float, default=0.5, help="the part that is not counted (0.5)")
    parser.add_argument("--store", choices=STORES, nargs="+", default=["sqlite"])
    parser.add_argument("--max-memory", type=float, default=60, help="MB per hour (60)")
    parser.add_argument("--max-files", type=float, default=60, help="open files per hour (60)")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    results: list[Result] = []
    for store in arguments.store:
        with fresh(store) as url:
            results.append(asyncio.run(soak(store, url, arguments.seconds, arguments.warm_up)))
    if arguments.json:
        print(json.dumps([asdict(result) for result in results]))
    else:
        titles = f"{'store':10}{'memory':>10}{'an hour':>12}{'files':>7}{'an hour':>9}"
        print(f"{titles}{'database':>12}{'an hour':>11}")
        for r in results:
            print(
                f"{r.store:10}{r.memory_mb:7.0f} MB{r.memory_mb_per_hour:9.1f} MB{r.files:7}"
                f"{r.files_per_hour:9.1f}{r.database_mb:9.0f} MB{r.database_mb_per_hour:8.0f} MB"
            )
            print(f"{'':10}" + ", ".join(f"{count:,} {what}" for what, count in sorted(r.done.items())))
    too_fast = [
        f"{r.store}: {what} grows by {by:.1f}{unit} an hour, more than {limit:g}{unit}"
        for r in results
        for what, by, limit, unit in (
            ("the memory", r.memory_mb_per_hour, arguments.max_memory, " MB"),
            ("the number of open files", r.files_per_hour, arguments.max_files, ""),
        )
        if by > limit
    ]
    if too_fast:
        sys.exit("\n".join(too_fast))


if __name__ == "__main__":
    main()
