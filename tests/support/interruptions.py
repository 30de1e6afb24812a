"""Cancel an operation at each of its suspensions, and fail a port at each of its calls.

An operation that takes something (a run, a slot, a lock, a connection) must return it, whatever happens at
any `await`. `cancel_at_each_await` tries them all; `FaultyPort` does the same for calls that fail.
"""

from __future__ import annotations

import asyncio
import itertools
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Final, TypeVar

from wakeful.errors import Unavailable

T = TypeVar("T")

#: More suspensions than any operation has; more mean that it does not end.
_MOST: Final = 1_000


async def cancel_at(doing: Coroutine[Any, Any, T], number: int, *, late: bool) -> bool:
    """Cancel a coroutine at its suspension of this number, from 1. False: it ended before.

    Early: as soon as it waits, so that what it waits for is cancelled too. Late: when that is done and the
    coroutine has not continued, so that the result is lost. Another error than the cancellation is raised.
    """
    loop = asyncio.get_running_loop()
    reached = False

    @types.coroutine
    def steps() -> Generator[Any, Any, Any]:
        nonlocal reached
        advance: Callable[[Any], Any] = doing.send
        given: Any = None
        for count in itertools.count(1):
            try:
                waits_for = advance(given)
            except StopIteration as stop:
                return stop.value
            if count == number:
                reached = True
                if late and isinstance(waits_for, asyncio.Future):
                    waits_for.add_done_callback(lambda _: task.cancel())
                else:
                    loop.call_soon(task.cancel)
            try:
                given, advance = (yield waits_for), doing.send
            except BaseException as error:
                given, advance = error, doing.throw
        raise AssertionError("not reached")

    async def driven() -> Any:
        return await steps()

    task = asyncio.create_task(driven())
    await asyncio.wait({task})
    if not task.cancelled():
        task.result()
    return reached


async def cancel_at_each_await(
    operation: Callable[[], Coroutine[Any, Any, object]],
    check: Callable[[], Awaitable[object]],
    *,
    prepare: Callable[[], Awaitable[object]] | None = None,
) -> int:
    """Cancel a new `operation` at its first suspension, then one at its second, and so on until one ends.

    Before each, `prepare` is called; after each, `check`. Each suspension is tried early and late (see
    `cancel_at`). Returns how many operations were cancelled.
    """
    cancelled = 0
    for late in (False, True):
        for number in range(1, _MOST):
            if prepare is not None:
                await prepare()
            reached = await cancel_at(operation(), number, late=late)
            await check()
            if not reached:
                break
            cancelled += 1
        else:
            raise AssertionError(f"the operation was suspended {_MOST} times")
    return cancelled


class FaultyPort:
    """A store, client or broker, one call of which fails: `FaultyPort(store).fail("plan", number=2)`.

    Other attributes are those of the port.
    """

    def __init__(self, port: Any) -> None:
        self._port = port
        self._faults: dict[str, list[tuple[int, bool, Callable[[], Any]]]] = {}
        #: the names of the methods that were called, in order
        self.calls: list[str] = []

    def fail(
        self,
        method: str,
        error: BaseException | None = None,
        *,
        number: int = 1,
        after: bool = False,
        answer: Callable[[], Any] | None = None,
    ) -> FaultyPort:
        """Let a call of this method, counted from now, raise `error`, or return `answer()`.

        With `after` the port executes the call, and only its result is lost.
        """
        raised = error if error is not None else Unavailable(f"{method}: no response")

        def give() -> Any:
            if answer is not None:
                return answer()
            raise raised

        self._faults.setdefault(method, []).append((self.calls.count(method) + number, after, give))
        return self

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._port, name)
        if not asyncio.iscoroutinefunction(value):
            return value

        async def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append(name)
            count = self.calls.count(name)
            for number, after, give in self._faults.get(name, ()):
                if number == count:
                    if after:
                        await value(*args, **kwargs)
                    return give()
            return await value(*args, **kwargs)

        return call
