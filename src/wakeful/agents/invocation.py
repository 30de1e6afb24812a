"""Calls of methods that users write: coroutines in the event loop, everything else in threads."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from types import AsyncGeneratorType, GeneratorType

from wakeful.launch.user_code import Threads


class Invoker:
    """Calls functions and returns what they return. A generator becomes the list of what it yields."""

    def __init__(self, threads: int) -> None:
        self._max_threads = threads
        self._threads: Threads | None = None

    async def call(
        self, function: Callable[..., object], *args: object, abandoned: Callable[[], None]
    ) -> object:
        """Call a function. `abandoned` is called if it still runs in its thread when the caller is cancelled.

        What it raises is raised here.
        """
        if is_asynchronous(function):
            value = function(*args)
        else:
            if self._threads is None:
                self._threads = Threads(self._max_threads)
            value = await self._threads.run(lambda: _collected(function(*args)), abandoned)
        if isinstance(value, AsyncGeneratorType):
            return [each async for each in value]
        # A function may return a coroutine, such as a lambda around an `async def`.
        return await value if isinstance(value, Awaitable) else value

    def close(self) -> None:
        """Stop the idle threads."""
        if self._threads is not None:
            self._threads.close()
            self._threads = None


def is_asynchronous(function: Callable[..., object]) -> bool:
    """Return whether a function is `async def`, also if it yields."""
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def _collected(value: object) -> object:
    """Run a generator in the thread of its function."""
    return list(value) if isinstance(value, GeneratorType) else value
