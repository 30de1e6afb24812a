"""Sessions with their history. See `store/sessions.py`.

The row of a session is the lock of its history and has its last number. A transaction locks the rows of
sessions before those of runs. So PostgreSQL locks them (`lock`) before it writes the outcomes, and only then
appends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from wakeful.job.self_scheduling import ChargeRule
from wakeful.run.conversations import MAX_ENTRIES, MAX_TOKENS, HistoryAppend, job_session
from wakeful.store.audit import AuditEntry, always
from wakeful.store.idempotency import Keyed
from wakeful.store.sessions import HistoryEntry, SessionKey, SessionRule, SessionUpdate, SessionView
from wakeful.store.sql.base import Recorded, SqlBase
from wakeful.store.sql.driver import Session
from wakeful.values.ids import first_id
from wakeful.values.stored_text import cleaned

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

#: sessions_due: its first entry, and its first after that instant
NEXT_TURN: Final = """
    SELECT EXISTS (SELECT 1 FROM sessions WHERE due_at <= $1),
        (SELECT min(due_at) FROM sessions WHERE due_at > $1)"""
#: the primary key: its beginning
PRUNE_TURNS: Final = "DELETE FROM turns WHERE run_id < $1 AND NOT live"
#: the table, all of it; for each, turns_live
PRUNE_SESSIONS: Final = """
    DELETE FROM sessions WHERE updated_at < $1 AND due_at IS NULL AND NOT EXISTS (
        SELECT 1 FROM turns t WHERE t.live AND t.workspace = sessions.workspace
        AND t.agent = sessions.agent AND t.session = sessions.name)"""


async def lock(session: Session, entries: Iterable[HistoryAppend], now_ms: int) -> list[SessionKey]:
    """Lock the sessions of these entries, and add those that are missing. Returns those that were added."""
    keys = sorted({_key_of(entry) for entry in entries})
    return [key for key in keys if (await _lock(session, key, now_ms)).added]


async def unlock(session: Session, added: Sequence[SessionKey], entries: Iterable[HistoryAppend]) -> None:
    """Delete the sessions that `lock` added and that none of these entries is appended to."""
    used = {_key_of(entry) for entry in entries} if added else set()
    for key in added:
        if key not in used:
            await session.execute(DELETE_SESSION, *key)


async def append(session: Session, entries: Sequence[HistoryAppend], now_ms: int) -> None:
    """Append these entries to the histories of their sessions, and drop what is too old.

    A session that is missing is added, unless its agent is deleted.
    """
    by_session: dict[SessionKey, list[HistoryAppend]] = defaultdict(list)
    for entry in entries:
        by_session[_key_of(entry)].append(entry)
    for key in sorted(by_session):
        last = (await _lock(session, key, now_ms)).last
        if last is None:
            continue
        appended = by_session[key]
        rows = [
            (*key, last + number, each.role, cleaned(each.content), each.tokens, each.run_id, each.job_name,
             each.at_ms)
            for number, each in enumerate(appended, 1)
        ]  # fmt: skip
        await session.execute_many(ADD_ENTRY, rows)
        await session.execute(SET_SEQUENCE, *key, last + len(appended), now_ms)
        await session.execute(DROP_OLDEST, *key, MAX_ENTRIES, MAX_TOKENS)


async def history(session: Session, key: SessionKey, before: int | None, limit: int) -> list[HistoryEntry]:
    """Return entries of a session, newest first. See `Store.history`."""
    rows = await session.rows(HISTORY, *key, _LAST if before is None else before, limit)
    return [HistoryEntry(*row) for row in rows]


async def delete(session: Session, key: SessionKey) -> None:
    """Delete a session and its history."""
    await session.execute(DELETE_HISTORY, *key)
    await session.execute(DELETE_SESSION, *key)


async def delete_of_new_jobs(session: Session, jobs: Iterable[tuple[str, str, str]]) -> None:
    """Delete what deleted jobs of these names (workspace, agent, name) have left: new ones begin anew."""
    names: dict[tuple[str, str], list[str]] = defaultdict(list)
    for workspace, agent, name in jobs:
        names[workspace, agent].append(job_session(name))
    for owner, wanted in sorted(names.items()):
        for row in await session.rows(EXISTING, *owner, wanted):
            await delete(session, SessionKey(*owner, row[0]))


async def prune(session: Session, before_ms: int, limit: int) -> int:
    """Delete up to `limit` of the entries that are older. Returns how many."""
    return await session.execute(PRUNE_HISTORY, before_ms, limit)


async def next_turn(session: Session, now_ms: int) -> tuple[bool, int | None]:
    """Return whether any session is due, and when the next one will be."""
    row = await session.row(NEXT_TURN, now_ms)
    return (False, None) if row is None else (bool(row[0]), row[1])


async def prune_sessions(session: Session, before_ms: int) -> None:
    """Delete turns that ended and began before then, and sessions without messages since."""
    await session.execute(PRUNE_TURNS, first_id(before_ms))
    await session.execute(PRUNE_SESSIONS, before_ms)


class _Locked(NamedTuple):
    """A session after `_lock`."""

    #: the last number in its history; None: its agent is deleted
    last: int | None
    added: bool = False


async def _lock(session: Session, key: SessionKey, now_ms: int) -> _Locked:
    """Lock a session, which is added if there is none and its agent exists."""
    row = await session.row(LOCK_SESSION, *key)
    if row is None:
        if await session.execute(ADD_SESSION, *key, now_ms):
            return _Locked(0, added=True)
        row = await session.row(LOCK_SESSION, *key)  # another transaction has just added it
    return _Locked(None if row is None else int(row[0]))


def _key_of(entry: HistoryAppend) -> SessionKey:
    return SessionKey(*entry[:3])


class SqlSessions(SqlBase):
    """Sessions with their history."""

    async def update_session(
        self,
        key: SessionKey,
        now_ms: int,
        judge: SessionRule,
        entries: Sequence[AuditEntry] = (),
        keyed: Keyed[SessionUpdate] | None = None,
        charge: ChargeRule | None = None,
    ) -> SessionUpdate:
        """Lock a session, which is added if there is none, and write the update that `judge` returns.

        Topic: `sessions`, if anything waits in it. `charge` is as in `create_jobs`.
        """
        recorded = Recorded(entries, always, keyed, charge)
        return await self._record(recorded, self._operations.sessions.update_session, key, now_ms, judge)

    async def take_turns(self, now_ms: int, limit: int, judge: SessionRule) -> int:
        """Update up to `limit` sessions that are due and may have another turn, longest due first.

        Sessions that another transaction holds are skipped. Returns how many were updated.
        """
        return await self._driver.write(self._operations.sessions.take_turns, now_ms, limit, judge)

    async def next_turn(self, now_ms: int) -> tuple[bool, int | None]:
        """Return whether any session is due, full or not, and when the next one will be."""
        return await self._read(next_turn, now_ms)

    async def sessions(self, workspace: str, agent: str, after: str | None, limit: int) -> list[SessionView]:
        """Return the sessions of an agent, by name, after `after`."""
        return await self._driver.read(self._operations.sessions.sessions, workspace, agent, after, limit)

    async def session(self, key: SessionKey) -> SessionView | None:
        """Return a session."""
        return await self._driver.read(self._operations.sessions.session, key)

    async def history(
        self, key: SessionKey, before: int | None = None, limit: int = 50
    ) -> list[HistoryEntry]:
        """Return the entries of a session with a number below `before`, newest first."""
        return await self._read(history, key, before, limit)

    async def delete_session(
        self, key: SessionKey, now_ms: int, judge: SessionRule, entries: Sequence[AuditEntry] = ()
    ) -> SessionUpdate | None:
        """Lock a session, write the update that `judge` returns, and delete it with its history.

        The update drops all messages and stops all live turns. Returns None if there is no such session.
        """
        delete = self._operations.sessions.delete_session
        recorded: Recorded[SessionUpdate | None] = Recorded(entries)
        return await self._record(recorded, delete, key, now_ms, judge)

    async def prune_sessions(self, before_ms: int, limit: int) -> int:
        """Delete up to `limit` entries of histories from before then. Returns how many.

        If there are no others, delete ended turns that began before then, and sessions without a message or
        an answer since.
        """

        async def prune_all(session: Session) -> int:
            pruned = await prune(session, before_ms, limit)
            if pruned < limit:  # nothing of them is left: a session that is added again starts with number 1
                await prune_sessions(session, before_ms)
            return pruned

        return await self._driver.write(self._shared(prune_all))
