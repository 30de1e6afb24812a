"""Change leases in the database, so that tests need not wait until they expire."""

from __future__ import annotations

import asyncio
import sqlite3

HOUR_MS = 3_600_000


async def age_leases(database: str, ms: int = HOUR_MS, run_id: str | None = None) -> None:
    """Move all recorded heartbeats back in time; with `run_id`, only that of this claimed run.

    A lease of 30 s expires at once, unless its holder sends another heartbeat.
    """
    back = f"{ms}" if database.startswith("sqlite") else f"interval '{ms} milliseconds'"
    rows = "beat_at IS NOT NULL" if run_id is None else f"id = '{run_id}'"
    await _ask(database, f"UPDATE runs SET beat_at = beat_at - {back} WHERE {rows}")
    if run_id is None:
        await _ask(database, f"UPDATE workers SET beat_at = beat_at - {back}")


async def beats(database: str) -> dict[str, int]:
    """Return the last heartbeat of each worker, in epoch ms."""
    column = "beat_at" if database.startswith("sqlite") else "(extract(epoch FROM beat_at) * 1000)::bigint"
    return dict(await _ask(database, f"SELECT name, {column} FROM workers"))


async def _ask(database: str, statement: str) -> list[tuple[str, int]]:
    if database.startswith("sqlite"):
        return await asyncio.to_thread(_ask_sqlite, database.removeprefix("sqlite:///"), statement)
    import asyncpg

    connection = await asyncpg.connect(database)
    try:
        return [(row[0], row[1]) for row in await connection.fetch(statement)]
    finally:
        await connection.close()


def _ask_sqlite(path: str, statement: str) -> list[tuple[str, int]]:
    with sqlite3.connect(path, timeout=60) as db:
        found = db.execute(statement).fetchall()
    db.close()
    return found
