"""The one place that knows what time it is.

All code takes its time from a `Clock`, so that tests and the simulator run on a false one, and so that
the database's clock can rule: a replica whose own clock is minutes wrong still fires on time.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What time it is, in epoch milliseconds."""

    def now_ms(self) -> int:
        """The time now."""
        ...


class SystemClock:
    """This machine's clock."""

    def now_ms(self) -> int:
        """The time now, as this machine has it."""
        return time.time_ns() // 1_000_000


class SteeredClock:
    """A clock that another one steers: it runs on this machine's steady clock, from what the other last said.

    `steer` is given the other's time as it arrives here, after the way from there: so this clock is late
    by at most that way, and never early.
    """

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def steer(self, now_us: int) -> None:
        """Take over what the other clock says, in epoch microseconds."""
        self._offset_ns = now_us * 1000 - time.monotonic_ns()

    def now_ms(self) -> int:
        """The other clock's time, as far as it is known here."""
        return (time.monotonic_ns() + self._offset_ns) // 1_000_000
