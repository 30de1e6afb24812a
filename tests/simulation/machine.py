"""The simulated machine of a replica: its clock skew and its crash.

A replica runs in its own context, so that it reads the time of its machine and so that a crash cancels all of
its tasks and timers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any

from tests.simulation.virtual_loop import FalseClock, VirtualLoop

_HERE: ContextVar[Machine | None] = ContextVar("machine", default=None)


class Machine:
    """One process on one machine: its tasks, timers and clock skew."""

    def __init__(self, loop: VirtualLoop, skew_ms: int = 0) -> None:
        self._loop = loop
        self.skew_ms = skew_ms
        self.dead = False
        #: in the order of their creation
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self._context = copy_context()
        self._context.run(_HERE.set, self)

    def run(self, doing: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine on this machine, including everything it starts."""
        return self._loop.create_task(doing, context=self._context)

    def die(self) -> None:
        """Crash immediately: cancel all tasks and timers."""
        self.dead = True
        for handle in self._loop._scheduled:  # type: ignore[attr-defined]
            if handle._context.get(_HERE) is self:
                handle.cancel()
        for task in list(self.tasks):
            task.cancel()


class FalseTime:
    """Replacement of the `time` module: monotonic, with the clock skew of the machine."""

    def __init__(self, loop: VirtualLoop, truth: FalseClock) -> None:
        self._loop, self._truth = loop, truth

    def monotonic_ns(self) -> int:
        """Return nanoseconds since an arbitrary point."""
        return self._loop.now_us * 1000

    def time_ns(self) -> int:
        """Return the wall-clock time of this machine."""
        here = _HERE.get()
        return (self._truth.now_us() + (here.skew_ms if here else 0) * 1000) * 1000


def watch_tasks(loop: VirtualLoop) -> None:
    """Register each task with the machine in whose context it runs."""

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
            machine.tasks[task] = None
            task.add_done_callback(machine.tasks.pop)
            task.add_done_callback(_heard)
            if machine.dead:
                task.cancel()
        return task

    loop.set_task_factory(made)  # type: ignore[arg-type]


def _heard(task: asyncio.Task[Any]) -> None:
    """Retrieve the exception of a task, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()
