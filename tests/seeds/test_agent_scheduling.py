"""Agents that schedule their own work: declarative schedules, delayed messages, dynamic cron.

The sections are those of the document, with its examples in Python. Where the document says that work can be
lost, the tests say what happens instead.
"""

from __future__ import annotations

import asyncio
import importlib
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.integration.conftest import on_one_store
from tests.integration.engine.test_unreadable_jobs import execute
from tests.support.agent_world import AgentWorld, ended, handled, has_state, runs_of, schedules
from tests.support.waiting import PATIENCE, eventually, over
from wakeful import (
    SELF,
    Agent,
    CancelCron,
    Delay,
    Emit,
    InvalidArgument,
    Permanent,
    Schedule,
    SetCron,
    SetState,
    Signal,
    Stop,
    Unavailable,
    on,
)
from wakeful.model import Run

NEW_YORK = "America/New_York"
FIVE_MINUTES, TEN_MINUTES = "*/5 * * * *", "*/10 * * * *"


def utc(day: int, hour: int, minute: int = 0) -> datetime:
    """Return an instant in March 2027, when New York is five hours behind UTC."""
    return datetime(2027, 3, day, hour, minute, tzinfo=UTC)


@pytest.fixture
def world(database: str) -> AgentWorld:
    return AgentWorld(database)


class MyAgent(Agent):
    """Counts ticks. What depends on the state at run time is set and cancelled by signals."""

    name = "my-agent"
    state = {"tick_count": 0, "last_cleanup": None}
    schedules = [
        Schedule(FIVE_MINUTES, "heartbeat.tick", job_id="heartbeat"),
        Schedule("@daily", "cleanup.run", job_id="cleanup", tz=NEW_YORK),
    ]
    max_attempts = 1

    @on("heartbeat.tick")
    async def heartbeat(self, signal, ctx):
        return SetState(tick_count=ctx.state["tick_count"] + 1)

    @on("cleanup.run")
    async def cleanup(self, signal, ctx):
        return SetState(last_cleanup=ctx.scheduled_at.isoformat())

    @on("cron.set")
    async def set_cron(self, signal, ctx):
        given = {"signal": "heartbeat.tick", "job_id": "heartbeat", **signal.data}
        return [SetState(asked=True), SetCron(**given), "set"]

    @on("cron.cancel")
    async def cancel_cron(self, signal, ctx):
        return CancelCron(**signal.data)

    @on("agent.stop")
    async def stop(self, signal, ctx):
        return Stop()


async def cron_set(app, expr: str, **more: object):
    return await handled(app, "my-agent", Signal("cron.set", {"expr": expr, **more}))


async def cron_cancel(app, job_id: str, **more: object):
    return await handled(app, "my-agent", Signal("cron.cancel", {"job_id": job_id, **more}))


# --- declarative schedules -------------------------------------------------------------------------------


async def test_declared_schedules_fire_as_soon_as_the_agent_is_started(world: AgentWorld):
    async with world.process(MyAgent) as app:
        await app.agents.start("my-agent")
        found = await schedules(app, "my-agent")
        assert set(found) == {("declared", "heartbeat"), ("declared", "cleanup")}
        world.move_to(utc(1, 10, 55))
        (tick,) = await ended(app, "my-agent", "heartbeat.tick")
        assert (tick.state, tick.trigger, tick.scheduled_at) == ("succeeded", "schedule", utc(1, 10, 55))
        world.move_to(utc(2, 5))  # midnight in New York
        (cleaned,) = await ended(app, "my-agent", "cleanup.run")
        assert cleaned.scheduled_at == utc(2, 5)
        state = await has_state(app, "my-agent", lambda state: state["last_cleanup"] is not None)
        assert state["last_cleanup"] == "2027-03-02T05:00:00+00:00"


@on_one_store
async def test_ticks_take_the_same_route_as_other_signals(world: AgentWorld):
    async with world.process(MyAgent) as app:
        await app.agents.start("my-agent")
        world.move_to(utc(1, 10, 55))
        await ended(app, "my-agent", "heartbeat.tick")
        sent = await handled(app, "my-agent", "heartbeat.tick")
        assert (sent.trigger, sent.state) == ("signal", "succeeded")
        assert (await app.agents.state("my-agent"))["tick_count"] == 2


@on_one_store
async def test_a_schedule_needs_only_an_expression_and_a_type(world: AgentWorld):
    class Minimal(Agent):
        name = "minimal"
        schedules = [Schedule("* * * * *", "my.signal")]

        @on("my.signal")
        async def handle(self, signal, ctx):
            return "handled"

    async with world.process(Minimal) as app:
        await app.agents.start("minimal")
        job = (await schedules(app, "minimal"))["declared", "my.signal"]
        assert job.definition.timing is not None
        assert job.definition.timing.schedule.to_json() == {"kind": "cron", "expr": "* * * * *", "tz": "UTC"}
        world.move_to(utc(1, 10, 53))
        assert (await ended(app, "minimal", "my.signal"))[-1].output == "handled"


async def test_the_same_job_id_declared_dynamic_and_on_another_agent_is_three_schedules(world: AgentWorld):
    class Other(MyAgent):
        name = "other-agent"

    async with world.process(MyAgent, Other) as app:
        for agent in ("my-agent", "other-agent"):
            await app.agents.start(agent)
        await cron_set(app, "30 * * * *")
        found = await schedules(app, "my-agent")
        ids = {job.id for job in found.values()} | {
            job.id for job in (await schedules(app, "other-agent")).values()
        }
        assert len(ids) == 5
        await cron_cancel(app, "heartbeat")
        assert ("dynamic", "heartbeat") not in await schedules(app, "my-agent")
        world.move_to(utc(1, 10, 55))
        for agent in ("my-agent", "other-agent"):
            (tick,) = await ended(app, agent, "heartbeat.tick")
            assert tick.state == "succeeded"


# --- delayed messages ------------------------------------------------------------------------------------


class Retry(Agent):
    """Tries a task three times, with five seconds between."""

    name = "retry"
    state = {"scheduled_retry": False}

    @on("task.retry")
    async def retry(self, signal, ctx):
        attempt = signal.data["attempt"]
        if attempt >= 3:
            raise Permanent("Max retries exceeded")
        again = Signal("task.retry", {"attempt": attempt + 1})
        return [SetState(scheduled_retry=True), Delay(5_000, again)]

    @on("task.volatile")
    async def volatile(self, signal, ctx):
        return Delay("5s", "task.retry", durable=False)


def attempt_of(run: Run) -> object:
    """Return the number in the data of the signal."""
    event = run.payload
    assert isinstance(event, dict)
    return Signal.from_json(event).data["attempt"]  # type: ignore[call-overload,index]


async def test_a_delayed_retry_arrives_after_the_delay_until_there_are_three(world: AgentWorld):
    async with world.process(Retry) as app:
        await handled(app, "retry", Signal("task.retry", {"attempt": 1}))
        for number in (2, 3):
            *_, waiting = await runs_of(app, "retry", "task.retry")
            assert (waiting.state, attempt_of(waiting)) == ("pending", number)
            assert world.clock.now() < waiting.fire_at <= world.clock.now() + timedelta(seconds=5)
            world.clock.advance(timedelta(seconds=5))
            last = await over(app, waiting.id)
        assert (last.state, last.error, last.attempt) == ("failed", "Max retries exceeded", 1)
        assert last.dead
        assert (await app.agents.state("retry"))["scheduled_retry"] is True
        assert len(await runs_of(app, "retry")) == 3


async def test_a_delay_survives_the_process_and_one_in_memory_does_not(world: AgentWorld):
    async with world.process(Retry) as app:
        await handled(app, "retry", Signal("task.retry", {"attempt": 1}))
        await handled(app, "retry", "task.volatile")
    world.clock.advance(timedelta(seconds=10))
    async with world.process(Retry) as app:
        delayed = (await runs_of(app, "retry", "task.retry"))[1]
        assert (await over(app, delayed.id)).state == "succeeded"
        assert [attempt_of(run) for run in await runs_of(app, "retry", "task.retry")] == [1, 2, 3], (
            "the last is the delay that the second asked for; none is from memory"
        )


def test_a_delay_is_milliseconds_text_or_a_timedelta():
    signal = Signal("check", {"ref": 7})
    assert {Delay(30_000, signal).ms, Delay("30s", signal).ms, Delay(timedelta(seconds=30), "check").ms} == {
        30_000
    }
    with pytest.raises(InvalidArgument, match="is not a delay"):
        Delay(1.5, "timeout")  # type: ignore[arg-type]


# --- dynamic recurring jobs ------------------------------------------------------------------------------


class Setup(Agent):
    """Sets a schedule that depends on what happens."""

    name = "setup"
    state = {"ticks": []}

    @on("setup")
    async def setup(self, signal, ctx):
        tick = Signal("heartbeat.tick", {"by": ctx.instance})
        return [SetCron(FIVE_MINUTES, tick, job_id="heartbeat")]

    @on("heartbeat.tick")
    def tick(self, signal, ctx):  # a sync handler runs in a thread
        return SetState(ticks=[*ctx.state["ticks"], signal.data["by"]])


async def test_a_handler_registers_a_recurring_job(world: AgentWorld):
    async with world.process(Setup) as app:
        await handled(app, "setup", "setup", "eu")
        for minute in (55, 60):
            world.move_to(utc(1, 10) + timedelta(minutes=minute))
            await has_state(app, "setup", lambda state: len(state["ticks"]) == minute // 5 - 10, "eu")  # type: ignore[arg-type]  # noqa: B023
        assert (await app.agents.state("setup", "eu"))["ticks"] == ["eu", "eu"]
        first, _ = await ended(app, "setup", "heartbeat.tick", 2)
        assert (first.trigger, first.instance, first.scheduled_at) == ("schedule", "eu", utc(1, 10, 55))


EQUIVALENT = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
EXPRESSIONS = ("* * * * *", FIVE_MINUTES, "0 * * * *", "0 0 * * *", "0 9 * * MON", *EQUIVALENT)


@on_one_store
async def test_every_expression_and_alias_of_the_document_is_accepted(world: AgentWorld):
    class Many(Agent):
        name = "many"

        @on("tick")
        async def tick(self, signal, ctx): ...

        @on("set")
        async def set(self, signal, ctx):
            every = {*EXPRESSIONS, *EQUIVALENT.values()}
            return [SetCron(expr, "tick", job_id=expr) for expr in every]

    async with world.process(Many) as app:
        assert (await handled(app, "many", "set")).state == "succeeded"
        found = {id_: job for (_, id_), job in (await schedules(app, "many")).items()}
        assert {found[alias].next_ms for alias in EQUIVALENT} <= {job.next_ms for job in found.values()}
        for alias, expr in EQUIVALENT.items():
            assert found[alias].next_ms == found[expr].next_ms is not None, alias
        monday = found["0 9 * * MON"].next_ms
        assert monday == utc(8, 9).timestamp() * 1000


async def test_a_schedule_follows_its_time_zone_and_the_default_is_utc(world: AgentWorld):
    async with world.process(MyAgent) as app:
        await cron_set(app, "0 9 * * *", job_id="morning", tz=NEW_YORK)
        await cron_set(app, "0 9 * * *", job_id="utc")
        found = await schedules(app, "my-agent")
        assert found["dynamic", "morning"].next_ms == utc(1, 14).timestamp() * 1000
        assert found["dynamic", "utc"].next_ms == utc(2, 9).timestamp() * 1000


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"expr": "0 9 * * *", "tz": "America/Gotham"}, "unknown time zone 'America/Gotham'"),
        ({"expr": "61 * * * *"}, "61"),
        ({"expr": "0 0 31 2 *"}, "never fires"),
    ],
)
@on_one_store
async def test_an_invalid_schedule_harms_neither_the_agent_nor_its_schedules(
    world: AgentWorld, wrong: dict[str, Any], error: str
):
    async with world.process(MyAgent) as app:
        await app.agents.start("my-agent")
        await cron_set(app, TEN_MINUTES)
        before = await schedules(app, "my-agent")
        run = await cron_set(app, **wrong)
        assert run.state == "failed"
        assert error in str(run.error)
        assert await schedules(app, "my-agent") == before
        assert (await handled(app, "my-agent", "heartbeat.tick")).state == "succeeded"


@on_one_store
async def test_an_invalid_declared_schedule_is_reported_and_the_others_work(
    world: AgentWorld, caplog: pytest.LogCaptureFixture
):
    class Mixed(MyAgent):
        schedules = [*MyAgent.schedules, Schedule("@daily", "cleanup.run", job_id="bad", tz="Gotham")]

    async with world.process(Mixed) as app:
        await app.agents.start("my-agent")
        assert set(await schedules(app, "my-agent")) == {("declared", "heartbeat"), ("declared", "cleanup")}
    assert "agent.schedule_invalid" in caplog.text
    assert "unknown time zone 'Gotham'" in caplog.text


# --- upsert and cancel -----------------------------------------------------------------------------------


async def test_the_same_job_id_again_replaces_the_schedule(world: AgentWorld):
    async with world.process(MyAgent) as app:
        await app.agents.start("my-agent")
        await cron_set(app, FIVE_MINUTES)
        old = (await schedules(app, "my-agent"))["dynamic", "heartbeat"]
        await cron_set(app, TEN_MINUTES)
        new = (await schedules(app, "my-agent"))["dynamic", "heartbeat"]
        assert (new.id, new.next_ms) == (old.id, utc(1, 11).timestamp() * 1000)
        await cron_cancel(app, "heartbeat", declared=True)
        world.move_to(utc(1, 10, 55))  # the five-minute schedule would fire
        world.move_to(utc(1, 11))
        (tick,) = await ended(app, "my-agent", "heartbeat.tick")
        assert tick.scheduled_at == utc(1, 11)


async def test_a_cancelled_schedule_does_not_fire_until_it_is_registered_again(world: AgentWorld):
    async with world.process(MyAgent) as app:
        await app.agents.start("my-agent")
        await cron_cancel(app, "heartbeat", declared=True)
        await cron_set(app, FIVE_MINUTES)
        await cron_cancel(app, "heartbeat")
        assert ("dynamic", "heartbeat") not in await schedules(app, "my-agent")
        world.move_to(utc(1, 10, 55))
        await cron_set(app, FIVE_MINUTES)
        world.move_to(utc(1, 11))
        (tick,) = await ended(app, "my-agent", "heartbeat.tick")
        assert tick.scheduled_at == utc(1, 11)


async def test_cancelling_an_unknown_schedule_is_no_error(world: AgentWorld):
    async with world.process(MyAgent) as app:
        for more in ({}, {"declared": True}):
            assert (await cron_cancel(app, "nothing", **more)).state == "succeeded"


async def test_a_declared_schedule_that_was_cancelled_returns_with_the_next_start(world: AgentWorld):
    async with world.process(MyAgent) as app:
        await app.agents.start("my-agent")
        await cron_cancel(app, "heartbeat", declared=True)
        assert not (await schedules(app, "my-agent"))["declared", "heartbeat"].enabled
    async with world.process(MyAgent) as app:  # a restart of the process is not a start of the instance
        assert not (await schedules(app, "my-agent"))["declared", "heartbeat"].enabled
        await app.agents.start("my-agent")
        assert (await schedules(app, "my-agent"))["declared", "heartbeat"].enabled


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


# --- idempotency patterns --------------------------------------------------------------------------------


class Ticks(Agent):
    """Processes each tick id once, also if a sender repeats it with another signal id."""

    name = "ticks"
    state = {"processed": 0}
    max_attempts = 1

    @on("tick.process")
    async def process(self, signal, ctx):
        if ctx.seen(signal.data["tick_id"]):
            return "skipped"
        if signal.data.get("fail"):
            raise ValueError("not processed")
        return [SetState(processed=ctx.state["processed"] + 1), "processed"]


async def test_a_dedupe_key_is_processed_once_and_a_failure_does_not_count(world: AgentWorld):
    async with world.process(Ticks) as app:
        outputs = []
        for data in ({"tick_id": 7, "fail": True}, {"tick_id": 7}, {"tick_id": 7}, {"tick_id": 8}):
            outputs.append((await handled(app, "ticks", Signal("tick.process", data))).output)
    async with world.process(Ticks) as app:
        outputs.append((await handled(app, "ticks", Signal("tick.process", {"tick_id": 8}))).output)
        assert outputs == [None, "processed", "skipped", "processed", "skipped"]
        assert (await app.agents.state("ticks"))["processed"] == 2


async def test_the_last_run_shows_gaps(world: AgentWorld):
    seen: list[datetime | None] = []

    class Report(Agent):
        name = "report"

        @on("report.daily")
        async def daily(self, signal, ctx):
            seen.append(ctx.last_run)
            if ctx.last_run and ctx.now() - ctx.last_run < timedelta(hours=20):
                return "Too soon since last run"
            return "generated"

    async with world.process(Report) as app:
        outputs = [(await handled(app, "report", "report.daily")).output]
        world.clock.advance(timedelta(hours=1))
        outputs.append((await handled(app, "report", "report.daily")).output)
    world.clock.advance(timedelta(days=2))
    async with world.process(Report) as app:
        outputs.append((await handled(app, "report", "report.daily")).output)
    assert outputs == ["generated", "Too soon since last run", "generated"]
    assert seen[0] is None
    assert seen[1] is not None
    assert seen[2] is not None
    assert timedelta(hours=1) <= seen[2] - seen[1] < timedelta(hours=2)


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


# --- the complete example --------------------------------------------------------------------------------


class DailyReport(Agent):
    """Generates a report every morning, and no second one within 20 hours."""

    name = "daily-report-agent"
    state = {"last_report_at": None, "report_count": 0}
    schedules = [Schedule("0 6 * * *", "report.generate", job_id="daily_report", tz=NEW_YORK)]

    @on("report.generate")
    async def generate(self, signal, ctx):
        last = ctx.state["last_report_at"]
        if last and ctx.now() - datetime.fromisoformat(last) < timedelta(hours=20):
            return "skipped"
        number = ctx.state["report_count"] + 1
        report = {
            "generated_at": ctx.now().isoformat(),
            "report_number": number,
            "summary": "Daily metrics summary",
        }
        return [
            SetState(last_report_at=report["generated_at"], report_count=number),
            Emit(Signal("notification.send", {"type": "report", "data": report})),
            Emit(Signal("report.archive", report), to=SELF),
            f"report {number}",
        ]

    @on("report.archive")
    async def archive(self, signal, ctx):
        return signal.data["summary"]

    @on("report.cancel")
    async def cancel(self, signal, ctx):
        return CancelCron("daily_report", declared=True)


async def test_the_complete_example_generates_a_daily_report(world: AgentWorld):
    agent, instance = "daily-report-agent", "report-agent-1"
    async with world.process(DailyReport) as app:
        await app.agents.start(agent, id=instance)  # no setup signal: the schedule is running
        for day in (1, 2):
            world.move_to(utc(day, 11))  # 06:00 in New York
            runs = await ended(app, agent, "report.generate", day)
            assert (runs[-1].output, runs[-1].scheduled_at) == (f"report {day}", utc(day, 11))
            (notification,) = runs[-1].emitted
            assert notification["type"] == "notification.send"
            assert notification["data"]["data"]["report_number"] == day  # type: ignore[index,call-overload]
        world.clock.move_to(utc(2, 15))  # a second run at the wrong time
        again = await handled(app, agent, "report.generate", instance)
        assert (again.state, again.output, again.emitted) == ("succeeded", "skipped", ())
        assert (await app.agents.state(agent, instance))["report_count"] == 2
        archived = await ended(app, agent, "report.archive", 2)
        assert {run.output for run in archived} == {"Daily metrics summary"}
        await handled(app, agent, "report.cancel", instance)
        world.move_to(utc(3, 11))
        await handled(app, agent, "report.cancel", instance)  # the clock has moved when it is handled
        assert len(await runs_of(app, agent, "report.generate")) == 3
