"""Runners: tasks that run one attempt after another, each when it is due.

A runner is added only while runs are ready and all runners wait, so that a storm of fast functions does not
need one task per run.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from typing import Final

from wakeful.engine.in_flight import InFlight, Lease
from wakeful.launch.function import error_text
from wakeful.launch.user_code import exit_if_forked
from wakeful.logs import get_logger
from wakeful.run.outcome import Failed, Outcome
from wakeful.values.clock import Clock

#: After so many runs a runner yields to the event loop.
_RUNS_PER_TURN: Final = 50

log = get_logger("wakeful.worker")


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

    def scheduled(self) -> list[InFlight]:
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
