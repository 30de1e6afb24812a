"""An event loop on virtual time: when nothing is ready, the time advances to the next timer.

Everything else is asyncio. Nothing waits, so months pass in the time that their work takes, always in the
same order. There is no I/O and there are no threads: where nothing is ready and no timer is set, the loop
raises `Stuck` instead of hanging.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_US = 1_000_000
_MOST_TURNS = 50_000


class Stuck(Exception):
    """A deadlock without timers, or a busy loop in which no time passes."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time, in whole microseconds since its creation, advances from timer to timer."""

    def __init__(self) -> None:
        self.now_us = 0
        super().__init__(_NoSelector(self))
        # Tolerance for the rounding of a timer's float to microseconds.
        self._clock_resolution = 1 / _US

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self.now_us / _US


class _NoSelector(selectors.SelectSelector):
    """A selector that advances the virtual time instead of waiting."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop
        self._turns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Stuck("nothing is ready, and no timer is set")
        if timeout > 0:
            self._loop.now_us += max(1, round(timeout * _US))
            self._turns = 0
        self._turns += 1
        if self._turns > _MOST_TURNS:
            self._turns = 0  # allow the cleanup to run
            raise Stuck(f"{_MOST_TURNS} turns, and no time has passed: a task never waits")
        return []


def run_virtually(story: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on virtual time, then cancel all remaining tasks."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(story)
    finally:
        try:
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            if left:
                loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        finally:
            loop.close()


class FalseClock:
    """A clock over the loop's time, in epoch milliseconds, that can jump in either direction.

    It serves as the database clock. `high_ms` is the maximum of the times it has shown.
    """

    def __init__(self, loop: VirtualLoop, start_ms: int) -> None:
        self._loop = loop
        self._offset_us = start_ms * 1000 - loop.now_us
        self._high_us = 0

    def now_us(self) -> int:
        """Return the time in epoch microseconds."""
        return self._loop.now_us + self._offset_us

    def now_ms(self) -> int:
        """Return the time in epoch milliseconds."""
        return self.now_us() // 1000

    @property
    def high_ms(self) -> int:
        """The maximum of the times it has shown."""
        self._high_us = max(self._high_us, self.now_us())
        return self._high_us // 1000

    def jump(self, by_ms: int) -> None:
        """Set the clock forward or back."""
        self._high_us = max(self._high_us, self.now_us())
        self._offset_us += by_ms * 1000
