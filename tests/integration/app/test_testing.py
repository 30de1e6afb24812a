"""`wakeful.testing`: a scheduler on a clock that the test moves."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from wakeful import Agent, Delay, SetState, Signal, Wakeful, on
from wakeful.testing import Harness

START = "2030-01-01T00:00:00Z"


def program() -> tuple[Wakeful, list[str]]:
    """Return a program as a module would have it, and what it has done."""
    app = Wakeful("sqlite:////no/such/directory/wakeful.db", secret_key="a key for tests")
    done: list[str] = []

    @app.cron("0 9 * * *")
    async def morning() -> None:
        done.append("morning")
        await app.enqueue(remind, "coffee", in_="90m")

    @app.every("6h")
    def tidy() -> None:
        done.append("tidy")

    @app.function(max_attempts=3, backoff={"base": "1h", "max": "1h"})
    async def remind(of: str) -> None:
        done.append(f"remind {of}")
        if done.count("remind coffee") == 1:
            raise ValueError("not yet")

    return app, done


async def test_what_is_due_happens_in_order(database: str):
    app, done = program()
    async with Harness(app, at=START, url=database) as harness:
        await harness.advance("8h")
        assert done == ["tidy"]
        await harness.advance("1h")
        assert done == ["tidy", "morning"]
        await harness.assert_enqueued("remind", in_="90m", of="coffee")
        with pytest.raises(AssertionError, match="coffee"):
            await harness.assert_enqueued("remind", in_="80m")
        await harness.advance("15h")
        assert done == ["tidy", "morning", "remind coffee", "remind coffee", "tidy", "tidy", "tidy"]
        assert harness.clock.now() == datetime(2030, 1, 2, tzinfo=UTC)
        run = (await harness.enqueued("remind"))[-1]
        assert (run.state, run.attempt) == ("succeeded", 2)


async def test_a_week_is_the_same_every_time():
    histories = []
    for _ in range(2):
        app, done = program()
        async with Harness(app, at=START) as harness:
            await harness.advance("7d")
        histories.append(done)
    assert histories[0] == histories[1]
    assert histories[0].count("morning") == 7
    assert histories[0].count("tidy") == 28


class Counter(Agent):
    """Counts down with timers."""

    name = "counter"

    @on("start")
    async def start(self, signal, ctx):
        return [SetState(n=0), Delay("1h", Signal("tick"))]

    @on("tick")
    async def tick(self, signal, ctx):
        n = ctx.state["n"] + 1
        return [SetState(n=n), Delay("1h", Signal("tick"))] if n < 3 else SetState(n=n)


async def test_agents_and_their_timers(database: str):
    app = Wakeful("sqlite://", secret_key="a key for tests")
    app.agent(Counter)
    async with Harness(app, at=START, url=database) as harness:
        await app.agents.start("counter", "one")
        run = await harness.send("counter", "one", Signal("start"))
        assert run.state == "succeeded"
        await harness.advance("2h")
        assert (await app.agents.state("counter", "one"))["n"] == 2
        await harness.advance("10h")
        assert (await app.agents.state("counter", "one"))["n"] == 3


async def test_work_that_waits_in_real_time_is_reported(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("wakeful.testing.PATIENCE_S", 0.2)
    app = Wakeful("sqlite://", secret_key="a key for tests", grace=0)

    @app.function()
    async def hang() -> None:
        await asyncio.sleep(3600)

    async with Harness(app, at=START) as harness:
        await app.enqueue(hang)
        with pytest.raises(TimeoutError, match="real time"):
            await harness.run_due()


async def test_the_app_has_its_own_database_again_afterwards():
    app, _ = program()
    async with Harness(app, at=START) as harness:
        tested = app.store
        named = app.function(name="other-name")(lambda: None)
        await app.enqueue(named)
        assert [run.job for run in await harness.enqueued(named)] == ["other-name"]
    assert app.store is not tested
    with pytest.raises(Exception, match="directory"):
        await app.start()
