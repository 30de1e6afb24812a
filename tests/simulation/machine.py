"""The machine that a replica runs on, as far as it can be wrong: its clock, and its sudden death.

Everything that a replica does, it does in a context of its own, so that whatever asks for the time of day
can be given that machine's, and so that nothing of it is left when the machine dies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any

from tests.simulation.virtual_loop import FalseClock, VirtualLoop

_HERE: ContextVar[Machine | None] = ContextVar("machine", default=None)


class Machine:
    """One process on one machine: its tasks and timers, and how wrong its clock is."""

    def __init__(self, loop: VirtualLoop, skew_ms: int = 0) -> None:
        self._loop = loop
        self.skew_ms = skew_ms
        self.dead = False
        self.tasks: set[asyncio.Task[Any]] = set()
        self._context = copy_context()
        self._context.run(_HERE.set, self)

    def run(self, doing: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Do this here: whatever it starts, starts here too."""
        return self._loop.create_task(doing, context=self._context)

    def die(self) -> None:
        """At once: no task takes another step that anybody could notice, no timer goes off."""
        self.dead = True
        for handle in self._loop._scheduled:  # type: ignore[attr-defined]
            if handle._context.get(_HERE) is self:
                handle.cancel()
        for task in list(self.tasks):
            task.cancel()


class FalseTime:
    """What `import time` is to a machine that is not there: steady, but perhaps wrong about the hour."""

    def __init__(self, loop: VirtualLoop, truth: FalseClock) -> None:
        self._loop, self._truth = loop, truth

    def monotonic_ns(self) -> int:
        """Nanoseconds since some time or other."""
        return self._loop.now_us * 1000

    def time_ns(self) -> int:
        """The time of day, as this machine has it."""
        here = _HERE.get()
        return (self._truth.now_us() + (here.skew_ms if here else 0) * 1000) * 1000


def watch_tasks(loop: VirtualLoop) -> None:
    """Have the loop tell each machine which tasks are its own."""

    def made(
        loop: asyncio.AbstractEventLoop,
        coro: Coroutine[Any, Any, Any],
        *,
        context: Context | None = None,
        name: str | None = None,
    ) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=loop, context=context, name=name)
        machine = _HERE.get() if context is None else context.get(_HERE)
        if machine is not None:
            machine.tasks.add(task)
            task.add_done_callback(machine.tasks.discard)
            task.add_done_callback(_heard)
            if machine.dead:
                task.cancel()
        return task

    loop.set_task_factory(made)  # type: ignore[arg-type]


def _heard(task: asyncio.Task[Any]) -> None:
    """What a dying machine's tasks raise, nobody needs to be told."""
    if not task.cancelled():
        task.exception()
