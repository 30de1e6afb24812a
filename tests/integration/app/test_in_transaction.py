"""Jobs and runs in the transaction of the caller: they exist if and only if it commits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.integration.conftest import SELDOM, NewApp
from tests.support.caller_connections import POSTGRES, SQLITE, CallerConnection
from tests.support.waiting import eventually
from wakeful import Function, NotFound, Wakeful

DRIVERS = [
    pytest.param(store, driver, id=f"{store}-{driver.__name__}")
    for store, drivers in (("postgres", POSTGRES), ("sqlite", SQLITE))
    for driver in drivers
]
each_driver = pytest.mark.parametrize(("database", "driver"), DRIVERS, indirect=["database"])


class Program:
    """A program with a scheduler, a table and a function."""

    def __init__(self, app: Wakeful) -> None:
        self.app = app
        self.done: list[int] = []

        @app.function()
        async def note(number: int) -> int:
            self.done.append(number)
            return number

        self.note = note


@asynccontextmanager
async def connected(driver: type[CallerConnection], database: str) -> AsyncIterator[CallerConnection]:
    connection = driver(database)
    await connection.begin()
    try:
        yield connection
    finally:
        await connection.close()


async def create_table(driver: type[CallerConnection], database: str) -> None:
    async with connected(driver, database) as connection:
        await connection.execute("CREATE TABLE orders (number integer)")
        await connection.commit()


@each_driver
async def test_a_run_exists_and_starts_if_and_only_if_the_transaction_commits(
    new_app: NewApp, database: str, driver: type[CallerConnection]
):
    program = Program(new_app())
    async with program.app as app:
        await create_table(driver, database)
        async with connected(driver, database) as caller:
            await caller.execute("INSERT INTO orders VALUES (1)")
            kept = await caller.enqueue(app, program.note, 1)
            also = await caller.enqueue(app, program.note, 2)
            await asyncio.sleep(0.3)
            assert program.done == []
            with pytest.raises(NotFound):
                await app.runs.get(kept.id)
            await caller.commit()
            await eventually(lambda: sorted(program.done) == [1, 2])
            assert (await app.runs.wait(kept.id)).output == "1"
            assert (await app.runs.get(also.id)).payload == {"number": 2}

            await caller.begin()
            await caller.execute("INSERT INTO orders VALUES (2)")
            lost = await caller.enqueue(app, program.note, 3)
            await caller.rollback()

            await caller.begin()
            await caller.execute("INSERT INTO orders VALUES (3)")
            await caller.execute("SAVEPOINT before")
            undone = await caller.enqueue(app, program.note, 4)
            await caller.execute("ROLLBACK TO SAVEPOINT before")
            after = await caller.enqueue(app, program.note, 5)
            await caller.commit()
            assert (await app.runs.wait(after.id)).output == "5"
        for run in (lost, undone):
            with pytest.raises(NotFound):
                await app.runs.get(run.id)
        assert sorted(program.done) == [1, 2, 5]


@each_driver
async def test_a_job_exists_if_and_only_if_the_transaction_commits(
    new_app: NewApp, database: str, driver: type[CallerConnection]
):
    program = Program(new_app())
    fields = {"schedule": SELDOM, "target": Function("note", arguments=True)}
    async with program.app as app, connected(driver, database) as caller:
        lost = await caller.create(app, "report", **fields)
        await caller.rollback()
        await caller.begin()
        made = await caller.create(app, "report", **fields, payload={"number": 7})
        assert made.id != lost.id
        same = await caller.upsert(app, "report", **fields, payload={"number": 7})
        assert same.id == made.id
        run = await caller.run(app, "report")
        assert run is not None
        assert await app.jobs.list() == []
        await caller.commit()
        found = await app.jobs.get("report")
        assert (found.id, found.payload, found.next_ticks) == (made.id, {"number": 7}, made.next_ticks)
        assert (await app.runs.wait(run.id)).output == "7"
