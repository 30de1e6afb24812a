"""Instances of agents: their mailboxes, hibernation, versions, deaths, and what stops with them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from tests.integration.conftest import on_one_store
from tests.support.agent_replica import Mortal, agent_process
from tests.support.agent_world import AgentWorld, ended, handled, has_state, runs_of, schedules, utc
from tests.support.waiting import PATIENCE, eventually, in_state, over
from wakeful import (
    Agent,
    Delay,
    EngineConfig,
    FailedPrecondition,
    Schedule,
    SetCron,
    SetState,
    Signal,
    Stop,
    Wakeful,
    WakefulError,
    on,
)

FIVE_MINUTES = "*/5 * * * *"


class Counter(Agent):
    """Counts signals, in the order in which it handles them."""

    name = "counter"
    state = {"count": 0, "order": []}
    schedules = [Schedule("0 6 * * *", "count", job_id="daily")]
    max_attempts = 3
    backoff = {"base": "1ms", "max": "1ms"}
    #: how many handlers run now, and how many have run at once, in all processes of a test
    running = 0
    most = 0

    @on("count")
    async def count(self, signal, ctx):
        Counter.running += 1
        Counter.most = max(Counter.most, Counter.running)
        await asyncio.sleep(0)
        Counter.running -= 1
        return SetState(count=ctx.state["count"] + 1, order=[*ctx.state["order"], signal.data])

    @on("cron.set")
    async def set_cron(self, signal, ctx):
        return SetCron(FIVE_MINUTES, "count", "mine")

    @on("raise")
    async def fail(self, signal, ctx):
        raise ValueError(f"attempt {ctx.attempt}")


class Gate:
    """A handler waits until a test opens it."""

    def __init__(self) -> None:
        self.entered, self.opened = asyncio.Event(), asyncio.Event()

    async def wait(self) -> None:
        """Report that the handler runs, and wait."""
        self.entered.set()
        await self.opened.wait()


def gated(gate: Gate) -> type[Counter]:
    """Return a class with a handler that waits at the gate."""

    class Gated(Counter):
        @on("wait")
        async def wait(self, signal, ctx):
            await gate.wait()

        @on("wait.then.fail")
        async def wait_and_fail(self, signal, ctx):
            await gate.wait()
            raise ValueError("no")

        @on("stop")
        async def stop(self, signal, ctx):
            await gate.wait()
            return [Delay(1, "count"), Stop()]

        @on("delay")
        async def delay(self, signal, ctx):
            return Delay("1m", "count")

    return Gated


async def entered(gate: Gate) -> None:
    """Wait until the handler runs."""
    async with asyncio.timeout(PATIENCE):
        await gate.entered.wait()


# --- one signal at a time, in order ----------------------------------------------------------------------


async def test_a_hundred_signals_from_two_senders_through_two_processes(world: AgentWorld):
    Counter.most = 0
    async with world.process(Counter) as one, world.process(Counter) as two:

        async def send(app: Wakeful, sender: str) -> None:
            for number in range(50):
                await app.agents.send("counter", "eu", Signal("count", [sender, number]))

        await asyncio.gather(send(one, "a"), send(two, "b"))
        state = await has_state(one, "counter", lambda state: state["count"] == 100, "eu")
        order = state["order"]
        assert isinstance(order, list)
        for sender in "ab":
            assert [number for who, number in order if who == sender] == list(range(50))
        assert Counter.most == 1
        info = await one.agents.instance("counter", "eu")
        assert (info.revision, info.waiting, info.run_id) == (100, 0, None)


@on_one_store
async def test_instances_run_side_by_side(world: AgentWorld):
    gate = Gate()
    async with world.process(gated(gate)) as app:
        waiting = await app.agents.send("counter", "eu", "wait")
        await entered(gate)
        assert (await handled(app, "counter", "count", "us")).state == "succeeded"
        assert (await app.runs.get(waiting.id)).state == "running"
        gate.opened.set()
        await over(app, waiting.id)


# --- duplicates ------------------------------------------------------------------------------------------


async def test_a_signal_id_counts_once_for_each_source(world: AgentWorld):
    async with world.process(Counter) as app:
        runs = [
            await app.agents.send("counter", "eu", Signal("count", id="1", source=source))
            for source in ("/a", "/b", "/a")
        ]
        assert [run.duplicate for run in runs] == [False, False, True]
        assert runs[2].id == runs[0].id
        await over(app, runs[1].id)
        assert (await app.agents.state("counter", "eu"))["count"] == 2
        other = await app.agents.send("counter", "us", Signal("count", id="1", source="/a"))
        assert not other.duplicate, "each instance has its own ids"


async def test_a_duplicate_returns_the_first_run_also_while_it_runs_and_after_it_failed(world: AgentWorld):
    gate = Gate()
    async with world.process(gated(gate)) as app:
        signal = Signal("wait.then.fail", id="1", source="/a")
        first = await app.agents.send("counter", "eu", signal)
        await entered(gate)
        second = await app.agents.send("counter", "eu", signal)
        assert (second.id, second.state, second.duplicate) == (first.id, "running", True)
        gate.opened.set()
        assert (await over(app, first.id)).state == "failed"
        third = await app.agents.send("counter", "eu", signal)
        assert (third.id, third.state, third.duplicate) == (first.id, "failed", True)
        assert len(await runs_of(app, "counter")) == 1


async def test_ids_are_forgotten_after_the_time_that_the_class_sets(world: AgentWorld):
    class Short(Counter):
        dedupe_for = "1h"

    async with world.process(Short) as app:
        signal = Signal("count", id="1", source="/a")
        first = await app.agents.send("counter", "eu", signal)
        world.clock.advance(timedelta(hours=2))

        async def sent_again() -> bool:
            return (await app.agents.send("counter", "eu", signal)).id != first.id

        await eventually(sent_again)


# --- failures --------------------------------------------------------------------------------------------


async def test_a_handler_that_raises_holds_its_mailbox_until_it_is_a_dead_letter(world: AgentWorld):
    class Slow(Counter):
        backoff = {"base": "1h", "max": "1h"}

    async with world.process(Slow) as app:
        bad = await app.agents.send("counter", "eu", "raise")
        after = await app.agents.send("counter", "eu", "count")
        for attempt in (1, 2):
            run = await in_state(app, bad.id, "retrying")
            assert (run.attempt, run.failed_attempts, run.error) == (
                attempt, attempt, f"ValueError: attempt {attempt}",
            )  # fmt: skip
            assert (await app.runs.get(after.id)).state == "pending"
            world.clock.advance(timedelta(hours=2))
            await eventually(lambda: attempts(app, bad.id, attempt + 1))  # noqa: B023
        ended_run = await over(app, bad.id)
        assert (ended_run.state, ended_run.attempt, ended_run.dead) == ("failed", 3, True)
        assert (await over(app, after.id)).state == "succeeded"
        again = await app.runs.replay(bad.id)
        assert (again.replay_of, again.attempt, again.instance) == (bad.id, 4, "eu")


async def attempts(app: Wakeful, run_id: str, number: int) -> bool:
    run = await app.runs.get(run_id)
    return run.attempt == number and run.state != "running"


async def test_a_handler_that_kills_its_process_becomes_a_dead_letter_and_changes_nothing(world: AgentWorld):
    watching = EngineConfig(tick_ms=50, heartbeat_ms=100)  # it has no class: it only finds lost runs
    async with world.process(config=watching) as app:
        with replica(world) as process:

            async def sent() -> Any:
                try:
                    return await app.agents.send("mortal", "eu", "setup")
                except WakefulError:  # the other process has not registered its class
                    return None

            setup = await eventually(sent)
            assert (await over(app, setup.id)).state == "succeeded"
            await has_state(app, "mortal", lambda state: state["count"] == 2, "eu")
            before = await observed(app)
            deadly = await app.agents.send("mortal", "eu", "die")
            await asyncio.to_thread(process.wait)
        waiting = await app.agents.send("mortal", "eu", "count")
        await eventually(lambda: lost(world, app, deadly.id, 1))
        with replica(world) as process:
            await asyncio.to_thread(process.wait)
        await eventually(lambda: lost(world, app, deadly.id, 2))
        ended_run = await app.runs.get(deadly.id)
        assert (ended_run.state, ended_run.dead) == ("failed", True)
        assert (await app.runs.get(waiting.id)).state == "pending"
        assert await observed(app) == before
        async with world.process(Mortal):
            assert (await over(app, waiting.id)).state == "succeeded"
        assert (await app.agents.state("mortal", "eu"))["count"] == 3


async def observed(app: Wakeful) -> tuple[object, ...]:
    """Return what a handler could have changed: the state, the schedules, and the signals that it sent."""
    state = await app.agents.state("mortal", "eu")
    found = await schedules(app, "mortal", "eu")
    setup = (await runs_of(app, "mortal", "setup"))[0]
    sent = [run.id for run in await runs_of(app, "mortal") if run.triggered_by == setup.id]
    assert set(found) == {("dynamic", "mine")}
    assert len(sent) == 2, "a delay and a signal to itself"
    return state, [job.id for job in found.values()], sent


async def lost(world: AgentWorld, app: Wakeful, run_id: str, attempts: int) -> bool:
    """Let time pass until so many attempts are lost."""
    world.clock.advance(timedelta(seconds=1))
    run = await app.runs.get(run_id)
    return run.failed_attempts == attempts and run.state != "running"


@contextmanager
def replica(world: AgentWorld) -> Iterator[Any]:
    with agent_process(world.database, world.clock.offset_ms) as process:
        yield process


# --- hibernation and versions ----------------------------------------------------------------------------


async def test_schedules_fire_while_the_instance_hibernates(world: AgentWorld):
    async with world.process(Counter) as app:
        await app.agents.start("counter", "eu")
        await handled(app, "counter", "cron.set", "eu")
        assert (await app.agents.hibernate("counter", "eu")).hibernated_at is not None
        world.move_to(utc(1, 10, 55))
        (tick,) = await ended(app, "counter", "count")
        assert (tick.trigger, tick.state) == ("schedule", "succeeded")
    async with world.process(Counter) as app:  # a process that has never loaded it
        world.move_to(utc(2, 6))
        state = await has_state(app, "counter", lambda state: state["count"] == 3, "eu")
        assert state["count"] == 3, "the daily one, and the one of every five minutes"


async def test_a_deploy_reaches_hibernated_instances_and_an_older_class_overwrites_nothing(world: AgentWorld):
    class Newer(Counter):
        version = 2
        schedules = [Schedule("0 7 * * *", "count", job_id="daily"), Schedule("@hourly", "count")]

    names = ("eu", "us")
    async with world.process(Counter) as app:
        for name in names:
            await app.agents.start("counter", name)
            await app.agents.hibernate("counter", name)

    async def converged(app: Wakeful, name: str) -> bool:
        found = await schedules(app, "counter", name)
        daily = found["declared", "daily"].next_ms
        return len(found) == 2 and daily == utc(2, 7).timestamp() * 1000

    async with world.process(Newer) as app:
        for name in names:
            await eventually(lambda: converged(app, name))  # noqa: B023
        async with world.process(Counter) as older:
            await older.agents.start("counter", "eu")
            assert await converged(older, "eu")
            await older.agents.start("counter", "late")
            assert await converged(older, "late")


async def test_state_is_migrated_by_a_newer_class_and_not_handled_by_an_older_one(world: AgentWorld):
    class Newer(Counter):
        version = 2
        state = {"total": 0, "order": []}

        def migrate(self, state, from_version):
            return {"total": state["count"], "order": [*state["order"], f"from {from_version}"]}

        @on("count")
        async def count(self, signal, ctx):
            return SetState(total=ctx.state["total"] + 1)

    async with world.process(Counter) as app:
        await handled(app, "counter", "count", "eu")
    async with world.process(Newer) as app:
        await handled(app, "counter", "count", "eu")
        assert await app.agents.state("counter", "eu") == {"total": 2, "order": [None, "from 1"]}
    async with world.process(Counter) as app:
        run = await app.agents.send("counter", "eu", "count")
        assert (await handled(app, "counter", "count", "us")).state == "succeeded"
        waiting = await app.runs.get(run.id)
        assert waiting.state == "pending"
        assert "version 2 of the class of agent 'counter'" in str(waiting.waiting_for)


async def test_state_that_cannot_be_migrated_blocks_the_instance_and_is_kept(world: AgentWorld):
    class Broken(Counter):
        version = 2

        def migrate(self, state, from_version):
            raise KeyError("total")

    class Fixed(Counter):
        version = 3

    async with world.process(Counter) as app:
        await handled(app, "counter", "count", "eu")
    async with world.process(Broken) as app:
        run = await app.agents.send("counter", "eu", "count")

        async def blocked() -> bool:
            return (await app.agents.instance("counter", "eu")).status == "blocked"

        await eventually(blocked)
        info = await app.agents.instance("counter", "eu")
        assert "cannot be migrated from version 1 to 2" in str(info.note)
        assert (await app.agents.state("counter", "eu"))["count"] == 1
    async with world.process(Fixed) as app:
        assert (await over(app, run.id)).state == "succeeded"
        assert (await app.agents.state("counter", "eu"))["count"] == 2


# --- stop ------------------------------------------------------------------------------------------------


async def test_stop_with_a_delay_a_tick_and_a_signal_pending(world: AgentWorld):
    gate = Gate()
    async with world.process(gated(gate)) as app:
        await app.agents.start("counter", "eu")
        await handled(app, "counter", "count", "eu")
        await handled(app, "counter", "cron.set", "eu")
        await handled(app, "counter", "delay", "eu")
        stopping = await app.agents.send("counter", "eu", "stop")
        await entered(gate)
        world.move_to(utc(1, 10, 55))
        signal = await app.agents.send("counter", "eu", "count")

        async def pending() -> bool:
            found = [run for run in await runs_of(app, "counter", "count") if run.state == "pending"]
            return len(found) == 3

        await eventually(pending)
        gate.opened.set()
        assert (await over(app, stopping.id)).state == "succeeded"
        for run in (await runs_of(app, "counter", "count"))[1:]:
            assert (run.state, run.reason) == ("cancelled", "stopped")
        assert (await app.runs.get(signal.id)).state == "cancelled"
        assert await schedules(app, "counter", "eu") == {}
        with pytest.raises(FailedPrecondition, match="is stopped; start it"):
            await app.agents.send("counter", "eu", "count")
        world.move_to(utc(1, 11))
        await app.agents.start("counter", "eu")
        assert (await app.agents.state("counter", "eu"))["count"] == 0, "it begins anew"
        assert set(await schedules(app, "counter", "eu")) == {("declared", "daily")}
        assert (await handled(app, "counter", "count", "eu")).state == "succeeded"
        assert (await app.agents.state("counter", "eu"))["count"] == 1
