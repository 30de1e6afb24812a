"""The audit log, as it is read. Each database appends to it in its own way."""

from __future__ import annotations

from typing import Final

from wakeful.store.audit import AuditFilter, AuditPage, AuditRow
from wakeful.store.sql.driver import SqlSession

#: the primary key
HEAD: Final = "SELECT seq, hash FROM audit_heads WHERE workspace = $1"
ENTRY_COLUMNS: Final = "workspace, seq, at, actor, action, subject, details, address, before, hash"
_ENTRIES: Final = f"SELECT {ENTRY_COLUMNS} FROM audit WHERE workspace = $1 AND seq > $2"
#: the primary key: a range of it, in its order
ENTRIES: Final = f"{_ENTRIES} ORDER BY seq LIMIT $3"
#: the primary key: a range of it, from its end
ENTRIES_BACK: Final = f"{_ENTRIES} AND seq < $3 ORDER BY seq DESC LIMIT $4"
_MATCHES: Final = "($5::text IS NULL OR actor = $5) AND ($6::text IS NULL OR action = $6 OR action LIKE $7)"
#: audit_of_subject: a range of it, from its end
OF_SUBJECT: Final = f"""
    SELECT {ENTRY_COLUMNS} FROM audit
    WHERE workspace = $1 AND subject = $8 AND seq >= $2 AND seq < $3 AND {_MATCHES}
    ORDER BY seq DESC LIMIT $4"""
#: the primary key: a range of it, from its end
MATCHING: Final = f"""
    SELECT {ENTRY_COLUMNS} FROM audit WHERE workspace = $1 AND seq >= $2 AND seq < $3 AND {_MATCHES}
    ORDER BY seq DESC LIMIT $4"""
#: the primary key
INSTANT: Final = "SELECT at FROM audit WHERE workspace = $1 AND seq = $2"


async def page(
    session: SqlSession, workspace: str, after: int, before: int | None, limit: int
) -> list[AuditRow]:
    """Return entries above `after`, oldest first; or below `before`, newest first."""
    if before is None:
        rows = await session.rows(ENTRIES, workspace, after, limit)
    else:
        rows = await session.rows(ENTRIES_BACK, workspace, after, before, limit)
    return [AuditRow(*row) for row in rows]


async def head(session: SqlSession, workspace: str) -> tuple[int, str]:
    """Return number and hash of the newest entry."""
    number, hash_ = await session.row(HEAD, workspace) or (0, "")
    return number, hash_


async def nothing(session: SqlSession) -> None:
    """Do nothing: the operation of an entry about an action that changes nothing in the store."""


async def filter_entries(
    session: SqlSession, workspace: str, only: AuditFilter, before: int | None, limit: int, considered: int
) -> AuditPage:
    """Return entries that match, newest first, out of the `considered` newest."""
    newest, _ = await head(session, workspace)
    end = newest + 1 if before is None else min(before, newest + 1)
    if only.until_ms is not None:
        end = min(end, await _first_since(session, workspace, only.until_ms, newest))
    first = 1 if only.since_ms is None else await _first_since(session, workspace, only.since_ms, newest)
    lowest = first if only.subject is not None else max(first, end - considered)
    statement = MATCHING if only.subject is None else OF_SUBJECT
    like = None if only.action is None else f"{only.action}.%"
    args = [] if only.subject is None else [only.subject]
    rows = await session.rows(
        statement, workspace, lowest, end, limit + 1, only.actor, only.action, like, *args
    )
    found = [AuditRow(*row) for row in rows]
    if len(found) > limit:
        return AuditPage(found[:limit], found[limit - 1].seq)
    return AuditPage(found, lowest if lowest > first else None)


async def _first_since(session: SqlSession, workspace: str, at_ms: int, newest: int) -> int:
    """Return the number of the first entry since then, by bisection: numbers have no gaps."""
    low, high = 1, newest + 1
    while low < high:
        middle = (low + high) // 2
        entry_ms = await session.value(INSTANT, workspace, middle)
        if entry_ms is not None and entry_ms >= at_ms:
            high = middle
        else:
            low = middle + 1
    return low
