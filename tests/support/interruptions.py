"""Cancel an operation at each of its suspensions, and fail a port at each of its calls.

An operation that takes something (a run, a slot, a lock, a connection) must return it, whatever happens at
any `await`. `cancel_at_each_await` and `fail_at_each_call` try them all; `FaultyPort` fails a single call.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from contextvars import ContextVar
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
    return await _interrupt_each(
        lambda number, late: cancel_at(operation(), number, late=late), check, prepare
    )


async def fail_at_each_call(
    port: object,
    operation: Callable[[], Coroutine[Any, Any, object]],
    check: Callable[[], Awaitable[object]],
    *,
    prepare: Callable[[], Awaitable[object]] | None = None,
) -> int:
    """Let the first call of `port` by a new `operation` fail, then the second by another one, and so on.

    The call is first not executed; later it is, and only its result is lost. Calls of other tasks do not
    fail. Before each operation, `prepare` is called; after each, `check`. Returns how many operations failed.
    """

    async def fail(number: int, late: bool) -> bool:
        fault = _Fault(number, late)
        _fault.set(fault)  # the tasks that the operation starts have it too
        with contextlib.suppress(Unavailable):
            await operation()
        return fault.calls >= number

    async def fail_in_task(number: int, late: bool) -> bool:
        return await asyncio.create_task(fail(number, late))

    with _counted_calls(port):
        return await _interrupt_each(fail_in_task, check, prepare)


async def _interrupt_each(
    interrupt: Callable[[int, bool], Awaitable[bool]],
    check: Callable[[], Awaitable[object]],
    prepare: Callable[[], Awaitable[object]] | None,
) -> int:
    """Interrupt an operation at its first point, early, then one at its second, until one ends; then late."""
    interrupted = 0
    for late in (False, True):
        for number in range(1, _MOST):
            if prepare is not None:
                await prepare()
            reached = await interrupt(number, late)
            await check()
            if not reached:
                break
            interrupted += 1
        else:
            raise AssertionError(f"the operation has more than {_MOST} points")
    return interrupted


class _Fault:
    """Which call of an operation fails, and how many it has made."""

    def __init__(self, number: int, late: bool) -> None:
        self.number = number
        self.late = late
        self.calls = 0


_fault: ContextVar[_Fault | None] = ContextVar("fault", default=None)


@contextlib.contextmanager
def _counted_calls(port: object) -> Iterator[None]:
    """Let those calls of the port fail that the fault of their context names."""

    def counted(name: str, method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def call(*args: Any, **kwargs: Any) -> Any:
            fault = _fault.get()
            if fault is None:
                return await method(*args, **kwargs)
            fault.calls += 1
            fails = fault.calls == fault.number
            result = None if fails and not fault.late else await method(*args, **kwargs)
            if fails:
                raise Unavailable(f"{name}: no response")
            return result

        return call

    names = [name for name, _ in inspect.getmembers(type(port), inspect.iscoroutinefunction)]
    names = [name for name in names if not name.startswith("_")]
    for name in names:
        setattr(port, name, counted(name, getattr(port, name)))
    try:
        yield
    finally:
        for name in names:
            delattr(port, name)


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
        if not inspect.iscoroutinefunction(value):
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
