"""A clock that stands still until a test moves it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

from wakeful.app.calls import read_ms
from wakeful.app.home import Done
from wakeful.errors import FailedPrecondition, InvalidArgument


class MovableClock:
    """A clock that stands still until a test moves it; `at` is its time at the beginning, or now."""

    def __init__(self, at: datetime | str | None = None) -> None:
        self._now_ms = _read_instant(at)
        #: until when the harness does what becomes due, in epoch milliseconds
        self.until_ms = self._now_ms
        self._follow: Callable[[], Awaitable[None]] | None = None

    def now_ms(self) -> int:
        """Return the time in epoch milliseconds."""
        return self._now_ms

    def now(self) -> datetime:
        """Return the time, in UTC."""
        return datetime.fromtimestamp(self._now_ms / 1000, UTC)

    def advance(self, by: str | timedelta | float) -> Awaitable[None]:
        """Move the time by text such as `"2h"`, or seconds; what becomes due meanwhile is done, in order.

        In a sync test it is done when this returns. In an async test write `await clock.advance("2h")`:
        without `await`, the next call of a method of the harness does it.
        """
        self.until_ms = max(self.until_ms, self._now_ms) + read_ms(by)
        if self._follow is not None:
            return self._follow()
        self.move_to(self.until_ms)
        return Done()

    def move_to(self, now_ms: int) -> None:
        """Set the time; never backwards. What is due is done by the next `run_due` of the harness."""
        if now_ms < self._now_ms:
            raise InvalidArgument("the clock of a test cannot go backwards")
        self._now_ms = now_ms

    def set_time(self, at: datetime | str) -> None:
        """Set the time, also backwards, before a harness uses the clock."""
        self._require_unused()
        self._now_ms = self.until_ms = _read_instant(at)

    def attach(self, follow: Callable[[], Awaitable[None]]) -> None:
        """Call `follow` when the clock was advanced. A clock has one harness at a time."""
        self._require_unused()
        self._follow = follow

    def detach(self) -> None:
        """Have no harness any more."""
        self._follow = None

    def _require_unused(self) -> None:
        if self._follow is not None:
            raise FailedPrecondition("another harness uses this clock; give each its own `MovableClock()`")


def _read_instant(at: datetime | str | None) -> int:
    if isinstance(at, str):
        at = datetime.fromisoformat(at)
    at = at or datetime.now(UTC)
    if at.tzinfo is None:
        raise InvalidArgument("at: the time has no zone; write '2030-01-01T09:00:00Z'")
    return round(at.timestamp() * 1000)
