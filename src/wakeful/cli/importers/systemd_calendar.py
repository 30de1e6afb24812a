"""Convert calendar expressions (`OnCalendar=`) and time spans of systemd.

An expression is `WEEKDAYS YEAR-MONTH-DAY HOUR:MINUTE:SECOND ZONE`, each part optional. systemd requires both
the weekday and the date to match; in cron one of them is enough. So an expression with both becomes a cron
expression with the date, and the other weekdays are excluded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from wakeful.cron import zone
from wakeful.errors import InvalidArgument, WakefulError
from wakeful.values.json_value import Json

_SECOND: Final = 1000
_DAY: Final = 86_400 * _SECOND
_SPAN_UNITS: Final = {
    unit: Fraction(length)
    for units, length in (
        ("usec us µs μs", Fraction(1, 1000)),
        ("msec ms", 1),
        ("seconds second sec s", _SECOND),
        ("minutes minute min m", 60 * _SECOND),
        ("hours hour hr h", 3600 * _SECOND),
        ("days day d", _DAY),
        ("weeks week w", 7 * _DAY),
        ("months month M", Fraction("30.44") * _DAY),
        ("years year y", Fraction("365.25") * _DAY),
    )
    for unit in units.split()
}
_SPAN_PART: Final = re.compile(r"\s*(\d{1,20}(?:\.\d{1,20})?)\s*([A-Za-zµμ]*)\s*")
_SHORTHANDS: Final = {
    "minutely": "*-*-* *:*:00",
    "hourly": "*-*-* *:00:00",
    "daily": "*-*-* 00:00:00",
    "weekly": "Mon *-*-* 00:00:00",
    "monthly": "*-*-01 00:00:00",
    "quarterly": "*-01,04,07,10-01 00:00:00",
    "semiannually": "*-01,07-01 00:00:00",
    "semi-annually": "*-01,07-01 00:00:00",
    "bi-annually": "*-01,07-01 00:00:00",
    "biannually": "*-01,07-01 00:00:00",
    "yearly": "*-01-01 00:00:00",
    "annually": "*-01-01 00:00:00",
    "anually": "*-01-01 00:00:00",
}
#: Monday is 0, as in systemd.
_WEEKDAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_FULL_NAMES: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_YEARS: Final = range(1970, 2200)
_VALUE: Final = re.compile(r"(\d{1,9})(?:\.\.(\d{1,9}))?(?:/(\d{1,9}))?")


def read_span(text: str) -> int | None:
    """Return the milliseconds of a time span; a number without a unit is seconds. None is `infinity`.

    >>> read_span("1h 30min"), read_span("90"), read_span("5m30s"), read_span("infinity")
    (5400000, 90000, 330000, None)
    """
    if text.strip() == "infinity":
        return None
    total, at = Fraction(0), 0
    while at < len(text):
        part = _SPAN_PART.match(text, at)
        unit = _SPAN_UNITS.get(part[2] or "s") if part is not None else None
        if part is None or unit is None:
            raise InvalidArgument(f"'{text}' is not a time span such as '1h 30min'")
        total, at = total + Fraction(part[1]) * unit, part.end()
    if not text.strip():
        raise InvalidArgument("the time span is empty")
    return round(total)


@dataclass(frozen=True, slots=True)
class CalendarSchedule:
    """The schedule of a calendar expression, with the job fields that it needs."""

    schedule: Json
    #: None: the expression names no zone
    tz: str | None = None
    #: `exclude`, `startAt` and `endAt`
    fields: Mapping[str, Json] = field(default_factory=dict)


def read_calendar(text: str) -> CalendarSchedule:
    """Return the schedule of a calendar expression, or raise InvalidArgument.

    >>> read_calendar("Mon..Fri 09:00 Europe/Berlin").schedule
    '0 9 * * MON-FRI'
    >>> read_calendar("*:0/15").schedule, read_calendar("*-*~01 18:30").schedule
    ('*/15 * * * *', '30 18 L * *')
    """
    words = text.split()
    if not words:
        raise InvalidArgument("the expression is empty")
    if words[0].startswith("@"):
        return _epoch(words)
    tz = _zone(words)
    if len(words) == 1 and words[0].lower() in _SHORTHANDS:
        words = _SHORTHANDS[words[0].lower()].split()
    weekdays, date, time = _parts(words, text)
    years, months, days, from_end = _date(date)
    hours, minutes, seconds = _time(time)
    fields: dict[str, Json] = dict(_limits(years))
    every_day = not from_end and len(days) == 31
    if every_day or len(weekdays) == 7:
        day_of_week = _weekdays_text(weekdays)
    else:
        day_of_week = "*"
        fields["exclude"] = [name for number, name in enumerate(_WEEKDAYS) if number not in weekdays]
    cron = [
        _set_text(minutes, range(60)),
        _set_text(hours, range(24)),
        _last_days_text(days) if from_end else _set_text(days, range(1, 32)),
        _set_text(months, range(1, 13)),
        day_of_week,
    ]
    if seconds != [0]:
        cron.insert(0, _set_text(seconds, range(60)))
    return CalendarSchedule(" ".join(cron), tz, fields)


def _epoch(words: Sequence[str]) -> CalendarSchedule:
    if len(words) > 1 or not re.fullmatch(r"@\d{1,11}", words[0]):
        raise InvalidArgument(f"'{words[0]}' is not @ and the seconds since 1970")
    return CalendarSchedule({"kind": "at", "atMs": int(words[0][1:]) * 1000})


def _zone(words: list[str]) -> str | None:
    """Remove the zone from the end of the words, and return it."""
    last = words[-1]
    if not last[0].isalpha() or last.lower() in _SHORTHANDS or len(words) == 1:
        return None
    if _is_weekdays(last):
        return None
    try:
        name = zone(last).name
    except WakefulError as error:
        raise InvalidArgument(error.message) from error
    words.pop()
    return name


def _parts(words: Sequence[str], text: str) -> tuple[set[int], str, str]:
    """Return weekdays, date and time; a part that is absent has its default."""
    weekdays, rest = set(range(7)), list(words)
    if rest and rest[0][0].isalpha():
        weekdays = _weekdays(rest.pop(0))
    date, time = "*-*-*", "00:00:00"
    if rest and ":" not in rest[0]:
        date = rest.pop(0)
    elif rest and "T" in rest[0]:
        date, _, rest[0] = rest[0].partition("T")
    if rest:
        time = rest.pop(0)
    if rest:
        raise InvalidArgument(f"'{text[:100]}' is not a calendar expression; '{rest[0]}' is left over")
    return weekdays, date, time


def _is_weekdays(text: str) -> bool:
    return all(_weekday(part) is not None for part in re.split(r"\.\.|,|-", text) if part)


def _weekday(text: str) -> int | None:
    word = text.lower()
    return next((n for n in range(7) if word in (_WEEKDAYS[n], _FULL_NAMES[n])), None)


def _weekdays(text: str) -> set[int]:
    found: set[int] = set()
    for part in text.split(","):
        first, dots, last = part.partition(".." if ".." in part else "-")
        start, end = _weekday(first), _weekday(last) if dots else _weekday(first)
        if start is None or end is None:
            raise InvalidArgument(f"'{part}' is not a weekday")
        if start > end:
            raise InvalidArgument(f"'{part}' ends before it begins; a week begins on Monday")
        found.update(range(start, end + 1))
    return found


def _date(text: str) -> tuple[list[int], list[int], list[int], bool]:
    """Return years, months and days, and whether the days count from the end of the month."""
    from_end = "~" in text
    parts = re.split(r"[-~]", text)
    if len(parts) == 2:
        parts = ["*", *parts]
    well_formed = len(parts) == 3 and text.count("~") <= 1 and (not from_end or "-" not in text.split("~")[1])
    if not well_formed:
        raise InvalidArgument(f"'{text}' is not a date such as *-*-01")
    years = _values("year", parts[0], _YEARS)
    return years, _values("month", parts[1], range(1, 13)), _days(parts[2], from_end), from_end


def _days(text: str, from_end: bool) -> list[int]:
    """Return days of the month; from the end, the last day is 1 and a step counts towards it."""
    if not from_end:
        return _values("day", text, range(1, 32))
    found: set[int] = set()
    for part in text.split(","):
        match = _VALUE.fullmatch(part)
        if match is None:
            raise InvalidArgument(f"day: '{part}' cannot be counted from the end of the month")
        first, step = int(match[1]), int(match[3]) if match[3] else 0
        last = int(match[2]) if match[2] else (1 if step else first)
        if step:
            found.update(range(first, last - 1, -step))
        else:
            found.update(range(min(first, last), max(first, last) + 1))
    if not found or min(found) < 1 or max(found) > 28:
        raise InvalidArgument(f"day: '{text}' cannot be counted from the end of the month")
    return sorted(found)


def _time(text: str) -> tuple[list[int], list[int], list[int]]:
    parts = text.split(":")
    if len(parts) not in (2, 3):
        raise InvalidArgument(f"'{text}' is not a time such as 09:00")
    second = parts[2] if len(parts) == 3 else "00"
    if "." in second.replace("..", ""):
        raise InvalidArgument(f"second: '{second}' has a fraction; a tick has whole seconds")
    return (
        _values("hour", parts[0], range(24)),
        _values("minute", parts[1], range(60)),
        _values("second", second, range(60)),
    )


def _values(what: str, text: str, allowed: range) -> list[int]:
    """Return the values of a component: `*`, or values, ranges and steps.

    >>> _values("minute", "0/20", range(60)), _values("hour", "8..10,20", range(24))
    ([0, 20, 40], [8, 9, 10, 20])
    """
    if text == "*":
        return list(allowed)
    found: set[int] = set()
    for part in text.split(","):
        match = _VALUE.fullmatch(part)
        if match is None:
            raise InvalidArgument(f"{what}: '{part}' is not a number, a range a..b or a step a/n")
        first = _full_year(match[1]) if what == "year" else int(match[1])
        last = first if match[2] is None else (_full_year(match[2]) if what == "year" else int(match[2]))
        step = 1
        if match[3] is not None:
            step = int(match[3])
            last = allowed[-1] if match[2] is None else last
        if not (first in allowed and last in allowed and first <= last and step > 0):
            raise InvalidArgument(f"{what}: '{part}' is not within {allowed[0]} and {allowed[-1]}")
        found.update(range(first, last + 1, step))
    return sorted(found)


def _full_year(text: str) -> int:
    year = int(text)
    return year if year > 99 else year + (1900 if year >= 70 else 2000)


def _limits(years: Sequence[int]) -> dict[str, Json]:
    """Return `startAt` and `endAt` for consecutive years."""
    if len(years) == len(_YEARS):
        return {}
    first, last = years[0], years[-1]
    if last - first + 1 != len(years):
        raise InvalidArgument("year: only consecutive years can be converted, to startAt and endAt")
    limits: dict[str, Json] = {"startAt": f"{first}-01-01T00:00:00"}
    if last < _YEARS[-1]:
        limits["endAt"] = f"{last}-12-31T23:59:59"
    return limits


def _weekdays_text(weekdays: set[int]) -> str:
    if len(weekdays) == 7:
        return "*"
    runs: list[list[int]] = []
    for day in sorted(weekdays):
        if runs and runs[-1][-1] == day - 1:
            runs[-1].append(day)
        else:
            runs.append([day])
    names = [name.upper() for name in _WEEKDAYS]
    return ",".join(
        ",".join(names[day] for day in run) if len(run) < 3 else f"{names[run[0]]}-{names[run[-1]]}"
        for run in runs
    )


def _last_days_text(days: Sequence[int]) -> str:
    return ",".join("L" if day == 1 else f"L-{day - 1}" for day in days)


def _set_text(values: Sequence[int], allowed: range) -> str:
    """Return the values as a field of a cron expression.

    >>> _set_text([0, 15, 30, 45], range(60)), _set_text([9, 10, 11, 20], range(24))
    ('*/15', '9,10,11,20')
    """
    if len(values) == len(allowed):
        return "*"
    if len(values) == 1:
        return str(values[0])
    first, last, step = values[0], values[-1], values[1] - values[0]
    even = list(values) == list(range(first, last + 1, step))
    if even and first == allowed[0] and last + step > allowed[-1]:
        return f"*/{step}"
    if even and len(values) > 2:
        return f"{first}-{last}" if step == 1 else f"{first}-{last}/{step}"
    return ",".join(map(str, values))
