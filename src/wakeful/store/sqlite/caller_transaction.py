"""Jobs and runs that are added in the transaction of the caller, on a connection to the same file.

The caller has the write lock, and Wakeful's own writer waits for its commit. So everything is written on the
connection of the caller, by the operations of the store. The engine finds it at its next look, within
`tick_ms`: SQLite tells no process of the commits of others.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Concatenate, Final, ParamSpec, TypeVar

from wakeful.errors import FailedPrecondition, Unavailable
from wakeful.store.caller_transaction import JobKey, PlannedJob, PlannedWrite, perform
from wakeful.store.changelog import TransactionEvents
from wakeful.store.port import Store
from wakeful.store.rows import JobRow
from wakeful.store.sql import jobs as job_reads
from wakeful.store.sql.driver import Pending, SqlSession, run_to_end
from wakeful.store.sql.operations import Operations
from wakeful.store.sqlite.connection import log_changes
from wakeful.store.sqlite.session import SqliteSession
from wakeful.values.clock import Clock
from wakeful.values.ids import is_id

P = ParamSpec("P")
T = TypeVar("T")

_NO_TRANSACTION: Final = (
    "connection: it is in autocommit mode, and no transaction has begun; begin one (`BEGIN IMMEDIATE`), and "
    "commit it after this call"
)
_NO_TABLES: Final = (
    "connection: the file has no tables of Wakeful yet, and they cannot be created while your transaction is "
    "open; start the scheduler first, or create them with `wakeful migrate`"
)
_ANY_TABLES: Final = "SELECT 1 FROM main.sqlite_master WHERE name = 'schema_version'"
#: Takes the write lock, and writes nothing. After a read, SQLite would not wait for it: the transaction would
#: have to read again what others have written meanwhile
_LOCK: Final = "UPDATE schema_version SET version = version WHERE version < 0"


class SqliteCallerTransaction:
    """Writes in transactions of callers. Implements `CallerTransaction`."""

    allows_other_writers = False
    is_prepared = True

    def __init__(self, path: str, operations: Operations[sqlite3.Connection], clock: Clock) -> None:
        self._path = path
        self._operations = operations
        self._clock = clock

    async def prepare(self) -> None:
        """Do nothing."""

    async def check_planned(self, planned: Sequence[PlannedWrite]) -> None:
        """Do nothing: all is checked in the transaction."""

    async def check(self) -> bool:
        """Return whether the connection is one to the same file. Raise if it is in autocommit mode."""
        same: bool = await perform(self._check)
        return same

    def _check(self, db: sqlite3.Connection) -> bool:
        with _plain_rows(db):
            files = {name: file for _, name, file in db.execute("PRAGMA database_list")}
            has_tables = db.execute(_ANY_TABLES).fetchone() is not None
        if not files.get("main") or not os.path.exists(self._path):  # in memory
            return False
        if not os.path.samefile(files["main"], self._path):
            return False
        if not db.in_transaction and _commits_itself(db):
            raise FailedPrecondition(_NO_TRANSACTION)
        if not has_tables:
            raise FailedPrecondition(_NO_TABLES)
        if db.in_transaction:
            with _translate_busy():
                db.execute(_LOCK)
        return True

    async def find_job(self, key: JobKey) -> JobRow | None:
        """Return a job as the transaction sees it."""

        def find(db: sqlite3.Connection) -> JobRow | None:
            workspace, agent, name = key
            with _plain_rows(db):
                session = SqliteSession(db)
                if is_id(name):
                    row = run_to_end(job_reads.job_by_id(session, name))
                    return (
                        row if row is not None and (row.workspace, row.agent) == (workspace, agent) else None
                    )
                return run_to_end(job_reads.job(session, workspace, agent, name))

        row: JobRow | None = await perform(find)
        return row

    async def write(self, planned: Sequence[PlannedWrite]) -> None:
        """Write what is planned, in a savepoint."""

        def write(db: sqlite3.Connection) -> None:
            store = Store(CallerDriver(db, self._clock), self._operations, self._clock)
            with _plain_rows(db), _savepoint(db):
                for each in planned:
                    run_to_end(_write(store, each))

        await perform(write)


async def _write(store: Store, planned: PlannedWrite) -> None:
    if not isinstance(planned, PlannedJob):
        await store.add_runs([planned.run], planned.entries, planned.keyed, None, [planned.version])
        return
    row = planned.row
    # Checked before: after an error in its insert, `create_jobs` would begin the transaction again.
    if await store.job(*row.key) is not None:
        raise job_reads.name_taken(row)
    agents = {(row.workspace, row.agent): planned.agent}
    await store.create_jobs([row], planned.entries, planned.allowance, agents=agents)


class CallerDriver:
    """Runs operations on the connection of a caller. Implements `Driver`."""

    kind = "sqlite"
    notifies_other_processes = False
    unstorable: tuple[type[Exception], ...] = ()
    newest_schema = 0

    def __init__(self, db: sqlite3.Connection, clock: Clock) -> None:
        self._db = db
        self._clock = clock

    async def open(self) -> None:
        """Do nothing: the caller has connected."""

    async def close(self) -> None:
        """Do nothing: the caller disconnects."""

    def listen(self, listener: Callable[[str], None]) -> None:
        """Do nothing: nobody is told before the commit."""

    def session(self, db: sqlite3.Connection) -> SqlSession:
        """Return a session in the transaction of this connection."""
        return SqliteSession(db)

    async def read(
        self,
        operation: Callable[Concatenate[sqlite3.Connection, P], Pending[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run an operation in the transaction."""
        return await operation(self._db, *args, **kwargs)

    write_one = read

    async def write(
        self,
        operation: Callable[Concatenate[sqlite3.Connection, TransactionEvents, P], Pending[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run an operation in the transaction, and write its changes to the changelog."""
        events = TransactionEvents()
        result = await operation(self._db, events, *args, **kwargs)
        log_changes(self._db, events, self._clock.now_ms())
        return result


def _commits_itself(db: sqlite3.Connection) -> bool:
    """Return whether a statement outside a transaction is one of its own."""
    autocommit = getattr(db, "autocommit", -1)  # from Python 3.12 on; -1: `isolation_level` counts
    return db.isolation_level is None if autocommit == -1 else bool(autocommit)


@contextmanager
def _plain_rows(db: sqlite3.Connection) -> Iterator[None]:
    """Read rows as the store expects them, whatever the caller has set."""
    factories = db.row_factory, db.text_factory
    db.row_factory, db.text_factory = None, str
    try:
        yield
    finally:
        db.row_factory, db.text_factory = factories


@contextmanager
def _savepoint(db: sqlite3.Connection) -> Iterator[None]:
    """Begin a transaction if there is none, as `sqlite3` would; undo what was written after an error."""
    began = not db.in_transaction
    with _translate_busy():
        db.execute("BEGIN IMMEDIATE" if began else "SAVEPOINT wakeful")
        try:
            yield
        except BaseException:
            if db.in_transaction:  # some errors end it
                for undo in ("ROLLBACK",) if began else ("ROLLBACK TO wakeful", "RELEASE wakeful"):
                    db.execute(undo)
            raise
        if not began:
            db.execute("RELEASE wakeful")


@contextmanager
def _translate_busy() -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
            raise
        raise Unavailable(
            "the database file is locked by another writer, or your transaction has read what another one "
            "has changed since; begin it with BEGIN IMMEDIATE, which waits, and do it again"
        ) from error
