"""Steps that take long: under constant load a loop is neither stalled nor hanging, and planning goes on."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import QUICK, SELDOM, NewApp, on_one_store
from tests.support.factories import NOW, alone, ended, held, jobless
from tests.support.waiting import PATIENCE, eventually, over, soon, starting_soon
from wakeful import Agent, Delay, Function, Launch, SetState, Signal, on
from wakeful.agents.context import Context
from wakeful.agents.directives import Directive
from wakeful.document import timing_to_text
from wakeful.engine import calendar_loader, planner
from wakeful.engine.completer import Completer
from wakeful.job.job import Timing
from wakeful.run.planning import decide
from wakeful.schedule.calendars import parse_exclude
from wakeful.schedule.schedules import CronSchedule
from wakeful.store.rows import TakenRun
from wakeful.store.sqlite import SqliteStore


async def test_the_completer_makes_progress_with_each_batch(tmp_path: Path):
    store = SqliteStore(tmp_path / "a.db")
    await store.open()
    try:
        run = held(jobless())
        await store.add_runs([run])
        completer = Completer("w1", store, store.clock, 60_000, alone)
        steps: list[float] = []
        enough = asyncio.Event()

        def written(*_: object) -> None:
            steps.append(completer.last_step or 0)
            completer.add(ended(run))  # so the step always has one more to write
            if len(steps) == 3:
                enough.set()

        completer.on_written = written
        completer.add(ended(run))
        loop = asyncio.create_task(completer.run())
        async with asyncio.timeout(PATIENCE):
            await enough.wait()
        loop.cancel()
        await asyncio.gather(loop, return_exceptions=True)
    finally:
        await store.close()
    assert steps[0] < steps[1] < steps[2]


async def test_jobs_whose_ticks_take_long_to_compute_hold_up_no_others(
    new_app: NewApp, database: str, monkeypatch: pytest.MonkeyPatch
):
    if database.startswith("postgres"):
        from wakeful.store.postgres import connection

        usual = connection.settings
        monkeypatch.setattr(connection, "settings", lambda schema: usual(schema).replace("'15s'", "'1s'"))

    def decide_slowly(*given):
        time.sleep(0.2)  # in all, longer than a transaction may be idle
        return decide(*given)

    monkeypatch.setattr(planner, "decide", decide_slowly)
    monkeypatch.setattr(planner, "_LONGEST_S", 0.3)
    app = new_app()
    async with app:
        at = {"kind": "at", "atMs": soon(1_000)}
        names = [f"job-{number}" for number in range(10)]
        await app.jobs.create_many(
            {"name": name, "schedule": at, "target": {"kind": "echo"}, "delete_after_run": False}
            for name in names
        )

        async def all_planned() -> bool:
            return sorted(str(run.job) for run in await app.runs.list(limit=100)) == names

        await eventually(all_planned)


async def test_holidays_are_loaded_in_parts_between_which_other_jobs_are_planned():
    timings = [
        timing_to_text(Timing(CronSchedule(f"{minute} 3 * * *"), exclude=parse_exclude(["holidays:DE-BY"])))
        for minute in (11, 12, 13)
    ]
    done = threading.Event()
    request = asyncio.create_task(calendar_loader.off_loop(done.wait))  # the planner does not wait for it
    await asyncio.sleep(0)
    try:
        for loaded in range(4):
            assert [calendar_loader.is_loaded(timing, NOW) for timing in timings] == [
                number < loaded for number in range(3)
            ]
            async with asyncio.timeout(PATIENCE):
                await calendar_loader.load_some(timings, NOW, 0.0)
    finally:
        done.set()
        await request


@on_one_store
async def test_a_lane_is_claimed_although_outcomes_of_other_lanes_are_always_being_written(
    new_app: NewApp, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Completer, "will_write", True)
    app = new_app()

    @app.function()
    async def work() -> None: ...

    async with asyncio.timeout(30), app:
        assert app._engine is not None
        app._engine._worker._slots.backlog.add("cron")  # its runs were stopped, and there are more
        await app.jobs.create("waits", schedule=SELDOM, target=Function("work"))
        assert (await over(app, (await app.jobs.run("waits")).id)).state == "succeeded"


async def test_nothing_that_is_due_waits_for_the_next_poll(new_app: NewApp):
    """A lane with one slot, retries, delays, ticks that wait for their turn, and two lanes at once."""
    seldom_polled = replace(QUICK, tick_ms=2 * int(PATIENCE) * 1000, lanes={"team": 2, "cron": 1})
    app = new_app(config=seldom_polled)
    handled: Counter[str] = Counter()
    ran: list[str] = []

    class Flaky(Agent):
        name = "flaky"
        state = {"count": 0}
        backoff = {"base": "1ms", "max": "5ms"}

        @on("count")
        async def count(self, signal: Signal, ctx: Context) -> list[Directive]:
            if int(ctx.key[:2], 16) % 4 == 0 and ctx.attempt == 1:
                raise ValueError("not yet")
            handled[ctx.instance] += 1
            more: list[Directive] = [Delay(5, "later")] if handled[ctx.instance] % 10 == 0 else []
            return [SetState(count=ctx.state["count"] + 1), *more]

        @on("later")
        async def later(self, signal: Signal, ctx: Context) -> None:
            handled[ctx.instance] += 1

    @app.function()
    async def work(run: Launch) -> None:
        await asyncio.sleep(0.001)
        ran.append(run.id)

    app.agent(Flaky)
    async with asyncio.timeout(PATIENCE), app:
        await app.jobs.create("queued", schedule=SELDOM, target=Function("work"), overlap_policy="queue")
        for _ in range(3):
            await asyncio.gather(
                *(app.agents.send("flaky", f"i{n}", [Signal("count") for _ in range(10)]) for n in range(5)),
                *(app.jobs.run("queued") for _ in range(4)),
            )
        await eventually(lambda: sum(handled.values()) == 5 * (30 + 3) and len(ran) == 12)


@on_one_store
async def test_a_slot_that_the_planner_had_while_an_outcome_was_written_is_claimed(new_app: NewApp):
    app = new_app(config=replace(QUICK, tick_ms=2 * int(PATIENCE) * 1000, lanes={"cron": 1}))
    begun, end = asyncio.Event(), asyncio.Event()

    @app.function()
    async def first() -> None:
        begun.set()
        await end.wait()

    @app.function()
    async def second() -> None: ...

    async with asyncio.timeout(PATIENCE), app:
        await app.jobs.create("second", schedule=SELDOM, target=Function("second"))
        await starting_soon(  # so that the planner starts it, and the lane has no backlog
            lambda start: app.jobs.upsert(
                "first", schedule="every 1h", start_at=start, target=Function("first")
            )
        )
        await begun.wait()
        waiting = await app.jobs.run("second")
        assert app._engine is not None
        planner_loop = app._engine._planner
        await eventually(lambda: planner_loop.is_asleep)
        planning, written = asyncio.Event(), asyncio.Event()
        plan, finish = app.store.plan, app.store.finish

        async def plan_slowly(*given: Any, **named: Any) -> Any:
            planning.set()
            await written.wait()
            await asyncio.sleep(0.05)
            return await plan(*given, **named)

        async def finish_meanwhile(*given: Any, **named: Any) -> Any:
            planner_loop.wake()
            await planning.wait()
            done = await finish(*given, **named)
            written.set()
            return done

        app.store.plan = plan_slowly  # type: ignore[method-assign]
        app.store.finish = finish_meanwhile  # type: ignore[method-assign]
        end.set()
        assert (await over(app, waiting.id)).state == "succeeded"


async def test_a_signal_that_follows_another_needs_no_claim_of_its_own(new_app: NewApp):
    app = new_app()
    handled: list[str] = []

    class Counting(Agent):
        name = "counter"
        state = {"count": 0}

        @on("count")
        async def count(self, signal: Signal, ctx: Context) -> SetState:
            handled.append(signal.id)
            return SetState(count=ctx.state["count"] + 1)

    app.agent(Counting)
    async with app:
        claims = 0
        take = app.store.take

        async def counted(*given: Any, **named: Any) -> list[TakenRun]:
            nonlocal claims
            claims += 1
            return await take(*given, **named)

        app.store.take = counted  # type: ignore[method-assign]
        await app.agents.send("counter", "eu", [Signal("count") for _ in range(100)])
        await eventually(lambda: len(handled) == 100)
        # One for the first of every 17, and one for each time that the loop wakes by itself meanwhile.
        assert claims < 60
