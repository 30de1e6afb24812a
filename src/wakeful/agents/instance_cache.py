"""The agent objects in memory: created when a signal arrives, removed when they are idle or too many.

The database has the state; an object only keeps what is expensive to create again, such as connections. It is
used only if the revision of the state is the one that it saw last: else another process has handled signals
in between, and a new object is created. `on_thaw` and `on_hibernate` are called with best effort: an error is
logged and changes nothing.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import partial
from types import AsyncGeneratorType, GeneratorType
from typing import Any, Final

from wakeful.agents.agent import Agent, NotHere, takes_context
from wakeful.agents.class_registry import RegisteredClass
from wakeful.agents.context import InstanceContext
from wakeful.agents.state import state_from_text
from wakeful.launch.function import HandlerContext, await_in_context, call_in_context
from wakeful.launch.user_code import Threads, isolate
from wakeful.logs import get_logger
from wakeful.values.clock import Clock

#: The most objects in memory, and the most bytes of the state that they have seen.
MAX_INSTANCES: Final = 10_000
MAX_BYTES: Final = 64 << 20
#: The least time between two searches for idle objects, in seconds.
_SWEEP_S: Final = 1.0
#: How long `close` waits for `on_hibernate` of all objects.
_CLOSE_S: Final = 5.0
#: How long cancelled hooks have to end.
_STOP_S: Final = 1.0

log = get_logger("wakeful.agents")


class CachedInstance:
    """An object in memory."""

    __slots__ = (
        "busy",
        "created_ms",
        "instance",
        "instance_id",
        "object",
        "registered",
        "revision",
        "state_text",
        "thawed",
        "used_at",
    )

    def __init__(
        self,
        instance_id: str,
        instance: str,
        registered: RegisteredClass,
        revision: int,
        created_ms: int | None,
    ) -> None:
        self.instance_id = instance_id
        self.instance = instance
        self.registered = registered
        self.object: Agent = registered.cls()
        if hasattr(self.object, "__dict__"):
            self.object.__dict__.setdefault("state", NotHere())
        #: whether `on_thaw` was called
        self.thawed = False
        #: the revision of the state that the object saw last, and that state
        self.revision = revision
        self.state_text = ""
        #: when the instance was created: one that was deleted may exist anew, with the same id and revision
        self.created_ms = created_ms
        #: whether it handles a signal
        self.busy = True
        #: when it was used last, by the clock of the event loop
        self.used_at = 0.0


class InstanceCache:
    """The objects by the id of their instance, the least recently used first."""

    def __init__(
        self,
        clock: Clock,
        invoker: Invoker,
        max_instances: int = MAX_INSTANCES,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._clock = clock
        self._invoker = invoker
        self._max_instances = max_instances
        self._max_bytes = max_bytes
        self._entries: OrderedDict[str, CachedInstance] = OrderedDict()
        self._bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, instance_id: object) -> bool:
        return instance_id in self._entries

    def acquire(
        self,
        instance_id: str,
        instance: str,
        registered: RegisteredClass,
        revision: int,
        created_ms: int | None,
    ) -> CachedInstance:
        """Return the object of an instance, from memory or a new one. `thaw` it, and `release` it later."""
        entry = self._entries.get(instance_id)
        if entry is not None and not entry.busy:
            seen = entry.registered, entry.revision, entry.created_ms
            if seen == (registered, revision, created_ms):
                entry.busy = True
                return entry
            self._hibernate(entry)
        return CachedInstance(instance_id, instance, registered, revision, created_ms)

    async def thaw(self, entry: CachedInstance, state_text: str) -> None:
        """Call `on_thaw` of a new object."""
        if not entry.thawed:
            entry.state_text = state_text
            await isolate(lambda: self._call_hook(entry, "on_thaw"))
            entry.thawed = True

    def release(self, entry: CachedInstance, revision: int, state_text: str) -> None:
        """Keep the object for the next signal. The state has this revision if the outcome is written."""
        other = self._entries.get(entry.instance_id)
        if other is not None and other is not entry:
            self._start_hook(entry, "on_hibernate")  # a later attempt has its own object
            return
        if other is not None:
            self._bytes -= len(entry.state_text)
        entry.busy, entry.revision, entry.state_text = False, revision, state_text
        entry.used_at = asyncio.get_running_loop().time()
        self._entries[entry.instance_id] = entry
        self._entries.move_to_end(entry.instance_id)
        self._bytes += len(state_text)
        self._relieve()
        self._arm(entry.used_at + _idle_s(entry))

    def discard(self, entry: CachedInstance) -> None:
        """Forget an object that its handler may still use."""
        if self._entries.get(entry.instance_id) is entry:
            self._remove(entry)

    def hibernate(self, instance_id: str) -> bool:
        """Remove the object of an instance from memory. Returns whether there was an idle one."""
        entry = self._entries.get(instance_id)
        if entry is None or entry.busy:
            return False
        self._hibernate(entry)
        return True

    async def close(self) -> None:
        """Remove all objects, and wait a short time for `on_hibernate`."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for entry in list(self._entries.values()):
            self._hibernate(entry)
        if self._tasks:
            _, pending = await asyncio.wait(self._tasks, timeout=_CLOSE_S)
            for task in pending:
                task.cancel()
            if pending:  # one that ignores its cancellation is left behind
                await asyncio.wait(pending, timeout=_STOP_S)

    def _relieve(self) -> None:
        """Remove the least recently used objects if there are too many."""
        if len(self._entries) <= self._max_instances and self._bytes <= self._max_bytes:
            return
        for entry in list(self._entries.values()):
            if len(self._entries) <= self._max_instances and self._bytes <= self._max_bytes:
                break
            if not entry.busy:
                self._hibernate(entry)

    def _arm(self, at: float) -> None:
        """Search for idle objects at this time of the event loop, or a little later."""
        if self._timer is not None:
            if self._timer.when() <= at + _SWEEP_S:
                return
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(at, self._sweep)

    def _sweep(self) -> None:
        now, next_at = asyncio.get_running_loop().time(), None
        self._timer = None
        for entry in list(self._entries.values()):
            if entry.busy:
                continue
            ends_at = entry.used_at + _idle_s(entry)
            if ends_at <= now:
                self._hibernate(entry)
            elif next_at is None or ends_at < next_at:
                next_at = ends_at
        if next_at is not None:
            self._arm(max(next_at, now + _SWEEP_S))

    def _hibernate(self, entry: CachedInstance) -> None:
        self._remove(entry)
        self._start_hook(entry, "on_hibernate")

    def _remove(self, entry: CachedInstance) -> None:
        del self._entries[entry.instance_id]
        self._bytes -= len(entry.state_text)

    def _start_hook(self, entry: CachedInstance, name: str) -> None:
        if getattr(entry.registered.cls, name) is getattr(Agent, name):
            return
        task = asyncio.get_running_loop().create_task(isolate(lambda: self._call_hook(entry, name)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _call_hook(self, entry: CachedInstance, name: str) -> None:
        registered = entry.registered
        if getattr(registered.cls, name) is getattr(Agent, name):
            return
        fields = {"workspace": registered.workspace, "agent": registered.agent, "instance": entry.instance}
        hook: Any = getattr(entry.object, name)
        text = entry.state_text
        context = InstanceContext(
            registered.workspace,
            registered.agent,
            entry.instance,
            self._clock,
            lambda: registered.state.load(state_from_text(text)),
        )

        def abandoned() -> None:
            log.warning("instance.hook_abandoned", **fields, hook=name)

        try:
            arguments = (context,) if takes_context(hook) else ()
            await self._invoker.call(hook, *arguments, abandoned=abandoned)
        except BaseException:  # a hook that is cancelled has failed too
            log.warning("instance.hook_failed", **fields, hook=name, exc_info=True)


def _idle_s(entry: CachedInstance) -> float:
    return entry.registered.hibernate_ms / 1000


class Invoker:
    """Calls methods that users write: coroutines in the event loop, everything else in threads.

    It returns what they return. A generator becomes the list of what it yields.
    """

    def __init__(self, threads: int, context: HandlerContext | None = None) -> None:
        self._max_threads = threads
        self._context = context
        self._threads: Threads | None = None

    async def call(
        self, function: Callable[..., object], *args: object, abandoned: Callable[[], None]
    ) -> object:
        """Call a function. `abandoned` is called if it still runs in its thread when the caller is cancelled.

        What it raises is raised here.
        """
        if is_asynchronous(function):
            if self._context is None:
                return await _value_of(function(*args))
            return await await_in_context(lambda: _value_of(function(*args)), self._context)
        if self._threads is None:
            self._threads = Threads(self._max_threads)
        call: Callable[[], object] = partial(_collect, function, *args)
        if self._context is not None:
            call = partial(call_in_context, call, self._context)
        # A function may return a coroutine, such as a lambda around an `async def`.
        return await _value_of(await self._threads.run(call, abandoned))

    def close(self) -> None:
        """Stop the idle threads."""
        if self._threads is not None:
            self._threads.close()
            self._threads = None


def is_asynchronous(function: Callable[..., object]) -> bool:
    """Return whether a function is `async def`, also if it yields."""
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


async def _value_of(value: object) -> object:
    """Await what a method returned."""
    if isinstance(value, AsyncGeneratorType):
        return [each async for each in value]
    return await value if isinstance(value, Awaitable) else value


def _collect(function: Callable[..., object], *args: object) -> object:
    """Call a function; run a generator in its thread too."""
    value = function(*args)
    return list(value) if isinstance(value, GeneratorType) else value
