"""The lease of this process on its runs.

A heartbeat renews the lease on all runs of a worker. Other replicas take the runs of a worker whose last
heartbeat is older than the lease. A process that was suspended (SIGSTOP, a frozen container, a sleeping
laptop) does not notice this by itself, so it checks its lease before it starts a run.
"""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple


class Instant(NamedTuple):
    """An instant by two monotonic clocks."""

    #: the clock of the event loop; it stands still while the machine sleeps
    loop: float
    #: the time since boot, including sleep, if the system has such a clock
    boot: float


class Lease:
    """The age of the last successful heartbeat."""

    def __init__(self, lease_ms: int) -> None:
        #: how long it lasts
        self.ms = lease_ms
        self._seconds = lease_ms / 1000
        self._until: Instant | None = None

    @staticmethod
    def now() -> Instant:
        """Return the current instant."""
        return Instant(asyncio.get_running_loop().time(), _boot_time())

    def renew(self, sent: Instant) -> None:
        """Renew the lease by a successful heartbeat, from when it was sent, as other replicas count it."""
        self._until = Instant(sent.loop + self._seconds, sent.boot + self._seconds)

    @property
    def valid(self) -> bool:
        """Whether runs may start. It is valid before the first heartbeat: there are no runs to lose."""
        until = self._until
        if until is None:
            return True
        return asyncio.get_running_loop().time() < until.loop and _boot_time() < until.boot


if hasattr(time, "CLOCK_BOOTTIME"):  # Linux

    def _boot_time() -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

else:
    _boot_time = time.monotonic
