"""Two operations at once have the result of one after the other, in one of the two orders."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support import effort
from tests.support.databases import Database, SqliteDatabase, postgres
from tests.support.pairs import AGENT_OPERATIONS, OPERATIONS, Pairs, cases


@pytest_asyncio.fixture(params=["sqlite", "postgres"])
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    made: Database = SqliteDatabase(tmp_path / "wakeful.db") if request.param == "sqlite" else postgres()
    yield made
    await made.close()


async def test_two_operations_at_once_are_as_one_after_the_other(database: Database) -> None:
    pairs = await Pairs.on(database, stepped=True)
    for case in cases(effort.cases(120, 4_000)):
        await pairs.check(case)


async def test_two_operations_about_an_agent_at_once_are_as_one_after_the_other(database: Database) -> None:
    pairs = await Pairs.on(database, stepped=True)
    for case in cases(effort.cases(80, 4_000), AGENT_OPERATIONS):
        await pairs.check(case)


async def test_nothing_is_left_of_an_agent_that_is_deleted_meanwhile(database: Database) -> None:
    pairs = await Pairs.on(database, stepped=True)
    names = (
        "signal", "start instance", "message", "wake", "register class", "create key", "create job of team",
    )  # fmt: skip
    for name in names:
        operations = {each: AGENT_OPERATIONS[each] for each in ("delete agent", name)}
        for case in cases(effort.cases(9, 150), operations):
            if case.first.label != case.second.label:
                await pairs.check(case)


async def test_a_run_that_is_requested_beside_an_edit_follows_the_edit(database: Database) -> None:
    pairs = await Pairs.on(database, stepped=True)
    operations = {name: OPERATIONS[name] for name in ("run", "backfill", "move")}
    for case in cases(effort.cases(60, 600), operations):
        await pairs.check(case)


async def test_two_transactions_at_once_are_as_one_after_the_other(database: Database) -> None:
    pairs = await Pairs.on(database, stepped=False)
    for case in cases(effort.cases(30, 4_000)):
        await pairs.check(case)
    for case in cases(effort.cases(20, 4_000), AGENT_OPERATIONS):
        await pairs.check(case)


async def test_two_operations_of_one_process_at_once_are_as_one_after_the_other(database: Database) -> None:
    pairs = await Pairs.on(database, stepped=False, shared=True)
    operations = {name: OPERATIONS[name] for name in ("create", "run", "run at version 1", "delete", "move")}
    for case in cases(effort.cases(30, 1_000), operations):
        await pairs.check(case)
