"""Instants in words, for a model without a clock: date, time, zone and distance from now."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from wakeful.cron import zone
from wakeful.duration import DAY, HOUR, MINUTE, SECOND, spell_duration
from wakeful.job.job import Json

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_THEN: Final = 2  # ticks after the next one


def now_in_words(now_ms: int, tz: str) -> str:
    """Return the current time, as ISO 8601 and in words.

    >>> now_in_words(1_803_924_000_000, "Europe/Berlin")
    'It is now 2027-03-01T19:00:00+01:00, that is Monday 1 March 2027 at 19:00 Europe/Berlin.'
    """
    return f"It is now {iso(now_ms, tz)}, that is {_day_and_time(_wall(now_ms, tz))} {tz}."


def iso(ms: int, tz: str) -> str:
    """Return an instant as ISO 8601 with the offset of the zone."""
    return _wall(ms, tz).isoformat(timespec="seconds")


def when_in_words(ms: int, now_ms: int, tz: str) -> str:
    """Return an instant relative to now.

    >>> when_in_words(1_803_974_400_000, 1_803_924_000_000, "Europe/Berlin")
    'tomorrow, Tuesday 2 March 2027 at 09:00 Europe/Berlin (in 14 hours)'
    >>> when_in_words(1_803_924_600_000, 1_803_924_000_000, "UTC")
    'today, Monday 1 March 2027 at 18:10 UTC (in 10 minutes)'
    """
    at, now = _wall(ms, tz), _wall(now_ms, tz)
    near = {-1: "yesterday, ", 0: "today, ", 1: "tomorrow, "}.get((at.date() - now.date()).days, "")
    return f"{near}{_day_and_time(at)} {tz} ({away(ms - now_ms)})"


def away(ms: int) -> str:
    """Return the distance from now, rounded.

    >>> away(5_400_000), away(50_400_000), away(-90_000), away(0)
    ('in 1 hour 30 minutes', 'in 14 hours', '1 minute 30 seconds ago', 'now')
    """
    length = abs(ms)
    steps = ((10 * MINUTE, SECOND), (10 * HOUR, MINUTE), (2 * DAY, HOUR))
    step = next((step for most, step in steps if length < most), DAY)
    rounded = (length + step // 2) // step * step
    if not rounded:
        return "now"
    return f"in {spell_duration(rounded)}" if ms > 0 else f"{spell_duration(rounded)} ago"


def next_in_words(job: Mapping[str, Json], now_ms: int) -> str:
    """Return when a job fires next, and after that; or why it does not fire."""
    tz, next_ms = str(job.get("tz") or "UTC"), job.get("nextAtMs")
    if not isinstance(next_ms, int):
        if job.get("enabled"):
            return f"next: {_lower(str(job.get('explain')))}"
        return f"next: never, the job is not enabled ({job.get('disabledReason') or 'paused'})"
    text = f"next: {when_in_words(next_ms, now_ms, tz)}"
    ticks = job.get("nextTicks")
    later = [tick["atMs"] for tick in ticks if isinstance(tick, dict)] if isinstance(ticks, list) else []
    then = [_day_and_time(_wall(ms, tz)) for ms in later if isinstance(ms, int) and ms > next_ms][:_THEN]
    return f"{text}, then {' and '.join(then)}" if then else text


def _wall(ms: int, tz: str) -> datetime:
    return (_EPOCH + timedelta(milliseconds=ms)).astimezone(zone(tz).tzinfo)


def _day_and_time(at: datetime) -> str:
    clock = f"{at:%H:%M:%S}" if at.second else f"{at:%H:%M}"
    return f"{_DAYS[at.weekday()]} {at.day} {_MONTHS[at.month - 1]} {at.year} at {clock}"


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
