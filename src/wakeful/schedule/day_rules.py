"""Rules for local days: hours of the day, and recurring excluded days. Pure.

Hours such as `08:00-22:00` are compared in local time, so that DST does not move them. The first minute is
included, the last one is not. Hours that end before they begin go over midnight.

Excluded days are weekdays, dates of every year, and the days and hours of a cron expression. Days are
ordinals (`date.toordinal`), of which Monday is 1 modulo 7; minutes count from midnight.
"""

from __future__ import annotations

import re
from calendar import monthrange
from dataclasses import dataclass
from datetime import date
from functools import cached_property, lru_cache
from typing import Final

from wakeful.cron.expression import Expression, parse
from wakeful.cron.fields import CronField
from wakeful.cron.zone import zone
from wakeful.errors import InvalidArgument
from wakeful.values.bounded_cache import MB, bounded_cache, text_size

_DAY: Final = 24 * 60
_HOURS: Final = re.compile(r"([0-9]{1,2})(?::([0-9]{2}))?\s*[-–]\s*([0-9]{1,2})(?::([0-9]{2}))?")
_CLOCK: Final = re.compile(r"([0-9]{1,2})(?::([0-9]{2}))?")
_EXPECTED: Final = "write from when to when, such as '08:00-22:00', or '22:00-06:00' over midnight"
WEEKDAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_FULL_NAMES: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_GROUPS: Final = {"weekend": (5, 6), "weekends": (5, 6), "weekday": range(5), "weekdays": range(5)}
_MONTH_DAY: Final = re.compile(r"([0-9]{2})-([0-9]{2})")
_LEAP_YEAR: Final = 2024

Window = tuple[int, int]
"""Consecutive minutes of a day: the first, and the one after the last."""


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


def parse_clock(text: str) -> str:
    """Return a time of day in its normal form, or raise InvalidArgument.

    >>> parse_clock("9"), parse_clock("17:30")
    ('09:00', '17:30')
    """
    found = _CLOCK.fullmatch(text.strip())
    minute = _DAY if found is None else _minute(found[1], found[2])
    if minute >= _DAY:
        raise InvalidArgument(f"{text[:64]!r} is not a time of day; write one such as '09:00'")
    return _clock_text(minute)


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


def read_weekdays(text: str) -> tuple[str, int] | None:
    """Return the normal name of a weekday or a group, and its bits (Monday is bit 0); None for other text.

    >>> read_weekdays("Saturdays"), read_weekdays("weekends")
    (('sat', 32), ('weekends', 96))
    """
    word = text.lower()
    if word in _GROUPS:
        return word.rstrip("s") + "s", sum(1 << day for day in _GROUPS[word])
    for number, (short, full) in enumerate(zip(WEEKDAYS, _FULL_NAMES, strict=True)):
        if word in (short, full, f"{full}s"):
            return short, 1 << number
    return None


def read_yearly(text: str) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Return the first and the last date of a yearly range, as (month, day); None for other text.

    >>> read_yearly("12-24/12-26"), read_yearly("12-25"), read_yearly("2026-12-25")
    (((12, 24), (12, 26)), ((12, 25), (12, 25)), None)
    """
    first, slash, last = text.partition("/")
    found = [_MONTH_DAY.fullmatch(part) for part in ((first, last) if slash else (first,))]
    dates = [(int(match[1]), int(match[2])) for match in found if match is not None]
    if len(dates) < len(found):
        return None
    for month, day in dates:
        try:
            date(_LEAP_YEAR, month, day)
        except ValueError as error:
            raise InvalidArgument(f"'{month:02}-{day:02}' is not a date ({error})") from None
    return dates[0], dates[-1]


@lru_cache(maxsize=1024)
def yearly_bits(first: tuple[int, int], last: tuple[int, int]) -> tuple[int, ...]:
    """Return the days of each month (bit n for day n) from one date to another, also over New Year."""
    months = []
    for month in range(1, 13):
        bits = 0
        for day in range(1, 32):
            within = first <= (month, day) <= last
            if first > last:
                within = (month, day) >= first or (month, day) <= last
            bits |= within << day
        months.append(bits)
    return tuple(months)


@dataclass(frozen=True)
class CronRule:
    """The minutes that a cron expression of five fields matches, in local time.

    >>> rule = read_cron("* 2-4 * * SUN")
    >>> rule.windows, rule.on_day(date(2027, 3, 7).toordinal())
    (((120, 300),), True)
    """

    expression: Expression

    @cached_property
    def windows(self) -> tuple[Window, ...]:
        """The windows of a day that it matches."""
        minutes = _minutes_of_day(self.expression.hours, self.expression.minutes)
        found: list[Window] = []
        for minute in range(_DAY):
            if not minutes >> minute & 1:
                continue
            if found and found[-1][1] == minute:
                found[-1] = found[-1][0], minute + 1
            else:
                found.append((minute, minute + 1))
        return tuple(found)

    @property
    def all_day(self) -> bool:
        """Whether it matches every minute of its days."""
        return self.windows == ((0, _DAY),)

    def contains(self, hours: CronField, minutes: CronField) -> bool:
        """Return whether it matches all times of day of these fields."""
        own = self.expression
        return not (hours.bits & ~own.hours.bits or minutes.bits & ~own.minutes.bits)

    def on_day(self, day: int) -> bool:
        """Return whether it matches on this day."""
        at = date.fromordinal(min(max(day, 1), date.max.toordinal()))
        if not self.expression.months.bits >> at.month & 1:
            return False
        # The first weekday of the month (Sunday is 0, as in cron) and its number of days.
        month = (at.toordinal() - at.day + 1) % 7, monthrange(at.year, at.month)[1]
        days = self._days.get(month)
        if days is None:
            days = self._days[month] = self.expression.days_in(*month)
        return bool(days >> at.day & 1)

    @cached_property
    def _days(self) -> dict[tuple[int, int], int]:
        return {}

    def at(self, minute: int) -> bool:
        """Return whether it matches this minute of its days."""
        hour, rest = divmod(minute, 60)
        return bool(self.expression.hours.bits >> hour & 1 and self.expression.minutes.bits >> rest & 1)

    def window_around(self, minute: int) -> Window:
        """Return the window that contains a matching minute."""
        return next(window for window in self.windows if window[0] <= minute < window[1])


@bounded_cache(2 * MB, lambda rule, text: 20 * text_size(text))
def read_cron(text: str) -> CronRule:
    """Return the rule of an expression, or raise InvalidArgument."""
    expression = parse(text)
    if expression.has_seconds:
        raise InvalidArgument("an excluded cron expression has five fields: it excludes whole minutes")
    if expression.cycle:
        raise InvalidArgument(
            "an excluded cron expression has no '%': exclude weekdays, dates or days of the month"
        )
    return CronRule(expression)


def _minutes_of_day(hours: CronField, minutes: CronField) -> int:
    return sum(minutes.bits << 60 * hour for hour in hours.values())
