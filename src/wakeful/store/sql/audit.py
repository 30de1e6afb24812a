"""The audit log, as it is read. Each database appends to it in its own way."""

from __future__ import annotations

from typing import Final

from wakeful.store.audit import AuditRow
from wakeful.store.sql.driver import Session

#: the primary key
HEAD: Final = "SELECT seq, hash FROM audit_heads WHERE workspace = $1"
ENTRY_COLUMNS: Final = "workspace, seq, at, actor, action, subject, details, address, before, hash"
_ENTRIES: Final = f"SELECT {ENTRY_COLUMNS} FROM audit WHERE workspace = $1 AND seq > $2"
#: the primary key: a range of it, in its order
ENTRIES: Final = f"{_ENTRIES} ORDER BY seq LIMIT $3"
#: the primary key: a range of it, from its end
ENTRIES_BACK: Final = f"{_ENTRIES} AND seq < $3 ORDER BY seq DESC LIMIT $4"


async def page(
    session: Session, workspace: str, after: int, before: int | None, limit: int
) -> list[AuditRow]:
    """Return entries above `after`, oldest first; or below `before`, newest first."""
    if before is None:
        rows = await session.rows(ENTRIES, workspace, after, limit)
    else:
        rows = await session.rows(ENTRIES_BACK, workspace, after, before, limit)
    return [AuditRow(*row) for row in rows]


async def head(session: Session, workspace: str) -> tuple[int, str]:
    """Return number and hash of the newest entry."""
    row = await session.row(HEAD, workspace)
    return (row[0], row[1]) if row else (0, "")


async def nothing(session: Session) -> None:
    """Do nothing: the operation of an entry about an action that changes nothing in the store."""
