"""Statements in SQLite: those that both databases run (`store/sql/driver.py`), and those with many rows.

`executemany` executes a statement once for each row: SQLite begins and ends it each time, and the thread
releases the interpreter lock and waits for it again. One statement with many rows costs less CPU time, and
the event loop is interrupted once.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, count
from typing import Any, Final, NamedTuple

from wakeful.store.sql.driver import Duplicate, Row, Statement

#: How many rows a statement has. Each size is prepared once for each connection.
_SIZES: Final = (128, 32, 8, 1)


@dataclass(frozen=True, slots=True)
class Bulk:
    """A statement with rows: `before (row), (row), … after`.

    A row has the parameter marks `?`. The `shared` parameters are `?1`, `?2`, …, outside of the rows. The
    rows of an UPDATE are `v`, with the columns `column1`, `column2`, …; no two may be for the same row.
    """

    before: str
    row: str
    after: str = ""
    shared: int = 0

    def execute(self, db: sqlite3.Connection, rows: Sequence[Sequence[Any]], *shared: Any) -> int:
        """Write these rows. Return how many were written."""
        written = start = 0
        for size in _SIZES:
            while len(rows) - start >= size:
                some = rows[start : start + size]
                written += db.execute(_text(self, size), (*shared, *chain.from_iterable(some))).rowcount
                start += size
        return written

    def text(self, size: int) -> str:
        """Return the statement for that many rows."""
        numbers = count(self.shared + 1)
        rows = re.sub(r"\?", lambda _: f"?{next(numbers)}", ", ".join([self.row] * size))
        return f"{self.before} {rows} {self.after}"


@lru_cache(maxsize=256)
def _text(statement: Bulk, size: int) -> str:
    return statement.text(size)


class SqliteSession:
    """A transaction on a SQLite connection."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    async def rows(self, statement: Statement, *args: object) -> Sequence[Row]:
        """Return all rows."""
        rows: Sequence[Row] = self._execute(statement, args).fetchall()
        return rows

    async def row(self, statement: Statement, *args: object) -> Row | None:
        """Return the first row."""
        row: Row | None = self._execute(statement, args).fetchone()
        return row

    async def column(self, statement: Statement, *args: object) -> list[Any]:
        """Return the first column of all rows."""
        return [row[0] for row in self._execute(statement, args)]

    async def value(self, statement: Statement, *args: object) -> Any:
        """Return the first column of the first row; None: there is no row."""
        row = self._execute(statement, args).fetchone()
        return None if row is None else row[0]

    async def execute(self, statement: Statement, *args: object) -> int:
        """Return the number of rows that were written."""
        try:
            return self._execute(statement, args).rowcount
        except sqlite3.IntegrityError as error:
            raise Duplicate(str(error)) from error

    async def execute_many(self, statement: Statement, rows: Iterable[Sequence[object]]) -> None:
        """Execute the statement once for each row of arguments."""
        self._db.executemany(translate(statement), rows)

    async def lock_table(self, table: str) -> None:
        """Do nothing: SQLite has one writer at a time."""

    async def lock_name(self, name: str) -> None:
        """Do nothing: SQLite has one writer at a time."""

    def _execute(self, statement: Statement, args: Sequence[object]) -> sqlite3.Cursor:
        text, tables, parameters = _translate(statement)
        values: list[Any] = list(args)
        for first, *others in tables:
            values[first] = list(zip(values[first], *(values[other] for other in others), strict=True))
            for other in others:
                values[other] = None
        if tables:
            values = values[:parameters]
        return self._db.execute(
            text, [json.dumps(each) if isinstance(each, list) else each for each in values]
        )


class _Translation(NamedTuple):
    """A statement of SQLite."""

    text: str
    #: the positions of lists of the same length: the first becomes a list of rows, the others are not used
    tables: tuple[tuple[int, ...], ...]
    #: how many parameters it has
    parameters: int


def translate(statement: Statement) -> str:
    """Return a statement of PostgreSQL as one of SQLite.

    >>> translate("SELECT id::text FROM runs WHERE id = ANY($1::uuid[]) AND at > $2 FOR UPDATE SKIP LOCKED")
    'SELECT id FROM runs WHERE id IN (SELECT value FROM json_each(?1)) AND at > ?2'
    >>> translate("SELECT id FROM runs /*+ INDEXED BY runs_dead */ WHERE dead")
    'SELECT id FROM runs INDEXED BY runs_dead WHERE dead'
    >>> translate("SELECT a FROM unnest($1::text[]) t (a)")
    'SELECT a FROM (SELECT value AS a FROM json_each(?1)) t'

    Several lists become one of rows: to find the same place of another list takes longer, the longer it is.

    >>> translate("SELECT a, b FROM unnest($1::text[], $2::integer[]) t (a, b)").partition(" FROM (")[2]
    "SELECT json_extract(value, '$[0]') AS a, json_extract(value, '$[1]') AS b FROM json_each(?1)) t"
    """
    return _translate(statement).text


#: More than there are statements without those that searches make, each for its filters.
@lru_cache(maxsize=2_000)
def _translate(statement: Statement) -> _Translation:
    tables: list[tuple[int, ...]] = []

    def table(unnest: re.Match[str]) -> str:
        numbers, name, columns = re.findall(r"\$(\d+)", unnest[1]), unnest[2], unnest[3].split(", ")
        listed = [f"value AS {column}" for column in columns]
        if len(numbers) > 1:
            tables.append(tuple(int(number) - 1 for number in numbers))
            listed = [
                f"json_extract(value, '$[{place}]') AS {column}" for place, column in enumerate(columns)
            ]
        return f"(SELECT {', '.join(listed)} FROM json_each(?{numbers[0]})) {name}"

    text = statement if isinstance(statement, str) else statement.sqlite
    text = re.sub(r"/\*\+ ([A-Z]+( BY \w+)?) \*/", r"\1", text)
    text = re.sub(r"= ANY\(\$(\d+)::\w+\[\]\)", r"IN (SELECT value FROM json_each(?\1))", text)
    text = re.sub(r"unnest\(([^()]+)\)\s+(\w+) \(([^()]+)\)", table, text)
    text = re.sub(r"\bstring_agg\(", "group_concat(", text)
    text = re.sub(r"\bstrpos\(", "instr(", text)
    text = re.sub(r"\bleast\(", "min(", text)
    text = re.sub(r"\s+FOR (NO KEY UPDATE|UPDATE|KEY SHARE|SHARE)( OF \w+)?( SKIP LOCKED)?", "", text)
    text = re.sub(r"\$(?=\d)", "?", re.sub(r"::\w+", "", text))
    parameters = max(map(int, re.findall(r"\?(\d+)", text)), default=0)
    return _Translation(text, tuple(tables), parameters)
