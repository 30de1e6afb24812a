"""The runs in this worker: each until its outcome is written, their deadlines, and the lease on them.

A heartbeat renews the lease on all runs of a worker. Other replicas take the runs of a worker whose last
heartbeat is older than the lease. A process that was suspended (SIGSTOP, a frozen container, a sleeping
laptop) does not notice this by itself, so it checks its lease before it starts a run.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from wakeful.job.job import Work
from wakeful.job.policy import Policy
from wakeful.launch.port import Launch, Launcher
from wakeful.run.outcome import Failed
from wakeful.store.lane_shares import Owner

if TYPE_CHECKING:
    from opentelemetry.trace import Span


class InFlight:
    """One attempt that this worker holds: its `Launch`, with the slot, task and lease in this process."""

    __slots__ = (
        "deadline", "ended", "failed_attempts", "follows", "holds_slot", "lane", "launch", "launcher",
        "policy", "prefetched", "span", "started_ms", "stop_reason", "suspect", "task", "waiting",
        "weight", "work",
    )  # fmt: skip

    def __init__(
        self,
        launch: Launch,
        policy: Policy,
        lane: str,
        launcher: Launcher,
        work: Work,
        failed_attempts: int = 0,
    ) -> None:
        self.launch = launch
        self.policy = policy
        self.work = work
        self.lane = lane
        self.launcher = launcher
        #: how many earlier attempts of the run failed and count
        self.failed_attempts = failed_attempts
        self.started_ms = launch.fire_ms
        #: when the attempt times out, or a prefetched run is given back, by the clock of the event loop
        self.deadline = math.inf
        #: how many runs of the same instance used its slot before it, without a pause
        self.follows = 0
        #: whether the slot stays taken until the outcome is written: for the next run of its instance
        self.holds_slot = False
        #: whether it was claimed before a slot was free, and its start is not recorded yet
        self.prefetched = False
        #: whether an earlier attempt was lost together with other runs of its worker
        self.suspect = False
        #: whether it has no slot yet
        self.waiting = False
        #: the weight of its workspace in the lane
        self.weight = 1.0
        #: whether the attempt is over; its outcome may still have to be written
        self.ended = False
        #: the task that runs the attempt
        self.task: asyncio.Task[None] | None = None
        #: with tracing, the span of the launch until it ends
        self.span: Span | None = None
        #: why the attempt was stopped: a failure to record, or a word if this worker must write nothing
        self.stop_reason: Failed | str | None = None

    @property
    def owner(self) -> Owner:
        """The workspace and agent."""
        return self.launch.workspace, self.launch.agent

    @property
    def stopped(self) -> bool:
        """Whether the attempt was stopped before it ended by itself."""
        return self.stop_reason is not None


class Deadlines:
    """Calls `on_due` with each attempt whose deadline has passed, among those that `running` returns.

    There is one timer for all: it waits for the earliest.
    """

    def __init__(self, running: Callable[[], Iterable[InFlight]], on_due: Callable[[InFlight], None]) -> None:
        self._running = running
        self._on_due = on_due
        self._timer: asyncio.TimerHandle | None = None

    def set(self, run: InFlight, seconds: float) -> None:
        """Set the deadline of an attempt."""
        run.deadline = asyncio.get_running_loop().time() + seconds
        self._arm(run.deadline)

    def _arm(self, deadline: float) -> None:
        """Set the timer, unless it fires earlier anyway."""
        if self._timer is None or deadline < self._timer.when():
            if self._timer is not None:
                self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_at(deadline, self._check)

    def _check(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        try:
            for run in list(self._running()):
                if run.deadline <= now:
                    self._on_due(run)
        finally:  # also if `on_due` has set the timer for a later deadline than the next
            deadlines = [run.deadline for run in self._running()]
            if deadlines:
                self._arm(min(deadlines))


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
