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
