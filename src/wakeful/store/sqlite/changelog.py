"""The changelog and the audit in SQLite.

There is one writer at a time, so transactions commit in the order in which they write: a row of the changelog
has its number from the start, and the chain of the audit is in the order of commits.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Final

from wakeful.store.audit import AuditEntry, extend
from wakeful.store.sql.audit import ENTRY_COLUMNS
from wakeful.values.clock import Clock

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
#: the primary key, once for each
HEADS: Final = """
    SELECT h.workspace, h.seq, h.hash FROM json_each(?) w CROSS JOIN audit_heads h ON h.workspace = w.value"""
APPEND: Final = f"INSERT INTO audit ({ENTRY_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
#: the primary key
MOVE_HEAD: Final = """
    INSERT INTO audit_heads (workspace, seq, hash) VALUES (?, ?, ?)
    ON CONFLICT (workspace) DO UPDATE SET seq = excluded.seq, hash = excluded.hash"""


async def last_change(db: sqlite3.Connection) -> int:
    return int(db.execute(LAST_CHANGE).fetchone()[0])


async def prune_changes(db: sqlite3.Connection, before_ms: int, limit: int, future_ms: int) -> int:
    return db.execute(PRUNE_CHANGES, (before_ms, limit, future_ms)).rowcount


async def append(db: sqlite3.Connection, clock: Clock, entries: Sequence[AuditEntry]) -> None:
    """Append these entries to the chains of their workspaces."""
    if not entries:
        return
    workspaces = json.dumps(sorted({entry.workspace for entry in entries}))
    heads: dict[str, tuple[int, str]] = {row[0]: row[1:] for row in db.execute(HEADS, (workspaces,))}
    rows = extend(heads, entries, clock.now_ms())
    db.executemany(APPEND, rows)
    db.executemany(MOVE_HEAD, [(workspace, *head) for workspace, head in heads.items()])
