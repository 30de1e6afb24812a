"""The days on which an expression fires: the matching days of a year are a set of 366 bits.

There are only fourteen kinds of years: seven first weekdays, leap or not. Each is computed once per
expression, on first use.
"""

from __future__ import annotations

from datetime import date
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
            start, end, days, _ = self._select_year(_year_of(day))
        return days >> day - start

    def at_or_after(self, day: int) -> int | None:
        """Return the first matching day from `day` on, or None if there is none within a century."""
        start, end, days, year = self._page
        if not start <= day < end:
            if not _FIRST_DAY <= day < _END:
                return None
            start, end, days, year = self._select_year(_year_of(day))
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
        year = _year_of(day)
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
            year = _year_of(start)
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
        return days

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


def _year_of(day: int) -> int:
    year = day * 400 // 146097 + 1970  # exact, or off by one
    if day < _NEW_YEAR[year]:
        return year - 1
    return year if day < _NEW_YEAR[year + 1] else year + 1
