"""Calling code that users write, so that nothing it does to its task or thread reaches the caller.

User code may cancel its own task, leave a cancellation behind, ignore one, or raise any exception. Attempts
of functions and handlers are awaited in the task of a runner, which is not used again after such an attempt
(`wakeful.engine.in_flight`). Prechecks, verifications and hooks are awaited here, each in its own task.

Blocking functions run in a thread pool in which a function that never returns does no harm. In the standard
library's pool such a function takes a slot for ever, and keeps the process from ending. Here its caller can
be cancelled: the slot is free at once, and the daemon thread is abandoned.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context, copy_context
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final, NamedTuple, TypeVar

from wakeful.errors import ResourceExhausted

#: Seconds that cancelled code has to end; then it is abandoned.
_STOP_S: Final = 3.0
#: Abandoned tasks, which the event loop alone does not keep.
_ABANDONED: Final[set[asyncio.Task[Any]]] = set()

T = TypeVar("T")
#: The most busy abandoned threads per slot; beyond it no call is accepted.
_ABANDONED_PER_SLOT: Final = 4


class NoAnswer(Exception):
    """The code did not return in time."""


class NoThread(ResourceExhausted):
    """Functions that never returned use all threads, or the system has no more: this one was not called."""


async def isolate(
    call: Callable[[], Coroutine[Any, Any, T]],
    seconds: float | None = None,
    abandoned: Callable[[], None] = lambda: None,
) -> T:
    """Await user code in a task of its own and return its result.

    What it raises is raised here, but a CancelledError of its own as RuntimeError: only a cancellation of the
    caller is raised as such. Raises NoAnswer after `seconds`. Code that ignores its cancellation runs on, and
    `abandoned` is called.
    """
    ends: list[tuple[T | None, BaseException | None]] = []
    task = asyncio.create_task(_catch(call, ends))
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
        if not done:
            raise NoAnswer
    except (NoAnswer, asyncio.CancelledError):
        _ABANDONED.add(task)
        task.add_done_callback(_ABANDONED.discard)
        task.cancel()
        try:
            await asyncio.wait({task}, timeout=_STOP_S)
        finally:
            if not task.done():
                asyncio.tasks._unregister_task(task)  # else `asyncio.run` waits for it at the end
                abandoned()
        raise
    # Not the result of the task: it is cancelled if the code has left a cancellation behind.
    value, error = ends[0] if ends else (None, asyncio.CancelledError())
    if isinstance(error, asyncio.CancelledError):
        raise RuntimeError(f"CancelledError: {error}" if str(error) else "CancelledError") from error
    if error is not None:
        raise error
    return value  # type: ignore[return-value]


async def _catch(
    call: Callable[[], Coroutine[Any, Any, T]], ends: list[tuple[T | None, BaseException | None]]
) -> None:
    """Add the result or the exception: a SystemExit that a task raises would end the event loop."""
    pid = os.getpid()
    try:
        ends.append((await call(), None))
    except BaseException as error:
        ends.append((None, error))
    exit_if_forked(pid)


def exit_if_forked(pid: int) -> None:
    """End a process that user code has forked and that returns from it: it must not continue this program."""
    if os.getpid() != pid:
        os._exit(1)


class _Call(NamedTuple):
    function: Callable[[], object]
    context: Context
    done: asyncio.Future[tuple[object, BaseException | None]]


class Threads:
    """Runs blocking functions in threads, at most `slots` at once."""

    def __init__(self, slots: int) -> None:
        self._limit = slots
        self._slots = asyncio.Semaphore(slots)
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._idle = 0
        self._closed = False
        #: the number of busy threads whose caller was cancelled
        self.abandoned = 0

    async def run(self, function: Callable[[], object], abandoned: Callable[[], None]) -> object:
        """Call the function and return its result. On cancellation it runs on, and `abandoned` is called.

        A function may return a coroutine, such as a lambda around an `async def`: it is awaited.
        """
        async with self._slots:
            if self.abandoned >= self._limit * _ABANDONED_PER_SLOT:
                raise NoThread(
                    f"{self.abandoned} functions outlived their timeout and still use threads; "
                    "set timeouts on what they wait for, and restart this process"
                )
            loop = asyncio.get_running_loop()
            call = _Call(function, copy_context(), loop.create_future())
            if self._idle:
                self._idle -= 1
                self._calls.put(call)
            else:
                thread = Thread(target=self._work, args=(call, loop), name="wakeful-function", daemon=True)
                try:
                    thread.start()
                except RuntimeError as failure:  # of the limits of the system
                    raise NoThread(f"{failure}; raise the limit of threads of this process") from failure
            try:
                value, error = await call.done
            except asyncio.CancelledError:
                if call.done.cancelled():  # else it has just ended
                    self.abandoned += 1
                    abandoned()
                raise
        if error is not None:
            raise error
        return await value if isinstance(value, Awaitable) else value

    def close(self) -> None:
        """Stop the idle threads. Busy ones end after their function."""
        self._closed = True
        for _ in range(self._idle):
            self._calls.put(None)
        self._idle = 0

    def _work(self, call: _Call | None, loop: asyncio.AbstractEventLoop) -> None:
        """Run one call after another in a thread, until the pool is closed."""
        pid = os.getpid()
        while call is not None:
            value: object = None
            error: BaseException | None = None
            try:
                value = call.context.run(call.function)
            except BaseException as raised:
                error = raised
            exit_if_forked(pid)
            try:
                loop.call_soon_threadsafe(self._end_call, call, value, error)
            except RuntimeError:
                return  # the loop is closed
            del call, value, error  # an idle thread keeps nothing alive
            call = self._calls.get()

    def _end_call(self, call: _Call, value: object, error: BaseException | None) -> None:
        if self._closed:
            self._calls.put(None)
        else:
            self._idle += 1
        if call.done.cancelled():
            self.abandoned -= 1
        else:
            call.done.set_result((value, error))
