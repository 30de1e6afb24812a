"""Records the statements that a store executes, on both databases."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any, Final

import asyncpg

from wakeful.store.port import Store

#: What begins and ends a transaction, or sets the planning of a connection: whether a free one needs it
#: depends on when the others were returned to the pool.
_FRAME: Final = re.compile(r"(BEGIN|COMMIT|ROLLBACK|SET plan_cache_mode)\b")


@contextlib.contextmanager
def recorded(store: Store) -> Iterator[list[str]]:
    """Yield a list that gets the text of each statement: those of the store, not of its triggers.

    What begins and ends a transaction or sets the planning is not among them, nor what asyncpg asks once for
    each connection: the types of parameters.
    """
    texts: list[str] = []

    def add(text: str) -> None:
        text = " ".join(text.split())
        if not text.startswith("--") and not _FRAME.match(text) and "typnamespace" not in text:
            texts.append(text)

    driver: Any = store._driver
    if store.kind == "sqlite":
        connections = [db for db in (driver._db, driver._read_db) if db is not None]
        for db in connections:
            db.set_trace_callback(add)
        try:
            yield texts
        finally:
            for db in connections:
                db.set_trace_callback(None)
        return

    def log(record: asyncpg.connection.LoggedQuery) -> None:
        add(record.query)

    connections = [holder._con for holder in driver._pool.pool._holders if holder._con is not None]
    for connection in connections:
        connection.add_query_logger(log)
    try:
        yield texts
    finally:
        for connection in connections:
            connection.remove_query_logger(log)
