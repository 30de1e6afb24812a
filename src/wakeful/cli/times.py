"""Instants as text: relative to now, and as wall-clock time in a zone."""

from __future__ import annotations

import os
import re
import zoneinfo
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from wakeful.errors import InvalidArgument

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: (used below this many seconds, its length in seconds, singular, plural)
_UNITS: Final = (
    (60, 1, "s", "s"),
    (3_600, 60, "min", "min"),
    (2 * 86_400, 3_600, "h", "h"),
    (60 * 86_400, 86_400, "day", "days"),
    (730 * 86_400, 30 * 86_400, "month", "months"),
)
_UTC: Final = frozenset({"Etc/UTC", "Etc/UCT", "UCT", "Zulu", "Etc/Zulu", "Universal", "Etc/Universal"})
_WEEK: Final = timedelta(days=6)


def relative(ms: int, now_ms: int) -> str:
    """Return the distance of an instant from now, in one unit.

    >>> relative(10_800_000, 0), relative(0, 125_000), relative(400, 0)
    ('in 3 h', '2 min ago', 'now')
    """
    away = ms - now_ms
    if abs(away) < 1000:
        return "now"
    words = span((abs(away) + 500) // 1000 * 1000)
    return f"in {words}" if away > 0 else f"{words} ago"


def span(ms: int) -> str:
    """Return a duration rounded to one unit.

    >>> span(350), span(1_500), span(119_000), span(172_800_000)
    ('350 ms', '1.5 s', '2 min', '2 days')
    """
    if ms < 1000:
        return f"{ms} ms"
    if ms < 10_000 and ms % 1000:
        return f"{ms / 1000:.1f} s"
    seconds = (ms + 500) // 1000
    for end, size, one, many in _UNITS:
        amount = (seconds + size // 2) // size
        if amount * size < end:
            return f"{amount} {one if amount == 1 else many}"
    return f"{round(seconds / (365.2425 * 86_400))} years"


def instant(text: str | None) -> int | None:
    """Return an ISO 8601 time as epoch milliseconds.

    >>> instant("2027-01-15T08:00:00.123Z")
    1800000000123
    """
    return None if text is None else (datetime.fromisoformat(text) - _EPOCH) // timedelta(milliseconds=1)


def parse_time(option: str, text: str) -> datetime:
    """Return the ISO 8601 time of an option, which may have no zone. InvalidArgument if it is no time."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise InvalidArgument(
            f"{option}: '{text}' is not a time; write one such as 2027-03-01T09:00"
        ) from None


def moment(ms: int, tz: str | None, now_ms: int | None = None) -> str:
    """Return the wall-clock time in a zone; within six days of now, the weekday replaces the date.

    >>> moment(1_800_000_000_000, "Europe/Berlin")
    'Fri 2027-01-15 09:00 Europe/Berlin'
    >>> moment(1_800_000_000_000, None, now_ms=1_799_950_000_000)
    'Fri 08:00 UTC'
    """
    name = tz or "UTC"
    at = (_EPOCH + timedelta(milliseconds=ms)).astimezone(zoneinfo.ZoneInfo(name))
    near = now_ms is not None and abs(timedelta(milliseconds=ms - now_ms)) < _WEEK
    day = f"{at:%a}" if near else f"{at:%a %Y-%m-%d}"
    return f"{day} {at:%H:%M:%S} {name}" if at.second else f"{day} {at:%H:%M} {name}"


def relative_text(time: str | None, now_ms: int) -> str:
    """Return the distance of an ISO 8601 time from now; empty if there is none.

    >>> relative_text("1970-01-01T00:02:00Z", 0), relative_text(None, 0)
    ('in 2 min', '')
    """
    ms = instant(time)
    return "" if ms is None else relative(ms, now_ms)


def moment_text(time: str | None, now_ms: int) -> str | None:
    """Return an ISO 8601 time in UTC, and its distance from now; None if there is none.

    >>> moment_text("1970-01-01T00:02:00Z", 0)
    'Thu 1970-01-01 00:02 UTC (in 2 min)'
    """
    ms = instant(time)
    return None if ms is None else f"{moment(ms, None)} ({relative(ms, now_ms)})"


def clock_time(ms: int, tz: str) -> str:
    """Return the time of the day in a zone.

    >>> clock_time(1_800_000_000_000, "Europe/Berlin")
    '09:00:00'
    """
    return f"{(_EPOCH + timedelta(milliseconds=ms)).astimezone(zoneinfo.ZoneInfo(tz)):%H:%M:%S}"


def local_zone(environment: Mapping[str, str] = os.environ, link: Path = Path("/etc/localtime")) -> str:
    """Return the IANA name of this machine's zone, or UTC if it is unknown.

    >>> local_zone({"TZ": "Europe/Berlin"})
    'Europe/Berlin'
    """
    named = environment.get("TZ", "").removeprefix(":")
    try:
        found = re.search(r"zoneinfo(?:/posix|/right)?/(.+)$", str(link.resolve()))
    except OSError:
        found = None
    for name in (named, found[1] if found else ""):
        if name and _is_zone(name):
            return "UTC" if name in _UTC else name
    return "UTC"


def _is_zone(name: str) -> bool:
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True
