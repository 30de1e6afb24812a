"""What every loop of the engine is: a step, a sleep until the next thing is due, and a way to be woken.

A loop never dies of an error: it says so, waits a little longer each time, and goes on. It never polls:
`step` says when it wants to be called again, and `longest_ms` only bounds how wrong that can be.
"""

from __future__ import annotations

import asyncio
from typing import Final

from wakeful.clock import Clock
from wakeful.errors import Unavailable
from wakeful.logs import get_logger
from wakeful.policy import Backoff

_AFTER_ERRORS: Final = Backoff(base_ms=100, max_ms=10_000)
#: A loop that has not gone round for so much longer than its longest sleep is stuck, or fails each time.
_LATELY_S: Final = 30.0

log = get_logger("wakeful.engine")


class Loop:
    """A step, repeated."""

    name = "loop"

    def __init__(self, clock: Clock, longest_ms: int) -> None:
        self.clock = clock
        self._longest_ms = longest_ms
        self._woken = False
        self._sleeper: asyncio.Future[None] | None = None
        #: when it last went round without an error, or began, by the event loop's clock; None: never
        self.last_step: float | None = None

    @property
    def stalled(self) -> bool:
        """Whether it ought to have gone round since it last did."""
        if self.last_step is None:
            return True
        return asyncio.get_running_loop().time() - self.last_step > self._longest_ms / 1000 + _LATELY_S

    async def step(self) -> int | None:
        """Do what is due. Returns when the next thing is, in epoch ms; None: nothing that is known of."""
        raise NotImplementedError

    def wake(self) -> None:
        """End the sleep, or skip the next one: something has changed."""
        self._woken = True
        if self._sleeper is not None and not self._sleeper.done():
            self._sleeper.set_result(None)

    async def run(self) -> None:
        """Step and sleep until cancelled."""
        errors = 0
        time = asyncio.get_running_loop().time
        self.last_step = time()
        while True:
            self._woken = False
            try:
                until_ms = await self.step()
                errors = 0
                self.last_step = time()
            except Exception as error:
                errors += 1
                wait_ms = min(_AFTER_ERRORS.delay_ms(errors, self.name), self._longest_ms)
                if isinstance(error, Unavailable):
                    log.warning(f"{self.name}.unavailable", error=error.message, again_in_ms=wait_ms)
                else:
                    log.exception(f"{self.name}.error", again_in_ms=wait_ms)
                # No wake ends this rest: what a step does before it fails may wake its own loop, every time.
                await asyncio.sleep(wait_ms / 1000)
            else:
                await self._sleep(until_ms)

    async def _sleep(self, until_ms: int | None) -> None:
        wait_ms = self._longest_ms
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
