"""Celery schedules as schedules of Wakeful. Pure.

Celery's crontab runs on days that match both the day of the month and the day of the week. A cron expression
runs on days that match either of them, unless one of the two fields starts with `*`. So a crontab that has
both is written in a form that cron reads as both: `MON#1` for the Monday of the first seven days, or a field
that starts with `*/31` (the 1st) or `*/7` (Sunday). Where there is no such form, it is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Final

from celery.schedules import crontab, schedule

from wakeful.errors import InvalidSchedule
from wakeful.job.job import Json

_DAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
#: The days of the month on which each weekday occurs for the first, second, third and fourth time.
_WEEKS: Final = tuple(frozenset(range(first, first + 7)) for first in (1, 8, 15, 22))
#: Where a relative interval starts: a full hour, and midnight in UTC.
_ALIGNED: Final = "2020-01-01T00:00:00Z"
_LEAST: Final = timedelta(seconds=1)


def convert_schedule(value: Any, tz: str, *, relative: bool = False) -> dict[str, Json]:
    """Return the fields of a job (`schedule`, `startAt`) for the schedule of a beat entry.

    Raises InvalidSchedule for one that Wakeful cannot keep.

    >>> convert_schedule(30.0, "UTC")
    {'schedule': {'kind': 'every', 'everyMs': 30000}}
    >>> convert_schedule(crontab(minute=0, hour=7), "Europe/Berlin")
    {'schedule': {'kind': 'cron', 'expr': '0 7 * * *', 'tz': 'Europe/Berlin'}}
    """
    if isinstance(value, crontab):
        return {"schedule": {"kind": "cron", "expr": crontab_expression(value), "tz": tz}}
    if isinstance(value, int | float) and not isinstance(value, bool):
        every = timedelta(seconds=value)
    elif isinstance(value, timedelta):
        every = value
    elif type(value) is schedule:
        every, relative = value.run_every, relative or value.relative
    else:
        raise InvalidSchedule(
            f"a schedule of type {type(value).__module__}.{type(value).__qualname__} has no equivalent; use "
            "crontab, a timedelta or a number of seconds"
        )
    if every < _LEAST:
        raise InvalidSchedule(f"an interval of {every.total_seconds():g} s is too short; at least 1 s")
    fields: dict[str, Json] = {"schedule": {"kind": "every", "everyMs": every // timedelta(milliseconds=1)}}
    if relative:
        fields["startAt"] = _ALIGNED
    return fields


def crontab_expression(entry: Any) -> str:
    """Return the cron expression of a Celery crontab. Raises InvalidSchedule if there is none.

    >>> crontab_expression(crontab(minute="*/15", hour="22-2", day_of_week="mon-fri"))
    '*/15 0-2,22-23 * * 1-5'
    >>> crontab_expression(crontab(0, 9, day_of_month="1-7", day_of_week="mon"))
    '0 9 * * MON#1'
    >>> crontab_expression(crontab(0, 9, day_of_month="1,15", day_of_week="mon"))
    '0 9 */31,15 * 1'
    >>> crontab_expression(crontab(0, 9, day_of_month="13", day_of_week="fri"))
    Traceback (most recent call last):
    wakeful.errors.InvalidSchedule: day_of_month='13' and day_of_week='fri' must both match in Celery, and ...
    """
    minute = _field(entry._orig_minute, entry.minute, range(60))
    hour = _field(entry._orig_hour, entry.hour, range(24))
    month = _field(entry._orig_month_of_year, entry.month_of_year, range(1, 13))
    days, weekdays = frozenset(entry.day_of_month), frozenset(entry.day_of_week)
    day = _field(entry._orig_day_of_month, days, range(1, 32))
    weekday = _field(entry._orig_day_of_week, weekdays, range(7))
    if not day.startswith("*") and not weekday.startswith("*"):
        if days in _WEEKS:
            week = _WEEKS.index(days) + 1
            day, weekday = "*", ",".join(f"{_DAYS[each]}#{week}" for each in sorted(weekdays))
        elif 1 in days:
            day = ",".join(filter(None, ("*/31", _ranges(days - {1}))))
        elif 0 in weekdays:
            weekday = ",".join(filter(None, ("*/7", _ranges(weekdays - {0}))))
        else:
            raise InvalidSchedule(
                f"day_of_month={entry._orig_day_of_month!r} and day_of_week={entry._orig_day_of_week!r} must "
                "both match in Celery, and no cron expression says so; keep day_of_month, and return early "
                "in the task on other days of the week"
            )
    return f"{minute} {hour} {day} {month} {weekday}"


def _field(text: object, values: Iterable[int], full: range) -> str:
    """Return a field of an expression.

    The text stays if it is `*` or a step, which cron reads in the same way. Otherwise it is written from its
    values: Celery also has ranges that pass the end of the day, and collections.
    """
    found = frozenset(values)
    if isinstance(text, str) and text.startswith("*/") and text[2:].isdecimal():
        return text
    return "*" if found == frozenset(full) else _ranges(found)


def _ranges(values: Iterable[int]) -> str:
    """Return numbers as a list of ranges.

    >>> _ranges({1, 2, 3, 7})
    '1-3,7'
    """
    spans: list[list[int]] = []
    for value in sorted(values):
        if spans and value == spans[-1][1] + 1:
            spans[-1][1] = value
        else:
            spans.append([value, value])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)
