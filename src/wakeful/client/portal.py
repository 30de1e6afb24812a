"""Blocking calls to the async client: an event loop on a thread.

`blocking` turns a method of the async client into one that blocks until it returns. It keeps the parameters
and the return type, so type checkers and editors know them.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import inspect
import os
import threading
import time
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from typing import Concatenate, Final, ParamSpec, Protocol, TypeVar

from wakeful.errors import FailedPrecondition

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)

#: Seconds to wait for the thread to end.
_JOIN_TIMEOUT: Final = 5.0
_CLOSED: Final = "this client is closed; create another one"
_OWN_LOOP: Final = (
    "a blocking call on the event loop of this client would never end; use the async client there"
)


class Portal:
    """An event loop on a thread, from the first call until `close` or the end of the program.

    `on_close` runs on the loop at the end. A fork has no threads: there the next call starts a loop anew.
    """

    def __init__(
        self, on_close: Callable[[], Coroutine[object, object, None]], thread_name: str = "wakeful-client"
    ) -> None:
        self._on_close = on_close
        self._thread_name = thread_name
        self._closed = False
        self._start_anew()
        _portals.add(self)

    def _start_anew(self) -> None:
        """Forget the loop and whatever held the lock."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: Callable[[], object] = _do_nothing
        #: reentrant, for a signal handler that closes the client during a call
        self._lock = threading.RLock()

    def call(self, coroutine: Coroutine[object, object, R], timeout: float | None = None) -> R:
        """Return the result of a coroutine. After `timeout` seconds, cancel it and raise TimeoutError.

        Other interruptions of the wait, such as Ctrl-C, cancel it too.
        """
        try:
            with self._lock:  # `close` ends what was submitted before it
                future = asyncio.run_coroutine_threadsafe(coroutine, self._require_loop())
        except BaseException:
            coroutine.close()
            raise
        try:
            return future.result(timeout)
        except concurrent.futures.CancelledError:
            raise FailedPrecondition(_CLOSED) from None
        except BaseException:
            future.cancel()
            raise

    def run(self, call: Callable[[], Coroutine[object, object, R]]) -> R:
        """Return the result of an async method, which is called on the loop."""
        return self.call(_await(call))

    def call_method(
        self, method: Callable[P, Coroutine[object, object, R]], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Return the result of a method of the async client with these arguments."""
        return self.run(lambda: method(*args, **kwargs))

    def each(self, items: AsyncGenerator[T, None], timeout: float | None = None) -> Iterator[T]:
        """Yield the items of an async generator. After `timeout` seconds raise TimeoutError."""
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            while True:
                try:
                    yield self.call(
                        _next(items), None if deadline is None else max(0, deadline - time.monotonic())
                    )
                except StopAsyncIteration:
                    return
        finally:
            # After an interrupted wait the generator is closing already; after `close` it is closed. On the
            # loop itself, where garbage may be collected, the loop closes it.
            with contextlib.suppress(RuntimeError, FailedPrecondition):
                self.call(items.aclose())

    def close(self) -> None:
        """Stop the loop and its thread. Further calls do nothing."""
        with self._lock:
            self._closed = True
        self._stop()

    def _require_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is not None and self._loop.is_closed():  # the program is exiting
            self._closed = True
        if self._closed:
            raise FailedPrecondition(_CLOSED)
        if self._loop is not None and self._loop is asyncio._get_running_loop():
            raise FailedPrecondition(_OWN_LOOP)
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            stopped = self._loop.create_future()
            thread = threading.Thread(
                target=_run_loop,
                args=[self._loop, stopped, self._on_close, weakref.ref(self)],
                name=self._thread_name,
                daemon=True,
            )
            thread.start()
            # Ends the thread of a client that is never closed: with the client, or with the program.
            self._stop = weakref.finalize(self, _stop_loop, self._loop, stopped, thread, os.getpid())
        return self._loop


def _do_nothing() -> None:
    pass


#: The portals of this process.
_portals: Final[weakref.WeakSet[Portal]] = weakref.WeakSet()


def _after_fork() -> None:
    for portal in list(_portals):
        portal._start_anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _run_loop(
    loop: asyncio.AbstractEventLoop,
    stopped: asyncio.Future[None],
    on_close: Callable[[], Coroutine[object, object, None]],
    portal: weakref.ref[Portal],
) -> None:
    asyncio.set_event_loop(loop)
    try:
        with contextlib.suppress(SystemExit, KeyboardInterrupt):  # of a task: its caller gets it
            loop.run_until_complete(stopped)
        _refuse_calls(portal())
        loop.run_until_complete(_cancel_others())
        # A stream and its reader close at the same time; either may find the other already closing.
        loop.set_exception_handler(lambda loop, context: None)
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(on_close())
    finally:
        loop.close()


def _refuse_calls(portal: Portal | None) -> None:
    """Refuse further calls: those until now are tasks, or become tasks, and are cancelled."""
    if portal is not None:
        with portal._lock:
            portal._closed = True


async def _cancel_others() -> None:
    await asyncio.sleep(0)  # what other threads have submitted becomes a task
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def _stop_loop(
    loop: asyncio.AbstractEventLoop, stopped: asyncio.Future[None], thread: threading.Thread, pid: int
) -> None:
    if pid != os.getpid():  # a fork shares the file descriptors of the loop, and must not use them
        return
    with contextlib.suppress(RuntimeError):  # the loop has ended by itself
        loop.call_soon_threadsafe(_set_done, stopped)  # `loop.stop` would interrupt its end
    if thread is not threading.current_thread():
        thread.join(_JOIN_TIMEOUT)


def _set_done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def _await(call: Callable[[], Coroutine[object, object, R]]) -> R:
    return await call()


async def _next(items: AsyncGenerator[T, None]) -> T:
    return await anext(items)


class Through(Protocol[A_co]):
    """An object of the async client, and the portal to its loop."""

    @property
    def portal(self) -> Portal:
        """The portal."""
        ...

    @property
    def inner(self) -> A_co:
        """The object."""
        ...


def blocking(
    method: Callable[Concatenate[A, P], Coroutine[object, object, R]],
) -> Callable[Concatenate[Through[A], P], R]:
    """Return the blocking form of an async method."""
    name = method.__name__

    @functools.wraps(method)
    def call(through: Through[A], /, *args: P.args, **kwargs: P.kwargs) -> R:
        found: Callable[P, Coroutine[object, object, R]] = getattr(through.inner, name)
        return through.portal.call_method(found, *args, **kwargs)

    call.__doc__ = inspect.getdoc(method)
    return call
