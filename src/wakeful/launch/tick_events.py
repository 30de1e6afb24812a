"""The event `schedule.tick`: its cursor, and the ticks that follow from one.

A tick is computed, not stored. Its cursor has all that it takes: when the subscription began, which is where
its ticks are counted from and the anchor of an interval, and the instant up to which ticks are known.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from wakeful.errors import InvalidArgument
from wakeful.job.policy import DAY_MS
from wakeful.schedule.ticks import Ticks
from wakeful.signal.event_catalog import TICK
from wakeful.signal.mcp_events import McpEvent, PolledEvents, event_id
from wakeful.values.instants import LATEST_MS, iso_utc
from wakeful.values.json_value import Json

#: How far back ticks are sent, and how many a new subscription gets of the time before it.
KEPT_MS: Final = 7 * DAY_MS
_MOST_REPLAYED: Final = 1_000
#: How far ahead a cursor may be: another replica made it, or the clock was set back since.
_AHEAD_MS: Final = 600_000
#: How long a client waits until its next poll.
_SHORTEST_POLL_MS: Final = 1_000
_LONGEST_POLL_MS: Final = 60_000


class TickCursor(NamedTuple):
    """A position in the ticks of a subscription.

    >>> str(TickCursor(5, 9))
    '5.9'
    """

    since_ms: int
    at_ms: int

    def __str__(self) -> str:
        return f"{self.since_ms}.{self.at_ms}"


def read_tick_cursor(value: object, now_ms: int) -> TickCursor:
    """Return the position of a cursor; None: it begins now. Raises InvalidArgument.

    >>> read_tick_cursor("5.9", 10), read_tick_cursor(None, 10)
    (TickCursor(since_ms=5, at_ms=9), TickCursor(since_ms=10, at_ms=10))
    """
    if value is None:
        return TickCursor(now_ms, now_ms)
    parts = value.split(".") if isinstance(value, str) and value.isascii() and len(value) < 40 else []
    if len(parts) == 2 and all(map(str.isdigit, parts)):
        cursor = TickCursor(int(parts[0]), int(parts[1]))
        if cursor.since_ms <= cursor.at_ms <= now_ms + _AHEAD_MS:
            return cursor
    raise InvalidArgument("cursor: it is the cursor of an earlier answer, or null")


def tick_event(
    source: str, ticks: Ticks | None, cursor: TickCursor, message: str | None, number: int | None = None
) -> McpEvent:
    """Return the event of the tick at a cursor. Its id follows from the source and the tick."""
    at_ms, next_ms = cursor.at_ms, None
    if ticks is not None:
        next_ms = ticks.next(at_ms)
        number = number or ticks.count(cursor.since_ms, at_ms)
    at = iso_utc(at_ms)
    data: dict[str, Json] = {
        "scheduledAt": at,
        "number": number or 1,
        "nextAt": None if next_ms is None else iso_utc(next_ms),
        "message": message,
    }
    return McpEvent(event_id(TICK, source, at_ms), TICK, at, data, str(cursor))


def skip_old(ticks: Ticks, cursor: TickCursor, oldest_ms: int) -> tuple[TickCursor, bool]:
    """Return the cursor, or one at that instant if it is older, and whether ticks are left out."""
    if cursor.at_ms >= oldest_ms:
        return cursor, False
    left_out = ticks.next(cursor.at_ms)
    return cursor._replace(at_ms=oldest_ms), left_out is not None and left_out <= oldest_ms


def replay_from(ticks: Ticks, cursor: TickCursor, oldest_ms: int, now_ms: int) -> tuple[TickCursor, bool]:
    """Return where a new subscription begins, and whether ticks after the cursor are left out."""
    cursor, left_out = skip_old(ticks, cursor, oldest_ms)
    if ticks.count(cursor.at_ms, now_ms) <= _MOST_REPLAYED:
        return cursor, left_out
    first_ms = now_ms + 1
    for _ in range(_MOST_REPLAYED):
        first_ms = ticks.prev(first_ms) or first_ms
    return cursor._replace(at_ms=first_ms - 1), True


def poll_ticks(
    source: str,
    ticks: Ticks,
    cursor: TickCursor,
    message: str | None,
    oldest_ms: int,
    now_ms: int,
    most: int,
) -> PolledEvents:
    """Return up to `most` ticks after a cursor, and when the next one is."""
    cursor, truncated = skip_old(ticks, cursor, oldest_ms)
    events: list[McpEvent] = []
    number, next_ms = ticks.count(cursor.since_ms, cursor.at_ms), ticks.next(cursor.at_ms)
    while next_ms is not None and next_ms <= now_ms and len(events) < most:
        cursor, number = cursor._replace(at_ms=next_ms), number + 1
        events.append(tick_event(source, ticks, cursor, message, number))
        next_ms = ticks.next(next_ms)
    has_more = next_ms is not None and next_ms <= now_ms
    wait_ms = min(max((next_ms or LATEST_MS) - now_ms, _SHORTEST_POLL_MS), _LONGEST_POLL_MS)
    cursor = cursor if has_more else cursor._replace(at_ms=max(cursor.at_ms, now_ms))
    return PolledEvents(tuple(events), str(cursor), truncated, has_more, wait_ms)
