"""Hours of the day, such as `08:00-22:00`, in the local time of a zone. Pure.

Local times are compared, so that DST does not move the hours. The first minute is included, the last one is
not. Hours that end before they begin go over midnight.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from wakeful.cron.zone import zone
from wakeful.errors import InvalidArgument

_DAY: Final = 24 * 60
_HOURS: Final = re.compile(r"([0-9]{1,2})(?::([0-9]{2}))?\s*[-–]\s*([0-9]{1,2})(?::([0-9]{2}))?")
_EXPECTED: Final = "write from when to when, such as '08:00-22:00', or '22:00-06:00' over midnight"


def parse_hours(text: str) -> str:
    """Return the hours in their normal form, or raise InvalidArgument.

    >>> parse_hours("8-22"), parse_hours("22:30 - 6:00")
    ('08:00-22:00', '22:30-06:00')
    """
    found = _HOURS.fullmatch(text.strip())
    if found is None:
        raise InvalidArgument(f"{text[:64]!r} is not a range of hours; {_EXPECTED}")
    start, end = _minute(found[1], found[2]), _minute(found[3], found[4])
    if start >= _DAY or end > _DAY:
        raise InvalidArgument(f"{text[:64]!r} has a time that does not exist; {_EXPECTED}")
    if start == end:
        raise InvalidArgument(
            f"{text[:64]!r} ends when it begins; leave the hours out for no limit, or {_EXPECTED}"
        )
    return f"{_clock_text(start)}-{_clock_text(end)}"


def within(hours: str, tz: str, at_ms: int) -> bool:
    """Return whether an instant is within these hours of a zone.

    >>> within("08:00-22:00", "Europe/Berlin", 1_800_000_000_000)  # 09:00 there
    True
    >>> within("22:00-06:00", "Europe/Berlin", 1_800_000_000_000)
    False
    """
    start, end = _read(hours)
    second = at_ms // 1000
    minute = (second + zone(tz).offset_at(second)) // 60 % _DAY
    return start <= minute < end if start < end else minute >= start or minute < end


def _minute(hour: str, minute: str | None) -> int:
    """Return the minute of the day; a value past the day for an invalid time."""
    past = int(minute or 0)
    return int(hour) * 60 + past if past < 60 else _DAY + 1


def _clock_text(minute: int) -> str:
    return f"{minute // 60:02d}:{minute % 60:02d}"


@lru_cache(maxsize=1024)
def _read(hours: str) -> tuple[int, int]:
    """Return the first minute of the day and the one after the last, of hours in their normal form."""
    return int(hours[:2]) * 60 + int(hours[3:5]), int(hours[6:8]) * 60 + int(hours[9:])
