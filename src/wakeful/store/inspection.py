"""Reads the state of a database without a server, and without changing it."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from wakeful.errors import NotFound, Unavailable
from wakeful.store.address import shown_address
from wakeful.store.connect import sqlite_path
from wakeful.store.migrations import load


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
    return Inspection(shown_address(url), latency_ms, schema or 0, newest, Path(path).stat().st_size, 0)


async def _inspect_server(url: str) -> Inspection:
    from wakeful.store.postgres.connection import Pool
    from wakeful.store.postgres.schema import installed_schema

    pool = Pool(url)
    async with pool.translated():
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
    return Inspection(shown_address(url), latency_ms, version or 0, newest, size, skew_ms)
