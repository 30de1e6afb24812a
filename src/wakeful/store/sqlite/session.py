"""Statements that both databases run, in SQLite. See `store/sql/driver.py`."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterable, Sequence
from functools import cache

from wakeful.store.sql.driver import Duplicate, Row


class SqliteSession:
    """A transaction on a SQLite connection."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    async def rows(self, statement: str, *args: object) -> Sequence[Row]:
        """Return all rows."""
        rows: Sequence[Row] = self._execute(statement, args).fetchall()
        return rows

    async def row(self, statement: str, *args: object) -> Row | None:
        """Return the first row."""
        row: Row | None = self._execute(statement, args).fetchone()
        return row

    async def execute(self, statement: str, *args: object) -> int:
        """Return the number of rows that were written."""
        try:
            return self._execute(statement, args).rowcount
        except sqlite3.IntegrityError as error:
            raise Duplicate(str(error)) from error

    async def execute_many(self, statement: str, rows: Iterable[Sequence[object]]) -> None:
        """Execute the statement once for each row of arguments."""
        self._db.executemany(translate(statement), rows)

    async def lock_table(self, table: str) -> None:
        """Do nothing: SQLite has one writer at a time."""

    async def lock_name(self, name: str) -> None:
        """Do nothing: SQLite has one writer at a time."""

    def _execute(self, statement: str, args: Sequence[object]) -> sqlite3.Cursor:
        values = [json.dumps(each) if isinstance(each, list) else each for each in args]
        return self._db.execute(translate(statement), values)


@cache
def translate(statement: str) -> str:
    """Return a statement of PostgreSQL as one of SQLite.

    >>> translate("SELECT id::text FROM runs WHERE id = ANY($1::uuid[]) AND at > $2 FOR UPDATE SKIP LOCKED")
    'SELECT id FROM runs WHERE id IN (SELECT value FROM json_each(?1)) AND at > ?2'
    >>> translate("SELECT id FROM runs /*+ INDEXED BY runs_dead */ WHERE dead")
    'SELECT id FROM runs INDEXED BY runs_dead WHERE dead'
    """
    statement = re.sub(r"/\*\+ (INDEXED BY \w+) \*/", r"\1", statement)
    statement = re.sub(r"= ANY\(\$(\d+)::\w+\[\]\)", r"IN (SELECT value FROM json_each(?\1))", statement)
    statement = re.sub(
        r"\s+FOR (NO KEY UPDATE|UPDATE|KEY SHARE|SHARE)( OF \w+)?( SKIP LOCKED)?", "", statement
    )
    return re.sub(r"::\w+", "", statement).replace("$", "?")
