"""Count the statements that the stores of this process execute, without BEGIN, COMMIT and ROLLBACK.

In SQLite each row of `executemany` counts; in PostgreSQL one statement writes many rows.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import asyncpg

from wakeful.store.sqlite.connection import SqliteDriver

_NOT_COUNTED = ("BEGIN", "COMMIT", "ROLLBACK", "--")


class Statements:
    """How many statements were executed."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, text: str) -> None:
        """Count a statement."""
        if not text.startswith(_NOT_COUNTED):
            self.count += 1


@contextmanager
def counted_statements() -> Iterator[Statements]:
    """Count the statements of connections that are opened in the block."""
    statements = Statements()
    sqlite, postgres = cast(Any, SqliteDriver), cast(Any, asyncpg.Connection)
    connect, execute = sqlite._connection, postgres._execute

    def traced_connection(driver: SqliteDriver) -> sqlite3.Connection:
        db: sqlite3.Connection = connect(driver)
        db.set_trace_callback(statements.add)
        return db

    def traced_execute(db: Any, query: str, *args: object, **kwargs: object) -> object:
        statements.add(query)
        return execute(db, query, *args, **kwargs)

    sqlite._connection = traced_connection
    postgres._execute = traced_execute
    try:
        yield statements
    finally:
        sqlite._connection = connect
        postgres._execute = execute
