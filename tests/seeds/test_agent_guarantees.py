"""What agents that schedule their own work can rely on: restarts, failures, missed ticks, cleanup.

The sections are those of the document on scheduling. Where it says that work can be lost, the tests say what
happens instead.
"""

from __future__ import annotations

import asyncio
import importlib
from datetime import timedelta
from typing import Any

import pytest

from tests.integration.engine.test_unreadable_jobs import execute
from tests.support.agent_world import AgentWorld, ended, handled, runs_of, schedules, utc
from tests.support.scheduled_agent import FIVE_MINUTES, NEW_YORK, TEN_MINUTES, MyAgent, cron_cancel, cron_set
from tests.support.waiting import PATIENCE, eventually, over
from wakeful import (
    Agent,
    CancelCron,
    Delay,
    Emit,
    Schedule,
    SetCron,
    SetState,
    Unavailable,
    on,
)

# --- semantics and guarantees ----------------------------------------------------------------------------


async def test_dynamic_schedules_return_after_a_restart_and_cancelled_ones_do_not(world: AgentWorld):
    async with world.process(MyAgent) as app:
        await app.agents.start("my-agent")
        await cron_cancel(app, "heartbeat", declared=True)
        for job_id in ("kept", "cancelled"):
            await cron_set(app, FIVE_MINUTES, job_id=job_id)
        await cron_cancel(app, "cancelled")
    async with world.process(MyAgent) as app:
        found = await schedules(app, "my-agent")
        assert {key for key in found if key[0] == "dynamic"} == {("dynamic", "kept")}
        assert {key[1] for key in found if key[0] == "declared"} <= {"heartbeat", "cleanup"}
        world.move_to(utc(1, 10, 55))
        assert len(await ended(app, "my-agent", "heartbeat.tick")) == 1


async def test_a_tick_during_work_waits_in_the_mailbox(world: AgentWorld):
    entered, release = asyncio.Event(), asyncio.Event()

    class Busy(MyAgent):
        @on("work")
        async def work(self, signal, ctx):
            entered.set()
            await release.wait()

    async with world.process(Busy) as app:
        await app.agents.start("my-agent")
        working = await app.agents.send("my-agent", "default", "work")
        async with asyncio.timeout(PATIENCE):
            await entered.wait()
        world.move_to(utc(1, 10, 55))
        (tick,) = await eventually(lambda: runs_of(app, "my-agent", "heartbeat.tick"))
        assert (tick.state, (await app.runs.get(working.id)).state) == ("pending", "running")
        release.set()
        assert (await over(app, tick.id)).state == "succeeded"


class Refused(MyAgent):
    """Wants something that cannot be stored, among things that can."""

    @on("refused")
    async def refused(self, signal, ctx):
        return [
            SetState(tick_count=100),
            SetCron(TEN_MINUTES, "heartbeat.tick", "heartbeat"),
            CancelCron("kept"),
            Delay(1, "heartbeat.tick"),
            Emit("hello", to=("nobody", "default")),
        ]


async def test_if_one_directive_cannot_be_stored_none_of_them_takes_effect(world: AgentWorld):
    async with world.process(Refused) as app:
        await cron_set(app, FIVE_MINUTES)
        await cron_set(app, FIVE_MINUTES, job_id="kept")
        before, state = await schedules(app, "my-agent"), await app.agents.state("my-agent")
        run = await handled(app, "my-agent", "refused")
        assert (run.state, run.reason) == ("failed", "directive_refused")
        assert "agent 'nobody' has no class" in str(run.error)
        assert await schedules(app, "my-agent") == before
        assert await app.agents.state("my-agent") == state
        assert await runs_of(app, "my-agent", "heartbeat.tick") == []


async def test_a_tick_is_handled_once_by_any_number_of_processes(world: AgentWorld):
    async with world.process(MyAgent) as app, world.process(MyAgent), world.process(MyAgent):
        await app.agents.start("my-agent")
        for minute in (55, 60, 65):
            world.move_to(utc(1, 10) + timedelta(minutes=minute))
            await ended(app, "my-agent", "heartbeat.tick", minute // 5 - 10)
        runs = await ended(app, "my-agent", "heartbeat.tick", 3)
        assert [run.scheduled_at.minute for run in runs] == [55, 0, 5]
        assert {run.state for run in runs} == {"succeeded"}
        assert (await app.agents.state("my-agent"))["tick_count"] == 3


# --- failure isolation and recovery ----------------------------------------------------------------------


async def test_a_malformed_stored_schedule_is_dropped_and_its_siblings_return(
    world: AgentWorld, caplog: pytest.LogCaptureFixture
):
    async with world.process(MyAgent) as app:
        await app.agents.start("my-agent")
        for job_id in ("good", "bad"):
            await cron_set(app, FIVE_MINUTES, job_id=job_id)
        await cron_cancel(app, "heartbeat", declared=True)
    await execute(world.database, """UPDATE jobs SET timing = '{"no":"such"}' WHERE schedule_id = 'bad'""")
    async with world.process(MyAgent) as app:
        world.move_to(utc(1, 10, 55))
        (tick,) = await ended(app, "my-agent", "heartbeat.tick")
        good = (await schedules(app, "my-agent"))["dynamic", "good"]
        assert tick.job_id == good.id
        await app.agents.start("my-agent")
        assert set(await schedules(app, "my-agent")) == {
            ("declared", "heartbeat"), ("declared", "cleanup"), ("dynamic", "good"),
        }  # fmt: skip
    assert "schedule.dropped" in caplog.text
    assert "schedule_id=bad" in caplog.text


async def test_a_time_zone_database_that_fails_for_a_moment_deletes_nothing(
    world: AgentWorld, monkeypatch: pytest.MonkeyPatch
):
    zones = importlib.import_module("wakeful.cron.zone")

    readable = zones._find

    def find(name: str) -> bytes:
        if name == NEW_YORK:
            raise OSError("Input/output error")
        return bytes(readable(name))

    async with world.process(MyAgent) as app:
        await app.agents.start("my-agent")
        await cron_set(app, "0 9 * * *", job_id="morning", tz=NEW_YORK)
        before = set(await schedules(app, "my-agent"))

    class Changed(MyAgent):
        version = 2
        schedules = [*MyAgent.schedules, Schedule("0 5 * * *", "cleanup.run", job_id="more", tz=NEW_YORK)]

    app = world.process(Changed)
    with monkeypatch.context() as patch:
        patch.setattr(zones, "_find", find)
        zones.zone.cache_clear()
        async with app:
            with pytest.raises(Unavailable, match="time zone database cannot be read"):
                await app.agents.start("my-agent")
            run = await handled(app, "my-agent", "heartbeat.tick")
            assert run.state == "succeeded", "the agent works"
    async with world.process(Changed) as app:
        await app.agents.start("my-agent")
        assert set(await schedules(app, "my-agent")) == before | {("declared", "more")}
        assert all(job.enabled for job in (await schedules(app, "my-agent")).values())


# --- missed runs -----------------------------------------------------------------------------------------


def hourly(**policies: Any) -> type[Agent]:
    """Return an agent with an hourly schedule that has these policies."""

    class Hourly(Agent):
        name = "hourly"
        schedules = [Schedule("@hourly", "work", **policies)]

        @on("work")
        async def work(self, signal, ctx): ...

    return Hourly


async def test_ticks_missed_while_no_process_ran_are_not_caught_up_but_recorded(world: AgentWorld):
    """Midnight is missed: down from 23:50 to 00:30."""

    class Midnight(MyAgent):
        schedules = [Schedule("@daily", "cleanup.run", job_id="cleanup")]

    async with world.process(Midnight) as app:
        await app.agents.start("my-agent")
    world.clock.move_to(utc(2, 0, 30))
    async with world.process(Midnight) as app:
        (missed,) = await eventually(lambda: runs_of(app, "my-agent"))
        assert (missed.state, missed.covers, missed.scheduled_at) == ("missed", 1, utc(2, 0))
        assert (await app.agents.state("my-agent"))["last_cleanup"] is None
        world.move_to(utc(3, 0))
        assert (await ended(app, "my-agent", "cleanup.run", 2))[-1].state == "succeeded"


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("latest", [("missed", 11), ("succeeded", 14)]),
        ("fire_immediately", [("succeeded", hour) for hour in (11, 12, 13, 14)]),
        ("spread", [("succeeded", hour) for hour in (11, 12, 13, 14)]),
    ],
)
async def test_every_catch_up_policy_is_available_on_request(
    world: AgentWorld, policy: str, expected: list[tuple[str, int]]
):
    cls = hourly(catchup_policy=policy)
    async with world.process(cls) as app:
        await app.agents.start("hourly")
    world.clock.move_to(utc(1, 14, 30))
    async with world.process(cls) as app:
        if policy == "spread":
            await eventually(lambda: runs_of(app, "hourly"))
            world.clock.advance(timedelta(minutes=2))
        runs = await ended(app, "hourly", "work", len(expected))
        assert sorted((run.scheduled_at.hour, str(run.state)) for run in runs) == sorted(
            (hour, state) for state, hour in expected
        )


# --- cleanup on termination ------------------------------------------------------------------------------


async def test_an_agent_that_stops_has_no_schedules_left(world: AgentWorld):
    async with world.process(MyAgent) as app:
        await app.agents.start("my-agent")
        await cron_set(app, FIVE_MINUTES)
        assert len(await schedules(app, "my-agent")) == 3
        await handled(app, "my-agent", "agent.stop")
        assert await schedules(app, "my-agent") == {}
        assert (await app.agents.instance("my-agent")).status == "stopped"
        world.move_to(utc(1, 10, 55))
        await app.agents.start("my-agent")
        assert len(await schedules(app, "my-agent")) == 2, "the dynamic one is gone"
        assert await runs_of(app, "my-agent", "heartbeat.tick") == []
