"""Statements that write many rows at once.

`executemany` executes a statement once for each row: SQLite begins and ends it each time, and the thread
releases the interpreter lock and waits for it again. One statement with many rows costs less CPU time, and
the event loop is interrupted once.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, count
from typing import Any, Final

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
