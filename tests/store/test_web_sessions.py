"""Sign-in sessions, one-time links and limits of failed sign-ins, and what their statements visit."""

from __future__ import annotations

import asyncio
import hashlib
import re
from pathlib import Path

import pytest

from tests.support.databases import Database, SqliteDatabase
from tests.support.factories import DAY, MINUTE, NOW, FalseClock
from tests.support.query_plans import visited
from tests.support.waiting import PATIENCE, eventually
from wakeful.store.accounts import KeyRow
from wakeful.store.audit import AuditEntry
from wakeful.store.port import Store
from wakeful.store.sql import people, web_sessions
from wakeful.store.sql.accounts import ADD_KEY
from wakeful.store.sql.web_sessions import SignInLinkRow, WebSessionRow
from wakeful.store.sqlite import SqliteStore
from wakeful.store.sqlite.session import translate

COUNT = 20_000
HOUR = 60 * MINUTE
ENTRY = AuditEntry("default", "key:1", "key.sign-in", "1", "{}", "192.0.2.1")


def _hash(name: object) -> bytes:
    return hashlib.sha256(str(name).encode()).digest()


def _key(key_id: str = "1") -> KeyRow:
    return KeyRow(
        key_id, None, "first", "admin", None, _hash(f"key {key_id}"), NOW, "python", None, None, None
    )


def _session(name: object, key_id: str = "1", seen_ms: int = NOW) -> WebSessionRow:
    return WebSessionRow(_hash(name), key_id, NOW, seen_ms, NOW + 12 * HOUR, "192.0.2.1")


def _link(name: object, key_id: str = "1") -> SignInLinkRow:
    return SignInLinkRow(_hash(name), key_id, NOW, NOW + 5 * MINUTE)


async def test_a_session_is_found_with_its_key_until_it_is_deleted(store: Store) -> None:
    await store.add_key(_key())
    await store.add_web_session(_session("a"), [ENTRY])
    assert await store.web_session(_hash("a")) == (_session("a"), _key())
    assert await store.web_session(_hash("b")) is None
    assert await store.delete_web_session(_session("a"), [ENTRY])
    assert await store.web_session(_hash("a")) is None
    assert not await store.delete_web_session(_session("a"), [ENTRY])
    assert len(await store.audit("default")) == 2


async def test_the_key_of_a_session_is_read_as_it_is_now(store: Store) -> None:
    await store.add_key(_key())
    await store.add_web_session(_session("a"))
    await store.revoke_key("1", NOW + 5)
    assert await store.web_session(_hash("a")) == (_session("a"), _key()._replace(revoked_ms=NOW + 5))


async def test_a_request_moves_the_end_of_a_session_and_never_back(store: Store) -> None:
    await store.add_key(_key())
    await store.add_web_session(_session("a"))
    await store.touch_web_session(_hash("a"), NOW + HOUR, NOW + 13 * HOUR)
    await store.touch_web_session(_hash("a"), NOW + MINUTE, NOW + 12 * HOUR + MINUTE)
    found = await store.web_session(_hash("a"))
    assert found is not None
    assert (found[0].seen_ms, found[0].expires_ms) == (NOW + HOUR, NOW + 13 * HOUR)


async def test_the_sessions_of_a_key_are_listed_and_deleted_together(store: Store) -> None:
    for key_id in "1", "2":
        await store.add_key(_key(key_id))
    for row in (_session("a"), _session("b", seen_ms=NOW + 1), _session("other", "2")):
        await store.add_web_session(row)
    await store.add_sign_in_link(_link("l"))
    await store.add_sign_in_link(_link("m", "2"))
    assert await store.web_sessions("1", NOW, 10) == [_session("b", seen_ms=NOW + 1), _session("a")]
    assert await store.web_sessions("1", NOW, 1) == [_session("b", seen_ms=NOW + 1)]
    assert await store.web_sessions("1", NOW + 12 * HOUR, 10) == []
    assert await store.delete_web_sessions("1", [ENTRY]) == 2
    assert await store.delete_web_sessions("1", [ENTRY]) == 0
    assert await store.web_sessions("2", NOW, 10) == [_session("other", "2")]
    assert await store.take_sign_in_link(_hash("l"), NOW) is None
    assert await store.take_sign_in_link(_hash("m"), NOW) == _key("2")
    assert len(await store.audit("default")) == 1


async def test_a_link_works_once_and_for_its_time(store: Store) -> None:
    await store.add_key(_key())
    await store.add_sign_in_link(_link("a"), [ENTRY])
    await store.add_sign_in_link(_link("b"))
    assert await store.take_sign_in_link(_hash("a"), NOW + 5 * MINUTE - 1) == _key()
    assert await store.take_sign_in_link(_hash("a"), NOW) is None
    assert await store.take_sign_in_link(_hash("b"), NOW + 5 * MINUTE) is None
    assert await store.take_sign_in_link(_hash("unknown"), NOW) is None


async def test_a_link_used_twice_at_once_works_once(database: Database) -> None:
    stores = [await database.connect() for _ in range(2)]
    await stores[0].add_key(_key())
    for round_ in range(10):
        await stores[0].add_sign_in_link(_link(round_))
        taken = await asyncio.gather(*(each.take_sign_in_link(_hash(round_), NOW) for each in stores * 2))
        assert [row for row in taken if row is not None] == [_key()]


async def test_failures_of_two_replicas_at_once_are_all_counted(database: Database) -> None:
    stores = [await database.connect() for _ in range(2)]

    def later(address: str, full_ms: int) -> int:
        return full_ms + (1 if address == "*" else 1_000)

    await asyncio.gather(
        *(
            stores[number % 2].count_failed_sign_in([f"192.0.2.{number % 3}", "*"], NOW, later)
            for number in range(12)
        )
    )
    limits = await stores[0].sign_in_limits(["192.0.2.0", "192.0.2.1", "192.0.2.9", "*"])
    assert limits == {"192.0.2.0": NOW + 4_000, "192.0.2.1": NOW + 4_000, "*": NOW + 12}


async def test_failures_lock_addresses_in_one_order_and_the_pruner_waits_for_none(
    database: Database,
) -> None:
    if isinstance(database, SqliteDatabase):
        pytest.skip("SQLite has one writer at a time, and no row locks")
    from wakeful.store.postgres import PostgresStore

    store = await database.connect()
    assert isinstance(store, PostgresStore)

    def later(address: str, full_ms: int) -> int:
        return full_ms + 1_000

    await store.count_failed_sign_in(["a", "b"], NOW, later)
    lock = "SELECT address FROM sign_in_limits WHERE address = $1 FOR UPDATE SKIP LOCKED"
    async with store._pool._acquire() as db:
        async with db.transaction():
            assert await db.fetchval(lock, "b") == "b"
            counting = asyncio.create_task(store.count_failed_sign_in(["b", "a"], NOW, later))

            async def is_waiting() -> bool:
                return bool(await db.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"))

            await eventually(is_waiting)
            assert (
                await db.fetchval(lock, "a") is None
            )  # it locked the first by name, and waits for the other
            async with asyncio.timeout(PATIENCE):
                await store.prune_web_sessions(NOW + DAY)
        await counting
        assert await store.sign_in_limits(["a", "b"]) == {"a": NOW + 2_000, "b": NOW + 2_000}
        await store.prune_web_sessions(NOW + DAY)
        assert await store.sign_in_limits(["a", "b"]) == {}


async def test_what_has_expired_is_pruned(store: Store) -> None:
    await store.add_key(_key())
    await store.add_web_session(_session("a"))
    await store.add_web_session(_session("b")._replace(expires_ms=NOW + DAY))
    await store.add_sign_in_link(_link("a"))
    await store.count_failed_sign_in(["192.0.2.1"], NOW, lambda address, full_ms: full_ms + MINUTE)
    assert await store.prune_web_sessions(NOW) == 0
    assert await store.take_sign_in_link(_hash("a"), NOW) == _key()
    await store.add_sign_in_link(_link("a"))
    assert await store.prune_web_sessions(NOW + 12 * HOUR) == 1
    assert await store.web_session(_hash("a")) is None
    assert await store.web_session(_hash("b")) is not None
    assert await store.take_sign_in_link(_hash("a"), NOW) is None
    assert await store.sign_in_limits(["192.0.2.1"]) == {}


# --- query plans ----------------------------------------------------------------------------------------


def _cases() -> list[tuple[str, list[object], int]]:
    """Return statements with arguments, and the most rows that each may visit."""
    return [
        ("ADD_SESSION", [_hash("new"), "5", NOW, NOW, NOW + 1, None], 5),
        ("SESSION", [_hash(5)], 5),
        ("SESSIONS", ["5", NOW, 10], 10),
        ("TOUCH_SESSION", [_hash(5), NOW + COUNT + 1, NOW + COUNT + 2], 5),
        ("DELETE_SESSION", [_hash(6)], 5),
        ("DELETE_SESSIONS", ["7"], 10),
        ("PRUNE_SESSIONS", [NOW + 10], 50),
        ("ADD_LINK", [_hash("new"), "5", NOW, NOW + 1], 5),
        ("LINK", [_hash(500), NOW, NOW], 5),
        ("DELETE_LINK", [_hash(500)], 5),
        ("DELETE_LINKS", ["7"], 2 * COUNT),
        ("PRUNE_LINKS", [NOW + 10], 50),
        ("LIMITS", [["500", "*"]], 5),
        ("ADD_LIMIT", ["new", NOW], 5),
        ("LOCK_LIMIT", ["500"], 5),
        ("SET_LIMIT", ["500", NOW + 1], 5),
        ("PRUNE_LIMITS", [NOW + 10], 50),
        ("PERSON_SESSION", [_hash("s5")], 5),
        ("PERSON_BY_ID", ["5"], 5),
        ("PERSON_NAMES", [["5", "6"]], 5),
        ("PEOPLE", ["crm", 10], 10),
        ("ADD_PERSON", ["5", "i", "5", "Ada", None, "{}", NOW, NOW + COUNT, None], 5),
        ("CHANGE_PERSON", ["5", "Ada", None, "{}", NOW + COUNT], 5),
        ("REMOVE_PERSON", ["5", NOW], 5),
        ("KEYS_OF_PERSON", ["person:5"], 5),
        ("EXPIRE_SUBSCRIPTIONS_OF", ["person:5", NOW], 5),
        ("EXPIRE_SUBSCRIPTIONS", ["key:5", NOW], 5),
        ("GRANTS_OF_PERSON", ["person:5"], 5),
        ("END_ACCESS", ["5", NOW], 5),
        ("KEY_END", ["5"], 5),
        ("PERSON_OF_GRANT", ["5"], 5),
        ("HOLD_GRANTS", ["5"], 5),
    ]


_ROLES = '{"crm":"admin"}'


def _statement(name: str) -> str:
    return str(_statements()[name])


def _rows() -> list[tuple[str, list[tuple[object, ...]]]]:
    numbers = range(COUNT)
    return [
        (ADD_KEY, [tuple(_key(str(number))) for number in range(COUNT // 2)]),
        (
            web_sessions.ADD_SESSION,
            [(_hash(each), str(each // 2), NOW, NOW + each, NOW + each, None) for each in numbers],
        ),
        (web_sessions.ADD_LINK, [(_hash(each), str(each // 2), NOW, NOW + each) for each in numbers]),
        (web_sessions.ADD_LIMIT, [(str(each), NOW + each) for each in numbers]),
        (
            people.ADD_PERSON,
            [(str(each), "i", str(each), "Ada", None, _ROLES, NOW, NOW + each, None) for each in numbers],
        ),
        (
            web_sessions.ADD_SESSION,
            [(_hash(f"s{each}"), f"person:{each}", NOW, NOW, NOW + DAY, None) for each in numbers],
        ),
    ]


def _statements() -> dict[str, object]:
    return {**vars(web_sessions), **vars(people)}


def test_every_statement_has_a_case() -> None:
    named = {
        name
        for name, text in _statements().items()
        if name.isupper() and name[0] != "_" and re.match(r"\s*(SELECT|INSERT|UPDATE|DELETE)\b", str(text))
    }
    assert named == {name for name, *_ in _cases()}


async def test_sqlite_scans_no_table_except_the_links(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "big.db", clock=FalseClock(), inline=True)
    await store.open()
    db = store._connection._write_connection()
    db.execute("BEGIN")
    for statement, rows in _rows():
        db.executemany(translate(statement), rows)
    db.execute("COMMIT")
    db.execute("ANALYZE")
    scans = set()
    for name, given, _ in _cases():
        values = ['["500","*"]' if isinstance(each, list) else each for each in given]
        for step in db.execute(f"EXPLAIN QUERY PLAN {translate(_statement(name))}", values):
            if step[3].startswith("SCAN") and "json_each" not in step[3]:
                scans.add(name)
    await store.close()
    assert scans == {"DELETE_LINKS", "PEOPLE"}  # of the people, the first by an index


async def test_postgres_visits_few_rows() -> None:
    server = pytest.importorskip("tests.support.postgres_server")
    from wakeful.store.postgres import PostgresStore

    store = PostgresStore(server.fresh_database(), clock=FalseClock())
    await store.open()
    beyond = {}
    async with store._pool._acquire() as db:
        for statement, rows in _rows():
            await db.executemany(statement, rows, timeout=120)
        await db.execute("ANALYZE")
        for name, given, most in _cases():
            rows_visited, scanned = await visited(db, _statement(name), *given)
            if rows_visited > most or (scanned and name != "DELETE_LINKS"):
                beyond[name] = rows_visited, scanned
    await store.close()
    assert beyond == {}
