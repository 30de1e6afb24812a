"""Appending to the audit in PostgreSQL: a transaction locks the heads of its chains until it commits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from wakeful.store.audit import AuditEntry, extend
from wakeful.store.sql.audit import ENTRY_COLUMNS
from wakeful.values.clock import Clock

if TYPE_CHECKING:
    from wakeful.store.postgres.connection import Db

#: the primary key, once for each
LOCK_HEADS: Final = """
    SELECT workspace, seq, hash FROM audit_heads WHERE workspace = ANY($1::text[])
    ORDER BY workspace FOR UPDATE"""
#: the primary key turns away those that there are
ADD_HEADS: Final = """
    INSERT INTO audit_heads (workspace, seq, hash) SELECT workspace, 0, '' FROM unnest($1::text[]) workspace
    ON CONFLICT DO NOTHING"""
#: the heads' primary key, once for each
APPEND: Final = f"""
    WITH written AS (
        INSERT INTO audit ({ENTRY_COLUMNS}) SELECT {ENTRY_COLUMNS} FROM unnest($1::new_entry[]))
    UPDATE audit_heads h SET seq = n.seq, hash = n.hash
    FROM unnest($2::text[], $3::bigint[], $4::text[]) n (workspace, seq, hash)
    WHERE h.workspace = n.workspace"""


async def append(db: Db, clock: Clock, entries: Sequence[AuditEntry]) -> None:
    """Append these entries to the chains of their workspaces."""
    if not entries:
        return
    heads = await _lock_heads(db, sorted({entry.workspace for entry in entries}))
    rows = extend(heads, entries, clock.now_ms())
    seqs, hashes = zip(*heads.values(), strict=True)
    await db.execute(APPEND, rows, list(heads), list(seqs), list(hashes))


async def _lock_heads(db: Db, workspaces: Sequence[str]) -> dict[str, tuple[int, str]]:
    """Return number and hash of the newest entry of each workspace, locked until the commit."""
    rows = await db.fetch(LOCK_HEADS, workspaces)
    if len(rows) < len(workspaces):
        await db.execute(ADD_HEADS, workspaces)
        rows = await db.fetch(LOCK_HEADS, workspaces)
    return {workspace: (seq, before) for workspace, seq, before in rows}
