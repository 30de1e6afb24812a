"""Creates and opens the store of a database address; reads its state without changing it."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from wakeful.errors import InvalidArgument, NotFound, Unavailable
from wakeful.logs import get_logger
from wakeful.store.address import mask_address
from wakeful.store.migrations import load
from wakeful.store.port import Store
from wakeful.values.package import install_command

log = get_logger("wakeful.store")


#: Seconds between two tries to open a database: the first, and the longest.
_FIRST_PAUSE_S: Final = 0.25
_LONGEST_PAUSE_S: Final = 5.0


def store_at(url: str) -> Store:
    """Return the store for `sqlite:///path` or `postgresql://…`; only its driver is imported."""
    scheme, _, place = url.partition("://")
    if scheme == "sqlite":
        if place.strip() == "/":  # as of a variable that is not set, in place of the path
            raise InvalidArgument(
                f"'{url}' names no file; write sqlite:///wakeful.db, or sqlite:// for a database in memory"
            )
        from wakeful.store.sqlite import SqliteStore

        return SqliteStore(url)
    if scheme in ("postgresql", "postgres"):
        try:
            from wakeful.store.postgres import PostgresStore
        except ImportError as error:
            raise InvalidArgument(f"PostgreSQL needs its driver: {install_command('postgres')}") from error
        return PostgresStore(url)
    raise InvalidArgument(
        f"'{mask_address(url)}' is not a database address; use sqlite:///wakeful.db or postgresql://…"
    )


async def open_within(store: Store, seconds: float) -> None:
    """Open the store. While it is unavailable, retry for this many seconds, and log each retry."""
    loop = asyncio.get_running_loop()
    until, pause = loop.time() + seconds, _FIRST_PAUSE_S
    while True:
        try:
            return await store.open()
        except Unavailable as error:
            left = until - loop.time()
            if left <= 0:
                raise
            log.warning("database.waiting", error=error.message, seconds_left=round(left))
            await asyncio.sleep(min(pause, left))
            pause = min(2 * pause, _LONGEST_PAUSE_S)


def sqlite_path(url: str) -> str | None:
    """Return the path of the file of an SQLite address, or `:memory:`; None for another database.

    >>> sqlite_path("sqlite:///wakeful.db"), sqlite_path("postgresql://localhost/wakeful")
    ('wakeful.db', None)
    """
    if not url.startswith("sqlite://"):
        return None
    from wakeful.store.sqlite.connection import database_path

    return database_path(url)


class Inspection(NamedTuple):
    """The state of a database."""

    address: str
    latency_ms: float
    #: the newest migration of the database; 0: it has no tables of Wakeful
    schema: int
    #: the newest migration of this version
    newest: int
    size: int
    #: how far the clock of the database is ahead of this machine's; 0 for SQLite
    skew_ms: int


async def inspect_database(url: str) -> Inspection:
    """Return the state of a database. Raise Unavailable, or NotFound if there is no such SQLite file."""
    path = sqlite_path(url)
    if path is not None:
        return await asyncio.to_thread(_inspect_file, url, path)
    return await _inspect_server(url)


def _inspect_file(url: str, path: str) -> Inspection:
    from wakeful.store.sqlite.schema import installed_schema

    if not Path(path).is_file():
        raise NotFound(f"there is no database file '{path}'")
    began = time.perf_counter()
    try:
        uri = f"{Path(path).resolve().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, timeout=2)) as db:
            schema = installed_schema(db)
    except sqlite3.Error as error:
        raise Unavailable(f"cannot read the database file '{path}': {error}") from error
    latency_ms = 1000 * (time.perf_counter() - began)
    newest = load("sqlite")[-1].number
    return Inspection(mask_address(url), latency_ms, schema or 0, newest, Path(path).stat().st_size, 0)


async def _inspect_server(url: str) -> Inspection:
    from wakeful.store.postgres.connection import Pool
    from wakeful.store.postgres.schema import installed_schema

    pool = Pool(url)
    async with pool.translate_errors():
        connection = await pool.connect()
        try:
            began = time.perf_counter()
            version = await installed_schema(connection, pool.address.schema)
            latency_ms = 1000 * (time.perf_counter() - began)
            size = await connection.fetchval("SELECT pg_database_size(current_database())")
            now = await connection.fetchval("SELECT extract(epoch FROM clock_timestamp())::float8")
        finally:
            connection.terminate()
    newest = load("postgres")[-1].number
    skew_ms = round(1000 * (now - time.time()))
    return Inspection(mask_address(url), latency_ms, version or 0, newest, size, skew_ms)
