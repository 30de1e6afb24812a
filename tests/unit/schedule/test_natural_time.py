"""Times as people say them. It is Thursday 26 November 2026, 15:30 in Berlin (14:30 UTC)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.effort import cases
from tests.unit.cron.expressions import expression
from wakeful import InvalidSchedule
from wakeful.schedule.natural_time import parse_phrase
from wakeful.schedule.schedules import At, CronSchedule, Every, Schedule, explain_schedule, parse_schedule

BERLIN = "Europe/Berlin"
NOW_MS = int(datetime(2026, 11, 26, 15, 30, tzinfo=ZoneInfo(BERLIN)).timestamp() * 1000)
MINUTE = 60_000


def read(text: str, tz: str = BERLIN) -> dict[str, str | int] | None:
    return parse_phrase(text, now_ms=NOW_MS, tz=tz)


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("in 20 minutes", 20),
        ("In 20 Minutes.", 20),
        ("in an hour", 60),
        ("in one hour", 60),
        ("in two hours", 120),
        ("in half an hour", 30),
        ("in an hour and a half", 90),
        ("in 1 hour and 30 minutes", 90),
        ("in a couple of hours", 120),
        ("20 minutes from now", 20),
        ("in a day", 24 * 60),
    ],
)
def test_a_time_relative_to_now(text: str, minutes: int):
    assert read(text) == {"kind": "at", "atMs": NOW_MS + minutes * MINUTE}


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("tomorrow at 9", "2026-11-27T09:00"),
        ("tomorrow 9am", "2026-11-27T09:00"),
        ("9am tomorrow", "2026-11-27T09:00"),
        ("tomorrow, at 9:15 p.m.", "2026-11-27T21:15"),
        ("tomorrow at noon", "2026-11-27T12:00"),
        ("tomorrow morning at 8", "2026-11-27T08:00"),
        ("tomorrow evening at 7", "2026-11-27T19:00"),
        ("day after tomorrow at 10", "2026-11-28T10:00"),
        ("today at 17:30", "2026-11-26T17:30"),
        ("today at 9", "2026-11-26T09:00"),  # over: the schedule's own reader refuses it
        ("tonight at 8", "2026-11-26T20:00"),
        ("tonight at 12", "2026-11-27T00:00"),
        ("tonight at 12:30", "2026-11-27T00:30"),
        ("tonight at midnight", "2026-11-27T00:00"),
        ("at 12 at night", "2026-11-27T00:00"),
        ("today at 12 at night", "2026-11-27T00:00"),
        ("tomorrow night at 12", "2026-11-28T00:00"),
        ("tomorrow night at 11", "2026-11-27T23:00"),
        ("friday night at 12", "2026-11-28T00:00"),
        ("friday at 12 at night", "2026-11-28T00:00"),
        ("midnight on friday", "2026-11-27T00:00"),
        ("31 december at 12 at night", "2027-01-01T00:00"),
        ("tomorrow at 12am", "2026-11-27T00:00"),
        ("tomorrow at 12 in the morning", "2026-11-27T00:00"),
        ("tomorrow at 12 in the afternoon", "2026-11-27T12:00"),
        ("tomorrow at 12", "2026-11-27T12:00"),
        ("this evening at 6:45", "2026-11-26T18:45"),
        ("in the evening at 7", "2026-11-26T19:00"),
        ("in the morning at 10", "2026-11-27T10:00"),
        ("friday evening at 7", "2026-11-27T19:00"),
        ("this thursday at 9", "2026-11-26T09:00"),  # over: the schedule's own reader refuses it
        ("at 17:00", "2026-11-26T17:00"),
        ("at 9", "2026-11-27T09:00"),  # today it is over
        ("5pm", "2026-11-26T17:00"),
        ("at midnight", "2026-11-27T00:00"),
        ("next monday at 8", "2026-11-30T08:00"),
        ("monday at 8", "2026-11-30T08:00"),
        ("noon on friday", "2026-11-27T12:00"),
        ("thursday at 17:00", "2026-11-26T17:00"),
        ("thursday at 9", "2026-12-03T09:00"),
        ("next thursday at 17:00", "2026-12-03T17:00"),
        ("friday at 3 in the afternoon", "2026-11-27T15:00"),
        ("3 december at 9", "2026-12-03T09:00"),
        ("december 3rd at 9am", "2026-12-03T09:00"),
        ("on the 3rd of march at 9", "2027-03-03T09:00"),
        ("march 3, 2028 at 9:00", "2028-03-03T09:00"),
        ("29 february at 9", "2028-02-29T09:00"),
        ("2026-12-24 at 18", "2026-12-24T18:00"),
    ],
)
def test_once_on_a_day(text: str, at: str):
    assert read(text) == {"kind": "at", "at": at, "tz": BERLIN}


@pytest.mark.parametrize(
    ("text", "expr"),
    [
        ("every weekday at 9", "0 9 * * 1-5"),
        ("weekdays at 9:30", "30 9 * * 1-5"),
        ("every day at 7:30am", "30 7 * * *"),
        ("each day at 7", "0 7 * * *"),
        ("daily at noon", "0 12 * * *"),
        ("at 6 every day", "0 6 * * *"),
        ("every day at 9 and 17", "0 9,17 * * *"),
        ("every morning at 7", "0 7 * * *"),
        ("mornings at 7", "0 7 * * *"),
        ("monday mornings at 9", "0 9 * * 1"),
        ("on friday evenings at 7", "0 19 * * 5"),
        ("9 friday nights", "0 21 * * 5"),
        ("friday nights at 12", "0 0 * * 6"),
        ("weekday mornings at 9", "0 9 * * 1-5"),
        ("tuesday and friday mornings at 9", "0 9 * * 2,5"),
        ("every evening at 7 and 8pm", "0 19,20 * * *"),
        ("every day at 9am and 17", "0 9,17 * * *"),
        ("every evening at 7", "0 19 * * *"),
        ("every night at 11", "0 23 * * *"),
        ("every night at 12", "0 0 * * *"),
        ("every day at 12 at night", "0 0 * * *"),
        ("every night at 12:30", "30 0 * * *"),
        ("every night at midnight", "0 0 * * *"),
        ("every night at 11 and 12", "0 0,23 * * *"),
        ("every friday night at 12", "0 0 * * 6"),
        ("every saturday night at midnight", "0 0 * * 0"),
        ("every weekday night at 12", "0 0 * * 2-6"),
        ("every morning at 12", "0 0 * * *"),
        ("every afternoon at 12", "0 12 * * *"),
        ("every night at 2", "0 2 * * *"),
        ("every monday and thursday at 10", "0 10 * * 1,4"),
        ("every mon, wed and fri at 9", "0 9 * * 1,3,5"),
        ("mondays at 9", "0 9 * * 1"),
        ("monday to friday at 8:15", "15 8 * * 1-5"),
        ("every friday through sunday at 20:00", "0 20 * * 5,6,0"),
        ("every sunday at midnight", "0 0 * * 0"),
        ("weekly on monday at 9", "0 9 * * 1"),
        ("weekends at 10", "0 10 * * 0,6"),
        ("every month on the 15th at 9", "0 9 15 * *"),
        ("on the 1st of every month at 9", "0 9 1 * *"),
        ("the last day of the month at 18:00", "0 18 L * *"),
        ("first monday of every month at 9", "0 9 * * 1#1"),
        ("last friday of the month at 5pm", "0 17 * * 5L"),
        ("every first monday of the month at 9", "0 9 * * 1#1"),
        ("every other day at 9", "0 9 *%2 * *"),
        ("every 3 days at 9 and 17 from 2026-11-28", "0 9,17 *%3+1 * *"),
        ("every other friday at 5pm", "0 17 * * 5%2"),
        ("every 2 weeks on monday and thursday at 9:30 starting 2026-12-09", "30 9 * * 1,4%2+1"),
        ("hourly", "0 * * * *"),
    ],
)
def test_recurring_times_become_cron_expressions(text: str, expr: str):
    assert read(text) == {"kind": "cron", "expr": expr, "tz": BERLIN}


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("every other day", 48 * 60),
        ("every 2 hours", 120),
        ("every two hours", 120),
        ("every hour", 60),
        ("every half hour", 30),
    ],
)
def test_recurring_intervals(text: str, minutes: int):
    assert read(text) == {"kind": "every", "everyMs": minutes * MINUTE}


def test_which_day_it_is_depends_on_the_zone():
    assert read("tomorrow at 9", "Pacific/Auckland") == {
        "kind": "at",
        "at": "2026-11-28T09:00",
        "tz": "Pacific/Auckland",
    }
    assert read("tomorrow at 9 Pacific/Auckland") == read("tomorrow at 9", "Pacific/Auckland")
    assert read("today at 23:00 UTC") == {"kind": "at", "at": "2026-11-26T23:00", "tz": "UTC"}


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ("every morning", "'every day at 9:00'"),
        ("every evening", "'every evening at 19:00'"),
        ("every weekday", "'every weekday at 9:00'"),
        ("every monday", "'every monday at 9:00'"),
        ("daily", "'every day at 9:00'"),
        ("weekly", "'every monday at 9:00'"),
        ("monthly", "'every month on the 1st at 9:00'"),
        ("tomorrow", "'tomorrow at 9:00'"),
        ("tomorrow morning", "'tomorrow at 9:00'"),
        ("next week", "'tomorrow at 9:00'"),
        ("friday", "'friday at 9:00'"),
    ],
)
def test_a_day_without_a_time_is_refused_with_an_example(text: str, instead: str):
    with pytest.raises(InvalidSchedule) as error:
        read(text)
    assert error.value.message == f"'{text}' has no time of day; write one, such as {instead}"


def test_times_at_different_minutes_are_several_jobs():
    with pytest.raises(InvalidSchedule, match="make one job for each time"):
        read("every day at 9 and 17:30")


@pytest.mark.parametrize(
    "text",
    [
        "every day at 9 and 10pm",
        "8am, 9 and 5pm every other day",
        "at 8 and 9pm",
        "every day at noon and 5",
        "weekdays at 9 in the morning, noon and 5",
    ],
)
def test_times_of_which_only_some_say_am_or_pm_are_refused(text: str):
    with pytest.raises(InvalidSchedule, match="write it for each, such as '9am and 5pm'"):
        read(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", "9", "0 9 * * 1-5", "*/5 * * * *", "@daily", "2027-03-01T09:00", "2027-03-01T09:00+01:00"),
        *(
            "in 3 months",
            "every other month",
            "tomorrow at 25",
            "tomorrow at 13pm",
            "march 3",
            "31 june at 9",
        ),
        *("every evening at 0:00", "every evening at 12", "every night at noon", "every morning at 8pm"),
        *("friday night at 2", "tomorrow night at 3", "every friday night at 2", "every evening at 9am"),
        *("friday evening at midnight", "tonight at 12pm", "friday evening at 1", "tomorrow morning at noon"),
        *("tonight at 9am", "tomorrow mornings at 9", "next monday mornings at 9", "march 3 mornings at 9"),
        *("whenever it suits", "tonight at 2", "at 9 or so", "x" * 1000, "9999-12-31 at 12 at night"),
    ],
)
def test_unknown_text_is_left_to_the_strict_parser(text: str):
    assert read(text) is None


_WORDS = st.sampled_from(
    "in at on every next the of 9 17:30 9am noon monday mon and weekday day tomorrow today march 3rd month "
    "first last hour 20 minutes an utc europe/berlin to friday morning tonight , . half from now".split()
)


#: Most of these are schedules.
_PHRASES = st.one_of(
    st.builds(
        "{} {} {}".format,
        st.sampled_from(["in", "every"]),
        st.integers(1, 99),
        st.sampled_from(["minutes", "hours", "days"]),
    ),
    st.builds(
        "{} at {}".format,
        st.sampled_from(
            ["tomorrow", "today", "every day", "every weekday", "every monday", "next friday", "march 3rd"]
        ),
        st.sampled_from(["9am", "9", "17:30", "noon"]),
    ),
)


@given(st.lists(_WORDS, max_size=8).map(" ".join) | st.text(max_size=40) | _PHRASES)
def test_any_text_becomes_a_schedule_or_is_refused(text: str):
    document = None
    with suppress(InvalidSchedule):
        document = read(text)
    if document is not None:
        assert parse_schedule(document, now_ms=-1).kind == document["kind"]


@pytest.mark.parametrize(
    ("text", "schedule"),
    [
        ("every weekday at 9am", CronSchedule("0 9 * * 1-5", BERLIN)),
        ("every weekday at 9am Asia/Tokyo", CronSchedule("0 9 * * 1-5", "Asia/Tokyo")),
        ("at 9am in asia/tokyo every weekday", CronSchedule("0 9 * * 1-5", "Asia/Tokyo")),
        ("every day at 9 (America/Port-au-Prince)", CronSchedule("0 9 * * *", "America/Port-au-Prince")),
        ("0 9 * * MON-FRI Asia/Tokyo", CronSchedule("0 9 * * MON-FRI", "Asia/Tokyo")),
        ("every other day", Every(172_800_000, BERLIN)),
        ("tomorrow at 9", At(NOW_MS + (17 * 60 + 30) * MINUTE, BERLIN)),
    ],
)
def test_words_are_a_schedule_wherever_one_is_given(text: str, schedule: Schedule):
    assert parse_schedule(text, now_ms=NOW_MS, default_tz=BERLIN) == schedule


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "9am PST",
            "'9am PST': 'PST' is no IANA time zone; did you mean America/Los_Angeles? The rest is a "
            "schedule: write '9am America/Los_Angeles', or give the zone in tz",
        ),
        (
            "every day at 9 Europe/Berln",
            "did you mean Europe/Berlin? The rest is a schedule: write 'every day",
        ),
        ("0 9 * * 1-5 pst", "write '0 9 * * 1-5 America/Los_Angeles'"),
        ("9am EST", "'EST' is a zone without summer time; did you mean America/New_York?"),
        ("0 9 * * 1-5 mst", "write '0 9 * * 1-5 America/Denver'"),
        ("evry weekday at nine", "is not a schedule; did you mean 'every weekday at 9'?"),
        ("every 2 weeks on monday", "write one, such as 'every 2 weeks on monday at 9:00'"),
        ("every other week at 9", "such as 'every 2 weeks on monday at 9'"),
        ("every weekday", "has no time of day; write one, such as 'every weekday at 9:00'"),
        ("0 25 * * *", "hour: '25': 25 is out of range"),
    ],
)
def test_what_is_not_exact_is_refused_with_the_closest_form(text: str, message: str):
    with pytest.raises(InvalidSchedule) as error:
        parse_schedule(text, now_ms=NOW_MS, default_tz=BERLIN)
    assert message in error.value.message


@pytest.mark.parametrize("text", ["biweekly on monday at 9", "bi-weekly on monday at 9"])
def test_another_rate_is_no_misspelled_one(text: str):
    with pytest.raises(InvalidSchedule) as error:
        parse_schedule(text, now_ms=NOW_MS)
    assert "did you mean" not in error.value.message


def test_words_with_another_zone_than_the_job_are_refused():
    for text in ("every day at 9 Asia/Tokyo", "0 9 * * * Asia/Tokyo"):
        with pytest.raises(InvalidSchedule, match="its zone 'Asia/Tokyo' is not the job's, 'Europe/Berlin'"):
            parse_schedule(text, now_ms=NOW_MS, tz=BERLIN)
        assert parse_schedule(text, now_ms=NOW_MS, tz="Asia/Tokyo").tz == "Asia/Tokyo"


@given(st.lists(_WORDS, max_size=8).map(" ".join) | st.text(max_size=40), st.sampled_from([None, BERLIN]))
def test_any_text_is_a_schedule_or_refused_with_the_documented_error(text: str, tz: str | None):
    with suppress(InvalidSchedule):
        parse_schedule(text, now_ms=NOW_MS, tz=tz)


@settings(max_examples=cases(200, 2_000))
@given(
    st.one_of(
        st.builds(At, st.integers(NOW_MS + 1, NOW_MS + 10**11), st.sampled_from([None, BERLIN])),
        st.builds(Every, st.integers(1_000, 10**10), st.none()),
        st.builds(CronSchedule, st.randoms(use_true_random=False).map(expression), st.just(BERLIN)),
    )
)
def test_what_a_schedule_says_in_words_is_the_same_schedule(schedule: Schedule):
    said = parse_schedule(explain_schedule(schedule), now_ms=NOW_MS)
    if isinstance(schedule, CronSchedule):
        assert explain_schedule(said) == explain_schedule(schedule)
    else:
        assert replace(said, tz=None) == replace(schedule, tz=None)


def test_the_second_of_two_equal_times_says_its_offset():
    first = int(datetime(2027, 10, 31, 2, 30, tzinfo=ZoneInfo(BERLIN)).timestamp() * 1000)
    both = [At(first, BERLIN), At(first + 60 * MINUTE, BERLIN)]
    said = [explain_schedule(each) for each in both]
    assert said[1] == "Once, at 2027-10-31 02:30+01:00 (Europe/Berlin)"
    assert [parse_schedule(each, now_ms=NOW_MS) for each in said] == both


def test_a_cron_schedule_takes_words_that_are_one():
    weekdays = {"kind": "cron", "expr": "every weekday at 9am"}
    assert parse_schedule(weekdays, now_ms=NOW_MS, tz=BERLIN) == CronSchedule("0 9 * * 1-5", BERLIN)
    for other in ("every 2 hours", "tomorrow at 9", "nonsense"):
        with pytest.raises(InvalidSchedule, match="an expression has 5"):
            parse_schedule({"kind": "cron", "expr": other}, now_ms=NOW_MS)
