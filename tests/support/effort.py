"""How many random cases the tests run: a useful number in every run, all of them with WAKEFUL_TEST_FULL."""

from __future__ import annotations

import os
from typing import Final

#: Whether each test runs all its cases, as `make test-full` does.
FULL: Final = os.environ.get("WAKEFUL_TEST_FULL", "") not in ("", "0")


def cases(usual: int, full: int) -> int:
    """Return the number of random cases, seeds or examples."""
    return full if FULL else usual
