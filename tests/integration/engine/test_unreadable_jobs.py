"""Jobs with damaged rows are disabled and logged; other jobs are not affected."""

from __future__ import annotations

import logging
import sqlite3

import pytest

from tests.integration.conftest import SELDOM, NewApp
from tests.support.waiting import eventually, in_state, over, runs_of, the_run_of
from wakeful import EngineConfig, Function, Launch, Unavailable, Wakeful
from wakeful.engine import launcher_registry, planner
from wakeful.run import factory as run_factory
from wakeful.service.auth.access import LOCAL
from wakeful.service.runs import claims
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


@pytest.mark.parametrize("column", ["precheck", "context", "payload"])
async def test_a_damaged_run_holds_up_no_others_that_are_claimed_with_it(
    new_app: NewApp, database: str, column: str
):
    app = new_app()
    working(app)
    async with new_app(config=EngineConfig(lanes={})) as idle:
        for name in ("bad", "good"):
            await idle.jobs.create(name, schedule=SELDOM, target=Function("work"))
        bad, good = await idle.jobs.run("bad", payload={"a": 1}), await idle.jobs.run("good")
        await execute(database, f"UPDATE runs SET context = '1' WHERE id = '{bad.id}'")
        await execute(database, f"UPDATE runs SET {column} = '{{' WHERE id = '{bad.id}'")
    async with app:
        assert (await over(app, good.id)).state == "succeeded"
        await in_state(app, bad.id, "succeeded" if column == "context" else "retrying")


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


def raise_once(
    monkeypatch: pytest.MonkeyPatch, module: object, name: str, error: Exception, times: int = 1
) -> list[int]:
    """Let the first calls of a function raise. Returns the list of those that did."""
    call, raised = getattr(module, name), list[int]()

    def fail(*args: object, **kwargs: object) -> object:
        if len(raised) < times:
            raised.append(1)
            raise error
        return call(*args, **kwargs)

    monkeypatch.setattr(module, name, fail)
    return raised


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("a bug"), KeyError("x")], ids=repr)
async def test_an_unexpected_error_in_planning_defers_a_job_and_disables_none(
    new_app: NewApp, monkeypatch: pytest.MonkeyPatch, error: Exception
):
    monkeypatch.setattr(planner, "_DEFER_UNEXPECTED_MS", 50)
    app = new_app()
    calls = working(app)
    async with app:
        raised = raise_once(monkeypatch, planner, "decide", error)
        for name in ("one", "two"):
            await app.jobs.create(name, schedule="in 1ms", target=Function("work"))
        await eventually(lambda: len(calls) == 2)
    assert raised


async def test_an_unexpected_error_while_a_tick_is_prepared_keeps_no_slot(
    new_app: NewApp, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(planner, "_DEFER_UNEXPECTED_MS", 50)
    app = new_app(config=EngineConfig(lanes={"cron": 1}))
    calls = working(app)
    async with app:
        raised = raise_once(monkeypatch, launcher_registry, "build_launch", MemoryError())
        await app.jobs.create("one", schedule="in 1ms", target=Function("work"))
        await eventually(lambda: calls)
    assert raised


async def test_an_unexpected_error_in_a_launch_fails_the_attempt_only(
    new_app: NewApp, monkeypatch: pytest.MonkeyPatch
):
    app = new_app()
    calls = working(app)
    async with app:
        await app.jobs.create(
            "one", schedule=SELDOM, target=Function("work"), backoff={"base": "1s", "max": "1s"}
        )
        raised = raise_once(monkeypatch, launcher_registry, "work_from_text", MemoryError())
        run = await over(app, (await app.jobs.run("one")).id)
    assert (run.state, run.attempt, len(calls), len(raised)) == ("succeeded", 2, 1, 1)


async def test_an_unexpected_error_in_a_claim_fails_the_attempt_and_an_outage_returns_the_run(
    new_app: NewApp, monkeypatch: pytest.MonkeyPatch
):
    app = new_app()
    async with app:
        await app.jobs.create(
            "one", schedule=SELDOM, target={"kind": "pull"}, backoff={"base": "1s", "max": "1s"}
        )
        run_id = (await app.jobs.run("one")).id
        raise_once(monkeypatch, claims, "may_start", Unavailable("the time zones cannot be read"))
        with pytest.raises(Unavailable):
            await app.services.runs.pull.claim(LOCAL, "default", "w", limit=1)
        await eventually(lambda: not app.services.runs.pull._returning)
        raise_once(monkeypatch, claims, "may_start", MemoryError())
        assert await app.services.runs.pull.claim(LOCAL, "default", "w", limit=1) == []
        (taken,) = await app.services.runs.pull.claim(LOCAL, "default", "w", limit=1, wait_ms=20_000)
        run = await app.runs.get(run_id)
    assert (taken["id"], run.state, run.failed_attempts) == (run_id, "running", 1)


async def test_a_follower_whose_run_cannot_be_made_holds_up_no_outcome(
    new_app: NewApp, monkeypatch: pytest.MonkeyPatch
):
    app = new_app()
    calls = working(app)
    async with app:
        await app.jobs.create("first", schedule=SELDOM, target=Function("work"))
        await app.jobs.create("second", after="first", target=Function("work"))
        raise_once(monkeypatch, run_factory, "find_requirement", MemoryError())
        started = await app.jobs.run("first")
        assert (await over(app, started.id)).state == "succeeded"
        follow_up = await the_run_of(app, "second")
        assert (await over(app, follow_up.id)).state == "succeeded"
    assert [call.job for call in calls] == ["first", "second"]
