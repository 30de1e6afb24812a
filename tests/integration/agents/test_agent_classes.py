"""Agent classes on real databases: typed state, migration, memory, hibernation, versions."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pytest
from pydantic import BaseModel

from tests.integration.conftest import NewApp
from tests.support.waiting import PATIENCE
from wakeful import (
    SELF,
    Agent,
    Context,
    Delay,
    Emit,
    FailedPrecondition,
    Permanent,
    Run,
    Schedule,
    SetState,
    Signal,
    Wakeful,
    on,
)
from wakeful.settings import Settings


@dataclass
class Orders:
    paid: set[str] = field(default_factory=set)
    last: datetime | None = None
    total: float = 0.0


class Model(BaseModel):
    paid: set[str] = set()
    last: datetime | None = None
    total: float = 0.0


class Shop(Agent):
    name = "shop"
    state = Orders
    backoff = {"base": "1ms", "max": "1ms"}

    @on("order.paid")
    async def paid(self, signal: Signal, ctx: Context) -> object:
        assert isinstance(signal.data, dict)
        if ctx.seen(str(signal.data["order"])):
            return f"again after {ctx.last_run is not None}"
        state = ctx.state
        assert isinstance(state.paid, set)
        return [
            SetState(
                paid=state.paid | {str(signal.data["order"])},
                last=ctx.now(),
                total=state.total + float(signal.data["price"]),  # type: ignore[arg-type]
            ),
            Emit(Signal("order.done", signal.data)),
            "paid",
        ]

    @on("order.wrong")
    def wrong(self) -> object:
        return SetState(total="much")


class Opener(Agent):
    name = "opener"
    max_attempts = 1

    @on("open")
    def open(self, signal: Signal) -> object:
        return Emit(Signal("opened"), to=("opener", str(signal.data)))

    @on("opened")
    def opened(self) -> None:
        pass


def shop(**attributes: Any) -> type[Agent]:
    return type("Shop", (Shop,), attributes)


async def handled(app: Wakeful, signal: Signal, instance: str = "eu") -> Run:
    run = await app.agents.send("shop", instance, signal)
    return await app.runs.wait(run.id)


def paid(order: str, price: float = 1.5) -> Signal:
    return Signal("order.paid", {"order": order, "price": price})


@pytest.mark.parametrize("state", [Orders, Model], ids=["dataclass", "model"])
async def test_a_typed_state_is_kept_from_signal_to_signal(new_app: NewApp, state: type):
    app = new_app()
    app.agent(shop(state=state))
    async with app:
        runs = [await handled(app, paid(order)) for order in ("a", "b", "a")]
        stored = await app.agents.state("shop", "eu")
        wrong = await handled(app, Signal("order.wrong"))

        assert [run.output for run in runs] == ["paid", "paid", "again after True"]
        assert [signal["type"] for signal in runs[0].emitted] == ["order.done"]
        assert (sorted(stored["paid"]), stored["total"]) == (["a", "b"], 3.0)
        assert (wrong.state, wrong.reason, wrong.failed_attempts) == ("failed", "invalid_state", 1)
        assert await app.agents.state("shop", "eu") == stored


async def test_a_newer_class_migrates_what_an_older_one_wrote(new_app: NewApp):
    def migrate(self: Agent, state: dict[str, Any], from_version: int) -> object:
        return {"paid": state["paid"], "total": state["total"] * 100, "last": state["last"]}

    app = new_app()
    app.agent(Shop)
    async with app:
        await handled(app, paid("a"))
    newer = new_app()
    newer.agent(shop(version=2, migrate=migrate))
    async with newer:
        await handled(newer, paid("b"))
        instance = await newer.agents.instance("shop", "eu")

        assert (instance.version, (await newer.agents.state("shop", "eu"))["total"]) == (2, 151.5)


async def test_a_state_that_cannot_be_migrated_blocks_the_instance_until_the_class_can(new_app: NewApp):
    def broken(self: Agent, state: dict[str, Any], from_version: int) -> object:
        raise KeyError("price")

    app = new_app()
    app.agent(Shop)
    async with app:
        await handled(app, paid("a"))
    second = new_app()
    second.agent(shop(version=2, migrate=broken))
    async with second:
        run = await second.agents.send("shop", "eu", paid("b"))
        async with asyncio.timeout(60):
            while (await second.agents.instance("shop", "eu")).status != "blocked":
                await asyncio.sleep(0.02)
        blocked = await second.agents.instance("shop", "eu")
        other = await handled(second, paid("c"), "us")

        assert "cannot be migrated from version 1 to 2: KeyError: 'price'" in (blocked.note or "")
        assert other.state == "succeeded"
        assert (await second.runs.get(run.id)).state == "retrying"
    third = new_app()
    third.agent(shop(version=3, migrate=lambda self, state, from_version: state))
    async with third:
        done = await third.runs.wait(run.id)
        state = await third.agents.state("shop", "eu")

        assert (done.output, sorted(state["paid"])) == ("paid", ["a", "b"])


async def test_two_processes_use_the_state_that_the_other_wrote(new_app: NewApp):
    class Counter(Agent):
        name = "shop"
        state = {"count": 0}

        def __init__(self) -> None:
            self.mine = 0

        @on("*")
        async def count(self, signal: Signal, ctx: Context) -> object:
            self.mine += 1
            return SetState(count=ctx.state["count"] + 1)

    apps = [new_app(), new_app()]
    for app in apps:
        app.agent(Counter)
    async with apps[0], apps[1]:
        sent = [await apps[number % 2].agents.send("shop", "eu", Signal("count.up")) for number in range(40)]
        for run in sent:
            await apps[0].runs.wait(run.id)

        assert await apps[0].agents.state("shop", "eu") == {"count": 40}


async def test_a_hibernated_instance_comes_back_with_its_state_and_schedules(new_app: NewApp):
    events: list[str] = []

    class Sleeper(Shop):
        schedules = [Schedule("every 1s", "order.tick", job_id="tick")]

        @on("order.tick")
        async def tick(self, signal: Signal, ctx: Context) -> object:
            events.append(f"tick {len(ctx.state.paid)}")
            return None

        def on_thaw(self, ctx: Any) -> None:
            events.append("thaw")

        def on_hibernate(self, ctx: Any) -> None:
            events.append("hibernate")

    app = new_app()
    app.agent(Sleeper)
    async with app:
        await app.agents.start("shop", id="eu")
        await handled(app, paid("a"))
        await app.agents.hibernate("shop", "eu")
        async with asyncio.timeout(60):
            while events[-1:] != ["tick 1"] or "hibernate" not in events:
                await asyncio.sleep(0.02)

        assert events.index("hibernate") < len(events) - events[::-1].index("thaw")


async def test_a_permanent_error_and_an_unknown_type_end_as_dead_letters_and_the_next_signal_runs(
    new_app: NewApp,
):
    class Strict(Shop):
        @on("order.refused")
        async def refused(self) -> None:
            raise Permanent("the order is closed")

    app = new_app()
    app.agent(Strict)
    async with app:
        runs = [
            await handled(app, signal) for signal in (Signal("order.refused"), Signal("unknown"), paid("a"))
        ]

        assert [(run.state, run.dead, run.failed_attempts) for run in runs] == [
            ("failed", True, 1), ("failed", True, 1), ("succeeded", False, 0),
        ]  # fmt: skip
        assert (runs[0].error, runs[1].reason) == ("the order is closed", "unhandled")


async def test_a_stopped_instance_refuses_signals(new_app: NewApp):
    app = new_app()
    app.agent(Shop)
    async with app:
        await handled(app, paid("a"))
        await app.agents.stop("shop", "eu")
        with pytest.raises(FailedPrecondition):
            await app.agents.send("shop", "eu", paid("b"))
        await app.agents.start("shop", id="eu")
        assert (await handled(app, paid("a"))).output == "paid"


async def test_an_instance_may_send_itself_the_signal_that_it_handles_again(new_app: NewApp):
    handled_ids: list[str] = []
    done = asyncio.Event()

    class Poller(Agent):
        name = "poller"

        @on("poll")
        async def poll(self, signal: Signal, ctx: Context) -> object:
            handled_ids.append(signal.id)
            match len(handled_ids):
                case 1:
                    return Delay(1, signal)
                case 2:
                    return Emit(signal, to=SELF)
                case 3:
                    return Delay(1, signal, durable=False)
            done.set()
            return None

    app = new_app()
    app.agent(Poller)
    async with app, asyncio.timeout(PATIENCE):
        await app.agents.send("poller", "eu", Signal("poll", id="order-7", source="/shop"))
        await done.wait()
        again = await app.agents.send("poller", "eu", Signal("poll", id="order-7", source="/shop"))
    assert handled_ids == ["order-7"] * 4
    assert again.duplicate


async def test_a_handler_cannot_add_more_instances_than_the_quota_allows(new_app: NewApp):
    app = new_app(settings=Settings(quota_instances_per_agent=2))
    app.agent(Opener)
    async with app:
        states = []
        for name in ("us", "asia", "us"):
            run = await app.agents.send("opener", "eu", Signal("open", name))
            seen = await app.runs.wait(run.id)
            states.append((seen.state, seen.reason))
    assert states == [("succeeded", None), ("failed", "directive_refused"), ("succeeded", None)]
