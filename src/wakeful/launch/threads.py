"""Threads for functions that block: so many at a time, and none that can hold up the rest for good.

The standard library's pool does not fit: a function that never returns would keep its place in the pool
for ever, and the process from ending. Here its caller may go: the place is free again at once, and
the thread, a daemon, is left to itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, copy_context
from queue import SimpleQueue
from threading import Thread
from typing import Final, NamedTuple

from wakeful.errors import ResourceExhausted

#: Threads that were abandoned and are still busy, for each place, before no more are started.
_ABANDONED_PER_PLACE: Final = 4


class _Call(NamedTuple):
    function: Callable[[], object]
    context: Context
    done: asyncio.Future[tuple[object, BaseException | None]]


class Threads:
    """Runs functions that block in threads, at most `places` at a time."""

    def __init__(self, places: int) -> None:
        self._limit = places
        self._places = asyncio.Semaphore(places)
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._idle = 0
        self._closed = False
        #: how many threads are busy with a function whose caller has gone
        self.abandoned = 0

    async def run(self, function: Callable[[], object], abandoned: Callable[[], None]) -> object:
        """What the function returns, or raises. Cancelled meanwhile, it goes on and `abandoned` is called."""
        async with self._places:
            if self.abandoned >= self._limit * _ABANDONED_PER_PLACE:
                raise ResourceExhausted(
                    f"{self.abandoned} functions outlived their timeout and still hold their threads; "
                    "give what they wait for a timeout of its own, and restart this process"
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
                if call.done.cancelled():  # else it had just ended
                    self.abandoned += 1
                    abandoned()
                raise
        if error is not None:
            raise error
        return value

    def close(self) -> None:
        """Let the idle threads end; those that are busy end when their functions do."""
        self._closed = True
        for _ in range(self._idle):
            self._calls.put(None)
        self._idle = 0

    def _work(self, call: _Call | None, loop: asyncio.AbstractEventLoop) -> None:
        """A thread's life: call after call, until it is told to end."""
        while call is not None:
            value: object = None
            error: BaseException | None = None
            try:
                value = call.context.run(call.function)
            except BaseException as raised:
                error = raised
            try:
                loop.call_soon_threadsafe(self._ended, call, value, error)
            except RuntimeError:
                return  # the loop is closed: nobody waits any more
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
