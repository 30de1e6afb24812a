"""How many random cases the tests run: few in `make test`, more in CI, all in `make test-full`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final, TypeVar

T = TypeVar("T")

#: Whether each test runs all its cases, as `make test-full` does.
FULL: Final = os.environ.get("WAKEFUL_TEST_FULL", "") not in ("", "0")
#: Whether all tests run, as in `make test-all` and in CI.
ALL: Final = FULL or os.environ.get("WAKEFUL_TEST_ALL", "") not in ("", "0")
#: `make test` runs one of so many cases.
_SHORT: Final = 4


def cases(usual: int, full: int) -> int:
    """Return the number of random cases, seeds or examples."""
    if FULL:
        return full
    return usual if ALL else -(-usual // _SHORT)


def part(values: Iterable[T], start: int = 0) -> list[T]:
    """Return all values of a parameter; in `make test` each fourth one.

    Of several lists of values, each may start with another one.
    """
    return list(values) if ALL else list(values)[start % _SHORT :: _SHORT]
