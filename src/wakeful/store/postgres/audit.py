"""The audit in PostgreSQL. Whoever appends holds the heads of its chains until the commit, in one order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from wakeful.clock import Clock
from wakeful.store.audit import AuditEntry, AuditRow
from wakeful.store.audit_chain import link
from wakeful.store.postgres import office_statements as sql

if TYPE_CHECKING:
    from wakeful.store.postgres.connection import Db


async def append(db: Db, clock: Clock, entries: Sequence[AuditEntry]) -> None:
    """Write these entries down, each at the end of its workspace's chain."""
    if not entries:
        return
    heads = await _lock_heads(db, sorted({entry.workspace for entry in entries}))
    at_ms = clock.now_ms()
    rows = []
    for entry in entries:
        seq, before = heads[entry.workspace]
        row = link(entry, seq + 1, at_ms, before)
        heads[entry.workspace] = row.seq, row.hash
        rows.append(row)
    seqs, hashes = zip(*heads.values(), strict=True)
    await db.execute(sql.APPEND, rows, list(heads), list(seqs), list(hashes))


async def _lock_heads(db: Db, workspaces: Sequence[str]) -> dict[str, tuple[int, str]]:
    """The number and the hash of the newest entry of each workspace, which nobody else can follow now."""
    rows = await db.fetch(sql.LOCK_HEADS, workspaces)
    if len(rows) < len(workspaces):
        await db.execute(sql.ADD_HEADS, workspaces)
        rows = await db.fetch(sql.LOCK_HEADS, workspaces)
    return {workspace: (seq, before) for workspace, seq, before in rows}


async def page(db: Db, workspace: str, after: int, before: int | None, limit: int) -> list[AuditRow]:
    """Entries after that one, oldest first; or before that one, newest first."""
    if before is None:
        rows = await db.fetch(sql.ENTRIES, workspace, after, limit)
    else:
        rows = await db.fetch(sql.ENTRIES_BACK, workspace, after, before, limit)
    return [AuditRow(*row) for row in rows]


async def head(db: Db, workspace: str) -> tuple[int, str]:
    """The number and the hash of the newest entry."""
    row = await db.fetchrow(sql.HEAD, workspace)
    return (row[0], row[1]) if row else (0, "")
