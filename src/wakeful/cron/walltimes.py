"""The days and the wall-clock times that match an expression, without time zones.

The matching days of a year are a set of 366 bits. There are only fourteen kinds of years: seven first
weekdays, leap or not. Each is computed once per expression, on first use.

A wall time is in seconds since 1970-01-01 00:00 on that clock. The matching minutes of a day are a set of
1440 bits, so the next match is a shift and a lowest set bit, and counting is a bit count.
"""

from __future__ import annotations

from datetime import date, datetime, time
from itertools import accumulate
from typing import Final

from wakeful.cron.expression import Expression

EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_LENGTHS: Final = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_YEARS: Final = range(1, 10_000)
_LEAP: Final = [year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) for year in range(_YEARS.stop)]
#: the day, counted from 1970-01-01, on which each year starts
_NEW_YEAR: Final = [0, *accumulate((365 + leap for leap in _LEAP[1:]), initial=1 - EPOCH_DAY)]
_SHAPE: Final = [(_NEW_YEAR[year] + EPOCH_DAY) % 7 * 2 + _LEAP[year] for year in range(_YEARS.stop)]
_FIRST_DAY: Final = _NEW_YEAR[_YEARS.start]
_END: Final = _NEW_YEAR[_YEARS.stop]
DAY: Final = 86400


class Dates:
    """The matching days of an expression, counted from 1970-01-01, in the years 1 to 9999."""

    __slots__ = ("_expression", "_page", "_shapes", "_years")

    def __init__(self, expression: Expression) -> None:
        self._expression = expression
        self._years = frozenset(expression.years.values()) if expression.years else None
        self._shapes: list[int | None] = [None] * 14
        #: the last used year: its first day, the day after its last, its matching days, its number
        self._page = (0, 0, 0, 0)

    def later_this_year(self, day: int) -> int:
        """Return the matching days from `day` to the end of its year: bit 0 is `day` itself."""
        start, end, days, _ = self._page
        if not start <= day < end:
            start, end, days, _ = self._select_year(_year(day))
        return days >> day - start

    def at_or_after(self, day: int) -> int | None:
        """Return the first matching day from `day` on, or None if there is none within a century."""
        start, end, days, year = self._page
        if not start <= day < end:
            if not _FIRST_DAY <= day < _END:
                return None
            start, end, days, year = self._select_year(_year(day))
        days >>= day - start
        if days:
            return day + (days & -days).bit_length() - 1
        for later in range(year + 1, min(year + 101, _YEARS.stop)):
            days = self._days(later)
            if days:
                return _NEW_YEAR[later] + (days & -days).bit_length() - 1
        return None

    def at_or_before(self, day: int) -> int | None:
        """Return the last matching day up to `day`, or None if there is none within a century."""
        if not _FIRST_DAY <= day < _END:
            return None
        year = _year(day)
        days = self._days(year) & (2 << day - _NEW_YEAR[year]) - 1
        if days:
            return _NEW_YEAR[year] + days.bit_length() - 1
        for earlier in range(year - 1, max(year - 101, 0), -1):
            days = self._days(earlier)
            if days:
                return _NEW_YEAR[earlier] + days.bit_length() - 1
        return None

    def has(self, day: int) -> bool:
        """Return whether this day matches."""
        return self.at_or_after(day) == day

    def count(self, start: int, end: int) -> int:
        """Return how many days in [start, end) match."""
        start, end = max(start, _FIRST_DAY), min(end, _END)
        total = 0
        while start < end:
            year = _year(start)
            days = self._days(year) >> start - _NEW_YEAR[year]
            if end < _NEW_YEAR[year + 1]:
                days &= (1 << end - start) - 1
            total += days.bit_count()
            start = _NEW_YEAR[year + 1]
        return total

    def _select_year(self, year: int) -> tuple[int, int, int, int]:
        self._page = page = (_NEW_YEAR[year], _NEW_YEAR[year + 1], self._days(year), year)
        return page

    def _days(self, year: int) -> int:
        """Return the matching days of a year, bit 0 for 1 January."""
        if self._years is not None and year not in self._years:
            return 0
        shape = _SHAPE[year]
        days = self._shapes[shape]
        if days is None:
            days = self._shapes[shape] = self._compute(shape)
        cycle = self._expression.cycle
        return days & cycle.matching_days(_NEW_YEAR[year], 366) if cycle else days

    def _compute(self, shape: int) -> int:
        first_weekday, leap = divmod(shape, 2)
        days, start = 0, 0
        for month, length in enumerate(_LENGTHS, 1):
            length += month == 2 and leap
            if self._expression.months.bits >> month & 1:
                days |= self._expression.days_in((first_weekday + start) % 7, length) >> 1 << start
            start += length
        return days


def lowest(bits: int) -> int:
    """Return the index of the lowest set bit."""
    return (bits & -bits).bit_length() - 1


def _year(day: int) -> int:
    year = day * 400 // 146097 + 1970  # exact, or off by one
    if day < _NEW_YEAR[year]:
        return year - 1
    return year if day < _NEW_YEAR[year + 1] else year + 1


class WallTimes:
    """The wall times that match an expression."""

    __slots__ = (
        "_dates",
        "_first_clock",
        "_first_time",
        "_last_time",
        "_minutes",
        "_seconds",
        "_times_a_day",
        "minutely",
    )

    def __init__(self, expression: Expression) -> None:
        self._dates = Dates(expression)
        self._minutes = sum(expression.minutes.bits << 60 * hour for hour in expression.hours.values())
        self._seconds = expression.seconds.bits
        self._first_time = lowest(self._minutes) * 60 + lowest(self._seconds)
        self._last_time = (self._minutes.bit_length() - 1) * 60 + self._seconds.bit_length() - 1
        #: whether it fires only on whole minutes
        self.minutely = self._seconds == 1
        self._first_clock = time(self._first_time // 3600, self._first_time // 60 % 60, self._first_time % 60)
        self._times_a_day = self._minutes.bit_count() * self._seconds.bit_count()

    def later(self, after: datetime, day: int, end: int) -> datetime | None:
        """Return the next match after a datetime on `day`, if there is one this year before `end`.

        Only for whole minutes. It avoids the conversion to seconds and back, the largest cost of a search.
        """
        days = self._dates.later_this_year(day)
        if days & 1:
            minute = after.hour * 60 + after.minute
            minutes = self._minutes >> minute + 1
            if minutes:
                hour, minute = divmod(minute + (minutes & -minutes).bit_length(), 60)
                return datetime(after.year, after.month, after.day, hour, minute, 0, 0, after.tzinfo)
        days >>= 1
        if not days:
            return None
        day += (days & -days).bit_length()
        if day >= end:
            return None
        return datetime.combine(date.fromordinal(day + EPOCH_DAY), self._first_clock, after.tzinfo)

    def at_or_after(self, wall: int) -> int | None:
        """Return the first matching wall second from `wall` on."""
        day, second = divmod(wall, DAY)
        today = self._dates.at_or_after(day)
        if today is None:
            return None
        if today > day:
            return today * DAY + self._first_time
        minute, second = divmod(second, 60)
        later = self._minutes >> minute
        if later & 1:
            seconds = self._seconds >> second
            if seconds:
                return wall + (seconds & -seconds).bit_length() - 1
        later >>= 1
        if later:
            return day * DAY + (minute + (later & -later).bit_length()) * 60 + lowest(self._seconds)
        today = self._dates.at_or_after(day + 1)
        return None if today is None else today * DAY + self._first_time

    def at_or_before(self, wall: int) -> int | None:
        """Return the last matching wall second up to `wall`."""
        day, second = divmod(wall, DAY)
        today = self._dates.at_or_before(day)
        if today is None:
            return None
        if today < day:
            return today * DAY + self._last_time
        minute, second = divmod(second, 60)
        if self._minutes >> minute & 1:
            seconds = self._seconds & (2 << second) - 1
            if seconds:
                return wall - second + seconds.bit_length() - 1
        earlier = self._minutes & (1 << minute) - 1
        if earlier:
            return day * DAY + (earlier.bit_length() - 1) * 60 + self._seconds.bit_length() - 1
        today = self._dates.at_or_before(day - 1)
        return None if today is None else today * DAY + self._last_time

    def count(self, low: int, high: int) -> int:
        """Return how many wall seconds in [low, high) match."""
        if high <= low:
            return 0
        first_day, first_second = divmod(low, DAY)
        last_day, last_second = divmod(high, DAY)
        return (
            self._dates.count(first_day, last_day) * self._times_a_day
            - (self._times_before(first_second) if self._dates.has(first_day) else 0)
            + (self._times_before(last_second) if self._dates.has(last_day) else 0)
        )

    def _times_before(self, second: int) -> int:
        """Return how many times of day before `second` match."""
        minute, second = divmod(second, 60)
        whole = (self._minutes & (1 << minute) - 1).bit_count() * self._seconds.bit_count()
        begun = (self._seconds & (1 << second) - 1).bit_count() if self._minutes >> minute & 1 else 0
        return whole + begun
