"""The lease of this process: whether the runs it holds are still its own.

A heartbeat renews the lease on everything a worker holds. Another replica takes the runs of a worker whose
last heartbeat is older than the lease. A process that was suspended (SIGSTOP, a frozen container, a laptop
that slept) does not notice that by itself, so it asks here before it starts anything.
"""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple


class Moment(NamedTuple):
    """An instant by two clocks that nobody sets."""

    #: the event loop's clock; it stands still while the machine sleeps
    loop: float
    #: the time since boot, including sleep, where the system has such a clock
    boot: float


class Lease:
    """Counts how old the last successful heartbeat is."""

    def __init__(self, lease_ms: int) -> None:
        self._seconds = lease_ms / 1000
        self._until: Moment | None = None

    @staticmethod
    def now() -> Moment:
        """This instant."""
        return Moment(asyncio.get_running_loop().time(), _boot_time())

    def renew(self, sent: Moment) -> None:
        """A heartbeat that was sent then has succeeded. Other replicas count from when it was sent, too."""
        self._until = Moment(sent.loop + self._seconds, sent.boot + self._seconds)

    @property
    def valid(self) -> bool:
        """Whether held runs may be started. Before the first heartbeat there is nothing to lose."""
        until = self._until
        if until is None:
            return True
        return asyncio.get_running_loop().time() < until.loop and _boot_time() < until.boot


if hasattr(time, "CLOCK_BOOTTIME"):  # Linux

    def _boot_time() -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

else:
    _boot_time = time.monotonic
