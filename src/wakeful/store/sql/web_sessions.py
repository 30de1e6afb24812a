"""Sign-in to the dashboard: sessions, one-time links, and the limits of failed sign-ins.

- `web_sessions`: one row per session (`WebSessionRow`), by the SHA-256 of its token, with its key.
- `sign_in_links`: links that are not used yet (`SignInLinkRow`), by the SHA-256 of their token.
- `sign_in_limits`: for each client address with failed sign-ins, when its allowance is full again.

The tokens are not stored. All of it is in the database, so that any replica serves any request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from wakeful.store.accounts import KeyRow, key_topic
from wakeful.store.audit import AuditEntry, always
from wakeful.store.columns import column_list, insert, next_row
from wakeful.store.sql.base import Recorded, SqlBase, reads, writes
from wakeful.store.sql.driver import SqlSession

#: How far the clocks of two replicas may differ.
_SKEW_MS: Final = 60_000


class WebSessionRow(NamedTuple):
    """A sign-in session."""

    #: SHA-256 of the token
    hash: bytes
    #: the key, or `person:<id>` (`sql.people`)
    key_id: str
    created_ms: int
    #: the last request, to the minute
    seen_ms: int
    #: when it ends if there is no further request
    expires_ms: int
    #: the client's address at sign-in
    address: str | None

    @property
    def id(self) -> str:
        """Names the session in responses; the token does not follow from it."""
        return self.hash[:8].hex()


class SignInLinkRow(NamedTuple):
    """A one-time link to sign in."""

    #: SHA-256 of the token
    hash: bytes
    key_id: str
    created_ms: int
    expires_ms: int


_OF_KEY: Final = column_list(KeyRow._fields, "k")
ADD_SESSION: Final = insert("web_sessions", WebSessionRow._fields)
#: the primary keys of web_sessions and keys
SESSION: Final = f"""
    SELECT {column_list(WebSessionRow._fields, "s")}, {_OF_KEY}
    FROM web_sessions s JOIN keys k ON k.id = s.key_id WHERE s.hash = $1"""
#: web_sessions_of_key
SESSIONS: Final = f"""
    SELECT {column_list(WebSessionRow._fields)} FROM web_sessions WHERE key_id = $1 AND expires_at > $2
    ORDER BY seen_at DESC, hash LIMIT $3"""
#: the primary key
TOUCH_SESSION: Final = (
    "UPDATE web_sessions SET seen_at = $2, expires_at = $3 WHERE hash = $1 AND seen_at < $2"
)
#: the primary key
DELETE_SESSION: Final = "DELETE FROM web_sessions WHERE hash = $1"
#: web_sessions_of_key
DELETE_SESSIONS: Final = "DELETE FROM web_sessions WHERE key_id = $1"
#: web_sessions_expires: a range of it; then the primary key. The pruner waits for no lock, so it is in no
#: deadlock: a row that another transaction has locked is deleted the next time
PRUNE_SESSIONS: Final = """
    DELETE FROM web_sessions WHERE hash IN (
        SELECT hash FROM web_sessions WHERE expires_at <= $1 FOR UPDATE SKIP LOCKED)"""

ADD_LINK: Final = insert("sign_in_links", SignInLinkRow._fields)
#: the primary keys of sign_in_links and keys. A link of the future was created while the clock was wrong
LINK: Final = f"""
    SELECT {_OF_KEY} FROM sign_in_links l JOIN keys k ON k.id = l.key_id
    WHERE l.hash = $1 AND l.expires_at > $2 AND l.created_at <= $3"""
#: the primary key
DELETE_LINK: Final = "DELETE FROM sign_in_links WHERE hash = $1"
#: the table, all of it: it has the links of five minutes
DELETE_LINKS: Final = "DELETE FROM sign_in_links WHERE key_id = $1"
#: sign_in_links_expires: a range of it; then the primary key. Locked rows stay
PRUNE_LINKS: Final = """
    DELETE FROM sign_in_links WHERE hash IN (
        SELECT hash FROM sign_in_links WHERE expires_at <= $1 FOR UPDATE SKIP LOCKED)"""

#: the primary key, once for each
LIMITS: Final = "SELECT address, full_at FROM sign_in_limits WHERE address = ANY($1::text[])"
#: the primary key; writes nothing if there is a row
ADD_LIMIT: Final = "INSERT INTO sign_in_limits (address, full_at) VALUES ($1, $2) ON CONFLICT DO NOTHING"
#: the primary key. Concurrent failures of one address are counted one after the other
LOCK_LIMIT: Final = "SELECT full_at FROM sign_in_limits WHERE address = $1 FOR UPDATE"
#: the primary key
SET_LIMIT: Final = "UPDATE sign_in_limits SET full_at = $2 WHERE address = $1"
#: sign_in_limits_full: a range of it; then the primary key. Locked rows stay
PRUNE_LIMITS: Final = """
    DELETE FROM sign_in_limits WHERE address IN (
        SELECT address FROM sign_in_limits WHERE full_at <= $1 FOR UPDATE SKIP LOCKED)"""


async def add_session(session: SqlSession, row: WebSessionRow) -> None:
    """Add a session."""
    await session.execute(ADD_SESSION, *row)


async def web_session(session: SqlSession, hash: bytes) -> tuple[WebSessionRow, KeyRow] | None:
    """Return the session with that hash and its key; the session or the key may have ended."""
    row = await session.row(SESSION, hash)
    if row is None:
        return None
    values = iter(row)
    return next_row(values, WebSessionRow), next_row(values, KeyRow)


async def sessions(session: SqlSession, key_id: str, now_ms: int, limit: int) -> list[WebSessionRow]:
    """Return the sessions of a key that have not expired, the last used first."""
    return [WebSessionRow(*row) for row in await session.rows(SESSIONS, key_id, now_ms, limit)]


async def touch_session(session: SqlSession, hash: bytes, seen_ms: int, expires_ms: int) -> None:
    """Record a request of a session. An instant before the stored one is ignored."""
    await session.execute(TOUCH_SESSION, hash, seen_ms, expires_ms)


async def delete_session(session: SqlSession, hash: bytes) -> bool:
    """Delete a session."""
    return await session.execute(DELETE_SESSION, hash) > 0


async def delete_sessions(session: SqlSession, key_id: str) -> int:
    """Delete all sessions and links of a key."""
    await session.execute(DELETE_LINKS, key_id)
    return await session.execute(DELETE_SESSIONS, key_id)


async def add_link(session: SqlSession, row: SignInLinkRow) -> None:
    """Add a link."""
    await session.execute(ADD_LINK, *row)


async def take_link(session: SqlSession, hash: bytes, now_ms: int) -> KeyRow | None:
    """Delete the link and return its key. None: unknown, expired, or another request has used it."""
    row = await session.row(LINK, hash, now_ms, now_ms + _SKEW_MS)
    # The row that is deleted decides: of two requests with one link, one deletes it.
    if row is None or not await session.execute(DELETE_LINK, hash):
        return None
    return KeyRow(*row)


async def limits(session: SqlSession, addresses: Sequence[str]) -> dict[str, int]:
    """Return when the allowances of these addresses are full again; without those that are full."""
    return dict(map(tuple, await session.rows(LIMITS, list(addresses))))


async def count_failure(
    session: SqlSession, addresses: Sequence[str], now_ms: int, later: Callable[[str, int], int]
) -> None:
    """Move the instant of each address to what `later(address, instant)` returns.

    Concurrent calls are applied one after the other, so that none is lost.
    """
    for address in sorted(addresses):  # one order in all transactions, so that none waits in a circle
        instant_ms: int | None = None
        while instant_ms is None:  # the pruner may delete the row between the two statements
            await session.execute(ADD_LIMIT, address, now_ms)
            instant_ms = await session.value(LOCK_LIMIT, address)
        await session.execute(SET_LIMIT, address, later(address, instant_ms))


async def prune(session: SqlSession, now_ms: int) -> int:
    """Delete expired sessions and links, and full allowances. Returns the number of sessions."""
    await session.execute(PRUNE_LINKS, now_ms)
    await session.execute(PRUNE_LIMITS, now_ms)
    return await session.execute(PRUNE_SESSIONS, now_ms)


class SqlWebSessions(SqlBase):
    """Sign-in sessions."""

    async def add_web_session(self, row: WebSessionRow, entries: Sequence[AuditEntry] = ()) -> None:
        """Add a session."""
        await self._record(Recorded(entries, always), self._shared(add_session), row)

    web_session = reads(web_session)
    web_sessions = reads(sessions)
    touch_web_session = writes(touch_session)

    async def delete_web_session(self, row: WebSessionRow, entries: Sequence[AuditEntry] = ()) -> bool:
        """Delete a session. False: there is none."""
        delete = self._shared(delete_session, key_topic(row.key_id))
        return await self._record(Recorded(entries), delete, row.hash)

    async def delete_web_sessions(self, key_id: str, entries: Sequence[AuditEntry] = ()) -> int:
        """Delete all sessions and links of a key. Returns the number of sessions."""
        delete = self._shared(delete_sessions, key_topic(key_id))
        return await self._record(Recorded(entries), delete, key_id)

    async def add_sign_in_link(self, row: SignInLinkRow, entries: Sequence[AuditEntry] = ()) -> None:
        """Add a link."""
        await self._record(Recorded(entries, always), self._shared(add_link), row)

    take_sign_in_link = writes(take_link)
    sign_in_limits = reads(limits)
    count_failed_sign_in = writes(count_failure)
    prune_web_sessions = writes(prune)
