"""Creates and opens the store of a database address."""

from __future__ import annotations

import asyncio
from typing import Final

from wakeful.errors import InvalidArgument, Unavailable
from wakeful.logs import get_logger
from wakeful.store.address import shown_address
from wakeful.store.port import Store

#: Seconds between two tries to open a database: the first, and the longest.
_FIRST_PAUSE_S: Final = 0.25
_LONGEST_PAUSE_S: Final = 5.0

log = get_logger("wakeful.store")


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
            raise InvalidArgument("PostgreSQL needs its driver: pip install 'wakeful[postgres]'") from error
        return PostgresStore(url)
    raise InvalidArgument(
        f"'{shown_address(url)}' is not a database address; use sqlite:///wakeful.db or postgresql://…"
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
    from wakeful.store.sqlite.connection import path_of

    return path_of(url)
