"""Migrate a database without starting an engine."""

from __future__ import annotations

from wakeful.store.connect import open_within, store_at


async def migrate_database(url: str, wait_s: float = 0) -> int:
    """Create or upgrade the tables of a database. Returns its schema, the number of the newest migration.

    While the database is unavailable, retry for `wait_s` seconds.
    """
    store = store_at(url)
    try:
        await open_within(store, wait_s)
        return await store.schema()
    finally:
        await store.close()
