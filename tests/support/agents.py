"""An agent class for tests, and waiting for what its instances do."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, ClassVar

from tests.support.waiting import PATIENCE, eventually, over
from wakeful import Wakeful
from wakeful.agents.agent import Agent, Schedule, on
from wakeful.agents.context import Context, InstanceContext
from wakeful.agents.directives import (
    CancelCron,
    Delay,
    Directive,
    Emit,
    SetCron,
    SetState,
    Stop,
)
from wakeful.model import Run
from wakeful.signal.signals import Signal


class Counter(Agent):
    """Counts signals. Other types record what arrives, change schedules, or wait."""

    name = "counter"
    state: ClassVar[Any] = {"count": 0, "seen": [], "token": "abc"}
    schedules: ClassVar[Any] = (Schedule("0 6 * * *", "add", job_id="daily"),)
    max_attempts = 2
    backoff: ClassVar[Any] = {"base": "1ms", "max": "1ms"}
    #: what happened in this process
    hooks: ClassVar[list[str]]
    entered: ClassVar[asyncio.Event]
    released: ClassVar[asyncio.Event]

    @on("add")
    async def add(self, signal: Signal, ctx: Context) -> Directive:
        return SetState(count=ctx.state["count"] + 1)

    @on("wait")
    async def wait(self, signal: Signal, ctx: Context) -> None:
        self.entered.set()
        await self.released.wait()

    @on("fail")
    async def fail(self, signal: Signal, ctx: Context) -> None:
        raise ValueError("no")

    @on("publish")
    async def publish(self, signal: Signal, ctx: Context) -> list[Directive]:
        return [Emit(Signal("added", {"by": 1}, id="e1")), Emit(Signal("added", {"by": 2}, id="e2"))]

    @on("delay")
    async def delay(self, signal: Signal, ctx: Context) -> Directive:
        return Delay(10, "add", durable=False)

    @on("cron.set")
    async def set_cron(self, signal: Signal, ctx: Context) -> Directive:
        return SetCron("0 7 * * *", "add", "mine")

    @on("cron.cancel")
    async def cancel_cron(self, signal: Signal, ctx: Context) -> Directive:
        return CancelCron("daily", declared=True)

    @on("stop")
    async def stop(self, signal: Signal, ctx: Context) -> Directive:
        return Stop()

    @on("*")
    async def other(self, signal: Signal, ctx: Context) -> Directive:
        return SetState(seen=[*ctx.state["seen"], [signal.type, signal.data]])

    def on_thaw(self, ctx: InstanceContext) -> None:
        type(self).hooks.append(f"thaw {ctx.instance}")

    def on_hibernate(self, ctx: InstanceContext) -> None:
        type(self).hooks.append(f"hibernate {ctx.instance}")

    @classmethod
    def redact(cls, state: dict[str, Any]) -> Mapping[str, Any]:
        return {**state, "seen": len(state["seen"])}


def counter(**changes: Any) -> type[Counter]:
    """Return a new class, like another version of the program; `changes` are its attributes."""
    fresh = {"hooks": [], "entered": asyncio.Event(), "released": asyncio.Event()}
    return type("Counter", (Counter,), {**fresh, **changes})


async def handled(app: Wakeful, signal: Signal | str, instance: str = "eu") -> Run:
    """Send a signal, and wait until its run is over."""
    run = await app.agents.send("counter", instance, signal)
    return await over(app, run.id)


async def busy(app: Wakeful, cls: type[Counter], instance: str = "eu") -> Run:
    """Send a signal whose handler waits for `released`, and wait until it runs."""
    run = await app.agents.send("counter", instance, "wait")
    async with asyncio.timeout(PATIENCE):
        await cls.entered.wait()
    return run


async def schedules(app: Wakeful, instance: str = "eu") -> dict[str, bool]:
    """Return the schedules of an instance: their cron expressions, and whether they are enabled."""
    found = (await app.agents.instance("counter", instance)).schedules
    return {f"{job.schedule.expr}": job.enabled for job in found}  # type: ignore[union-attr]


async def has_schedules(app: Wakeful, expected: dict[str, bool], instance: str = "eu") -> None:
    """Wait until an instance has these schedules."""

    async def look() -> bool:
        return await schedules(app, instance) == expected

    await eventually(look)
