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
from wakeful.store.changelog import TransactionEvents
from wakeful.store.sql.audit import ENTRY_COLUMNS
from wakeful.values.clock import Clock

#: the primary key, once for each
HEADS: Final = """
    SELECT h.workspace, h.seq, h.hash FROM json_each(?) w CROSS JOIN audit_heads h ON h.workspace = w.value"""
APPEND: Final = f"INSERT INTO audit ({ENTRY_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
#: the primary key
MOVE_HEAD: Final = """
    INSERT INTO audit_heads (workspace, seq, hash) VALUES (?, ?, ?)
    ON CONFLICT (workspace) DO UPDATE SET seq = excluded.seq, hash = excluded.hash"""


async def append(
    db: sqlite3.Connection, events: TransactionEvents, clock: Clock, entries: Sequence[AuditEntry]
) -> None:
    """Append these entries to the chains of their workspaces."""
    if not entries:
        return
    workspaces = json.dumps(sorted({entry.workspace for entry in entries}))
    heads: dict[str, tuple[int, str]] = {
        workspace: (seq, hash_) for workspace, seq, hash_ in db.execute(HEADS, (workspaces,))
    }
    rows = extend(heads, entries, clock.now_ms())
    db.executemany(APPEND, rows)
    db.executemany(MOVE_HEAD, [(workspace, *head) for workspace, head in heads.items()])
