"""A clock that a test moves, and stores that use it."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from wakeful.store.port import Store
from wakeful.store.sqlite import SqliteStore


class MovableClock:
    """The system's clock, which a test moves forward."""

    def __init__(self) -> None:
        self.offset_ms = 0

    def now_ms(self) -> int:
        """Return the time."""
        return time.time_ns() // 1_000_000 + self.offset_ms

    def now(self) -> datetime:
        """Return the time as a datetime."""
        return datetime.fromtimestamp(self.now_ms() / 1000, UTC)

    def move_to(self, when: datetime) -> None:
        """Set the time, never backwards."""
        ahead_ms = round(when.timestamp() * 1000) - self.now_ms()
        assert ahead_ms > 0, f"{when} is over"
        self.offset_ms += ahead_ms

    def advance(self, by: timedelta) -> None:
        """Move the clock forward."""
        self.offset_ms += round(by.total_seconds() * 1000)


def store_with(database: str, clock: MovableClock) -> Store:
    """Return a store whose time is that of the clock."""
    if database.startswith("sqlite"):
        return SqliteStore(Path(database.removeprefix("sqlite:///")), clock=clock)
    from wakeful.store.postgres import PostgresStore

    return PostgresStore(database, clock=clock)
