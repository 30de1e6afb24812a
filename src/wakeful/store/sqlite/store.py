"""The store in one SQLite file: for one developer, one process, no other service.

Each call is one hop to the thread that reads or to the thread that writes, and one transaction there. SQLite
has one writer at a time, so no row is ever locked. Several processes on one file are as safe, if slower; but
a process is not notified of another's changes (`notifies_other_processes`).
"""

from __future__ import annotations

import os
import sqlite3

from wakeful.store.port import Store
from wakeful.store.sql.operations import Operations
from wakeful.store.sqlite import (
    changelog,
    executors,
    insert_runs,
    instances,
    jobs,
    leases,
    outcomes,
    planning,
    runs,
)
from wakeful.store.sqlite.caller_transaction import SqliteCallerTransaction
from wakeful.store.sqlite.connection import BUSY_MS, SqliteDriver, database_path
from wakeful.values.clock import Clock, SystemClock

_OPERATIONS: Operations[sqlite3.Connection] = Operations(
    changelog=changelog,
    executors=executors,
    insert_runs=insert_runs,
    instances=instances,
    jobs=jobs,
    leases=leases,
    outcomes=outcomes,
    planning=planning,
    runs=runs,
)


class SqliteStore(Store):
    """A store in a SQLite file.

    `path_or_url` is a path, `:memory:`, or `sqlite:///path`. `inline` runs operations in the thread of the
    event loop: a simulation that awaits one call at a time gets the same order every time. `busy_ms` is how
    long a write waits for writers of other processes.
    """

    def __init__(
        self,
        path_or_url: str | os.PathLike[str],
        *,
        clock: Clock | None = None,
        inline: bool = False,
        busy_ms: int = BUSY_MS,
    ) -> None:
        clock = clock or SystemClock()
        path = database_path(os.fspath(path_or_url))
        self._connection = SqliteDriver(path, inline=inline, clock=clock, busy_ms=busy_ms)
        super().__init__(self._connection, _OPERATIONS, clock)
        self.caller_transaction = SqliteCallerTransaction(path, _OPERATIONS, clock)
