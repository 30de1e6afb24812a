"""A newer version of Wakeful changes the schema under a running replica, which drains and stops."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from tests.integration.conftest import STORES, NewApp
from tests.support.command_line import Machine, first_json
from wakeful.errors import IncompatibleSchema
from wakeful.store.migrations import load

NEXT = len(load("sqlite")) + 1
MESSAGE = f"the database has schema {NEXT}, which a newer version of Wakeful installed"
SELDOM = "0 0 29 2 *"


async def raise_schema(database: str) -> None:
    """Record a breaking migration that this version does not have."""
    statement = f"""
        INSERT INTO schema_version (version, name, applied_at)
        SELECT {NEXT}, 'future', applied_at FROM schema_version WHERE version = 1"""
    if database.startswith("sqlite"):
        await asyncio.to_thread(_execute, database.removeprefix("sqlite:///"), statement)
        return
    import asyncpg

    connection = await asyncpg.connect(database)
    await connection.execute(statement)
    await connection.close()


def _execute(path: str, statement: str) -> None:
    with sqlite3.connect(path, timeout=60) as db:
        db.execute(statement)
    db.close()


async def test_the_engine_finishes_its_runs_and_stops(new_app: NewApp, database: str):
    app = new_app(grace=60.0)
    begun, go_on = asyncio.Event(), asyncio.Event()

    @app.function()
    async def work() -> str:
        begun.set()
        await go_on.wait()
        return "done"

    async with app:
        await app.jobs.create("first", schedule=SELDOM, target={"kind": "function", "name": "work"})
        first = await app.jobs.run("first")
        await begun.wait()
        await raise_schema(database)
        with pytest.raises(IncompatibleSchema, match=MESSAGE):
            await app.serve_forever()
        assert MESSAGE in str(await app.services.admin.status.ready())
        await app.jobs.create("second", schedule=SELDOM, target={"kind": "function", "name": "work"})
        second = await app.jobs.run("second")
        go_on.set()
        engine = app.services.admin.status.engine
        assert engine is not None
        await engine.stop()  # waits for the end of the stop that the heartbeat began
        assert not app.alive
        assert (await app.runs.get(first.id)).output == "done"
        assert (await app.runs.get(second.id)).state == "pending"
        assert MESSAGE in str(await app.services.admin.status.ready()), "/readyz says why"


@pytest.mark.parametrize(
    ("database", "command"),
    list(zip(STORES, ("serve", "worker"), strict=False)),
    indirect=["database"],
)
async def test_the_process_exits_with_a_distinct_code(tmp_path: Path, database: str, command: str):
    machine, arguments = Machine(tmp_path), (command, "--db", database, "--port", "0", "--json")
    process = machine.start(*arguments)
    try:
        await asyncio.to_thread(first_json, process)
        await raise_schema(database)
        assert await asyncio.to_thread(process.wait, 120) == 8
    finally:
        process.kill()
        assert process.stdout is not None
        process.stdout.close()
        process.wait()
    logged = (tmp_path / "log").read_text()
    assert "engine.incompatible_schema" in logged
    assert "engine.stopped" in logged
    assert MESSAGE in logged
    again = await asyncio.to_thread(machine.process, *arguments)
    assert (again.code, MESSAGE in again.err) == (8, True)
