"""The wall-clock times that match an expression, without time zones.

A wall time is in seconds since 1970-01-01 00:00 on that clock. The matching minutes of a day are a set of
1440 bits, so the next match is a shift and a lowest set bit, and counting is a bit count.
"""

from __future__ import annotations

from datetime import date, datetime, time
from typing import Final

from wakeful.cron.dates import EPOCH_DAY, Dates, lowest
from wakeful.cron.expression import Expression

DAY: Final = 86400


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
