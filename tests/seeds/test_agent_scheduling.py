"""Agents that schedule their own work: declarative schedules, delayed messages, dynamic cron.

The sections are those of the document, with its examples in Python. Where the document says that work can be
lost, the tests say what happens instead.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.integration.conftest import on_one_store
from tests.support.agent_world import AgentWorld, ended, handled, has_state, runs_of, schedules, utc
from tests.support.scheduled_agent import FIVE_MINUTES, NEW_YORK, TEN_MINUTES, MyAgent, cron_cancel, cron_set
from tests.support.waiting import eventually, over
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
    Wakeful,
    on,
)
from wakeful.model import Run

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
        assert first.payload == {"by": "eu"}, "what the handler got"


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


async def test_the_first_signal_of_an_instance_can_cancel_a_declared_schedule(world: AgentWorld):
    async with world.process(MyAgent) as app:
        await cron_cancel(app, "heartbeat", declared=True)
        await eventually(lambda: both_schedules(app))
        assert not (await schedules(app, "my-agent"))["declared", "heartbeat"].enabled


async def both_schedules(app: Wakeful) -> bool:
    """Return whether the instance has both declared schedules."""
    return len(await schedules(app, "my-agent")) == 2


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
