"""Clients, codes and tokens of OAuth, and what their statements visit."""

from __future__ import annotations

import asyncio
import hashlib
import re
from pathlib import Path

import pytest

from tests.support.databases import Database
from tests.support.factories import DAY, MINUTE, NOW, FalseClock
from tests.support.query_plans import visited
from wakeful.store.accounts import KeyRow
from wakeful.store.port import Store
from wakeful.store.sql import oauth
from wakeful.store.sql.accounts import ADD_KEY
from wakeful.store.sql.oauth import OAuthClientRow, OAuthCodeRow, OAuthTokenRow
from wakeful.store.sqlite import SqliteStore
from wakeful.store.sqlite.session import translate

COUNT = 10_000


def _hash(name: object) -> bytes:
    return hashlib.sha256(str(name).encode()).digest()


def _key(key_id: str, created_by: str = "key:owner") -> KeyRow:
    hash, ends_ms = _hash(f"key {key_id}"), NOW + DAY
    return KeyRow(
        key_id, "default", "n", "member", None, hash, NOW, created_by, ends_ms, None, None, "claude.ai"
    )


def _code(name: object) -> OAuthCodeRow:
    return OAuthCodeRow(_hash(name), "c", "{}", NOW, NOW + MINUTE)


def _token(name: object, key_id: str, expires_ms: int = NOW + DAY) -> OAuthTokenRow:
    return OAuthTokenRow(_hash(name), "refresh", key_id, "c", "https://h/mcp", NOW, expires_ms)


async def test_a_code_is_exchanged_once_at_two_replicas(database: Database) -> None:
    stores = [await database.connect() for _ in range(2)]
    approved = OAuthClientRow("c", "{}", NOW, NOW)
    for each in range(10):
        await stores[0].add_oauth_code(_code(each), approved)
        taken = await asyncio.gather(
            *(
                store.exchange_oauth_code(
                    _hash(each), _key(f"{each}-{n}"), [_token(f"{each}-{n}", f"{each}-{n}")]
                )
                for n, store in enumerate(stores * 2)
            )
        )
        assert sorted(taken) == [False, False, False, True]
        row = await stores[1].oauth_code(_hash(each))
        assert row is not None
        assert row.key_id == f"{each}-{taken.index(True)}"
        assert [await stores[0].oauth_token(_hash(f"{each}-{n}")) is not None for n in range(4)] == taken


async def test_a_token_is_found_with_its_grant_and_the_key_of_its_owner(store: Store) -> None:
    await store.add_key(_key("owner", "python"))
    for key_id, created_by in ("1", "key:owner"), ("2", "person:owner"):
        await store.add_oauth_code(_code(key_id), OAuthClientRow("c", "{}", NOW, NOW))
        key = _key(key_id, created_by)
        assert await store.exchange_oauth_code(_hash(key_id), key, [_token(key_id, key_id)])
    found, other = await store.oauth_token(_hash("1")), await store.oauth_token(_hash("2"))
    assert found == (_token("1", "1"), _key("1"), None, None, _key("owner", "python"))
    assert other == (_token("2", "2"), _key("2", "person:owner"), None, None, None)
    assert await store.oauth_token(_hash("3")) is None


async def test_two_exchanges_of_a_refresh_token_see_each_other(database: Database) -> None:
    stores = [await database.connect() for _ in range(2)]
    await stores[0].add_oauth_code(_code("a"), OAuthClientRow("c", "{}", NOW, NOW))
    await stores[0].exchange_oauth_code(_hash("a"), _key("1"), [_token("first", "1")])

    def is_unused(row: OAuthTokenRow) -> bool:
        return row.used_ms is None

    done = await asyncio.gather(
        *(
            store.exchange_oauth_token(_hash("first"), is_unused, [_token(n, "1", NOW + 2 * DAY)])
            for n, store in enumerate(stores * 2)
        )
    )
    assert sorted(done) == [False, False, False, True]
    found = await stores[0].oauth_token(_hash(done.index(True)))
    assert found is not None
    assert found.key.expires_ms == NOW + 2 * DAY


async def test_clients_that_nobody_approved_give_way_to_newer_ones(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oauth, "MOST_UNUSED", 3)
    await store.add_oauth_client(OAuthClientRow("approved", "{}", NOW - 1))
    await store.add_oauth_code(_code("a"), OAuthClientRow("approved", '{"a":1}', NOW - 1, NOW))
    for number in range(5):
        await store.add_oauth_client(OAuthClientRow(str(number), "{}", NOW + number))
    assert [await store.oauth_client(str(number)) is not None for number in range(5)] == 2 * [False] + 3 * [
        True
    ]
    assert await store.oauth_client("approved") == OAuthClientRow("approved", '{"a":1}', NOW - 1, NOW)


async def test_what_has_expired_is_pruned(store: Store) -> None:
    await store.add_oauth_client(OAuthClientRow("unused", "{}", NOW))
    await store.add_oauth_code(_code("a"), OAuthClientRow("c", "{}", NOW, NOW))
    await store.exchange_oauth_code(
        _hash("a"), _key("1"), [_token("t", "1"), _token("u", "1", NOW + 2 * DAY)]
    )
    assert await store.prune_oauth(NOW + DAY) == 1
    assert await store.oauth_token(_hash("t")) is None
    assert await store.oauth_code(_hash("a")) is not None  # a second exchange is noticed for a day
    assert await store.prune_oauth(NOW + 2 * DAY) == 1
    assert await store.oauth_code(_hash("a")) is None
    await store.prune_oauth(NOW + 30 * DAY)
    assert await store.oauth_client("unused") is None
    assert await store.oauth_client("c") is not None
    await store.prune_oauth(NOW + 180 * DAY)
    assert await store.oauth_client("c") is None


async def test_grants_are_pruned_that_ended_a_month_ago(store: Store) -> None:
    await store.add_key(_key("own", "python")._replace(client=None))
    for key_id, ends_ms in ("used", NOW + 2 * DAY), ("1", NOW + DAY):
        await store.add_key(_key(key_id)._replace(expires_ms=ends_ms))
    assert await store.revoke_key("used", NOW)
    await store.prune_oauth(NOW + 31 * DAY - 1)
    assert [key.id for key in await store.keys("default")] == ["1", "own", "used"]
    await store.prune_oauth(NOW + 31 * DAY)
    assert [key.id for key in await store.keys("default")] == ["own", "used"]
    await store.prune_oauth(NOW + 365 * DAY)
    assert [key.id for key in await store.keys("default")] == ["own"], "a key shows when it ended"


# --- query plans ----------------------------------------------------------------------------------------


def _cases() -> list[tuple[str, list[object], int]]:
    """Return statements with arguments, and the most rows that each may visit."""
    return [
        ("CLIENT", ["5"], 5),
        ("PUT_CLIENT", ["5", "{}", NOW, None], 5),
        ("USE_CLIENT", ["5", NOW], 5),
        ("DROP_UNUSED", [1_000], 4_500),
        ("PRUNE_UNUSED", [NOW + 10], 50),
        ("PRUNE_USED", [NOW + 10], 50),
        ("CODE", [_hash(5)], 5),
        ("ADD_CODE", [_hash("new"), "5", "{}", NOW, NOW, None], 5),
        ("TAKE_CODE", [_hash(5), "5", NOW], 5),
        ("PRUNE_CODES", [NOW + 10], 50),
        ("TOKEN", [_hash(5)], 5),
        ("LOCK_TOKEN", [_hash(5)], 5),
        ("ADD_TOKEN", [_hash("new"), "access", "5", "5", "r", NOW, NOW, None], 5),
        ("USE_TOKEN", [_hash(5), NOW], 5),
        ("PRUNE_TOKENS", [NOW + 10], 50),
        ("PRUNE_GRANTS", [NOW - DAY], 50),
        ("EXTEND_KEY", ["5", NOW + 2 * DAY], 5),
    ]


def _statement(name: str) -> str:
    return str(getattr(oauth, name))


def _rows() -> list[tuple[str, list[tuple[object, ...]]]]:
    numbers = range(COUNT)
    used = [None if each % 2 else NOW + each for each in numbers]
    return [
        (ADD_KEY, [tuple(_key(str(each), f"key:{each + 1}")) for each in numbers]),
        (oauth.PUT_CLIENT, [(str(each), "{}", NOW + each, used[each]) for each in numbers]),
        (oauth.ADD_CODE, [(_hash(each), "5", "{}", NOW, NOW + each, None) for each in numbers]),
        (
            oauth.ADD_TOKEN,
            [(_hash(each), "access", str(each), "5", "r", NOW, NOW + each, None) for each in numbers],
        ),
    ]


def test_every_statement_has_a_case() -> None:
    named = {
        name
        for name, text in vars(oauth).items()
        if name.isupper() and name[0] != "_" and re.match(r"\s*(SELECT|INSERT|UPDATE|DELETE)\b", str(text))
    }
    assert named == {name for name, *_ in _cases()}


async def test_sqlite_scans_no_table(tmp_path: Path) -> None:
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
        for step in db.execute(f"EXPLAIN QUERY PLAN {translate(_statement(name))}", given):
            if step[3].startswith("SCAN") and "INDEX" not in step[3]:
                scans.add((name, step[3]))
    await store.close()
    assert scans == set()


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
            if rows_visited > most or scanned:
                beyond[name] = rows_visited, scanned
    await store.close()
    assert beyond == {}
