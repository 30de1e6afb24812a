"""An event loop on virtual time: when nothing is ready, it is at once as late as the next timer says.

Everything else is asyncio's own. Nothing here waits, so months pass in as long as their work takes, and the
same work always happens in the same order. There is no I/O and there are no threads: where nothing is
ready and nothing will be, the loop says so instead of hanging.
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
    """Everybody waits for nothing that will ever happen, or nobody ever rests."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """Time is a whole number of microseconds since the loop was made, and moves from timer to timer."""

    def __init__(self) -> None:
        self.now_us = 0
        super().__init__(_NoSelector(self))
        # A timer's float may lie a hair from its microsecond; within this it is due.
        self._clock_resolution = 1 / _US

    def time(self) -> float:
        """How late it is, in seconds."""
        return self.now_us / _US


class _NoSelector(selectors.SelectSelector):
    """Stands where the loop would wait for I/O or for its next timer: here no time is lost."""

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
            self._turns = 0  # so that those who tidy up have their turn
            raise Stuck(f"{_MOST_TURNS} turns, and no time has passed: somebody never rests")
        return []


def run_virtually(story: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on virtual time, and leave nothing behind."""
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
    """A clock over the loop's time, in epoch milliseconds, that can be set: it may jump, in either direction.

    One of them is the database's, and rules. `high_ms` is the latest time that it ever showed.
    """

    def __init__(self, loop: VirtualLoop, start_ms: int) -> None:
        self._loop = loop
        self._offset_us = start_ms * 1000 - loop.now_us
        self._high_us = 0

    def now_us(self) -> int:
        """The time it shows, in epoch microseconds."""
        return self._loop.now_us + self._offset_us

    def now_ms(self) -> int:
        """The time it shows."""
        return self.now_us() // 1000

    @property
    def high_ms(self) -> int:
        """The latest time that it has shown."""
        self._high_us = max(self._high_us, self.now_us())
        return self._high_us // 1000

    def jump(self, by_ms: int) -> None:
        """Somebody sets it forward, or back."""
        self._high_us = max(self._high_us, self.now_us())
        self._offset_us += by_ms * 1000
