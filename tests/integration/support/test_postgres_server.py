"""Databases that tests use one after the other: each test finds in them what it finds in a new one."""

from __future__ import annotations

from collections import deque
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.waiting import eventually

server: Any = pytest.importorskip("tests.support.postgres_server", reason="PostgreSQL: no server for tests")
asyncpg: Any = pytest.importorskip("asyncpg")


async def ask(url: str, *statements: str) -> Any:
    """Execute statements on a connection; return the first value of the last one."""
    connection = await asyncpg.connect(url)
    try:
        for statement in statements[:-1]:
            await connection.execute(statement)
        return await connection.fetchval(statements[-1])
    finally:
        await connection.close()


async def lend_twice(monkeypatch: pytest.MonkeyPatch, *changes: str) -> tuple[str, str | None]:
    """Change a database that is lent. Return its address, and that of the database that is lent again."""
    monkeypatch.setattr(server, "_given_back", deque())
    with server.lent_database() as url:
        await ask(url, *changes)
    connected = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{urlsplit(url).path[1:]}'"
    others = f"{connected} AND application_name <> '{server.ADMINISTRATOR}'"

    async def is_unused() -> bool:
        return bool(await ask(server.server(), others) == 0)

    await eventually(is_unused)
    monkeypatch.setattr(server, "_RESTING", 0)
    return url, server._used_database()


async def test_a_database_is_lent_again_with_the_rows_of_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = "SELECT json_agg(t ORDER BY t::text)::text FROM {} t"
    tables = ("workspaces", "agents", "changes", "changes_head", "schema_version")
    new = server.fresh_database()
    expected = [await ask(new, rows.format(table)) for table in tables]
    url, again = await lend_twice(
        monkeypatch,
        "INSERT INTO changes (at, kind, count, items) VALUES (now(), 'jobs', 1, '[]')",
        "UPDATE changes_head SET last = 9",
        "DELETE FROM agents",
        "UPDATE schema_version SET version = 999 WHERE version = 1",
    )
    assert again == url
    assert [await ask(url, rows.format(table)) for table in tables] == expected
    added = "INSERT INTO changes (at, kind, count, items) VALUES (now(), 'jobs', 1, '[]') RETURNING id"
    assert await ask(url, added) == await ask(new, added), "sequences start again"


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE workspaces RENAME TO gone",
        "ALTER TABLE runs SET (autovacuum_enabled = off)",
        "ALTER TABLE runs ALTER COLUMN agent SET DEFAULT 'someone'",
        "ALTER TABLE audit ADD COLUMN colour text",
        "DROP INDEX runs_tick",
        "CREATE TYPE colour AS ENUM ('red')",
        "CREATE TABLE public.notes (id integer)",
        "CREATE FUNCTION nothing() RETURNS integer LANGUAGE sql AS 'SELECT 1'",
        "GRANT SELECT ON runs TO PUBLIC",
        "ANALYZE workspaces",
    ],
)
async def test_a_database_that_was_changed_otherwise_is_not_lent_again(
    change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, again = await lend_twice(monkeypatch, change)
    assert again is None


async def test_a_user_who_may_only_create_databases_gets_new_ones() -> None:
    url = server.fresh_database()
    name = f"creator_{urlsplit(url).path[1:]}"
    await ask(url, f"CREATE ROLE {name} LOGIN CREATEDB")
    try:
        theirs = urlsplit(url)._replace(netloc=f"{name}:@").geturl()
        assert await ask(theirs, "SELECT current_user") == name
        assert not server._administrator().restore(theirs, server._template())
    finally:
        await ask(url, f"DROP ROLE {name}")
