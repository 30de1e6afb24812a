"""Celery schedules as schedules of Wakeful."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from celery.schedules import crontab, schedule, solar
from hypothesis import given
from hypothesis import strategies as st

from wakeful.celery.crontabs import convert_schedule, crontab_expression
from wakeful.cron import Cron
from wakeful.errors import InvalidSchedule


def _field(low: int, high: int) -> st.SearchStrategy[object]:
    number = st.integers(low, high)
    return st.one_of(
        st.just("*"),
        number,
        st.sets(number, min_size=1, max_size=6),
        st.builds("*/{}".format, st.integers(1, high)),
        st.builds("{}-{}".format, number, number),  # may pass the end: 22-2
        st.lists(number, min_size=1, max_size=5).map(lambda found: ",".join(map(str, found))),
    )


@given(
    minute=_field(0, 59),
    hour=_field(0, 23),
    day=_field(1, 31),
    month=_field(1, 12),
    weekday=_field(0, 6),
    days=st.integers(0, 1500),
    minutes=st.integers(0, 1439),
)
def test_an_expression_fires_when_all_fields_of_the_crontab_match(
    minute: object, hour: object, day: object, month: object, weekday: object, days: int, minutes: int
) -> None:
    entry = crontab(minute, hour, day_of_week=weekday, day_of_month=day, month_of_year=month)
    try:
        expression = crontab_expression(entry)
    except InvalidSchedule:  # both day fields are limited, without the 1st and without Sunday
        assert 1 not in entry.day_of_month
        assert 0 not in entry.day_of_week
        return
    at = datetime(2025, 1, 1, tzinfo=UTC) + timedelta(days=days, minutes=minutes)
    matches = (
        at.minute in entry.minute
        and at.hour in entry.hour
        and at.day in entry.day_of_month
        and at.month in entry.month_of_year
        and at.isoweekday() % 7 in entry.day_of_week
    )
    try:
        cron = Cron(expression)
    except InvalidSchedule:  # such as 31 February: it never fires in Celery either
        assert not matches
        return
    assert (cron.next(at - timedelta(minutes=1)) == at) is matches


@pytest.mark.parametrize(
    ("entry", "expression"),
    [
        (crontab(), "* * * * *"),
        (crontab(minute=0, hour="*/3"), "0 */3 * * *"),
        (crontab(minute=30, hour=7, day_of_week="sunday"), "30 7 * * 0"),
        (
            crontab(minute=0, hour=0, day_of_month="2-30/2"),
            "0 0 2,4,6,8,10,12,14,16,18,20,22,24,26,28,30 * *",
        ),
        (crontab(minute=0, hour=0, day_of_month="8-14", day_of_week="tue,thu"), "0 0 * * TUE#2,THU#2"),
        (crontab(minute=0, hour=0, day_of_month="13", day_of_week="sun,fri"), "0 0 13 * */7,5"),
        (crontab(minute=0, hour=0, day_of_month="*/2", day_of_week="mon"), "0 0 */2 * 1"),
    ],
)
def test_crontabs_are_written_as_short_expressions(entry: crontab, expression: str) -> None:
    assert crontab_expression(entry) == expression


def test_an_interval_counts_from_the_creation_of_the_job() -> None:
    assert convert_schedule(timedelta(hours=6), "UTC") == {
        "schedule": {"kind": "every", "everyMs": 21_600_000}
    }


def test_a_relative_interval_falls_on_full_hours() -> None:
    fields = convert_schedule(schedule(timedelta(hours=6), relative=True), "UTC")
    assert fields["startAt"] == "2020-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (solar.__new__(solar), "celery.schedules.solar has no equivalent"),
        (0.5, "an interval of 0.5 s is too short"),
        (crontab(0, 0, day_of_month=13, day_of_week=5), "must both match in Celery"),
        ("0 7 * * *", "builtins.str has no equivalent"),
    ],
)
def test_what_cannot_be_kept_is_refused(value: object, message: str) -> None:
    with pytest.raises(InvalidSchedule, match=message):
        convert_schedule(value, "UTC")
