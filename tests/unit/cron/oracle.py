"""The scan: what a cron expression means, worked out by looking at every minute.

Slow, obvious, and independent of the evaluator: nothing of wakeful is imported here. It walks every real
minute of a window (every second, for an expression that has seconds) and every minute of the naive wall
clock beside it, and asks of each whether the expression matches. Where the clock jumps is found by sending
wall times through zoneinfo and back.

It reads expressions that are known to be right; it refuses nothing.
"""

from __future__ import annotations

import calendar
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)

MONTH_NAMES = "JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC".split()
DAY_NAMES = "SUN MON TUE WED THU FRI SAT".split()
ANY_YEAR = frozenset(range(1, 10_000))
NAMES = {
    **{name: month for month, name in enumerate(MONTH_NAMES, start=1)},
    **{name: day for day, name in enumerate(DAY_NAMES)},
}
MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


# ---------------------------------------------------------------------------------------------------------
# The fields


def number(text: str) -> int:
    """A number, or the name of a month or a day."""
    return NAMES[text] if text in NAMES else int(text)


def numbers(field_text: str, low: int, high: int) -> set[int]:
    """What a field of lists, ranges, stars and steps stands for.

    >>> sorted(numbers("*/20,7", 0, 59))
    [0, 7, 20, 40]
    >>> sorted(numbers("5-1", 0, 7))
    [0, 1, 5, 6]
    """
    found: set[int] = set()
    for item in field_text.split(","):
        body, slash, step = item.partition("/")
        first, dash, last = body.partition("-")
        span: list[int]
        if body in ("*", "?"):
            span = list(range(low, high + 1))
        elif dash and number(first) > number(last):  # round the end of the week
            span = [*range(number(first), 7), *range(number(last) + 1)]
        elif dash:
            span = list(range(number(first), number(last) + 1))
        elif slash:
            span = list(range(number(first), high + 1))
        else:
            span = [number(first)]
        found.update(span[:: int(step) if slash else 1])
    return found


def days_in(year: int, month: int) -> int:
    return calendar.monthrange(year, month)[1]


@lru_cache(maxsize=5000)
def working_days(year: int, month: int) -> list[int]:
    """The days of a month that are Monday to Friday."""
    return [n for n in range(1, days_in(year, month) + 1) if date(year, month, n).weekday() < 5]


def nearest_working_day(year: int, month: int, aim: int) -> int:
    """Always in the same month: from Saturday the 1st it is Monday the 3rd."""
    return min(working_days(year, month), key=lambda day: abs(day - aim))


def in_cycle(field_text: str, count: int) -> bool:
    """Is this day or week, counted since 1970, one of those that `%2+1` behind a field names?"""
    _, percent, cycle = field_text.partition("%")
    length, _, offset = cycle.partition("+")
    return not percent or count % int(length) == int(offset or 0)


def day_of_month_matches(field_text: str, day: date) -> bool:
    last = days_in(day.year, day.month)
    for item in field_text.split(","):
        if item == "L":
            wanted = {last}
        elif item == "LW":
            wanted = {max(working_days(day.year, day.month))}
        elif item.startswith("L-"):
            wanted = {last - int(item[2:])}
        elif item.endswith("W"):
            aim = int(item[:-1])
            wanted = {nearest_working_day(day.year, day.month, aim)} if aim <= last else set()
        else:
            wanted = numbers(item, 1, 31)
        if day.day in wanted:
            return True
    return False


def day_of_week_matches(field_text: str, day: date) -> bool:
    for item in field_text.split(","):
        if item.endswith("L"):
            matches = day.isoweekday() % 7 == number(item[:-1]) % 7
            matches = matches and day.day + 7 > days_in(day.year, day.month)
        elif "#" in item:
            name, _, nth = item.partition("#")
            matches = day.isoweekday() % 7 == number(name) % 7 and (day.day - 1) // 7 + 1 == int(nth)
        else:
            matches = day.isoweekday() % 7 in {n % 7 for n in numbers(item, 0, 7)}
        if matches:
            return True
    return False


@dataclass(frozen=True)
class Expression:
    """An expression taken apart."""

    seconds: frozenset[int]
    minutes: frozenset[int]
    hours: frozenset[int]
    day_of_month: str
    months: frozenset[int]
    day_of_week: str
    years: frozenset[int]
    follows_real_time: bool
    has_seconds: bool
    _days: dict[date, bool] = field(default_factory=dict, compare=False)

    def matches(self, wall: datetime) -> bool:
        """Does the clock on the wall show a time that the expression names?"""
        return (
            wall.minute in self.minutes
            and wall.hour in self.hours
            and wall.second in self.seconds
            and self.matches_day(wall.date())
        )

    def matches_day(self, day: date) -> bool:
        known = self._days.get(day)
        if known is None:
            known = self._days[day] = self.looks_right(day)
        return known

    def looks_right(self, day: date) -> bool:
        if day.month not in self.months or day.year not in self.years:
            return False
        monday = day - timedelta(days=day.weekday())
        if not in_cycle(self.day_of_month, (day - date(1970, 1, 1)).days) or not in_cycle(
            self.day_of_week, (monday - date(1969, 12, 29)).days // 7
        ):
            return False
        in_month = day_of_month_matches(self.day_of_month.partition("%")[0], day)
        in_week = day_of_week_matches(self.day_of_week.partition("%")[0], day)
        if self.day_of_month[0] in "*?" or self.day_of_week[0] in "*?":
            return in_month and in_week
        return in_month or in_week


@lru_cache(maxsize=1024)
def read(text: str) -> Expression:
    """Take an expression apart into its fields."""
    fields = MACROS.get(text.strip().lower(), text).upper().split()
    has_seconds = len(fields) > 5
    second = fields.pop(0) if has_seconds else "0"
    minute, hour, day_of_month, month, day_of_week, *year = fields
    return Expression(
        seconds=frozenset(numbers(second, 0, 59)),
        minutes=frozenset(numbers(minute, 0, 59)),
        hours=frozenset(numbers(hour, 0, 23)),
        day_of_month=day_of_month,
        months=frozenset(numbers(month, 1, 12)),
        day_of_week=day_of_week,
        years=frozenset(numbers(year[0], 1970, 2199)) if year else ANY_YEAR,
        follows_real_time=minute.startswith("*") or hour.startswith("*"),
        has_seconds=has_seconds,
    )


# ---------------------------------------------------------------------------------------------------------
# The clock on the wall


def local(instant: datetime, zone: ZoneInfo) -> datetime:
    """What the clock on the wall shows at an instant."""
    return instant.astimezone(zone).replace(tzinfo=None)


def instants_of(wall: datetime, zone: ZoneInfo) -> tuple[datetime, ...]:
    """When the clock shows this: never in a gap, twice in an overlap, once on all other days."""
    first = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    second = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)
    if local(first, zone) != wall:
        return ()
    return (first,) if first == second else (first, second)


def first_instant_after_gap(wall: datetime, zone: ZoneInfo) -> datetime:
    """The instant at which the clock jumped past this wall time.

    The two readings of a wall time in a gap stand before the jump and after it, so halve the way between
    them until one second is left.
    """
    before = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)
    after = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    while after - before > SECOND:
        middle = before + (after - before) // 2 // SECOND * SECOND
        if local(middle, zone) > wall:
            after = middle
        else:
            before = middle
    return after


def every(step: timedelta, first: datetime, last: datetime) -> Iterator[datetime]:
    while first <= last:
        yield first
        first += step


class WallTime(NamedTuple):
    """One time on the naive wall clock, and the instants at which it is shown."""

    wall: datetime
    instants: tuple[datetime, ...]
    after_gap: datetime | None


@dataclass(frozen=True, eq=False)
class Window:
    """A stretch of real time, from just after `start` up to and including `end`, looked at step by step."""

    zone: ZoneInfo
    start: datetime
    end: datetime
    real: list[tuple[datetime, datetime]]
    walls: list[WallTime]


@lru_cache(maxsize=64)
def look(zone_name: str, start: datetime, end: datetime, step: timedelta = MINUTE) -> Window:
    """Walk a window of whole minutes, once, for any number of expressions."""
    zone = ZoneInfo(zone_name)
    start, end = start.astimezone(UTC), end.astimezone(UTC)
    real = [(instant, local(instant, zone)) for instant in every(step, start, end)]
    walls: list[WallTime] = []
    for wall in every(step, min(shown for _, shown in real), max(shown for _, shown in real)):
        instants = instants_of(wall, zone)
        walls.append(WallTime(wall, instants, None if instants else first_instant_after_gap(wall, zone)))
    return Window(zone, start, end, real, walls)


# ---------------------------------------------------------------------------------------------------------
# The answer


@lru_cache(maxsize=64)
def real_times(expression: Expression, window: Window) -> list[datetime]:
    """The instants of a window at which the clock shows a time that the expression names."""
    return [instant for instant, wall in window.real if expression.matches(wall)]


@lru_cache(maxsize=64)
def wall_times(expression: Expression, window: Window) -> list[WallTime]:
    """The times that the expression names on the naive wall clock, those in a gap too."""
    return [time for time in window.walls if expression.matches(time.wall)]


def ticks(
    text: str, window: Window, dst_gap: str = "run_after", dst_overlap: str = "first"
) -> list[datetime]:
    """Every tick of an expression in a window, in UTC, in order."""
    expression = read(text)
    found: set[datetime] = set()
    if expression.follows_real_time:
        found.update(real_times(expression, window))
    else:
        for time in wall_times(expression, window):
            if time.after_gap is not None:
                if dst_gap == "run_after":
                    found.add(time.after_gap)
            elif dst_overlap == "first":
                found.add(time.instants[0])
            elif dst_overlap == "second":
                found.add(time.instants[-1])
            else:
                found.update(time.instants)
    return sorted(instant for instant in found if window.start < instant <= window.end)


def days(text: str, first: date, last: date) -> list[date]:
    """Every day on which an expression fires, both ends included: for questions of centuries."""
    expression = read(text)
    count = (last - first).days + 1
    return [day for day in (first + timedelta(days=n) for n in range(count)) if expression.matches_day(day)]


@lru_cache(maxsize=1024)
def has_a_day(text: str) -> bool:
    """Is there any day in the calendar for it? The calendar repeats itself, weekdays too, every 400 years."""
    expression = read(text)
    years = expression.years if len(text.split()) == 7 else range(2000, 2400)
    return any(
        expression.looks_right(date(year, month, day))
        for year in years
        for month in expression.months
        for day in range(1, days_in(year, month) + 1)
    )
