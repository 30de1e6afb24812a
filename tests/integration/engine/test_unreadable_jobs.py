"""Jobs with damaged rows are disabled and logged; other jobs are not affected."""

from __future__ import annotations

import logging
import sqlite3

import pytest

from tests.integration.conftest import SELDOM, NewApp
from tests.support.waiting import eventually, over, runs_of, the_run_of
from wakeful import EngineConfig, Function, Launch, Wakeful
from wakeful.store.connect import sqlite_path


async def execute(database: str, statement: str) -> None:
    path = sqlite_path(database)
    if path is not None:
        with sqlite3.connect(path, timeout=10) as db:
            db.execute(statement)
        db.close()
        return
    import asyncpg

    connection = await asyncpg.connect(database)
    await connection.execute(statement)
    await connection.close()


async def damage(database: str, column: str) -> None:
    """Write an invalid document into this column of the job `bad`."""
    await execute(database, f"UPDATE jobs SET {column} = '{{\"no\":\"such thing\"}}' WHERE name = 'bad'")


def working(app: Wakeful) -> list[Launch]:
    calls: list[Launch] = []

    @app.function()
    async def work(run: Launch) -> None:
        calls.append(run)

    return calls


@pytest.mark.parametrize("column", ["timing", "policy", "work"])
async def test_an_unreadable_job_is_disabled_and_logged_and_others_run(
    new_app: NewApp, database: str, column: str, caplog: pytest.LogCaptureFixture
):
    app = new_app()
    calls = working(app)
    async with new_app(config=EngineConfig(batch=0)) as other:  # plans nothing
        for name in ("bad", "good"):
            await other.jobs.create(name, schedule="in 1ms", target=Function("work"))
        await damage(database, column)
    async with app:
        await eventually(lambda: calls)
        row = await app.store.job("default", "default", "bad")
    assert [call.job for call in calls] == ["good"]
    assert row is not None
    assert (row.enabled, row.wake_ms) == (False, None)
    assert str(row.disabled_reason).startswith("cannot be read")
    told = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert any("job.set_aside" in line and "job=bad" in line for line in told)


@pytest.mark.parametrize("column", ["policy", "work"])
async def test_a_run_of_an_unreadable_job_fails_and_others_claimed_with_it_succeed(
    new_app: NewApp, database: str, column: str
):
    app = new_app()
    calls = working(app)
    async with app:
        for name in ("bad", "good"):
            await app.jobs.create(name, schedule=SELDOM, target=Function("work"))
        await app.stop()
        async with new_app(config=EngineConfig(lanes={})) as idle:
            bad, good = await idle.jobs.run("bad"), await idle.jobs.run("good")
            await damage(database, column)
        async with app:
            assert (await over(app, good.id)).state == "succeeded"
            failed = await over(app, bad.id)
    assert (failed.state, failed.reason, failed.dead, failed.attempt) == ("failed", "unreadable", True, 1)
    assert failed.error == f'the stored {column} \'{{"no":"such thing"}}\' has unknown fields'
    assert [call.job for call in calls] == ["good"]


@pytest.mark.parametrize("column", ["policy", "work"])
async def test_an_unreadable_follower_does_not_prevent_completion_of_the_run_before(
    new_app: NewApp, database: str, column: str
):
    app = new_app()
    working(app)
    async with app:
        await app.jobs.create("first", schedule=SELDOM, target=Function("work"))
        await app.jobs.create("bad", after="first", target=Function("work"))
        await app.jobs.create("good", after="first", target=Function("work"))
        await damage(database, column)
        assert (await over(app, (await app.jobs.run("first")).id)).state == "succeeded"
        assert (await over(app, (await the_run_of(app, "good")).id)).state == "succeeded"
        failed = await over(app, (await the_run_of(app, "bad")).id)
        assert len(await runs_of(app, "bad")) == 1
    assert (failed.state, failed.reason) == ("failed", "unreadable")


async def test_an_unreadable_job_does_not_hide_others_and_can_be_deleted(
    new_app: NewApp, database: str, caplog: pytest.LogCaptureFixture
):
    async with new_app() as app:
        for name in ("bad", "good"):
            await app.jobs.create(name, schedule=SELDOM, target=Function("work"))
        await damage(database, "policy")
        assert [job.name for job in await app.jobs.list()] == ["good"]
        await app.jobs.delete("bad")
        await app.jobs.create("bad", schedule=SELDOM, target=Function("work"))
        assert [job.name for job in await app.jobs.list()] == ["bad", "good"]
    assert "job.unreadable" in caplog.text


async def test_a_run_whose_job_is_gone_fails_at_once(new_app: NewApp, database: str):
    app = new_app()
    working(app)
    async with new_app(config=EngineConfig(batch=0)) as other:  # without the function
        await other.jobs.create("bad", schedule=SELDOM, target=Function("work"))
        run = await other.jobs.run("bad")
        await execute(database, "DELETE FROM jobs WHERE name = 'bad'")
    async with app:
        found = await over(app, run.id)
    assert (found.state, found.reason, found.attempt) == ("failed", "job_deleted", 1)
