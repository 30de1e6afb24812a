"""One SQLite file, one connection, one thread that owns it; and how a piece of work becomes a transaction.

Every call of the store is one hop to the thread and one transaction there: committed whole, or rolled back
if anything is raised. What the work has to announce is told to the event loop after the commit and before
the caller goes on, even if the caller has been cancelled meanwhile.

Several processes may use the file, each through a connection of its own: a writer waits up to
`BUSY_MS` for the others, then the call raises Unavailable.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from wakeful.clock import Clock, SystemClock
from wakeful.errors import Unavailable
from wakeful.store.migrations import Migration, load, pending
from wakeful.store.watching import Tell as Tell

T = TypeVar("T")

BUSY_MS: Final = 10_000
_PRAGMAS: Final = (
    f"PRAGMA busy_timeout = {BUSY_MS}",
    "PRAGMA page_size = 8192",  # rows are wide: measured a few percent faster than 4096. New files only
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",  # a commit is on the disk when it returns
    "PRAGMA cache_size = -65536",  # 64 MB
    "PRAGMA wal_autocheckpoint = 4000",  # 32 MB: a storm rewrites the same pages, so check in late
    "PRAGMA journal_size_limit = 67108864",
    "PRAGMA temp_store = MEMORY",
)
_UNUSABLE: Final = frozenset(
    {
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_READONLY,
    }
)
_VERSION: Final = "SELECT coalesce(max(version), 0) FROM schema_version"
_CREATE_VERSION: Final = """
    CREATE TABLE IF NOT EXISTS schema_version (
        version INTEGER NOT NULL PRIMARY KEY, name TEXT NOT NULL, applied_at INTEGER NOT NULL)"""
_ADD_VERSION: Final = "INSERT INTO schema_version VALUES (?, ?, ?)"
#: the primary key: its last entry
_LOG: Final = """
    INSERT INTO changes (seq, at, kind, count, items)
    VALUES ((SELECT coalesce(max(seq), 0) FROM changes) + ?3, ?1, ?2, ?3, ?4)"""
#: sessions_due, which is mostly empty: whether a turn may wait for a run that has ended
_ANYBODY_WAITS: Final = "SELECT 1 FROM sessions INDEXED BY sessions_due WHERE due_at IS NOT NULL LIMIT 1"


def path_of(path_or_url: str) -> str:
    """The path in `sqlite:///relative.db`, `sqlite:////absolute.db`, or a path as it is.

    >>> path_of("sqlite:///wakeful.db"), path_of("sqlite:////var/lib/wakeful.db"), path_of("sqlite://")
    ('wakeful.db', '/var/lib/wakeful.db', ':memory:')
    """
    scheme, mark, rest = path_or_url.partition("://")
    if not mark or scheme != "sqlite":
        return path_or_url
    return rest.removeprefix("/") or ":memory:"


class Connection:
    """The connection, its thread, and those who listen."""

    def __init__(self, path: str, *, inline: bool, clock: Clock | None = None) -> None:
        self._path = path
        self._clock = clock or SystemClock()
        self._inline = inline
        self._thread: ThreadPoolExecutor | None = None
        self._db: sqlite3.Connection | None = None
        self._heard: list[Callable[[str], None]] = []

    async def open(self, now_ms: int) -> None:
        """Connect, and bring the schema up to date."""
        if not self._inline:
            self._thread = ThreadPoolExecutor(1, "wakeful-sqlite")
        try:
            await self._hop(lambda: self._connect(now_ms))
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Disconnect, and end the thread."""
        if self._db is not None:
            await self._hop(self._disconnect)
        if self._thread is not None:
            self._thread.shutdown(wait=False)
            self._thread = None

    def listen(self, heard: Callable[[str], None]) -> None:
        """From now on, tell `heard` too."""
        self._heard.append(heard)

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do what needs one statement and changes nothing."""
        return await self._hop(lambda: work(self._connected()))

    async def write(self, work: Callable[[sqlite3.Connection, Tell], T]) -> T:
        """Do the work in one transaction that nobody else writes beside."""
        loop = asyncio.get_running_loop()

        def transaction() -> T:
            db = self._connected()
            tell = Tell()
            db.execute("BEGIN IMMEDIATE")
            try:
                result = work(db, tell)
                if changes := tell.log():
                    now_ms = self._clock.now_ms()
                    db.executemany(_LOG, [(now_ms, *row) for row in changes])
                    if tell.any_ended and db.execute(_ANYBODY_WAITS).fetchone() is not None:
                        tell("sessions")
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
            if tell.topics and self._heard:
                loop.call_soon_threadsafe(self._announce, list(tell.topics))
            return result

        return await self._hop(transaction)

    async def _hop(self, work: Callable[[], T]) -> T:
        try:
            if self._thread is None:
                return work()
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except sqlite3.DatabaseError as error:
            reason = self._reason(error)
            if reason is None:
                raise
            raise Unavailable(reason) from error

    def _announce(self, topics: Sequence[str]) -> None:
        for topic in topics:
            for heard in self._heard:
                heard(topic)

    def _connected(self) -> sqlite3.Connection:
        if self._db is None:
            raise Unavailable("the store is not open")
        return self._db

    def _connect(self, now_ms: int) -> None:
        # One thread uses it at a time; which one it is changes where tests open and close in another.
        self._db = sqlite3.connect(
            self._path, isolation_level=None, check_same_thread=False, cached_statements=256
        )
        until = time.monotonic() + BUSY_MS / 1000
        while True:
            try:
                for pragma in _PRAGMAS:
                    self._db.execute(pragma)
                break
            except sqlite3.OperationalError as error:
                # Turning a new file to WAL does not wait for another process that is doing the same.
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                    raise
                time.sleep(0.01)
        migrate(self._db, load("sqlite"), now_ms)

    def _disconnect(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def _reason(self, error: sqlite3.DatabaseError) -> str | None:
        """Why the file cannot be used, in a sentence; None where the mistake is in what we said to it."""
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if code == sqlite3.SQLITE_BUSY:
            return f"another process has been writing to {self._path} for {BUSY_MS // 1000} s; is it stuck?"
        return f"cannot use the database {self._path}: {error}" if code in _UNUSABLE else None


def migrate(db: sqlite3.Connection, steps: Sequence[Migration], now_ms: int) -> None:
    """Take the steps that the database has still to take, all or none, while nobody else can do the same."""
    if _has_versions(db) and not pending(steps, _version(db)):
        return
    db.execute("BEGIN EXCLUSIVE")
    try:
        db.execute(_CREATE_VERSION)
        for step in pending(steps, _version(db)):  # asked again: another process may have been faster
            for statement in _statements(step.sql):
                db.execute(statement)
            db.execute(_ADD_VERSION, (step.number, step.name, now_ms))
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _has_versions(db: sqlite3.Connection) -> bool:
    return db.execute("SELECT 1 FROM sqlite_master WHERE name = 'schema_version'").fetchone() is not None


def _version(db: sqlite3.Connection) -> int:
    version: int = db.execute(_VERSION).fetchone()[0]
    return version


def _statements(script: str) -> Iterator[str]:
    """The statements of a script, one by one: `executescript` would commit what is under way."""
    *pieces, rest = script.split(";")
    statement = ""
    for piece in pieces:
        statement += piece + ";"
        if sqlite3.complete_statement(statement):  # and not within a text, a comment or a trigger
            yield statement
            statement = ""
    yield statement + rest
