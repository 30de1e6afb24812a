"""A parsed cron expression: the set of matching wall-clock times, without time zones.

The forms are five fields (`minute hour day-of-month month day-of-week`), six with leading seconds, seven
with leading seconds and a trailing year, and macros (`@daily`).
"""

from __future__ import annotations

import calendar
from dataclasses import dataclass
from typing import Final

from wakeful.cron.fields import (
    DAY_OF_MONTH,
    DAY_OF_WEEK,
    HOUR,
    MINUTE,
    MONTH,
    SECOND,
    YEAR,
    CronField,
    Cycle,
    LastDay,
    LastOf,
    LastWeekday,
    NearestWeekday,
    NthOf,
    Special,
)
from wakeful.errors import InvalidSchedule

MACROS: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
MAX_LENGTH: Final = 1000
_MONDAY_TO_FRIDAY: Final = 0b0111110  # bit 0 is Sunday
_EVERY_7_DAYS: Final = 0b10000001000000100000010000001
_LENGTHS: Final = {2: (28, 29), 4: (30,), 6: (30,), 9: (30,), 11: (30,)}


@dataclass(frozen=True, slots=True)
class Expression:
    """The meaning of a cron expression on the wall clock."""

    text: str
    seconds: CronField
    minutes: CronField
    hours: CronField
    days: CronField
    months: CronField
    weekdays: CronField
    years: CronField | None

    @property
    def follows_real_time(self) -> bool:
        """Whether the minute or hour field starts with `*`: such a schedule ignores clock changes."""
        return self.minutes.starred or self.hours.starred

    @property
    def has_seconds(self) -> bool:
        """Whether the expression has a seconds field."""
        return self.text.count(" ") > 4

    @property
    def cycle(self) -> Cycle | None:
        """The days or weeks to which it is limited. They depend on more than the month."""
        return self.days.cycle or self.weekdays.cycle

    def days_in(self, first_weekday: int, length: int) -> int:
        """Return the matching days (bit n for the n-th) of a month with this first weekday and length.

        `cycle` limits them further.
        Day-of-month and day-of-week are OR, unless one of them starts with `*`, as in Debian's cron.
        """
        by_date = self.days.bits
        for special in self.days.specials:
            by_date |= _special_bit(special, first_weekday, length)
        week = (
            self.weekdays.bits * 0b10000001 >> first_weekday & 0b1111111
        )  # rotated so that bit 0 is the 1st
        by_week = week * _EVERY_7_DAYS << 1
        for special in self.weekdays.specials:
            by_week |= _special_bit(special, first_weekday, length)
        either = not (self.days.starred or self.weekdays.starred)
        return (by_date | by_week if either else by_date & by_week) & (2 << length) - 2


def parse(text: str) -> Expression:
    """Parse an expression. Raise InvalidSchedule with the invalid field and the reason.

    >>> parse("0 9 * * mon-fri").weekdays.values()
    [1, 2, 3, 4, 5]
    """
    if len(text) > MAX_LENGTH:
        raise InvalidSchedule(
            f"a cron expression has at most {MAX_LENGTH} characters; this one has {len(text)}"
        )
    written = " ".join(text.split())
    if written.startswith("@"):
        written = _macro(written.lower())
    parts = written.split(" ") if written else []
    if not 5 <= len(parts) <= 7:
        raise InvalidSchedule(
            f"'{text}' has {len(parts)} field{'' if len(parts) == 1 else 's'}; an expression has 5 "
            "(minute hour day-of-month month day-of-week), 6 with leading seconds, or 7 with a year as well"
        )
    second = SECOND.read(parts.pop(0) if len(parts) > 5 else "0")
    year = YEAR.read(parts.pop()) if len(parts) == 6 else None
    minute, hour, day, month, weekday = (
        kind.read(part)
        for kind, part in zip((MINUTE, HOUR, DAY_OF_MONTH, MONTH, DAY_OF_WEEK), parts, strict=True)
    )
    expression = Expression(written.upper(), second, minute, hour, day, month, weekday, year)
    if expression.cycle:
        _check_cycle(expression)
    if not _can_fire(expression):
        fields = [field for field in (day, month, weekday, year) if field and not field.any]
        raise InvalidSchedule(
            f"'{text}' never fires: no day fits "
            + " with ".join(f"{field.kind.name} '{field.text}'" for field in fields)
        )
    return expression


def _check_cycle(expression: Expression) -> None:
    """Refuse other limits of the days beside `%`, with which it might never fire."""
    fields = (expression.days, expression.months, expression.weekdays, expression.years)
    for field in fields:
        if field and not field.any and not field.cycle:
            field.kind.refuse(field.text, "write '*' beside a day field with '%'")
    if expression.days.cycle and expression.weekdays.cycle:
        expression.weekdays.kind.refuse(expression.weekdays.text, "only one of the day fields can have '%'")


def _macro(text: str) -> str:
    if text in MACROS:
        return MACROS[text]
    if text.startswith("@every"):
        raise InvalidSchedule(
            f"'{text}' is an interval, not a cron expression; give it as an `every` schedule"
        )
    if text == "@reboot":
        raise InvalidSchedule("'@reboot' is not a time; run the job manually after the machine boots")
    raise InvalidSchedule(f"'{text}' is not known; there are {', '.join(MACROS)}")


def _can_fire(expression: Expression) -> bool:
    months = expression.months.values()
    if expression.years is None or expression.years.any:
        shapes = (
            (first, length) for month in months for length in _LENGTHS.get(month, (31,)) for first in range(7)
        )
        return any(expression.days_in(first, length) for first, length in shapes)
    dated = {calendar.monthrange(year, month) for year in expression.years.values() for month in months}
    return any(expression.days_in((monday_first + 1) % 7, length) for monday_first, length in dated)


def _special_bit(special: Special, first_weekday: int, length: int) -> int:
    match special:
        case LastDay(back):
            day = length - back
        case LastWeekday():
            day = _nearest_weekday(length, first_weekday, length)
        case NearestWeekday(wanted):
            day = _nearest_weekday(wanted, first_weekday, length) if wanted <= length else 0
        case LastOf(weekday):
            day = length - (first_weekday + length - 1 - weekday) % 7
        case NthOf(weekday, nth):
            day = 1 + (weekday - first_weekday) % 7 + 7 * (nth - 1)
    return 1 << day if day >= 1 else 0


def _nearest_weekday(day: int, first_weekday: int, length: int) -> int:
    """Return the weekday nearest to `day`: Friday for Saturday, Monday for Sunday, within the month."""
    weekday = (first_weekday + day - 1) % 7
    if _MONDAY_TO_FRIDAY >> weekday & 1:
        return day
    if weekday == 6:
        return day - 1 if day > 1 else day + 2
    return day + 1 if day < length else day - 2
