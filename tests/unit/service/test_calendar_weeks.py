"""The calendar of a week: hours as the clocks show them, excluded days, and the schedules of an hour."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful.document import Defaults, read_definition, timing_to_text
from wakeful.forecast.peaks import TimingCount, compute_week
from wakeful.service.admin.calendar_weeks import (
    HOUR_MS,
    NAMED,
    excluded_days,
    find_monday,
    hour_schedules,
    midnight_ms,
    week_days,
)

ZONES = ("UTC", "Europe/Berlin", "Australia/Lord_Howe", "Asia/Kathmandu", "America/Santiago", "Africa/Cairo")
#: Monday, 16 November 2026
MONDAY = date(2026, 11, 16)
MONDAY_MS = midnight_ms(MONDAY, "UTC")


def count(schedule: object, jobs: int = 1, example: str = "default/a", **fields: object) -> TimingCount:
    document = {"name": "a", "schedule": schedule, **fields}
    timing = read_definition(document, now_ms=0, defaults=Defaults()).timing
    assert timing is not None
    return TimingCount(timing_to_text(timing), "{}", 0, jobs, example)


@given(day=st.dates(date(2015, 1, 1), date(2035, 12, 1)), tz=st.sampled_from(ZONES))
def test_the_hours_of_a_week_cover_it_without_gaps(day: date, tz: str):
    first = find_monday(day)
    hours = [hour for each in week_days(first, tz) for hour in each.hours]
    assert hours[0].start_ms == midnight_ms(first, tz)
    assert hours[-1].end_ms == midnight_ms(first + timedelta(days=7), tz)
    assert all(before.end_ms == after.start_ms for before, after in zip(hours, hours[1:], strict=False))
    for each in week_days(first, tz):
        length = sum(hour.end_ms - hour.start_ms for hour in each.hours)
        assert (length != 24 * HOUR_MS) == (each.clock_change is not None)
        for hour in each.hours:
            at = datetime.fromtimestamp(hour.start_ms / 1_000, UTC).astimezone(ZoneInfo(tz))
            assert (at.date(), at.hour) == (each.day, hour.hour)


@pytest.mark.parametrize(
    ("first", "tz", "day", "hours", "text"),
    [
        (date(2027, 3, 22), "Europe/Berlin", 6, 23, "The clocks go forward from 02:00 to 03:00."),
        (date(2027, 10, 25), "Europe/Berlin", 6, 25, "The clocks go back from 03:00 to 02:00."),
        (date(2026, 9, 28), "Australia/Lord_Howe", 6, 24, "The clocks go forward from 02:00 to 02:30."),
        (date(2026, 4, 20), "Africa/Cairo", 4, 23, "The clocks go forward from 00:00 to 01:00."),
    ],
)
def test_a_day_on_which_the_clocks_change_says_so(first: date, tz: str, day: int, hours: int, text: str):
    found = week_days(first, tz)
    assert (len(found[day].hours), found[day].clock_change) == (hours, text)
    assert [each.clock_change for number, each in enumerate(found) if number != day] == [None] * 6


def test_an_hour_that_comes_twice_is_marked_the_second_time():
    hours = week_days(date(2027, 10, 25), "Europe/Berlin")[6].hours
    assert [(hour.hour, hour.repeated) for hour in hours[1:5]] == [
        (1, False),
        (2, False),
        (2, True),
        (3, False),
    ]


def test_excluded_days_count_the_jobs_and_name_the_entries():
    counts = [
        count("0 9 * * *", 3, exclude=["2026-11-18", "holidays:DE-BY"]),
        count("0 10 * * *", 2, exclude=["2026-11-18/2026-11-19"]),
        count("0 11 * * *", 5),
    ]
    found = excluded_days(counts, MONDAY, 7)
    assert list(found) == [date(2026, 11, 18), date(2026, 11, 19)]
    assert found[date(2026, 11, 18)] == (5, ("2026-11-18", "2026-11-18/2026-11-19"))
    assert found[date(2026, 11, 19)].jobs == 2
    christmas = excluded_days(counts, date(2026, 12, 21), 7)[date(2026, 12, 25)]
    assert (christmas.jobs, christmas.is_holiday, christmas.reasons) == (3, True, ("holidays:DE-BY",))
    assert not found[date(2026, 11, 19)].is_holiday


def test_the_schedules_of_an_hour_are_grouped_and_bounded():
    nine = MONDAY_MS + 9 * HOUR_MS
    counts = [
        count("0 9 * * *", 40, "default/morning"),
        count("0 9 * * *", 2, "ada/morning", exclude=["2026-11-18"]),
        count("*/10 * * * *", 1, "default/often"),
        count("0 10 * * *", 7, "default/later"),
        TimingCount("not JSON", "{}", 0, 1, "default/broken"),
    ]
    found = hour_schedules(counts, nine, nine + HOUR_MS)
    assert [(each.jobs, each.starts, each.example) for each in found.named] == [
        (42, 42, "ada/morning"),
        (1, 6, "default/often"),
    ]
    assert (found.named[0].first_ms, found.more) == (nine, 0)
    many = [count(f"{minute} {hour} * * *") for hour in (9,) for minute in range(60)]
    bounded = hour_schedules(many, nine, nine + HOUR_MS)
    assert (len(bounded.named), bounded.more) == (NAMED, 60 - NAMED)


def test_the_starts_of_the_schedules_are_those_of_the_week():
    counts = [count("*/7 * * * *", 3), count("0 9 * * 1-5", 11), count("every 90m", 2)]
    week = compute_week(counts, MONDAY_MS, days=8)
    assert len(week.starts) == 8 * 24 * 60
    for hour in range(0, 8 * 24, 5):
        start = MONDAY_MS + hour * HOUR_MS
        named = hour_schedules(counts, start, start + HOUR_MS).named
        assert sum(each.starts for each in named) == week.starts_between(start, start + HOUR_MS)
    assert week.starts_between(MONDAY_MS, MONDAY_MS + 9 * 24 * HOUR_MS) is None
