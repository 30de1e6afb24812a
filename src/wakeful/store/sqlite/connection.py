"""The driver for SQLite: a connection that writes, a connection that reads, and a thread for each.

Each call runs in a thread, in one transaction; an exception rolls it back. Topics reach the event loop after
the commit and before the caller continues, even if the caller was cancelled meanwhile.

Several processes may use the file. A write waits up to `BUSY_MS`, counted from the call, for the writers of
other processes, then raises Unavailable; it is not executed after its caller was cancelled. A read waits for
no writer: in WAL mode it sees the last commit.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Concatenate, Final, ParamSpec, TypeVar

from wakeful.errors import Unavailable
from wakeful.logs import get_logger
from wakeful.store.changelog import Listeners, TransactionEvents
from wakeful.store.migrations import load
from wakeful.store.sql.driver import Pending, SqlSession, TenantTurns, run_to_end
from wakeful.store.sqlite.numbered_parameters import connection_class
from wakeful.store.sqlite.schema import migrate
from wakeful.store.sqlite.session import SqliteSession
from wakeful.values.clock import Clock, SystemClock

P = ParamSpec("P")
T = TypeVar("T")

log = get_logger("wakeful.store.sqlite")

_NOT_OPEN: Final = "the store is not open"

#: How long a write waits for writers of other processes.
BUSY_MS: Final = 10_000
#: How many calls of one tenant wait for a thread at once: those of others are executed between them.
_OF_TENANT: Final = 4
#: How long to sleep between two tries to get the write lock, at most.
_POLL_S: Final = 0.025
_PRAGMAS: Final = (
    "PRAGMA page_size = 8192",  # rows are wide: measured a few percent faster than 4096. New files only
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",  # a commit is on the disk when it returns
    "PRAGMA cache_size = -65536",  # 64 MB: 128 MB make no difference with 2,000,000 past runs
    "PRAGMA wal_autocheckpoint = 4000",  # 32 MB: a storm rewrites the same pages, so check in late
    "PRAGMA journal_size_limit = 67108864",
    "PRAGMA temp_store = MEMORY",
)
_READER_PRAGMAS: Final = (
    "PRAGMA query_only = ON",
    "PRAGMA cache_size = -16384",  # 16 MB
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
#: the primary key: its last entry
_LOG: Final = """
    INSERT INTO changes (seq, at, kind, count, items)
    VALUES ((SELECT coalesce(max(seq), 0) FROM changes) + ?3, ?1, ?2, ?3, ?4)"""
#: sessions_due, mostly empty: whether messages wait in any session
_ANY_WAITING: Final = "SELECT 1 FROM sessions INDEXED BY sessions_due WHERE due_at IS NOT NULL LIMIT 1"


def database_path(path_or_url: str) -> str:
    """Return the path of `sqlite:///relative.db` or `sqlite:////absolute.db`; a plain path stays.

    >>> (
    ...     database_path("sqlite:///wakeful.db"),
    ...     database_path("sqlite:////var/lib/wakeful.db"),
    ...     database_path("sqlite://"),
    ... )
    ('wakeful.db', '/var/lib/wakeful.db', ':memory:')
    """
    scheme, mark, rest = path_or_url.partition("://")
    if not mark or scheme != "sqlite":
        return path_or_url
    return rest.removeprefix("/") or ":memory:"


def restrict_file(path: str) -> None:
    """Create the database file so that only its owner can read it; warn of one that others can read.

    SQLite gives its other files (`-wal`, `-shm`) the permissions of this one. A file that is there already
    keeps its permissions: the operator may want a group to read it.
    """
    if path == ":memory:" or os.name != "posix":
        return
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        mode = stat.S_IMODE(os.stat(path).st_mode)
        if mode & 0o077:
            log.warning(
                "database.readable_by_others", path=path, mode=f"{mode:04o}", fix=f"chmod 600 {path}*"
            )
    except OSError:
        pass  # SQLite reports the reason


class SqliteDriver:
    """The connections, their threads, and the listeners. Implements `Driver`."""

    kind = "sqlite"
    notifies_other_processes = False
    unstorable: tuple[type[Exception], ...] = (
        sqlite3.DataError,
        sqlite3.InterfaceError,
        OverflowError,
        UnicodeError,
    )

    def __init__(
        self, path: str, *, inline: bool, clock: Clock | None = None, busy_ms: int = BUSY_MS
    ) -> None:
        self._path = path
        self._clock = clock or SystemClock()
        self._inline = inline
        self._busy_ms = busy_ms
        self._thread: ThreadPoolExecutor | None = None
        self._db: sqlite3.Connection | None = None
        #: None where reads use the connection that writes: inline, and in memory
        self._read_thread: ThreadPoolExecutor | None = None
        self._read_db: sqlite3.Connection | None = None
        self._closing = False
        #: for each thread
        self._tenants = TenantTurns(_OF_TENANT), TenantTurns(_OF_TENANT)
        #: the newest schema that this code supports
        self.newest_schema = 0
        self._listeners = Listeners()

    async def open(self) -> None:
        """Connect, and migrate the schema."""
        self._closing = False
        if not self._inline:
            self._thread = ThreadPoolExecutor(1, "wakeful-sqlite")
        try:
            await self._hop(self._thread, self._connect)
            if not self._inline and self._path != ":memory:":
                self._read_thread = ThreadPoolExecutor(1, "wakeful-sqlite-read")
                await self._hop(self._read_thread, self._connect_reader)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Disconnect, and end the threads. Writes that wait for another process fail."""
        self._closing = True
        if self._thread is None:
            self._disconnect()
            return
        loop = asyncio.get_running_loop()
        # After what the threads do now: that may be to connect.
        ending = [loop.run_in_executor(self._thread, self._disconnect)]
        if self._read_thread is not None:
            ending.append(loop.run_in_executor(self._read_thread, self._disconnect_reader))
        for thread in (self._thread, self._read_thread):
            if thread is not None:
                thread.shutdown(wait=False)
        self._thread = self._read_thread = None
        ended = asyncio.gather(*ending)
        try:
            await asyncio.shield(ended)
        except asyncio.CancelledError:
            await asyncio.wait({ended})
            raise

    def listen(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with each topic that this process publishes."""
        self._listeners.add(listener)

    def session(self, db: sqlite3.Connection) -> SqlSession:
        """Return a session in the transaction of this connection."""
        return SqliteSession(db)

    async def read(
        self,
        operation: Callable[Concatenate[sqlite3.Connection, P], Pending[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run an operation that writes nothing, on one snapshot of the database."""
        if self._read_thread is None:
            return await self._hop(
                self._thread, lambda: run_to_end(operation(self._write_connection(), *args, **kwargs))
            )

        def snapshot() -> T:
            db = self._read_db
            if db is None:
                raise Unavailable(_NOT_OPEN)
            db.execute("BEGIN")
            try:
                return run_to_end(operation(db, *args, **kwargs))
            finally:
                if db.in_transaction:  # some errors end it
                    db.execute("ROLLBACK")

        return await self._hop(self._read_thread, snapshot)

    async def write_one(
        self,
        operation: Callable[Concatenate[sqlite3.Connection, P], Pending[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run an operation that publishes nothing, in one transaction."""
        return await self.write(lambda db, _: operation(db, *args, **kwargs))

    async def write(
        self,
        operation: Callable[Concatenate[sqlite3.Connection, TransactionEvents, P], Pending[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run an operation in one transaction. There is no other writer meanwhile."""
        loop = asyncio.get_running_loop()
        lock = _WriteLock(time.monotonic() + self._busy_ms / 1000)

        def transaction() -> T:
            db = self._write_connection()
            events = TransactionEvents()
            lock.acquire(db, lambda: self._closing)
            try:
                result = run_to_end(operation(db, events, *args, **kwargs))
                log_changes(db, events, self._clock.now_ms())
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
            events.log_cancelled()
            topics = events.topics
            if topics:
                loop.call_soon_threadsafe(self._listeners.notify, topics)
            return result

        try:
            return await self._hop(self._thread, transaction)
        except asyncio.CancelledError:
            lock.abandoned = True
            raise

    async def _hop(self, thread: ThreadPoolExecutor | None, work: Callable[[], T]) -> T:
        if self._closing:
            raise Unavailable(_NOT_OPEN)
        try:
            if thread is None:
                return work()
            async with self._tenants[thread is self._read_thread].next():
                if self._closing:  # meanwhile
                    raise Unavailable(_NOT_OPEN)
                return await asyncio.get_running_loop().run_in_executor(thread, work)
        except sqlite3.DatabaseError as error:
            reason = self._reason(error)
            if reason is None:
                raise
            raise Unavailable(reason) from error

    def _write_connection(self) -> sqlite3.Connection:
        if self._db is None:
            raise Unavailable(_NOT_OPEN)
        return self._db

    def _connect(self) -> None:
        restrict_file(self._path)
        db = self._db = self._connection()
        until = time.monotonic() + self._busy_ms / 1000
        while True:
            try:
                for pragma in _PRAGMAS:
                    db.execute(pragma)
                break
            except sqlite3.OperationalError as error:
                # Turning a new file to WAL does not wait for another process that is doing the same.
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                    raise
                time.sleep(0.01)
        steps = load("sqlite")
        migrate(db, steps, self._clock.now_ms())
        self.newest_schema = steps[-1].number
        db.execute("PRAGMA busy_timeout = 0")  # `_WriteLock` waits: it knows the caller's deadline

    def _connect_reader(self) -> None:
        self._read_db = self._connection()
        for pragma in _READER_PRAGMAS:
            self._read_db.execute(pragma)

    def _connection(self) -> sqlite3.Connection:
        # One thread uses it at a time; which one it is changes where tests open and close in another.
        db = sqlite3.connect(
            self._path,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
            factory=connection_class(),
        )
        db.execute(f"PRAGMA busy_timeout = {self._busy_ms}")
        return db

    def _disconnect_reader(self) -> None:
        if self._read_db is not None:
            self._read_db.close()
            self._read_db = None

    def _disconnect(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def _reason(self, error: sqlite3.DatabaseError) -> str | None:
        """Return why the file cannot be used; None for an error in a statement."""
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if code == sqlite3.SQLITE_BUSY:
            return (
                f"another process has held the write lock of {self._path} for {self._busy_ms / 1000:g} s; "
                "try again later, and look for the process if it does not end"
            )
        return f"cannot use the database {self._path}: {error}" if code in _UNUSABLE else None


def log_changes(db: sqlite3.Connection, events: TransactionEvents, now_ms: int) -> None:
    """Write the changes of a transaction to the changelog."""
    changes = events.log()
    if changes:
        db.executemany(_LOG, [(now_ms, *row) for row in changes])
        if events.any_ended and db.execute(_ANY_WAITING).fetchone() is not None:
            events.publish("sessions")


class _WriteLock:
    """The write lock of the database, for one transaction. The wait ends at a deadline."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        #: whether the caller was cancelled; set by the event loop, read by the thread
        self.abandoned = False

    def acquire(self, db: sqlite3.Connection, closing: Callable[[], bool]) -> None:
        """Begin the transaction, or raise SQLite's error if the lock is taken.

        A transaction past its deadline is tried once, without a wait: it may have waited for those of its
        own process.
        """
        pause = 0.001
        while True:
            if self.abandoned:
                raise Unavailable("the caller did not wait for the write")
            try:
                db.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                    raise
                if closing():
                    raise Unavailable(_NOT_OPEN) from error
                left = self._deadline - time.monotonic()
                if left <= 0:
                    raise
            time.sleep(min(pause, left))
            pause = min(2 * pause, _POLL_S)


def begin_again(db: sqlite3.Connection) -> None:
    """Undo what the transaction wrote, and begin it again. Other processes may write in between."""
    db.execute("ROLLBACK")
    _WriteLock(time.monotonic() + BUSY_MS / 1000).acquire(db, lambda: False)
