"""The history of sessions. See `store/sessions.py`.

The row of a session is the lock of its history and has its last number. A transaction locks the rows of
sessions before those of runs. So PostgreSQL locks them (`lock`) before it writes the outcomes, and only then
appends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from wakeful.run.conversations import MAX_ENTRIES, MAX_TOKENS, HistoryAppend, job_session
from wakeful.store.sessions import HistoryRow, SessionKey
from wakeful.store.sql.driver import SqlSession
from wakeful.values.stored_text import clean_text

_KEY: Final = "workspace = $1 AND agent = $2 AND session = $3"
#: higher than every number of an entry
_LAST: Final = 2**62
#: the primary key
LOCK_SESSION: Final = """
    SELECT sequence FROM sessions WHERE workspace = $1 AND agent = $2 AND name = $3 FOR UPDATE"""
#: the primary keys of agents and sessions: no session of an agent that is deleted
ADD_SESSION: Final = """
    INSERT INTO sessions (workspace, agent, name, places, created_at, updated_at)
    SELECT a.workspace, a.name, $3::text, 1, $4::timestamptz, $4::timestamptz FROM agents a
    WHERE a.workspace = $1 AND a.name = $2 FOR KEY SHARE
    ON CONFLICT (workspace, agent, name) DO NOTHING"""
#: the primary key
DELETE_SESSION: Final = "DELETE FROM sessions WHERE workspace = $1 AND agent = $2 AND name = $3"
#: the primary key, once for each
EXISTING: Final = """
    SELECT name FROM sessions WHERE workspace = $1 AND agent = $2 AND name = ANY($3::text[])
    ORDER BY name FOR UPDATE"""
#: the primary key
ADD_ENTRY: Final = """
    INSERT INTO session_history
        (workspace, agent, session, sequence, role, content, tokens, run_id, job_name, at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"""
#: the primary key
SET_SEQUENCE: Final = """
    UPDATE sessions SET sequence = $4, updated_at = $5
    WHERE workspace = $1 AND agent = $2 AND name = $3"""
#: the primary key: a range of it, at most the longest history and one batch
DROP_OLDEST: Final = f"""
    DELETE FROM session_history WHERE {_KEY} AND sequence <= (
        SELECT max(sequence) FROM (
            SELECT sequence, row_number() OVER newest AS number, sum(tokens) OVER newest AS total
            FROM session_history WHERE {_KEY} WINDOW newest AS (ORDER BY sequence DESC)) h
        WHERE number > $4::bigint OR (number > 1 AND total > $5::bigint))"""
#: the primary key: a range of it, backwards
HISTORY: Final = f"""
    SELECT sequence, role, content, tokens, run_id::text, job_name, at FROM session_history
    WHERE {_KEY} AND sequence < $4 ORDER BY sequence DESC LIMIT $5"""
#: the primary key: a range of it
DELETE_HISTORY: Final = f"DELETE FROM session_history WHERE {_KEY}"
#: session_history_at: its beginning; the primary key for each
PRUNE_HISTORY: Final = """
    DELETE FROM session_history WHERE (workspace, agent, session, sequence) IN (
        SELECT workspace, agent, session, sequence FROM session_history
        WHERE at < $1 ORDER BY at LIMIT $2)"""


async def lock(session: SqlSession, entries: Iterable[HistoryAppend], now_ms: int) -> list[SessionKey]:
    """Lock the sessions of these entries, and add those that are missing. Returns those that were added."""
    keys = sorted({_session_key(entry) for entry in entries})
    return [key for key in keys if (await _lock(session, key, now_ms)).added]


async def unlock(session: SqlSession, added: Sequence[SessionKey], entries: Iterable[HistoryAppend]) -> None:
    """Delete the sessions that `lock` added and that none of these entries is appended to."""
    used = {_session_key(entry) for entry in entries} if added else set()
    for key in added:
        if key not in used:
            await session.execute(DELETE_SESSION, *key)


async def append(session: SqlSession, entries: Sequence[HistoryAppend], now_ms: int) -> None:
    """Append these entries to the histories of their sessions, and drop what is too old.

    A session that is missing is added, unless its agent is deleted.
    """
    by_session: dict[SessionKey, list[HistoryAppend]] = defaultdict(list)
    for entry in entries:
        by_session[_session_key(entry)].append(entry)
    for key in sorted(by_session):
        last = (await _lock(session, key, now_ms)).last
        if last is None:
            continue
        appended = by_session[key]
        rows = [
            (*key, last + number, each.role, clean_text(each.content), each.tokens, each.run_id,
             each.job_name, each.at_ms)
            for number, each in enumerate(appended, 1)
        ]  # fmt: skip
        await session.execute_many(ADD_ENTRY, rows)
        await session.execute(SET_SEQUENCE, *key, last + len(appended), now_ms)
        await session.execute(DROP_OLDEST, *key, MAX_ENTRIES, MAX_TOKENS)


async def history(
    session: SqlSession, key: SessionKey, before: int | None = None, limit: int = 50
) -> list[HistoryRow]:
    """Return the entries of a session with a number below `before`, newest first."""
    rows = await session.rows(HISTORY, *key, _LAST if before is None else before, limit)
    return [HistoryRow(*row) for row in rows]


async def delete(session: SqlSession, key: SessionKey) -> None:
    """Delete a session and its history."""
    await session.execute(DELETE_HISTORY, *key)
    await session.execute(DELETE_SESSION, *key)


async def delete_of_new_jobs(session: SqlSession, jobs: Iterable[tuple[str, str, str]]) -> None:
    """Delete what deleted jobs of these names (workspace, agent, name) have left: new ones begin anew."""
    names: dict[tuple[str, str], list[str]] = defaultdict(list)
    for workspace, agent, name in jobs:
        names[workspace, agent].append(job_session(name))
    for owner, wanted in sorted(names.items()):
        for name in await session.column(EXISTING, *owner, wanted):
            await delete(session, SessionKey(*owner, name))


async def prune(session: SqlSession, before_ms: int, limit: int) -> int:
    """Delete up to `limit` of the entries that are older. Returns how many."""
    return await session.execute(PRUNE_HISTORY, before_ms, limit)


class _Locked(NamedTuple):
    """A session after `_lock`."""

    #: the last number in its history; None: its agent is deleted
    last: int | None
    added: bool = False


async def _lock(session: SqlSession, key: SessionKey, now_ms: int) -> _Locked:
    """Lock a session, which is added if there is none and its agent exists."""
    last: int | None = await session.value(LOCK_SESSION, *key)
    if last is None:
        if await session.execute(ADD_SESSION, *key, now_ms):
            return _Locked(0, added=True)
        last = await session.value(LOCK_SESSION, *key)  # another transaction has just added it
    return _Locked(last)


def _session_key(entry: HistoryAppend) -> SessionKey:
    return SessionKey(*entry[:3])
