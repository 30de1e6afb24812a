"""From a program without an event loop to the client that lives on one: a loop on a thread of its own.

`blocking` makes of a method of the async client one that waits for its answer. It takes what that one takes
and returns what that one returns, so that type checkers and editors know its arguments without anybody
writing them down twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from typing import Concatenate, Final, Generic, ParamSpec, Protocol, Self, TypeVar, overload

from wakeful.errors import FailedPrecondition

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
A = TypeVar("A")

#: Seconds that the thread is given to end.
_ENDED: Final = 5.0


class Portal:
    """An event loop on a thread, from the first call to `close`; at the latest, to the end of the program.

    `farewell` is what is done on the loop at the end.
    """

    def __init__(self, farewell: Callable[[], Coroutine[object, object, None]]) -> None:
        self._farewell = farewell
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: Callable[[], object] = _nothing
        self._closed = False
        self._starting = threading.Lock()

    def call(self, coroutine: Coroutine[object, object, R], timeout: float | None = None) -> R:
        """What it returns, once it has; TimeoutError, and it is cancelled, where that takes too long.

        Whatever interrupts the wait, such as Ctrl-C, cancels it too.
        """
        try:
            loop = self._started()
        except BaseException:
            coroutine.close()
            raise
        future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        try:
            return future.result(timeout)
        except BaseException:
            future.cancel()
            raise

    def each(self, items: AsyncGenerator[T, None]) -> Iterator[T]:
        """The items, as they come."""
        try:
            while True:
                try:
                    yield self.call(_next(items))
                except StopAsyncIteration:
                    return
        finally:
            # Where the wait was interrupted it is about to end by itself, and with the portal it has.
            with contextlib.suppress(RuntimeError, FailedPrecondition):
                self.call(items.aclose())

    def close(self) -> None:
        """End the loop and its thread; said again, nothing happens."""
        with self._starting:
            self._closed = True
        self._end()

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._starting:
            if self._loop is not None and self._loop.is_closed():  # the program is about to end
                self._closed = True
            if self._closed:
                raise FailedPrecondition("this client is closed; make another")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                thread = threading.Thread(
                    target=_live, args=[self._loop, self._farewell], name="wakeful-client", daemon=True
                )
                thread.start()
                # Whoever forgets to close it has its thread ended with it, or with the program.
                self._end = weakref.finalize(self, _end, self._loop, thread)
            return self._loop


def _nothing() -> None:
    pass


def _live(loop: asyncio.AbstractEventLoop, farewell: Callable[[], Coroutine[object, object, None]]) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        # A stream and whoever reads it are closed at once, and either may find the other at it already.
        loop.set_exception_handler(lambda loop, context: None)
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(farewell())
    finally:
        loop.close()


def _end(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    loop.call_soon_threadsafe(loop.stop)
    if thread is not threading.current_thread():
        thread.join(_ENDED)


async def _next(items: AsyncGenerator[T, None]) -> T:
    return await anext(items)


class Through(Protocol[A]):
    """Something of the async client, and the portal to it."""

    portal: Portal
    inner: A


class Blocking(Generic[A, P, R]):
    """A method that waits for what an async one returns."""

    def __init__(self, method: Callable[Concatenate[A, P], Coroutine[object, object, R]]) -> None:
        self.method = method
        self.__doc__ = inspect.getdoc(method)

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: Through[A], owner: type) -> Callable[P, R]: ...
    def __get__(self, instance: Through[A] | None, owner: type) -> Self | Callable[P, R]:
        if instance is None:
            return self
        portal, inner = instance.portal, instance.inner

        @functools.wraps(self.method)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            return portal.call(self.method(inner, *args, **kwargs))

        return call


def blocking(method: Callable[Concatenate[A, P], Coroutine[object, object, R]]) -> Blocking[A, P, R]:
    """The method, for a program without an event loop."""
    return Blocking(method)
