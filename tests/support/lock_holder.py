"""A second process that holds the write lock of an SQLite file: `with lock_held(path): ...`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_HOLD = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.readline()
"""


@contextmanager
def lock_held(path: Path) -> Iterator[None]:
    """Hold the write lock in another process until the block ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        yield
    finally:
        process.communicate("\n")
