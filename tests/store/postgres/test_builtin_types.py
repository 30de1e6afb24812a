"""The description of built-in types is asked for once, that of the schema's types after each change."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import asyncpg
import pytest

from wakeful.store.postgres import connect
from wakeful.store.postgres.address import parse_address
from wakeful.store.postgres.connect import PostgresConnector

ID = UUID(int=7)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the object ids that the server is asked for."""
    seen: list[int] = []
    ask = asyncpg.Connection._introspect_types  # type: ignore[attr-defined]

    async def record(self: Any, typeoids: list[int], *others: Any) -> Any:
        seen.extend(typeoids)
        return await ask(self, typeoids, *others)

    monkeypatch.setattr(asyncpg.Connection, "_introspect_types", record)
    monkeypatch.setattr(connect, "_known", {})
    return seen


async def _value(url: str, query: str, *given: object) -> object:
    connection = await PostgresConnector(parse_address(url)).connect()
    try:
        return await connection.fetchval(query, *given)
    finally:
        await connection.close()


async def test_a_second_connection_does_not_ask_for_a_built_in_type(url: str, asked: list[int]) -> None:
    for _ in range(2):
        assert await _value(url, "SELECT $1::uuid[]", [ID]) == [ID]
    assert asked == [2951]


async def test_a_second_connection_does_not_ask_for_an_unchanged_row_type(url: str, asked: list[int]) -> None:
    await _value(url, "CREATE TYPE pair AS (a int, b text)")
    for _ in range(2):
        assert await _value(url, "SELECT $1::pair[]", [(1, "x")]) == [(1, "x")]
    assert len(asked) == 1


@pytest.mark.parametrize(
    "change",
    [
        "TYPE word RENAME TO name",
        "DOMAIN word ADD CHECK (length(VALUE) < 9)",
        "TYPE inner_pair ADD ATTRIBUTE c int",
    ],
)
async def test_a_row_type_with_types_of_the_schema_is_read_on_each_connection(
    url: str, asked: list[int], change: str
) -> None:
    await _value(url, "CREATE DOMAIN word AS text")
    await _value(url, "CREATE TYPE inner_pair AS (a int, b text)")
    await _value(url, "CREATE TYPE pair AS (a word, b inner_pair)")
    read = "SELECT jsonb_populate_record(NULL::pair, $1)"
    given = '{"a": "x", "b": {"a": 1, "b": "y", "c": 2}}'
    assert await _value(url, read, given) == ("x", (1, "y"))
    await _value(url, f"ALTER {change}")
    assert await _value(url, read, given) == ("x", (1, "y", 2) if "inner" in change else (1, "y"))
    assert len(asked) == 2


async def test_a_changed_type_of_the_schema_is_read_again(url: str, asked: list[int]) -> None:
    assert await _value(url, "CREATE TYPE pair AS (a int, b text)") is None
    assert await _value(url, "SELECT ROW(1, 'x')::pair") == (1, "x")
    assert await _value(url, "ALTER TYPE pair DROP ATTRIBUTE a") is None
    assert await _value(url, "SELECT ROW('y')::pair") == ("y",)
    assert len(asked) == 2
