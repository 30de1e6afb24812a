"""Numbered parameters (`?1`) on the releases of Python that warn about them.

Python 3.12.0 to 3.12.3 take `?1` for a name, and warn for each one that gets its value from a sequence: an
error with `python -W error`, and time for each statement without it. Binding by name does not warn.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

_RELEASES: Final = ((3, 12, 0), (3, 12, 4))


class NumberedParameters(sqlite3.Connection):
    """A connection that binds the values of `?1`, `?2`, … by name.

    >>> NumberedParameters(":memory:").execute("SELECT ?2, ?1", ("a", "b")).fetchone()
    ('b', 'a')
    """

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        """Execute a statement with a sequence of values."""
        return super().execute(sql, _by_name(parameters) if "?1" in sql else parameters)

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> sqlite3.Cursor:
        """Execute a statement for each sequence of values."""
        return super().executemany(sql, map(_by_name, parameters) if "?1" in sql else parameters)


def connection_class(release: Sequence[int] = sys.version_info[:3]) -> type[sqlite3.Connection]:
    """Return the class of connections for a release of Python.

    >>> connection_class((3, 12, 3)).__name__, connection_class((3, 12, 4)).__name__
    ('NumberedParameters', 'Connection')
    """
    first, fixed = _RELEASES
    return NumberedParameters if first <= tuple(release) < fixed else sqlite3.Connection


def _by_name(values: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(_names(len(values)), values, strict=True))


@lru_cache(maxsize=1_000)
def _names(number: int) -> tuple[str, ...]:
    return tuple(map(str, range(1, number + 1)))
