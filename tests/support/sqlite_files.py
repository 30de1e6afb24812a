"""SQLite for the tests: a migrated file is copied, because migrating each one takes much longer."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from wakeful.store.sqlite import SqliteStore


def fresh_file(path: Path) -> Path:
    """Write a new database with Wakeful's tables to this path, readable by its owner as the store does."""
    with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
        file.write(_template())
    return path


@cache
def _template() -> bytes:
    with TemporaryDirectory() as folder, ThreadPoolExecutor(1) as thread:
        path = Path(folder) / "wakeful.db"
        thread.submit(asyncio.run, _migrate(path)).result()
        return path.read_bytes()


async def _migrate(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    await store.close()
