"""The runs in this worker: their runners, their deadlines, and the lease on them.

A heartbeat renews the lease on all runs of a worker. Other replicas take the runs of a worker whose last
heartbeat is older than the lease. A process that was suspended (SIGSTOP, a frozen container, a sleeping
laptop) does not notice this by itself, so it checks its lease before it starts a run.

Runners are tasks that run one attempt after another, each when it is due.
A runner is added only while runs are ready and all runners wait, so that a storm of fast functions does not
need one task per run.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextvars import copy_context
from typing import TYPE_CHECKING, Final, NamedTuple

from wakeful.job.job import Work
from wakeful.job.policy import Policy
from wakeful.launch.function import error_text
from wakeful.launch.port import Launch, Launcher
from wakeful.launch.user_code import exit_if_forked
from wakeful.logs import get_logger
from wakeful.run.outcome import Failed, Outcome
from wakeful.store.lane_shares import Owner
from wakeful.values.clock import Clock

if TYPE_CHECKING:
    from opentelemetry.trace import Span

#: After so many runs a runner yields to the event loop.
_RUNS_PER_TURN: Final = 50

log = get_logger("wakeful.worker")


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


class Runners:
    """The runs that are ready or not due yet, and the tasks that run them.

    `begin` is called when an attempt starts; it returns the outcome of one that may not. Else `launch` is
    awaited. `end` gets the outcome, unless the attempt was ended before. `on_lease_expired` is called instead
    of a start when the lease has expired.
    """

    def __init__(
        self,
        clock: Clock,
        lease: Lease,
        begin: Callable[[InFlight], Outcome | None],
        launch: Callable[[InFlight], Awaitable[Outcome]],
        end: Callable[[InFlight, Outcome], None],
        on_lease_expired: Callable[[], None],
        *,
        lead_ms: int,
    ) -> None:
        self._clock = clock
        self._lease = lease
        self._begin = begin
        self._launch = launch
        self._end = end
        self._on_lease_expired = on_lease_expired
        self._ready: deque[InFlight] = deque()
        self.tasks: set[asyncio.Task[None]] = set()
        self._adding = False
        #: A run is taken at most the planning lead before its instant. If the instant is further ahead than
        #: that and a lease, the clock was set back since: the run starts at once.
        self._most_ahead_ms = lead_ms + lease.ms
        #: runs that are not due yet, by when they fire
        self._scheduled: dict[int, list[InFlight]] = {}

    def schedule(self, run: InFlight, now_ms: int) -> None:
        """Make a run ready when it is due. `add` or `request` starts the runners."""
        fire_ms = run.launch.fire_ms
        if not 0 < fire_ms - now_ms <= self._most_ahead_ms:
            self._ready.append(run)
        elif fire_ms in self._scheduled:
            self._scheduled[fire_ms].append(run)
        else:
            self._scheduled[fire_ms] = [run]
            delay_s = (fire_ms - now_ms) / 1000
            asyncio.get_running_loop().call_later(delay_s, self._fire, fire_ms)

    def list_scheduled(self) -> list[InFlight]:
        """Return the runs that are not due yet."""
        return [run for runs in self._scheduled.values() for run in runs]

    def _fire(self, fire_ms: int) -> None:
        early_ms = fire_ms - self._clock.now_ms()
        if 0 < early_ms <= self._most_ahead_ms:  # a timer may be slightly early; a tick never is
            asyncio.get_running_loop().call_later(early_ms / 1000, self._fire, fire_ms)
            return
        self._ready.extend(self._scheduled.pop(fire_ms))
        self.add()

    def add(self) -> None:
        """Add runners for what is ready. Their number at most doubles per call."""
        self._adding = False
        loop = asyncio.get_running_loop()
        for _ in range(min(len(self._ready), max(1, len(self.tasks)))):
            runner = loop.create_task(self._run_ready(), name="wakeful-runner")
            self.tasks.add(runner)
            runner.add_done_callback(self.tasks.discard)

    def request(self) -> None:
        """Add runners in the next iteration of the event loop, if runs are ready."""
        if self._ready and not self._adding:
            self._adding = True
            asyncio.get_running_loop().call_soon(self.add)

    async def _run_ready(self) -> None:
        """Run one ready attempt after another until none is ready."""
        me = asyncio.current_task()
        assert me is not None
        clean, pid = copy_context(), os.getpid()
        runs = 0
        while self._ready:
            run = self._ready.popleft()
            if run.ended:  # stopped before it started
                pass
            elif not self._lease.valid:
                self._on_lease_expired()
            else:
                run.task = me
                run.started_ms = self._clock.now_ms()
                self.request()  # called only if this run waits for something
                try:
                    outcome: Outcome = self._begin(run) or await self._launch(run)
                except asyncio.CancelledError:
                    outcome = Failed("stopped" if run.stopped else "it was cancelled, or what it waited for")
                except BaseException as error:
                    log.exception("launcher.error", **run.launch.log_fields, kind=run.launcher.kind)
                    outcome = Failed(error_text(error))
                exit_if_forked(pid)
                run.task = None
                if not run.ended:  # else it was abandoned before
                    self._end(run, outcome)
                if me.cancelling() or getattr(me, "_must_cancel", False):
                    break  # the run was stopped, or left a cancellation behind: the next one must not get it
            runs += 1
            if runs >= _RUNS_PER_TURN:
                runs = 0
                await asyncio.sleep(0)
            if copy_context() != clean:
                break  # the run changed the context of this task: do not use it for another one
        self.request()
