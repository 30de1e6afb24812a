"""A thread pool for blocking functions, in which a function that never returns does no harm.

In the standard library's pool such a function takes a slot for ever, and keeps the process from ending. Here
its caller can be cancelled: the slot is free at once, and the daemon thread is abandoned.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextvars import Context, copy_context
from queue import SimpleQueue
from threading import Thread
from typing import Final, NamedTuple

from wakeful.errors import ResourceExhausted
from wakeful.launch.user_code import exit_if_forked

#: The most busy abandoned threads per slot; beyond it no call is accepted.
_ABANDONED_PER_SLOT: Final = 4


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
        """Call the function and return its result. On cancellation it runs on, and `abandoned` is called."""
        async with self._slots:
            if self.abandoned >= self._limit * _ABANDONED_PER_SLOT:
                raise ResourceExhausted(
                    f"{self.abandoned} functions outlived their timeout and still use threads; "
                    "set timeouts on what they wait for, and restart this process"
                )
            loop = asyncio.get_running_loop()
            call = _Call(function, copy_context(), loop.create_future())
            if self._idle:
                self._idle -= 1
                self._calls.put(call)
            else:
                Thread(target=self._work, args=(call, loop), name="wakeful-function", daemon=True).start()
            try:
                value, error = await call.done
            except asyncio.CancelledError:
                if call.done.cancelled():  # else it has just ended
                    self.abandoned += 1
                    abandoned()
                raise
        if error is not None:
            raise error
        return value

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
                loop.call_soon_threadsafe(self._ended, call, value, error)
            except RuntimeError:
                return  # the loop is closed
            del call, value, error  # an idle thread keeps nothing alive
            call = self._calls.get()

    def _ended(self, call: _Call, value: object, error: BaseException | None) -> None:
        if self._closed:
            self._calls.put(None)
        else:
            self._idle += 1
        if call.done.cancelled():
            self.abandoned -= 1
        else:
            call.done.set_result((value, error))
