"""People who sign in at an OpenID Connect issuer: one row per person (`people`), by issuer and subject.

Sessions of a person are in `web_sessions`, with the person's actor (`person:<id>`) in the place of a key. The
row of a person who was removed stays: history shows the name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from wakeful.store.accounts import KEYS_TOPIC, key_topic
from wakeful.store.audit import AuditEntry, always
from wakeful.store.columns import column_list, insert, next_row
from wakeful.store.sql.accounts import EXPIRE_SUBSCRIPTIONS, revoke_key
from wakeful.store.sql.base import Recorded, SqlBase, reads
from wakeful.store.sql.driver import SqlSession
from wakeful.store.sql.web_sessions import WebSessionRow, add_session, delete_sessions

#: Before the id of a person in `web_sessions` and in the audit log.
PERSON: Final = "person:"
#: How long after the last sign-in of a person the assistants work that the person connected with OAuth.
SIGN_IN_LASTS_MS: Final = 30 * 86_400_000


class PersonRow(NamedTuple):
    """A person."""

    #: follows from issuer and subject
    id: str
    issuer: str
    subject: str
    name: str
    #: as the issuer says; None: it does not say
    email: str | None
    #: by workspace, `*` for all: the role, as of the last sign-in
    grants: Mapping[str, str]
    created_ms: int
    signed_in_ms: int
    removed_ms: int | None = None

    @property
    def actor(self) -> str:
        """The actor in the audit log, and the owner of the sessions."""
        return PERSON + self.id


_COLUMNS: Final = column_list(PersonRow._fields)
#: the primary key and people_subject; writes nothing if the person is there, or is added at this moment
ADD_PERSON: Final = f"""
    {insert("people", PersonRow._fields)} ON CONFLICT DO NOTHING"""
#: the primary key
CHANGE_PERSON: Final = """
    UPDATE people SET name = $2, email = $3, grants = $4, signed_in_at = $5, removed_at = NULL
    WHERE id = $1"""
#: the primary key
END_ACCESS: Final = "UPDATE people SET grants = '{}', signed_in_at = $2 WHERE id = $1"
#: the primary key
PERSON_BY_ID: Final = f"SELECT {_COLUMNS} FROM people WHERE id = $1"
#: the primary key, once for each
PERSON_NAMES: Final = "SELECT id, name FROM people WHERE id = ANY($1::text[])"
#: people_signed_in: a range of it, in its order. `grants` is compact JSON
PEOPLE: Final = f"""
    SELECT {_COLUMNS} FROM people
    WHERE removed_at IS NULL AND (grants LIKE '%"*":%' OR grants LIKE '%"' || $1 || '":%')
    ORDER BY signed_in_at DESC, id LIMIT $2"""
#: the primary key
REMOVE_PERSON: Final = "UPDATE people SET removed_at = $2 WHERE id = $1 AND removed_at IS NULL"
#: the primary keys of web_sessions and people
PERSON_SESSION: Final = f"""
    SELECT {column_list(WebSessionRow._fields, "s")}, {column_list(PersonRow._fields, "p")}
    FROM web_sessions s JOIN people p ON p.id = substr(s.key_id, 8)
    WHERE s.hash = $1 AND substr(s.key_id, 1, 7) = '{PERSON}' AND p.removed_at IS NULL"""
#: keys_of_creator
KEYS_OF_PERSON: Final = "SELECT id FROM keys WHERE created_by = $1 AND revoked_at IS NULL ORDER BY id"
#: keys_of_creator: the assistants that a person connected
GRANTS_OF_PERSON: Final = """
    SELECT id, workspace, role FROM keys
    WHERE created_by = $1 AND revoked_at IS NULL AND client IS NOT NULL ORDER BY id"""
#: the primary keys of keys and people. A transaction that revokes the key waits, and then sees the
#: subscription. An assistant ends with the key of its person, or some time after the last sign-in
KEY_END: Final = """
    SELECT k.revoked_at, k.expires_at,
        (SELECT o.expires_at FROM keys o
            WHERE o.id = substr(k.created_by, 5) AND k.created_by LIKE 'key:%' AND k.client IS NOT NULL),
        (SELECT p.signed_in_at FROM people p
            WHERE p.id = substr(k.created_by, 8) AND k.created_by LIKE 'person:%' AND k.client IS NOT NULL)
    FROM keys k WHERE k.id = $1 FOR SHARE"""
#: the primary key: of an assistant, the person who connected it
PERSON_OF_GRANT: Final = """
    SELECT substr(created_by, 8), workspace, role FROM keys
    WHERE id = $1 AND client IS NOT NULL AND created_by LIKE 'person:%'"""
#: the primary key. A transaction that takes roles from the person waits, and then sees the subscription
HOLD_GRANTS: Final = "SELECT grants FROM people WHERE id = $1 AND removed_at IS NULL FOR SHARE"
#: The beginning of the principal of a key.
_KEY: Final = "key:"
#: subscriptions_of_principal, once for each key; keys_of_creator: what they subscribed to expires with them
EXPIRE_SUBSCRIPTIONS_OF: Final = """
    UPDATE subscriptions SET expires_at = $2 WHERE ended_at IS NULL AND principal IN (
        SELECT 'key:' || id FROM keys WHERE created_by = $1 AND revoked_at IS NULL)"""


def may_give(roles: Mapping[str, str], workspace: str | None, role: str) -> bool:
    """Return whether a person of these roles by workspace may give an assistant a role in a workspace.

    >>> may_give({"crm": "member"}, "crm", "member"), may_give({"crm": "member"}, "crm", "agent")
    (True, False)
    >>> may_give({"crm": "admin"}, "hr", "member"), may_give({"*": "admin"}, "hr", "agent")
    (False, True)
    """
    given = [roles[name] for name in (workspace or "", "*") if name in roles]
    return "admin" in given or (role == "member" and bool(given))


def _person(row: Iterable[Any]) -> PersonRow:
    person = PersonRow(*row)
    return person._replace(grants=json.loads(str(person.grants)))


async def sign_in(session: SqlSession, person: PersonRow, web_session: WebSessionRow) -> None:
    """Add the person, or replace what the issuer says, and add the session."""
    grants = json.dumps(dict(person.grants), separators=(",", ":"), sort_keys=True)
    if not await session.execute(
        ADD_PERSON, *person[:5], grants, person.created_ms, person.signed_in_ms, None
    ):
        said = person.name, person.email, grants, person.signed_in_ms
        await session.execute(CHANGE_PERSON, person.id, *said)
        await _expire_subscriptions(session, person)
    await add_session(session, web_session)


async def _expire_subscriptions(session: SqlSession, person: PersonRow) -> None:
    """Let the subscriptions of assistants expire that may do nothing any more with these roles."""
    for key_id, workspace, role in await session.rows(GRANTS_OF_PERSON, person.actor):
        if not may_give(person.grants, workspace, role):
            await session.execute(EXPIRE_SUBSCRIPTIONS, f"key:{key_id}", person.signed_in_ms)


async def person_session(session: SqlSession, hash: bytes) -> tuple[WebSessionRow, PersonRow] | None:
    """Return the session of a person with that hash, and the person. The session may have ended."""
    row = await session.row(PERSON_SESSION, hash)
    if row is None:
        return None
    values = iter(row)
    return next_row(values, WebSessionRow), _person(values)


async def person(session: SqlSession, id: str) -> PersonRow | None:
    """Return the person with that id, also one who was removed."""
    row = await session.row(PERSON_BY_ID, id)
    return None if row is None else _person(row)


async def person_names(session: SqlSession, ids: Sequence[str]) -> dict[str, str]:
    """Return the names of these people by id, removed ones included."""
    return dict(map(tuple, await session.rows(PERSON_NAMES, ids)))


async def people(session: SqlSession, workspace: str, limit: int) -> list[PersonRow]:
    """Return the people with a role in a workspace who were not removed, the last signed in first."""
    return [_person(row) for row in await session.rows(PEOPLE, workspace, limit)]


async def end_access(session: SqlSession, person: PersonRow) -> bool:
    """Take all roles from a person, and end the sessions."""
    changed = await session.execute(END_ACCESS, person.id, person.signed_in_ms)
    await delete_sessions(session, person.actor)
    await _expire_subscriptions(session, person._replace(grants={}))
    return changed > 0


async def key_end(session: SqlSession, principal: str, now_ms: int) -> int | None:
    """Return when the key of a principal ends; None: never, or it is no key."""
    if not principal.startswith(_KEY):
        return None
    key_id = principal.removeprefix(_KEY)
    grant = await session.row(PERSON_OF_GRANT, key_id)
    if grant is not None:
        person_id, workspace, role = grant
        if not may_give(json.loads(await session.value(HOLD_GRANTS, person_id) or "{}"), workspace, role):
            return now_ms
    row = await session.row(KEY_END, key_id)
    if row is None:
        return None
    *ends, signed_in_ms = row
    ends.append(None if signed_in_ms is None else signed_in_ms + SIGN_IN_LASTS_MS)
    return min((ms for ms in ends if ms is not None), default=None)


async def remove_person(session: SqlSession, id: str, now_ms: int) -> bool:
    """Remove a person, end the sessions, and revoke the keys that the person created."""
    if not await session.execute(REMOVE_PERSON, id, now_ms):
        return False
    await delete_sessions(session, PERSON + id)
    await session.execute(EXPIRE_SUBSCRIPTIONS_OF, PERSON + id, now_ms)
    for key_id in await session.column(KEYS_OF_PERSON, PERSON + id):
        await revoke_key(session, key_id, now_ms)
    return True


class SqlPeople(SqlBase):
    """People who sign in at an issuer."""

    async def sign_in_person(
        self, person: PersonRow, session: WebSessionRow, entries: Sequence[AuditEntry] = ()
    ) -> None:
        """Add the person, or replace name, address and grants, and add a session of the person.

        The time of creation stays, and a person who was removed is there again.
        """
        write = self._shared(sign_in, key_topic(person.actor))
        await self._record(Recorded(entries, always), write, person, session)

    person_session = reads(person_session)
    person = reads(person)
    person_names = reads(person_names)
    people = reads(people)

    async def end_access_of_person(self, person: PersonRow, entries: Sequence[AuditEntry] = ()) -> None:
        """Take all roles from a person until the next sign-in, and end the sessions. Keys stay valid."""
        write = self._shared(end_access, key_topic(person.actor))
        await self._record(Recorded(entries), write, person)

    async def remove_person(self, id: str, now_ms: int, entries: Sequence[AuditEntry] = ()) -> bool:
        """Remove a person: sessions and sign-in links end, and keys that the person created are revoked.

        False: there is no such person.
        """
        return await self._record(Recorded(entries), self._shared(remove_person, KEYS_TOPIC), id, now_ms)
