"""The audit in SQLite. Whoever writes has the database to itself, so the chain is in the order of commits."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence

from wakeful.clock import Clock
from wakeful.store.audit import AuditEntry, AuditRow
from wakeful.store.audit_chain import link
from wakeful.store.sqlite import office_statements as sql


def append(db: sqlite3.Connection, clock: Clock, entries: Sequence[AuditEntry]) -> None:
    """Write these entries down, each at the end of its workspace's chain."""
    if not entries:
        return
    workspaces = json.dumps(sorted({entry.workspace for entry in entries}))
    heads: dict[str, tuple[int, str]] = {row[0]: row[1:] for row in db.execute(sql.HEADS, (workspaces,))}
    at_ms = clock.now_ms()
    rows = []
    for entry in entries:
        seq, before = heads.get(entry.workspace, (0, ""))
        row = link(entry, seq + 1, at_ms, before)
        heads[entry.workspace] = row.seq, row.hash
        rows.append(row)
    db.executemany(sql.APPEND, rows)
    db.executemany(sql.MOVE_HEAD, [(workspace, *head) for workspace, head in heads.items()])


def page(
    db: sqlite3.Connection, workspace: str, after: int, before: int | None, limit: int
) -> list[AuditRow]:
    """Entries after that one, oldest first; or before that one, newest first."""
    if before is None:
        rows = db.execute(sql.ENTRIES, (workspace, after, limit))
    else:
        rows = db.execute(sql.ENTRIES_BACK, (workspace, after, before, limit))
    return [AuditRow(*row) for row in rows]


def head(db: sqlite3.Connection, workspace: str) -> tuple[int, str]:
    """The number and the hash of the newest entry."""
    for _, seq, hash in db.execute(sql.HEADS, (json.dumps([workspace]),)):
        return seq, hash
    return 0, ""
