"""Assistants that people connect with OAuth: their clients, authorization codes and tokens.

- `oauth_clients`: one row per client (`OAuthClientRow`). One that nobody approved gives way to newer ones.
- `oauth_codes`: authorization codes (`OAuthCodeRow`), by SHA-256. A code that was exchanged stays for a day,
  so that a second exchange is noticed.
- `oauth_tokens`: access and refresh tokens (`OAuthTokenRow`), by SHA-256, until they expire.

The grant itself is a row of `keys`, whose creator is the person: it ends with that key, and with the key of
the person. Codes and tokens are not stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple

from wakeful.store.accounts import KeyRow
from wakeful.store.audit import AuditEntry
from wakeful.store.columns import column_list, insert, next_row
from wakeful.store.sql.accounts import add_key
from wakeful.store.sql.base import Recorded, SqlBase, reads, writes
from wakeful.store.sql.driver import SqlSession

_DAY_MS: Final = 86_400_000
#: How many clients may wait for their first approval, and how long.
MOST_UNUSED: Final = 1_000
_UNUSED_KEPT_MS: Final = 30 * _DAY_MS
#: How long a client is kept after its last use: longer than any token.
_USED_KEPT_MS: Final = 180 * _DAY_MS
#: How long a code is kept after it expired, and a grant: so long its name is shown.
_CODE_KEPT_MS: Final = _DAY_MS
_GRANT_KEPT_MS: Final = 30 * _DAY_MS


class OAuthClientRow(NamedTuple):
    """A program that asks people for access."""

    #: a random id, or the address of its metadata document
    id: str
    #: JSON of its metadata
    document: str
    created_ms: int
    #: when a person last approved it, or it last got tokens
    used_ms: int | None = None


class OAuthCodeRow(NamedTuple):
    """An authorization code."""

    #: SHA-256 of the code
    hash: bytes
    client_id: str
    #: compact JSON of what was asked for and approved
    request: str
    created_ms: int
    expires_ms: int
    #: the grant that it was exchanged for
    key_id: str | None = None


class OAuthTokenRow(NamedTuple):
    """An access or refresh token."""

    #: SHA-256 of the token
    hash: bytes
    kind: Literal["access", "refresh"]
    #: the grant
    key_id: str
    client_id: str
    #: the address that it is for
    resource: str
    created_ms: int
    expires_ms: int
    #: when a refresh token was first exchanged
    used_ms: int | None = None


class KnownToken(NamedTuple):
    """A token with its grant, and who created that."""

    row: OAuthTokenRow
    key: KeyRow
    #: of a person who signed in at an issuer and was not removed: the roles by workspace, a JSON object
    grants: str | None
    #: when that person last signed in
    signed_in_ms: int | None
    #: whose key it was; None: no key
    owner: KeyRow | None


#: the primary key
CLIENT: Final = f"SELECT {column_list(OAuthClientRow._fields)} FROM oauth_clients WHERE id = $1"
#: the primary key
PUT_CLIENT: Final = f"""
    {insert("oauth_clients", OAuthClientRow._fields)}
    ON CONFLICT (id) DO UPDATE SET document = EXCLUDED.document, used_at = EXCLUDED.used_at"""
#: the primary key
USE_CLIENT: Final = "UPDATE oauth_clients SET used_at = $2 WHERE id = $1"
#: oauth_clients_unused, from its newest entry on; then the primary key. Locked rows stay
DROP_UNUSED: Final = """
    DELETE FROM oauth_clients WHERE id IN (
        SELECT id FROM oauth_clients WHERE used_at IS NULL ORDER BY created_at DESC LIMIT 1000 OFFSET $1
        FOR UPDATE SKIP LOCKED)"""
#: oauth_clients_unused: a range of it; then the primary key. Locked rows stay
PRUNE_UNUSED: Final = """
    DELETE FROM oauth_clients WHERE id IN (
        SELECT id FROM oauth_clients WHERE used_at IS NULL AND created_at <= $1 FOR UPDATE SKIP LOCKED)"""
#: oauth_clients_used: a range of it; then the primary key. Locked rows stay
PRUNE_USED: Final = """
    DELETE FROM oauth_clients WHERE id IN (
        SELECT id FROM oauth_clients WHERE used_at IS NOT NULL AND used_at <= $1 FOR UPDATE SKIP LOCKED)"""

#: the primary key
CODE: Final = f"SELECT {column_list(OAuthCodeRow._fields)} FROM oauth_codes WHERE hash = $1"
ADD_CODE: Final = insert("oauth_codes", OAuthCodeRow._fields)
#: the primary key. The row that is changed decides: of two requests with one code, one changes it
TAKE_CODE: Final = "UPDATE oauth_codes SET key_id = $2 WHERE hash = $1 AND key_id IS NULL AND expires_at > $3"
#: oauth_codes_expires: a range of it; then the primary key. Locked rows stay
PRUNE_CODES: Final = """
    DELETE FROM oauth_codes WHERE hash IN (
        SELECT hash FROM oauth_codes WHERE expires_at <= $1 FOR UPDATE SKIP LOCKED)"""

#: the primary keys of oauth_tokens, keys (twice) and people (twice)
TOKEN: Final = f"""
    SELECT {column_list(OAuthTokenRow._fields, "t")}, {column_list(KeyRow._fields, "k")},
        (SELECT p.grants FROM people p
            WHERE p.id = substr(k.created_by, 8) AND k.created_by LIKE 'person:%' AND p.removed_at IS NULL),
        (SELECT p.signed_in_at FROM people p
            WHERE p.id = substr(k.created_by, 8) AND k.created_by LIKE 'person:%' AND p.removed_at IS NULL),
        {column_list(KeyRow._fields, "o")}
    FROM oauth_tokens t JOIN keys k ON k.id = t.key_id
    LEFT JOIN keys o ON o.id = substr(k.created_by, 5)
    WHERE t.hash = $1"""
#: the primary key
LOCK_TOKEN: Final = f"""
    SELECT {column_list(OAuthTokenRow._fields)} FROM oauth_tokens WHERE hash = $1 FOR UPDATE"""
ADD_TOKEN: Final = insert("oauth_tokens", OAuthTokenRow._fields)
#: the primary key
USE_TOKEN: Final = "UPDATE oauth_tokens SET used_at = $2 WHERE hash = $1 AND used_at IS NULL"
#: oauth_tokens_expires: a range of it; then the primary key. Locked rows stay
PRUNE_TOKENS: Final = """
    DELETE FROM oauth_tokens WHERE hash IN (
        SELECT hash FROM oauth_tokens WHERE expires_at <= $1 FOR UPDATE SKIP LOCKED)"""
#: keys_of_clients: a range of it; then the primary key. Locked rows stay
PRUNE_GRANTS: Final = """
    DELETE FROM keys WHERE id IN (
        SELECT id FROM keys WHERE client IS NOT NULL AND expires_at <= $1 FOR UPDATE SKIP LOCKED)"""
#: the primary key
EXTEND_KEY: Final = "UPDATE keys SET expires_at = $2 WHERE id = $1 AND expires_at < $2"


async def client(session: SqlSession, client_id: str) -> OAuthClientRow | None:
    """Return the client of that id."""
    row = await session.row(CLIENT, client_id)
    return None if row is None else OAuthClientRow(*row)


async def put_client(session: SqlSession, row: OAuthClientRow) -> None:
    """Add a client. The oldest of too many that nobody approved are dropped."""
    await session.execute(PUT_CLIENT, *row)
    if row.used_ms is None:
        await session.execute(DROP_UNUSED, MOST_UNUSED)


async def code(session: SqlSession, hash: bytes) -> OAuthCodeRow | None:
    """Return the code with that hash; it may have expired, or been exchanged."""
    row = await session.row(CODE, hash)
    return None if row is None else OAuthCodeRow(*row)


async def add_code(session: SqlSession, row: OAuthCodeRow, client: OAuthClientRow) -> None:
    """Add a code, and its client as the person approved it."""
    await put_client(session, client)
    await session.execute(ADD_CODE, *row)


async def exchange_code(
    session: SqlSession, hash: bytes, key: KeyRow, tokens: Sequence[OAuthTokenRow]
) -> bool:
    """Take the code, and add the grant with its first tokens."""
    if not await session.execute(TAKE_CODE, hash, key.id, key.created_ms):
        return False
    await add_key(session, key)
    await session.execute_many(ADD_TOKEN, tokens)
    return True


async def token(session: SqlSession, hash: bytes) -> KnownToken | None:
    """Return the token with that hash; it or its keys may have ended."""
    row = await session.row(TOKEN, hash)
    if row is None:
        return None
    values = iter(row)
    token, key = next_row(values, OAuthTokenRow), next_row(values, KeyRow)
    grants, signed_in_ms, *owner = values
    return KnownToken(token, key, grants, signed_in_ms, None if owner[0] is None else KeyRow(*owner))


async def exchange_token(
    session: SqlSession, hash: bytes, may: Callable[[OAuthTokenRow], bool], tokens: Sequence[OAuthTokenRow]
) -> bool:
    """Add the next tokens of a grant, if `may` accepts the refresh token, and extend the grant.

    Concurrent calls with one token are applied one after the other.
    """
    row = await session.row(LOCK_TOKEN, hash)
    if row is None or not may(OAuthTokenRow(*row)):
        return False
    now_ms, last_ms = tokens[0].created_ms, max(each.expires_ms for each in tokens)
    await session.execute(USE_TOKEN, hash, now_ms)
    await session.execute_many(ADD_TOKEN, tokens)
    await session.execute(EXTEND_KEY, tokens[0].key_id, last_ms)
    await session.execute(USE_CLIENT, tokens[0].client_id, now_ms)
    return True


async def prune(session: SqlSession, now_ms: int) -> int:
    """Delete what has expired. Returns the number of tokens."""
    await session.execute(PRUNE_CODES, now_ms - _CODE_KEPT_MS)
    await session.execute(PRUNE_UNUSED, now_ms - _UNUSED_KEPT_MS)
    await session.execute(PRUNE_USED, now_ms - _USED_KEPT_MS)
    await session.execute(PRUNE_GRANTS, now_ms - _GRANT_KEPT_MS)
    return await session.execute(PRUNE_TOKENS, now_ms)


class SqlOAuth(SqlBase):
    """Clients, authorization codes and tokens of OAuth."""

    oauth_client = reads(client)
    add_oauth_client = writes(put_client)
    oauth_code = reads(code)
    add_oauth_code = writes(add_code)

    async def exchange_oauth_code(
        self, hash: bytes, key: KeyRow, tokens: Sequence[OAuthTokenRow], entries: Sequence[AuditEntry] = ()
    ) -> bool:
        """Add a grant and its first tokens. False: the code is unknown, has expired, or was exchanged."""
        return await self._record(Recorded(entries), self._shared(exchange_code), hash, key, tokens)

    oauth_token = reads(token)
    exchange_oauth_token = writes(exchange_token)
    prune_oauth = writes(prune)
