"""Clocks.

All code takes the time from a `Clock`, so that tests and the simulation use a fake one, and so that all
replicas follow the clock of the database: a replica whose own clock is minutes wrong still fires on time.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of the current time."""

    def now_ms(self) -> int:
        """Return the current time in epoch milliseconds."""
        ...


class SystemClock:
    """The clock of this machine."""

    def now_ms(self) -> int:
        """Return the current time of this machine."""
        return time.time_ns() // 1_000_000


class SteeredClock:
    """A clock that follows another one: the monotonic clock of this machine plus an offset.

    `steer` gets the other time when it arrives here, so this clock is late by at most the transit time, and
    never early.
    """

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def steer(self, now_us: int) -> None:
        """Set this clock to the other one, in epoch microseconds."""
        self._offset_ns = now_us * 1000 - time.monotonic_ns()

    def now_ms(self) -> int:
        """Return the current time of the other clock."""
        return (time.monotonic_ns() + self._offset_ns) // 1_000_000
