"""Hours of the day: how they are written, and whether an instant is within them."""

from __future__ import annotations

from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful.errors import InvalidArgument
from wakeful.schedule.day_rules import parse_hours, within

ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "Pacific/Apia"]


def ms(text: str, tz: str = "UTC", fold: int = 0) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(tz), fold=fold).timestamp() * 1000)


@pytest.mark.parametrize(
    ("text", "hours"),
    [
        ("08:00-22:00", "08:00-22:00"),
        ("8:00-22:00", "08:00-22:00"),
        ("8-22", "08:00-22:00"),
        (" 22:30 - 6 ", "22:30-06:00"),
        ("09:15–17:45", "09:15-17:45"),
        ("00:00-24:00", "00:00-24:00"),
    ],
)
def test_hours_have_one_spelling(text: str, hours: str):
    assert parse_hours(text) == hours == parse_hours(hours)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "'' is not a range of hours; write from when to when, such as '08:00-22:00'"),
        ("08:00", "is not a range of hours"),
        ("8am-10pm", "is not a range of hours"),
        ("08:00-22:00-23:00", "is not a range of hours"),
        ("08:60-22:00", "has a time that does not exist"),
        ("25:00-26:00", "has a time that does not exist"),
        ("24:00-06:00", "has a time that does not exist"),
        ("08:00-24:01", "has a time that does not exist"),
        ("08:00-08:00", "ends when it begins; leave the hours out for no limit"),
    ],
)
def test_invalid_hours_are_refused_with_an_example(text: str, said: str):
    with pytest.raises(InvalidArgument) as refused:
        parse_hours(text)
    assert said in refused.value.message
    assert "08:00-22:00" in refused.value.message


@pytest.mark.parametrize(
    ("hours", "at", "open_then"),
    [
        ("08:00-22:00", "07:59:59.999", False),
        ("08:00-22:00", "08:00", True),
        ("08:00-22:00", "21:59:59.999", True),
        ("08:00-22:00", "22:00", False),
        ("22:00-06:00", "21:59:59", False),
        ("22:00-06:00", "22:00", True),
        ("22:00-06:00", "00:00", True),
        ("22:00-06:00", "05:59:59", True),
        ("22:00-06:00", "06:00", False),
        ("22:00-00:00", "00:00", False),
        ("00:00-24:00", "00:00", True),
        ("00:00-24:00", "23:59:59.999", True),
    ],
)
def test_the_first_minute_is_within_and_the_last_is_not(hours: str, at: str, open_then: bool):
    assert within(hours, "Asia/Kathmandu", ms(f"2027-03-01T{at}", "Asia/Kathmandu")) is open_then


def test_hours_are_the_same_on_the_day_of_a_dst_change():
    berlin = "Europe/Berlin"
    for day in ("2027-03-27", "2027-03-28", "2027-10-31"):  # as always, an hour less, an hour more
        assert not within("08:00-22:00", berlin, ms(f"{day}T07:59", berlin))
        assert within("08:00-22:00", berlin, ms(f"{day}T08:00", berlin))
        assert within("08:00-22:00", berlin, ms(f"{day}T21:59", berlin))
        assert not within("08:00-22:00", berlin, ms(f"{day}T22:00", berlin))


def test_a_repeated_hour_is_within_both_times_and_a_skipped_hour_never():
    berlin = "Europe/Berlin"
    for fold in (0, 1):
        assert within("02:00-03:00", berlin, ms("2027-10-31T02:30", berlin, fold))
    night = range(ms("2027-03-28T00:00", berlin), ms("2027-03-28T06:00", berlin), 60_000)
    assert not any(within("02:00-03:00", berlin, at) for at in night)


minutes = st.integers(0, 24 * 60 - 1)
instants = st.datetimes(datetime(1990, 1, 1), datetime(2090, 1, 1)).map(
    lambda at: round(at.replace(tzinfo=ZoneInfo("UTC")).timestamp() * 1000)
)


def spelled(minute: int) -> str:
    return f"{minute // 60:02d}:{minute % 60:02d}"


@given(minutes, minutes, st.sampled_from(ZONES), instants)
def test_hours_are_compared_with_the_local_time(start: int, end: int, tz: str, at: int):
    if start == end:
        return
    shown = (datetime.fromtimestamp(0, ZoneInfo("UTC")) + timedelta(milliseconds=at)).astimezone(ZoneInfo(tz))
    wall, first, last = shown.time(), time(*divmod(start, 60)), time(*divmod(end, 60))
    as_shown = first <= wall < last if first < last else wall >= first or wall < last

    assert within(f"{spelled(start)}-{spelled(end)}", tz, at) is as_shown


@given(minutes, minutes, st.sampled_from(ZONES), instants)
def test_each_instant_is_within_some_hours_or_within_the_rest_of_the_day(
    start: int, end: int, tz: str, at: int
):
    if start == end:
        return
    some, rest = (f"{spelled(a)}-{spelled(b)}" for a, b in ((start, end), (end, start)))

    assert within(some, tz, at) != within(rest, tz, at)
