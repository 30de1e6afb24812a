"""The description of built-in types is asked for once, that of the schema's types on each connection."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import asyncpg
import pytest

from wakeful.store.postgres import builtin_types
from wakeful.store.postgres.address import address_of
from wakeful.store.postgres.connect import Connector

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
    monkeypatch.setattr(builtin_types, "_known", {})
    return seen


async def _value(url: str, query: str, *given: object) -> object:
    connection = await Connector(address_of(url)).connect()
    try:
        return await connection.fetchval(query, *given)
    finally:
        await connection.close()


async def test_a_second_connection_does_not_ask_for_a_built_in_type(url: str, asked: list[int]) -> None:
    for _ in range(2):
        assert await _value(url, "SELECT $1::uuid[]", [ID]) == [ID]
    assert asked == [2951]


async def test_a_type_of_the_schema_is_read_on_each_connection(url: str, asked: list[int]) -> None:
    assert await _value(url, "CREATE TYPE pair AS (a int, b text)") is None
    assert await _value(url, "SELECT ROW(1, 'x')::pair") == (1, "x")
    assert await _value(url, "ALTER TYPE pair DROP ATTRIBUTE a") is None
    assert await _value(url, "SELECT ROW('y')::pair") == ("y",)
    assert len(asked) == 2
