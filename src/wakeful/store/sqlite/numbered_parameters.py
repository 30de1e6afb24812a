"""Numbered parameters (`?1`) on the releases of Python that warn about them.

Python 3.12.0 to 3.12.3 take `?1` for a name, and warn for each one that gets its value from a sequence: an
error with `python -W error`, and time for each statement without it. There, statements have plain marks (`?`)
instead, and a value for each mark. Values by name would not do: a statement may leave out a number.
"""

from __future__ import annotations

import re
import sqlite3
import sys
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

_RELEASES: Final = ((3, 12, 0), (3, 12, 4))
_NUMBERED: Final = re.compile(r"\?(\d+)")


class PlainParameters(sqlite3.Connection):
    """A connection that replaces `?1`, `?2`, … by plain marks.

    >>> PlainParameters(":memory:").execute("SELECT ?3, ?1, ?3", ("a", "b", "c")).fetchone()
    ('c', 'a', 'c')
    """

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        """Execute a statement with a sequence of values."""
        text, places = _with_plain_marks(sql)
        return super().execute(text, [parameters[place] for place in places] if places else parameters)

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> sqlite3.Cursor:
        """Execute a statement for each sequence of values."""
        text, places = _with_plain_marks(sql)
        rows = ([row[place] for place in places] for row in parameters) if places else parameters
        return super().executemany(text, rows)


def connection_class(release: Sequence[int] = sys.version_info[:3]) -> type[sqlite3.Connection]:
    """Return the class of connections for a release of Python.

    >>> connection_class((3, 12, 3)).__name__, connection_class((3, 12, 4)).__name__
    ('PlainParameters', 'Connection')
    """
    first, fixed = _RELEASES
    return PlainParameters if first <= tuple(release) < fixed else sqlite3.Connection


@lru_cache(maxsize=2_000)
def _with_plain_marks(sql: str) -> tuple[str, tuple[int, ...]]:
    """Return the statement with plain marks, and the place of the value for each; none: it has no numbers."""
    return _NUMBERED.sub("?", sql), tuple(int(number) - 1 for number in _NUMBERED.findall(sql))
