"""Signals to instances: duplicates, limits and errors, and what becomes a signal of a class agent."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.support.agents import busy, counter, handled, has_schedules
from tests.support.api_client import served
from tests.support.waiting import eventually, over
from wakeful import (
    AlreadyExists,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
    Wakeful,
)
from wakeful.agents.agent import Agent, on
from wakeful.agents.context import Context
from wakeful.agents.directives import Delay, Directive, Emit
from wakeful.job.targets import Function
from wakeful.run.outcome import Succeeded
from wakeful.service.auth.access import LOCAL, Principal
from wakeful.service.idempotency import Reply
from wakeful.service.serializers import serialize_received
from wakeful.signal.signals import Signal
from wakeful.store.instances import Received
from wakeful.values.json_value import compact


def started(new_app: NewApp, cls: Any = None, **given: Any) -> Wakeful:
    app = new_app(**given)
    app.agent(cls or counter())
    return app


async def count(app: Wakeful, instance: str = "eu") -> int:
    return int((await app.agents.state("counter", instance))["count"])


async def seen(app: Wakeful, instance: str = "default") -> list[Any]:
    """Return the signals that arrived, other than those with a handler of their own."""
    found: list[Any] = (await app.agents.state("counter", instance))["seen"]
    return found


# --- sending -----------------------------------------------------------------------------------------


async def test_the_first_signal_creates_the_instance_and_its_schedules(new_app: NewApp):
    async with started(new_app) as app:
        run = await app.agents.send("counter", "eu", Signal("add"))
        assert (run.trigger, run.instance, run.signal, run.duplicate) == ("signal", "eu", "add", False)
        assert (run.job_id, run.lane, run.triggered_by) == (None, "team", "python")
        assert isinstance(run.payload, dict)
        assert (run.payload["type"], run.payload["source"]) == ("add", "python")
        assert (await over(app, run.id)).state == "succeeded"
        assert await count(app) == 1

        async def scheduled() -> bool:
            return len((await app.agents.instance("counter", "eu")).schedules) == 1

        await eventually(scheduled)


async def test_several_signals_are_stored_together_in_their_order(new_app: NewApp):
    cls = counter()
    async with started(new_app, cls) as app:
        await app.agents.start("counter", "eu")
        runs = await app.agents.send("counter", "eu", [Signal("a", 1), Signal("b", 2), Signal("c", 3)])
        for run in runs:
            await over(app, run.id)
        assert await seen(app, "eu") == [["a", 1], ["b", 2], ["c", 3]]


async def test_a_duplicate_is_answered_with_the_first_run(new_app: NewApp):
    async with started(new_app) as app:
        first = await handled(app, Signal("add", id="7", source="/shop"))
        again = await app.agents.send("counter", "eu", Signal("add", id="7", source="/shop"))
        assert (again.id, again.duplicate, again.state) == (first.id, True, "succeeded")
        other = await handled(app, Signal("add", id="7", source="/till"))
        assert other.id != first.id
        failed = await handled(app, Signal("fail", id="8", source="/shop"))
        assert failed.state == "failed"
        again = await app.agents.send("counter", "eu", Signal("fail", id="8", source="/shop"))
        assert (again.id, again.duplicate, again.state) == (failed.id, True, "failed")
        assert await count(app) == 2


async def test_a_full_mailbox_refuses_signals_all_or_none(new_app: NewApp):
    async with started(new_app, counter(mailbox=3)) as app:
        await app.agents.start("counter", "eu")
        await app.agents.pause("counter", "eu")
        await app.agents.send("counter", "eu", [Signal("add"), Signal("add")])
        with pytest.raises(
            ResourceExhausted, match="the mailbox of instance 'eu' of agent 'counter' is full"
        ):
            await app.agents.send("counter", "eu", [Signal("add"), Signal("add")])
        assert (await app.agents.instance("counter", "eu")).waiting == 2
        await app.agents.send("counter", "eu", Signal("add"))


@on_one_store
async def test_bad_signals_are_refused_with_advice(new_app: NewApp):
    async with started(new_app) as app:
        await app.agents.put("plain", {})
        cases: list[tuple[type[Exception], str, tuple[Any, ...]]] = [
            (NotFound, "no agent 'nobody'", ("nobody", "eu", "add")),
            (FailedPrecondition, r"agent 'plain' has no class.*app\.agent", ("plain", "eu", "add")),
            (InvalidArgument, r"instance: .* character U\+000A", ("counter", "E\nU", "add")),
            (InvalidArgument, "signals: there is none", ("counter", "eu", [])),
            (
                InvalidArgument,
                "signals: there are 1001; send at most 1000",
                ("counter", "eu", ["add"] * 1001),
            ),
            (InvalidArgument, "specversion: it is missing", ("counter", "eu", {"type": "add"})),
        ]
        for error, says, arguments in cases:
            with pytest.raises(error, match=says):
                await app.agents.send(*arguments)
        with pytest.raises(InvalidArgument, match=r"data: .*65536"):
            Signal("add", "x" * 70_000)
        assert not await app.agents.list("counter")


@on_one_store
async def test_an_inactive_agent_and_a_used_budget_refuse_signals(new_app: NewApp):
    app = started(new_app)

    @app.function()
    async def think() -> Succeeded:
        return Succeeded("done", '{"tokens":60}')

    async with app:
        await app.agents.put("counter", {"target": {"kind": "agent"}, "active": False})
        with pytest.raises(FailedPrecondition, match="agent 'counter' is not active; activate it"):
            await app.agents.send("counter", "eu", "add")
        await app.agents.put("counter", {"target": {"kind": "agent"}, "budget": {"tokensPerDay": 50}})
        jobs = app.jobs.of("counter")
        await jobs.create("think", schedule=SELDOM, target=Function("think"))
        await over(app, (await jobs.run("think")).id)
        with pytest.raises(ResourceExhausted, match="budget"):
            await app.agents.send("counter", "eu", "add")


@on_one_store
async def test_who_may_send(new_app: NewApp):
    async with started(new_app) as app:
        send, signal = app.services.agents.signals.send, [Signal("add")]
        member, own = (
            Principal("key:1", "member", "default"),
            Principal("key:2", "agent", "default", "counter"),
        )
        for who in (member, own):
            (received,) = await send(who, "default", "counter", "eu", signal)
            assert received.run.triggered_by == who.actor
            assert f'"source":"{who.actor}"' in str(received.run.payload)
        with pytest.raises(NotFound, match="no agent 'counter'"):
            await send(Principal("key:3", "agent", "default", "painter"), "default", "counter", "eu", signal)
        with pytest.raises(NotFound, match="no workspace 'default'"):
            await send(Principal("key:4", "admin", "acme"), "default", "counter", "eu", signal)
        with pytest.raises(PermissionDenied):
            await app.services.agents.instances.stop(member, "default", "counter", "eu")


async def test_a_request_with_an_idempotency_key_is_performed_once(new_app: NewApp):
    async with started(new_app) as app:

        def render(received: list[Received]) -> Reply:
            return Reply(200, {}, compact([serialize_received(each) for each in received]))

        async def send() -> Reply:
            async def operation(*, keyed: Any) -> list[Received]:
                signals = [Signal("add")]
                return await app.services.agents.signals.send(
                    LOCAL, "default", "counter", "eu", signals, keyed=keyed
                )

            return await app.services.idempotency.perform(LOCAL, "default", "k1", ["POST"], operation, render)

        first, second = await send(), await send()
        assert (first.body, first.replayed, second.replayed) == (second.body, False, True)
        await handled(app, "note")
        assert await count(app) == 1


# --- what becomes a signal ---------------------------------------------------------------------------


async def test_jobs_wakes_messages_and_heartbeats_arrive_as_signals(new_app: NewApp):
    async with started(new_app) as app:
        jobs, runs = app.jobs.of("counter"), app.runs.of("counter")
        assert (await app.agents.get("counter")).target == {"kind": "agent"}
        await jobs.create("digest", schedule=SELDOM, payload={"n": 1})
        await jobs.create("note", schedule=SELDOM, message="hello", after={"job": "digest"})
        done = await over(app, (await jobs.run("digest")).id)
        assert (done.state, done.instance, done.signal, done.trigger) == (
            "succeeded", "default", "wakeful.job", "user",
        )  # fmt: skip

        async def arrived(number: int) -> bool:
            return len(await seen(app)) >= number

        await eventually(lambda: arrived(2))
        await over(app, (await runs.wake({"w": 1})).id)
        await app.agents.say("counter", "good morning")
        await eventually(lambda: arrived(4))
        await app.agents.put("counter", {"heartbeat": {"every": "24h"}})  # its class stays the target
        assert (await app.agents.get("counter")).target == {"kind": "agent"}
        await over(app, (await jobs.run("heartbeat")).id)
        found = await seen(app)
        assert found[:3] == [
            ["wakeful.job", {"n": 1}],
            ["wakeful.job", {"message": "hello"}],
            ["wakeful.wake", {"w": 1}],
        ]
        assert found[3][0] == "wakeful.message"
        assert found[3][1]["message"] == "good morning"
        assert found[4][0] == "wakeful.heartbeat"


@on_one_store
async def test_a_message_that_the_instance_cannot_receive_is_refused(new_app: NewApp):
    async with started(new_app, counter(mailbox=1)) as app:
        await app.agents.start("counter")
        await app.agents.stop("counter")
        with pytest.raises(
            FailedPrecondition, match="instance 'default' of agent 'counter' is stopped; start"
        ):
            await app.agents.say("counter", "hello")
        await app.agents.start("counter")
        await app.agents.pause("counter")
        await app.agents.send("counter", "default", "add")
        with pytest.raises(
            ResourceExhausted, match="the mailbox of instance 'default' of agent 'counter' is"
        ):
            await app.agents.say("counter", "hello")
        await app.agents.say("counter", "/stop")  # a command is no signal
        await app.agents.resume("counter")


async def test_ticks_of_a_job_go_to_the_instance_and_type_of_its_target(new_app: NewApp):
    target = {"kind": "agent", "instance": "eu", "signal": "report.generate"}
    async with started(new_app) as app:
        await app.jobs.of("counter").create("often", schedule="every 1s", target=target, payload=[1])

        async def arrived() -> list[Any]:
            try:
                return await seen(app, "eu")
            except NotFound:
                return []

        assert (await eventually(arrived))[0] == ["report.generate", [1]]


async def test_a_backfill_is_handled_in_order_and_a_replay_joins_at_the_end(new_app: NewApp):
    cls = counter()
    async with started(new_app, cls) as app:
        await app.agents.start("counter")
        jobs = app.jobs.of("counter")
        job = await jobs.create("yearly", schedule="0 0 1 1 *", payload={"n": 1})
        start, end = job.created_at.replace(year=2020), job.created_at.replace(year=2024)
        number = await jobs.backfill("yearly", start, end)

        async def arrived() -> bool:
            return len(await seen(app)) == number

        await eventually(arrived)
        runs = [run for run in reversed(await app.runs.of("counter").list()) if run.trigger == "backfill"]
        handled_at = [run.started_at for run in runs]
        assert [run.scheduled_at.year for run in runs] == [2021, 2022, 2023, 2024]
        assert handled_at == sorted(handled_at, key=str)

        dead = await handled(app, Signal("fail", id="1", source="/a"), "default")
        running = await busy(app, cls, "default")
        waiting = await app.agents.send("counter", "default", "first")
        again = await app.runs.of("counter").replay(dead.id)
        assert (again.instance, again.signal, again.state) == ("default", "fail", "pending")
        cls.released.set()
        for run in (running, waiting, again):
            await over(app, run.id)
        first, second = (
            await app.runs.of("counter").get(waiting.id),
            await app.runs.of("counter").get(again.id),
        )
        assert second.state == "failed"
        assert first.finished_at is not None
        assert second.started_at is not None
        assert first.finished_at <= second.started_at


@on_one_store
async def test_a_job_for_a_class_that_no_process_has_is_saved_with_a_warning(new_app: NewApp):
    async with new_app() as app:
        saved = await app.jobs.create("digest", schedule=SELDOM, target={"kind": "agent"})
        assert any("class" in each for each in saved.warnings), saved.warnings


# --- delays in memory, and signals that go out -----------------------------------------------------------


async def test_a_delay_in_memory_is_sent_after_the_outcome(new_app: NewApp):
    async with started(new_app) as app:
        await handled(app, "delay")

        async def counted() -> bool:
            return await count(app) == 1

        await eventually(counted)


async def test_a_delay_in_memory_of_a_refused_outcome_is_not_sent(new_app: NewApp):
    class Delayed(counter()):  # type: ignore[misc]
        @on("delay")
        async def delay(self, signal: Signal, ctx: Context) -> list[Directive]:
            return [Delay(0, "add", durable=False), Emit("note", to=("nobody", "eu"))]

    async with started(new_app, Delayed) as app:
        run = await handled(app, "delay")
        assert (run.state, run.reason) == ("failed", "directive_refused")
        await handled(app, "note")
        assert await count(app) == 0
        assert len([each for each in await app.runs.list(all_agents=True) if each.signal == "add"]) == 0


async def test_emitted_signals_are_recorded_and_published(new_app: NewApp):
    async with started(new_app) as app, served(app) as ask:
        run = await handled(app, "publish")
        assert [(each["type"], each["data"]) for each in run.emitted] == [
            ("added", {"by": 1}), ("added", {"by": 2}),
        ]  # fmt: skip
        stream = await app.services.events.subscribe(LOCAL, "default", types=["signal.emitted"], after=0)
        (event,) = await stream.next(60) or []
        stream.close()
        assert (event.type, event.agent) == ("signal.emitted", "counter")
        assert event.run is not None
        assert event.run.id == run.id
        assert [each["id"] for each in (await ask("GET", f"/runs/{run.id}")).body["emitted"]] == ["e1", "e2"]


# --- registration ----------------------------------------------------------------------------------------


@on_one_store
async def test_a_class_is_registered_before_or_after_the_start(new_app: NewApp):
    app = new_app()

    @app.agent
    class Other(Agent):
        name = "other"

        @on("*")
        async def handle(self) -> None: ...

    assert Other.name == "other"
    with pytest.raises(InvalidArgument, match="there is no lane 'fast'"):
        app.agent(counter(lane="fast"))
    async with app:
        await over(app, (await app.agents.send("other", "default", "any")).id)
        app.agent(counter())
        await app.agents.start("counter", id="eu")
        assert (await handled(app, "add")).state == "succeeded"
        await has_schedules(app, {"0 6 * * *": True})


async def test_a_class_registered_in_an_app_without_classes_gets_its_signals_and_schedules(new_app: NewApp):
    async with new_app() as app:
        app.agent(counter(version=1))
        assert (await handled(app, "add")).state == "succeeded"
        await has_schedules(app, {"0 6 * * *": True})
        assert (await app.agents.get("counter")).target == {"kind": "agent"}
        with pytest.raises(AlreadyExists, match="the agent 'counter' has the class Counter already"):
            app.agent(counter(version=2))


@on_one_store
async def test_a_class_does_not_replace_the_target_of_its_agent(new_app: NewApp):
    async with new_app() as app:
        await app.agents.put("counter", {"target": {"kind": "echo"}})
    async with started(new_app) as app:
        assert (await app.agents.get("counter")).target == {"kind": "echo"}
        assert (await handled(app, "add")).state == "succeeded"


@on_one_store
async def test_what_is_not_a_signal_is_refused(new_app: NewApp):
    app = new_app()
    app.agent(counter())
    async with app:
        for wrong in (5, None, b"add", object()):
            with pytest.raises(InvalidArgument, match="is not a signal; give a Signal, the text of its type"):
                await app.agents.send("counter", "eu", wrong)  # type: ignore[call-overload]
