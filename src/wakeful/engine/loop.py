"""The base class of the engine's loops: step, sleep until something is due, wake.

An error does not end a loop: it is logged, and the next step follows after a growing pause. A loop does not
poll: `step` returns when it must run again, and `max_sleep_ms` only limits the sleep.
"""

from __future__ import annotations

import asyncio
from typing import Final

from wakeful.errors import Unavailable
from wakeful.job.policy import Backoff
from wakeful.logs import get_logger
from wakeful.values.clock import Clock

_AFTER_ERRORS: Final = Backoff(base_ms=100, max_ms=10_000)
#: A loop is stalled if its last step succeeded so many seconds more than its longest sleep ago, and hangs if
#: no step has ended for that long.
_STALLED_S: Final = 30.0
_HANGING_S: Final = 120.0

log = get_logger("wakeful.engine")


class Loop:
    """A step that is repeated until the task is cancelled."""

    name = "loop"
    #: whether what it does next follows from the time, and not only from an interval
    follows_time = False

    def __init__(self, clock: Clock, max_sleep_ms: int) -> None:
        self.clock = clock
        self._max_sleep_ms = max_sleep_ms
        self._woken = False
        self._sleeper: asyncio.Future[None] | None = None
        #: when it must step again, as its last step returned
        self.due_ms: int | None = None
        #: when the last step succeeded, or the loop began, by the event loop's clock; None: not started
        self.last_step: float | None = None
        #: when the last step ended, also with an error
        self._last_end: float | None = None

    @property
    def stalled(self) -> bool:
        """Whether no step has succeeded for too long: the loop hangs, or fails each time."""
        if self.last_step is None:
            return True
        return asyncio.get_running_loop().time() - self.last_step > self._max_sleep_ms / 1000 + _STALLED_S

    @property
    def hanging(self) -> bool:
        """Whether a step has neither ended nor made progress for too long. Errors are not a reason."""
        if self._last_end is None:
            return False
        return asyncio.get_running_loop().time() - self._last_end > self._max_sleep_ms / 1000 + _HANGING_S

    @property
    def is_asleep(self) -> bool:
        """Whether it sleeps and nothing has woken it."""
        return self._sleeper is not None and not self._sleeper.done() and not self._woken

    @property
    def is_busy(self) -> bool:
        """Whether work that a step has started is under way; it may last while the loop sleeps."""
        return False

    def report_progress(self) -> None:
        """Report progress. A step that may take long calls it for each of its parts."""
        self.last_step = self._last_end = asyncio.get_running_loop().time()

    async def step(self) -> int | None:
        """Do what is due. Returns when to step again, in epoch ms; None: after the longest sleep."""
        raise NotImplementedError

    def wake(self) -> None:
        """End the sleep, or skip the next one."""
        self._woken = True
        if self._sleeper is not None and not self._sleeper.done():
            self._sleeper.set_result(None)

    async def run(self) -> None:
        """Step and sleep until cancelled."""
        errors = 0
        time = asyncio.get_running_loop().time
        self.report_progress()
        while True:
            self._woken = False
            try:
                until_ms = self.due_ms = await self.step()
                errors = 0
                self.report_progress()
            except (Exception, asyncio.CancelledError) as error:
                task = asyncio.current_task()
                if task is None or task.cancelling():  # else something in the step was cancelled
                    raise asyncio.CancelledError from error
                errors += 1
                self._last_end = time()
                wait_ms = min(_AFTER_ERRORS.delay_ms(errors, self.name), self._max_sleep_ms)
                if isinstance(error, Unavailable):
                    log.warning("loop.unavailable", loop=self.name, error=error.message, again_in_ms=wait_ms)
                else:
                    log.exception("loop.error", loop=self.name, again_in_ms=wait_ms)
                # A wake does not end this pause: a failing step may wake its own loop every time.
                await asyncio.sleep(wait_ms / 1000)
            else:
                await self._sleep(until_ms)

    async def _sleep(self, until_ms: int | None) -> None:
        wait_ms = self._max_sleep_ms
        if until_ms is not None:
            wait_ms = min(wait_ms, until_ms - self.clock.now_ms())
        if self._woken or wait_ms <= 0:
            await asyncio.sleep(0)
            return
        loop = asyncio.get_running_loop()
        self._sleeper = loop.create_future()
        alarm = loop.call_later(wait_ms / 1000, self.wake)
        try:
            await self._sleeper
        finally:
            alarm.cancel()
            self._sleeper = None
