"""People who sign in at an issuer: their rows, sessions and names, and what the statements visit."""

from __future__ import annotations

import asyncio
import hashlib

import pytest

from tests.support.factories import MINUTE, NOW
from wakeful.errors import PermissionDenied
from wakeful.store.accounts import KeyRow
from wakeful.store.audit import AuditEntry
from wakeful.store.port import Store
from wakeful.store.sql.people import PersonRow
from wakeful.store.sql.web_sessions import WebSessionRow

ISSUER = "https://id.example"


def _hash(name: object) -> bytes:
    return hashlib.sha256(str(name).encode()).digest()


def _person(id: str = "ada", name: str = "Ada", **grants: str) -> PersonRow:
    return PersonRow(id, ISSUER, f"s-{id}", name, f"{id}@example.com", grants or {"*": "admin"}, NOW, NOW)


def _session(name: object, person: PersonRow, seen_ms: int = NOW) -> WebSessionRow:
    return WebSessionRow(_hash(name), person.actor, NOW, seen_ms, NOW + 60 * MINUTE, "192.0.2.1")


def _entry(person: PersonRow) -> AuditEntry:
    return AuditEntry("default", person.actor, "person.sign-in", person.actor, "{}", None)


async def test_all_sessions_of_a_person_have_what_the_issuer_said_last(store: Store) -> None:
    first = _person(name="Ada", crm="admin")
    await store.sign_in_person(first, _session(1, first), [_entry(first)])
    again = _person(name="Ada L.", crm="member")._replace(signed_in_ms=NOW + 1, created_ms=NOW + 1)
    await store.sign_in_person(again, _session(2, again), [_entry(again)])
    stored = again._replace(created_ms=NOW)
    assert await store.person_session(_hash(1)) == (_session(1, first), stored)
    assert await store.person_session(_hash(2)) == (_session(2, again), stored)
    assert await store.person_session(_hash(3)) is None
    assert await store.people("crm", 10) == [stored]
    assert await store.person_names(["ada", "bob"]) == {"ada": "Ada L."}
    assert [each.action for each in await store.audit("default")] == ["person.sign-in"] * 2


async def test_the_people_of_a_workspace_are_found_among_many_others(store: Store) -> None:
    here = [
        _person("ada", crm="member"),
        _person("bob", **{"*": "admin"}),
        _person("eve", hr="admin", crm="admin"),
    ]
    for number, each in enumerate([*here, _person("zoe", hr="admin"), _person("may", crm2="admin")]):
        await store.sign_in_person(each._replace(signed_in_ms=NOW + number), _session(number, each))
    assert [each.id for each in await store.people("crm", 3)] == ["eve", "bob", "ada"]
    await store.end_access_of_person(here[2])
    assert [each.id for each in await store.people("crm", 3)] == ["bob", "ada"]


async def test_sessions_of_people_and_of_keys_are_not_mixed_up(store: Store) -> None:
    ada = _person()
    await store.sign_in_person(ada, _session(1, ada))
    await store.add_key(
        KeyRow("ada", None, "a key", "admin", None, _hash("key"), NOW, "python", None, None, None)
    )
    await store.add_web_session(_session(2, ada)._replace(key_id="ada"))
    assert await store.web_session(_hash(1)) is None
    assert await store.person_session(_hash(2)) is None
    assert await store.delete_web_sessions("ada") == 1
    assert await store.person_session(_hash(1)) is not None


async def test_a_removed_person_has_no_session_and_no_key_but_a_name(store: Store) -> None:
    ada, bob = _person(), _person("bob", "Bob")
    for number, each in enumerate((ada, ada, bob)):
        await store.sign_in_person(each, _session(number, each))
        await store.add_key(
            KeyRow(
                f"k{number}", None, "k", "admin", None, _hash(f"k{number}"), NOW, each.actor, None, None, None
            )
        )
    topics: list[str] = []
    store.listen(topics.append)
    assert await store.remove_person("ada", NOW + 5, [_entry(ada)])
    assert not await store.remove_person("ada", NOW + 6, [_entry(ada)])
    assert "keys" in topics
    assert [await store.person_session(_hash(number)) is None for number in range(3)] == [True, True, False]
    assert [row.revoked_ms for row in await store.keys(None)] == [NOW + 5, NOW + 5, None]
    assert await store.people("crm", 10) == [bob]
    assert await store.person_names(["ada"]) == {"ada": "Ada"}
    assert await store.person("ada") == ada._replace(removed_ms=NOW + 5)
    assert len(await store.audit("default")) == 1
    await store.sign_in_person(ada, _session(9, ada))
    assert await store.person("ada") == ada


async def test_a_person_who_was_removed_or_is_at_this_moment_adds_no_key(store: Store) -> None:
    ada = _person()
    await store.sign_in_person(ada, _session(0, ada))

    async def add(number: int) -> None:
        key = KeyRow(f"k{number}", None, "k", "admin", None, _hash(number), NOW, ada.actor, None, None, None)
        await store.add_key(key)

    await add(0)
    await asyncio.gather(
        *map(add, range(1, 6)), store.remove_person("ada", NOW + 5), *map(add, range(6, 11)),
        return_exceptions=True,
    )  # fmt: skip
    with pytest.raises(PermissionDenied):
        await add(11)
    assert {row.revoked_ms for row in await store.keys(None)} == {NOW + 5}
    await store.sign_in_person(ada, _session(1, ada))
    await add(12)


async def test_a_person_who_signs_in_while_being_removed_is_there_or_has_no_session(store: Store) -> None:
    ada = _person()
    await store.sign_in_person(ada, _session(0, ada))
    await asyncio.gather(
        *(store.sign_in_person(ada, _session(number, ada)) for number in range(1, 6)),
        store.remove_person("ada", NOW + 5),
    )
    row = await store.person("ada")
    assert row is not None
    found = [await store.person_session(_hash(number)) for number in range(6)]
    assert all(each is None for each in found) if row.removed_ms is not None else any(found)


async def test_two_people_who_sign_in_at_once_for_the_first_time_are_one(store: Store) -> None:
    ada = _person()
    await asyncio.gather(*(store.sign_in_person(ada, _session(number, ada)) for number in range(5)))
    assert len(await store.people("crm", 10)) == 1
    assert all([await store.person_session(_hash(number)) for number in range(5)])
