"""/readyz responds 503 with a reason for every failure of the database, never 500."""

from __future__ import annotations

import asyncio
import sqlite3

import asyncpg

from tests.integration.conftest import NewApp
from tests.support.api_client import ApiClient, served
from tests.support.waiting import eventually


async def test_a_missing_table_makes_the_process_unready(new_app: NewApp, database: str) -> None:
    app = new_app()
    async with app, served(app) as ask:
        anonymous = ask.with_key(None)
        assert (await anonymous("GET", "/readyz")).status == 200
        await _execute(database, "ALTER TABLE workspaces RENAME TO gone")
        reply = await anonymous("GET", "/readyz")
        assert (reply.status, reply.code) == (503, "unavailable")
        assert reply.body["detail"].startswith("the database ")
        assert "workspaces" in reply.body["detail"]
        await _execute(database, "ALTER TABLE gone RENAME TO workspaces")
        await eventually(lambda: _ready(anonymous))


async def _ready(anonymous: ApiClient) -> bool:
    return (await anonymous("GET", "/readyz")).status == 200


async def _execute(database: str, statement: str) -> None:
    if database.startswith("sqlite"):
        await asyncio.to_thread(_sqlite_execute, database.removeprefix("sqlite:///"), statement)
        return
    connection = await asyncpg.connect(database)
    await connection.execute(statement)
    await connection.close()


def _sqlite_execute(path: str, statement: str) -> None:
    db = sqlite3.connect(path, timeout=60)
    db.execute(statement)
    db.close()
