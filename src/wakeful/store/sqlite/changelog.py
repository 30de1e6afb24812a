"""The changelog in SQLite.

There is one writer at a time, so transactions commit in the order in which they write: a row of the changelog
has its number from the start.
"""

from __future__ import annotations

import sqlite3
from typing import Final

#: the primary key: its last entry
LAST_CHANGE: Final = "SELECT coalesce(max(seq), 0) FROM changes"
#: the primary key, from its beginning up to the first that is neither old nor of a future that a wrong clock
#: showed; rows whose runs are not counted yet stay (`store/sql/run_counts.py`)
PRUNE_CHANGES: Final = """
    DELETE FROM changes WHERE seq IN (SELECT seq FROM changes ORDER BY seq LIMIT ?2)
    AND seq < coalesce((
        SELECT min(seq) FROM (SELECT seq, at FROM changes ORDER BY seq LIMIT ?2)
        WHERE at >= ?1 AND at <= ?3), seq + 1)
    AND seq < (SELECT max(seq) FROM changes)
    AND seq <= coalesce((SELECT position FROM run_counts_position), seq)"""


async def last_change(db: sqlite3.Connection) -> int:
    return int(db.execute(LAST_CHANGE).fetchone()[0])


async def prune_changes(db: sqlite3.Connection, before_ms: int, limit: int, future_ms: int) -> int:
    return db.execute(PRUNE_CHANGES, (before_ms, limit, future_ms)).rowcount
