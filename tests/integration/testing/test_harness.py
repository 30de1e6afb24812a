"""`wakeful.testing`: a scheduler on a clock that the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import pytest

from wakeful import (
    Agent,
    Delay,
    EngineConfig,
    FailedPrecondition,
    InvalidArgument,
    SetState,
    Signal,
    Wakeful,
    on,
)
from wakeful.testing import Harness, MovableClock, WebhookReceiver

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
    monkeypatch.setattr("wakeful.testing.harness.PATIENCE_S", 0.2)
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


async def _await(harness: Harness) -> None:
    await harness.clock.advance("24h")


async def _forget_await(harness: Harness) -> None:
    harness.clock.advance("24h")
    await harness.run_due()


async def _advance_twice(harness: Harness) -> None:
    harness.clock.advance(timedelta(hours=20))
    harness.clock.advance(4 * 3600)
    await harness.enqueued("remind")


@pytest.mark.parametrize("move", [_await, _forget_await, _advance_twice])
async def test_the_clock_itself_is_advanced(move: Callable[[Harness], Awaitable[None]]):
    expected = ["tidy", "morning", "remind coffee", "remind coffee", "tidy", "tidy", "tidy"]
    app, done = program()
    async with Harness(app, at=START) as harness:
        await move(harness)
        assert done == expected
        assert harness.clock.now() == datetime(2030, 1, 2, tzinfo=UTC)


async def test_an_advance_that_nothing_follows_is_reported():
    app, done = program()
    with pytest.warns(RuntimeWarning, match="await"):
        async with Harness(app, at=START) as harness:
            harness.clock.advance("24h")
    assert done == []


def test_a_clock_belongs_to_one_harness_and_does_not_go_back():
    clock = MovableClock(START)
    clock.advance("1h")
    clock.set_time("2029-12-31T00:00:00+01:00")
    assert clock.now() == datetime(2029, 12, 30, 23, tzinfo=UTC)
    for wrong in (-1, float("nan"), "yesterday"):
        with pytest.raises(InvalidArgument):
            clock.advance(wrong)
    with pytest.raises(InvalidArgument, match="zone"):
        clock.set_time("2030-01-01T00:00:00")
    with Harness(clock=clock, at=START):
        assert clock.now() == datetime(2030, 1, 1, tzinfo=UTC)
        with pytest.raises(FailedPrecondition, match="another harness"):
            clock.set_time(START)
        with pytest.raises(FailedPrecondition, match="another harness"), Harness(clock=clock):
            pass
    clock.set_time(START)


def test_a_sync_test_needs_no_event_loop(database: str):
    app, done = program()
    app.agent(Counter)
    with Harness(app, at=START, url=database) as harness:
        harness.clock.advance("9h")
        assert done == ["tidy", "morning"]
        run = harness.assert_enqueued("remind", in_="90m", of="coffee")
        assert run.state == "pending"
        harness.advance("15h")
        assert done.count("tidy") == 4
        assert [each.state for each in harness.enqueued("remind")] == ["succeeded"]
        app.sync.agents.start("counter", "one")
        assert harness.send("counter", "one", "start").state == "succeeded"
        harness.advance("1d")
        assert app.sync.agents.state("counter", "one")["n"] == 3


async def test_an_async_test_with_the_sync_form_is_told():
    with pytest.raises(FailedPrecondition, match="async with"), Harness():
        pass


async def test_harnesses_on_one_server_have_databases_of_their_own(database: str):
    first, seen = program()
    second, _ = program()
    async with Harness(first, at=START, url=database) as one, Harness(second, at=START, url=database) as two:
        await one.advance("9h")
        assert [run.job for run in await one.enqueued("morning")] == ["morning"]
        assert await two.enqueued("morning") == []
    with pytest.raises(RuntimeError, match="of the test"):
        async with Harness(first, at=START, url=database):
            raise RuntimeError("of the test")
    assert seen == ["tidy", "morning"]
    if database.startswith("postgres"):
        import asyncpg

        from wakeful.store.postgres.address import parse_address

        server = await asyncpg.connect(parse_address(database).dsn)
        try:
            names = await server.fetch("SELECT datname FROM pg_database")
            assert not [name for (name,) in names if name.startswith("wakeful_harness_")]
        finally:
            await server.close()


async def test_deliveries_and_checks_have_ended_too(monkeypatch: pytest.MonkeyPatch):
    with WebhookReceiver() as receiver:
        monkeypatch.setenv("WAKEFUL_CHANNEL_TEAM", receiver.channel)
        app = Wakeful("sqlite://", secret_key="a key for tests")

        @app.function()
        async def look(run, output):
            await asyncio.sleep(0.1)
            return output == "done"

        check = {"kind": "function", "name": "look"}

        @app.cron("0 9 * * *", verify=check, deliver=True, channel="team")
        async def report():
            return "done"

        receiver.respond(delay=0.2)
        async with Harness(app, at=START) as harness:
            await harness.advance("9h")
            (run,) = await harness.enqueued(report)
            assert (run.state, run.delivery) == ("succeeded", "delivered")
            assert [request.json()["message"] for request in receiver.requests] == ["done"]


async def test_the_turn_of_a_session_begins_when_its_debounce_is_over():
    with WebhookReceiver() as receiver:
        async with Harness(at=START) as harness:
            target = {"kind": "webhook", "url": receiver.url}
            await harness.app.agents.put("writer", {"target": target, "queue": {"debounceMs": 60_000}})
            await harness.app.agents.say("writer", "hello")
            await harness.run_due()
            assert receiver.requests == []
            await harness.advance("1h")
            (run,) = await harness.app.runs.of("writer").list()
            assert run.started_at == datetime(2030, 1, 1, 0, 1, tzinfo=UTC)


@pytest.mark.parametrize("by_argument", [True, False])
async def test_the_program_keeps_its_lanes(monkeypatch: pytest.MonkeyPatch, by_argument: bool):
    if not by_argument:
        monkeypatch.setenv("WAKEFUL_LANE_URGENT", "1")
    config = EngineConfig(lanes={"urgent": 1}) if by_argument else None
    app = Wakeful("sqlite://", secret_key="a key for tests", config=config)
    running: list[int] = []

    @app.function(lane="urgent")
    async def work() -> int:
        running.append(1)
        await asyncio.sleep(0.01)
        most = len(running)
        running.pop()
        return most

    async with Harness(app, at=START) as harness:
        for _ in range(3):
            await app.enqueue(work)
        assert [run.output for run in await harness.enqueued(work)] == ["1", "1", "1"]


async def test_all_runs_of_a_function_are_returned_in_order(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("wakeful.testing.harness._PAGE", 2)
    app = Wakeful("sqlite://", secret_key="a key for tests")

    @app.function()
    async def note(number: int) -> int:
        return number

    async with Harness(app, at=START) as harness:
        assert await harness.enqueued(note) == []
        for number in range(5):
            await app.enqueue(note, number, in_=number + 1)
        await harness.assert_enqueued(note, in_=5, number=4)
        await harness.advance("10m")
        assert [run.output for run in await harness.enqueued(note)] == ["0", "1", "2", "3", "4"]
        due = harness.clock.now() + timedelta(hours=1, microseconds=1_234)
        await app.enqueue(note, 5, at=due)
        await harness.assert_enqueued(note, at=due, number=5)


async def test_an_advance_that_was_cancelled_goes_on_where_it_was():
    app, expected = program()
    async with Harness(app, at=START) as harness:
        await harness.advance("2d")
    app, done = program()
    async with Harness(app, at=START) as harness:
        advance = asyncio.ensure_future(harness.advance("2d"))
        interrupted = 0
        while not advance.done():
            for _ in range(interrupted + 3):  # at another await each time
                await asyncio.sleep(0.001)
            advance.cancel()
            await asyncio.wait({advance})
            interrupted += 1
            if advance.cancelled():
                advance = asyncio.ensure_future(harness.run_due())
        assert harness.clock.now() == datetime(2030, 1, 3, tzinfo=UTC)
        assert interrupted > 5
    assert done == expected


async def test_a_harness_that_cannot_start_leaves_the_program_as_it_was():
    app, done = program()
    clock = MovableClock(START)
    other = Wakeful("sqlite://", secret_key="a key for tests")
    other.cron("0 9 * * *", tz="Mars/Olympus")(program)
    for wrong, url in ((other, None), (app, "postgresql://127.0.0.1:1/none")):
        with pytest.raises((InvalidArgument, OSError)):
            await Harness(wrong, clock=clock, url=url).__aenter__()
    async with Harness(app, clock=clock) as harness:
        with pytest.raises(FailedPrecondition, match="already started"):
            await Harness(app, at=START).__aenter__()
        await harness.advance("9h")
        assert done == ["tidy", "morning"]
    async with Harness(app, at=START) as harness:  # and again, on another database
        await harness.advance("9h")
        assert done == ["tidy", "morning"] * 2
        assert len(await harness.enqueued("morning")) == 1


async def test_a_function_advances_the_clock_itself():
    app = Wakeful("sqlite://", secret_key="a key for tests")
    harness = Harness(app, at=START)
    seen: list[datetime] = []

    @app.function()
    async def work(left: int) -> None:
        seen.append(harness.clock.now())
        if left:
            harness.clock.advance("1h")
            await app.enqueue(work, left - 1, in_="30m")

    async with harness:
        await app.enqueue(work, 2)
        await harness.run_due()
    assert [each.strftime("%H:%M") for each in seen] == ["00:00", "00:30", "01:00"]
