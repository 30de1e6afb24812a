"""The deadlines of attempts, with one timer for all: it waits for the earliest."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from wakeful.engine.in_flight import InFlight


class Deadlines:
    """Calls `on_due` with each attempt whose deadline has passed, among those that `running` returns."""

    def __init__(self, running: Callable[[], Iterable[InFlight]], on_due: Callable[[InFlight], None]) -> None:
        self._running = running
        self._on_due = on_due
        self._timer: asyncio.TimerHandle | None = None

    def set(self, run: InFlight, seconds: float) -> None:
        """Set the deadline of an attempt."""
        loop = asyncio.get_running_loop()
        run.deadline = loop.time() + seconds
        if self._timer is None or run.deadline < self._timer.when():
            if self._timer is not None:
                self._timer.cancel()
            self._timer = loop.call_at(run.deadline, self._check)

    def _check(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        for run in list(self._running()):
            if run.deadline <= now:
                self._on_due(run)
        deadlines = [run.deadline for run in self._running()]
        if deadlines and self._timer is None:
            self._timer = loop.call_at(min(deadlines), self._check)
