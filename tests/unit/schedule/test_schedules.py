"""Schedules: every form that is read, every one that is refused, the normal form and the words for it."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.effort import cases
from wakeful.errors import InvalidSchedule
from wakeful.schedule.schedules import (
    At,
    CronSchedule,
    Every,
    Schedule,
    explain_schedule,
    parse_schedule,
    schedule_from_json,
)
from wakeful.values.duration import DAY, HOUR, LONGEST, MINUTE, SECOND
from wakeful.values.instants import LATEST_MS


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


NOW = ms("2026-11-14T12:00:05Z")


def read(value, **kwargs) -> Schedule:
    return parse_schedule(value, now_ms=NOW, **kwargs)


def refusal(value, **kwargs) -> str:
    with pytest.raises(InvalidSchedule) as refused:
        read(value, **kwargs)
    assert refused.value.code == "invalid-argument"
    assert len(refused.value.message) < 500
    return refused.value.message


# --- what is read -----------------------------------------------------------------------------------------

NINE_IN_BERLIN = ms("2027-03-01T09:00+01:00")


@pytest.mark.parametrize(
    ("value", "schedule"),
    [
        ({"kind": "at", "atMs": NINE_IN_BERLIN}, At(NINE_IN_BERLIN)),
        ({"kind": "at", "atMs": NINE_IN_BERLIN, "tz": "Asia/Tokyo"}, At(NINE_IN_BERLIN, "Asia/Tokyo")),
        (
            {"kind": "at", "at": "2027-03-01T09:00", "tz": "Europe/Berlin"},
            At(NINE_IN_BERLIN, "Europe/Berlin"),
        ),
        (
            {"kind": "at", "at": "2027-03-01T09:00+01:00", "tz": "Asia/Tokyo"},
            At(NINE_IN_BERLIN, "Asia/Tokyo"),
        ),
        ({"kind": "at", "at": "2027-03-01T08:00Z"}, At(NINE_IN_BERLIN)),
        ({"kind": "at", "at": "2027-03-01T08:00"}, At(NINE_IN_BERLIN)),
        ({"kind": "every", "everyMs": 300000}, Every(300000)),
        ({"kind": "every", "everyMs": 1000}, Every(1000)),
        ({"kind": "every", "everyMs": 3e5}, Every(300000)),
        ({"kind": "every", "everyMs": 300000, "tz": "Europe/Berlin"}, Every(300000, "Europe/Berlin")),
        ({"kind": "every", "every": "15m"}, Every(15 * MINUTE)),
        (
            {"kind": "cron", "expr": "0 9 * * 1-5", "tz": "Asia/Ho_Chi_Minh"},
            CronSchedule("0 9 * * 1-5", "Asia/Ho_Chi_Minh"),
        ),
        ({"kind": "cron", "expr": "0 9 * * 1-5"}, CronSchedule("0 9 * * 1-5", "UTC")),
        ({"kind": "cron", "expr": "@daily"}, CronSchedule("0 0 * * *", "UTC")),
        (
            {"kind": "cron", "expr": "0 9 * * *", "tz": None, "atMs": None, "every": None},
            CronSchedule("0 9 * * *", "UTC"),
        ),
        ("0 9 * * 1-5", CronSchedule("0 9 * * 1-5", "UTC")),
        ("  0  9 * *\tmon-fri ", CronSchedule("0 9 * * MON-FRI", "UTC")),
        ("*/15 * * * * *", CronSchedule("*/15 * * * * *", "UTC")),
        ("0 0 9 ? * MON#2 2027-2030", CronSchedule("0 0 9 ? * MON#2 2027-2030", "UTC")),
        ("0 0 29 2 *", CronSchedule("0 0 29 2 *", "UTC")),
        ("0 0 * 2 MON#5", CronSchedule("0 0 * 2 MON#5", "UTC")),
        ("@hourly", CronSchedule("0 * * * *", "UTC")),
        ("@daily", CronSchedule("0 0 * * *", "UTC")),
        ("@Midnight", CronSchedule("0 0 * * *", "UTC")),
        ("@weekly", CronSchedule("0 0 * * 0", "UTC")),
        ("@monthly", CronSchedule("0 0 1 * *", "UTC")),
        ("@yearly", CronSchedule("0 0 1 1 *", "UTC")),
        ("@annually", CronSchedule("0 0 1 1 *", "UTC")),
        ("@every 15m", Every(15 * MINUTE)),
        ("@every 1h30m", Every(90 * MINUTE)),
        ("every 15m", Every(15 * MINUTE)),
        ("Every 15 Minutes", Every(15 * MINUTE)),
        ("every 1 hour 30 minutes", Every(90 * MINUTE)),
        ("every hour", Every(HOUR)),
        ("every 36525d", Every(LONGEST)),
        ("in 20m", At(NOW + 20 * MINUTE)),
        ("in 20 minutes", At(NOW + 20 * MINUTE)),
        ("in 1.5h", At(NOW + 90 * MINUTE)),
        ("in 500ms", At(NOW + 500)),
        ("2027-03-01T09:00:00+01:00", At(NINE_IN_BERLIN)),
        ("2027-03-01T08:00:00Z", At(NINE_IN_BERLIN)),
        ("2027-03-01t08:00z", At(NINE_IN_BERLIN)),
        ("2027-03-01 08:00", At(NINE_IN_BERLIN)),
        ("20270301T080000Z", At(NINE_IN_BERLIN)),
        ("2027-03-01T08:00:00.250Z", At(NINE_IN_BERLIN + 250)),
        ("9998-12-31T23:59:59.999Z", At(LATEST_MS)),
    ],
)
def test_every_form_is_read_into_the_normal_form(value, schedule):
    assert read(value) == schedule
    stored = json.loads(json.dumps(schedule.to_json()))
    assert schedule_from_json(stored) == schedule
    assert read(stored) == schedule, "the normal form is itself a form"


@pytest.mark.parametrize(
    ("schedule", "form"),
    [
        (At(1741392000000), {"kind": "at", "atMs": 1741392000000}),
        (At(1, "Europe/Berlin"), {"kind": "at", "atMs": 1, "tz": "Europe/Berlin"}),
        (Every(300000), {"kind": "every", "everyMs": 300000}),
        (Every(300000, "UTC"), {"kind": "every", "everyMs": 300000, "tz": "UTC"}),
        (
            CronSchedule("0 9 * * 1-5", "Asia/Tokyo"),
            {"kind": "cron", "expr": "0 9 * * 1-5", "tz": "Asia/Tokyo"},
        ),
        (CronSchedule("0 9 * * 1-5"), {"kind": "cron", "expr": "0 9 * * 1-5"}),
    ],
)
def test_the_normal_form_has_a_zone_only_where_there_is_one(schedule, form):
    assert schedule.to_json() == form
    assert schedule.kind == form["kind"]
    assert schedule_from_json(form) == schedule


def test_a_stored_schedule_is_not_validated_again():
    assert schedule_from_json({"kind": "at", "atMs": 5}) == At(5)


@pytest.mark.parametrize(
    "form",
    [{}, {"kind": "at"}, {"kind": "every", "everyMs": "5"}, {"kind": "cron", "expr": "* * * * *", "tz": 5}],
)
def test_a_stored_schedule_that_is_not_normalized_is_refused(form):
    with pytest.raises(InvalidSchedule, match="not a schedule in its normal form"):
        schedule_from_json(form)


# --- zones ------------------------------------------------------------------------------------------------


def test_the_zone_is_the_schedules_own_else_the_jobs_else_the_default():
    own = {"kind": "cron", "expr": "0 9 * * *", "tz": "Asia/Tokyo"}
    none = {"kind": "cron", "expr": "0 9 * * *"}
    assert read(own, tz="Europe/Riga", default_tz="Europe/Berlin").tz == "Asia/Tokyo"
    assert read(none, tz="Europe/Riga", default_tz="Europe/Berlin").tz == "Europe/Riga"
    assert read(none, default_tz="Europe/Berlin").tz == "Europe/Berlin"
    assert read(none).tz == "UTC"


def test_at_and_every_keep_their_zone_but_not_a_default_utc():
    assert read("every 1h", tz="Europe/Riga") == Every(HOUR, "Europe/Riga")
    assert read("every 1h", default_tz="Europe/Berlin") == Every(HOUR, "Europe/Berlin")
    assert read("every 1h", tz="UTC") == Every(HOUR, "UTC")
    assert read("every 1h") == Every(HOUR)
    assert read("in 1h", tz="Europe/Riga") == At(NOW + HOUR, "Europe/Riga")


def test_a_local_time_is_read_in_the_jobs_zone():
    assert read("2027-03-01T09:00", default_tz="Europe/Berlin") == At(NINE_IN_BERLIN, "Europe/Berlin")
    assert read("2027-03-01T17:00", tz="Asia/Tokyo", default_tz="Europe/Berlin") == At(
        NINE_IN_BERLIN, "Asia/Tokyo"
    )


def test_a_local_time_in_the_spring_gap_is_the_first_instant_after_it():
    assert read("2027-03-28T02:30", tz="Europe/Berlin") == At(ms("2027-03-28T01:00Z"), "Europe/Berlin")


def test_a_local_time_in_the_autumn_overlap_is_the_first_of_the_two():
    assert read("2027-10-31T02:30", tz="Europe/Berlin") == At(ms("2027-10-31T00:30Z"), "Europe/Berlin")


@pytest.mark.parametrize("name", ["Mars/Olympus", "CEST", "", "../etc/passwd", "Europe", "europe/berlin "])
def test_an_unknown_zone_is_refused(name):
    assert "unknown time zone" in refusal({"kind": "cron", "expr": "0 9 * * *", "tz": name})
    assert "unknown time zone" in refusal({"kind": "every", "everyMs": 5000, "tz": name})
    assert "unknown time zone" in refusal("0 9 * * *", tz=name)
    assert "unknown time zone" in refusal("every 5m", default_tz=name)


# --- what is refused --------------------------------------------------------------------------------------


def test_the_past_is_refused_with_the_current_time_and_what_to_write_instead():
    assert refusal("2026-11-14T12:00:04Z") == (
        "'2026-11-14T12:00:04Z' is in the past; it is now 2026-11-14 12:00:05 UTC; "
        "write a later time, or 'in 20m'"
    )


def test_the_past_is_refused_with_the_current_time_in_the_zone_as_well():
    message = refusal({"kind": "at", "at": "2026-11-14T12:30", "tz": "Europe/Berlin"})
    assert "at '2026-11-14T12:30' is in the past" in message
    assert "it is now 2026-11-14 12:00:05 UTC (2026-11-14 13:00:05 in Europe/Berlin)" in message


def test_the_current_instant_counts_as_past():
    assert "in the past" in refusal({"kind": "at", "atMs": NOW})
    assert read({"kind": "at", "atMs": NOW + 1}) == At(NOW + 1)


def test_seconds_instead_of_milliseconds_are_refused():
    message = refusal({"kind": "at", "atMs": NINE_IN_BERLIN // 1000})
    assert f"looks like seconds: in milliseconds that is {NINE_IN_BERLIN}" in message
    assert "it is now 2026-11-14 12:00:05 UTC" in message
    assert "300 seconds are 300000" in refusal({"kind": "every", "everyMs": 300})
    assert "looks like" not in refusal({"kind": "at", "atMs": NOW - DAY})


@pytest.mark.parametrize(
    ("value", "why"),
    [
        # the shape
        ({}, "a schedule needs a kind: it is 'at', 'every' or 'cron'"),
        ({"kind": None}, "a schedule needs a kind"),
        ({"kind": "interval"}, "unknown kind of schedule 'interval': it is 'at', 'every' or 'cron'"),
        ({"kind": ["at"]}, "unknown kind of schedule ['at']"),
        ({"kind": "at"}, "kind 'at' needs atMs or at; it takes atMs or at, and tz"),
        ({"kind": "every"}, "kind 'every' needs everyMs or every"),
        ({"kind": "cron"}, "kind 'cron' needs expr"),
        ({"kind": "cron", "expr": None}, "kind 'cron' needs expr"),
        ({"kind": "at", "atMs": NOW + 1, "at": "2027-03-01T09:00"}, "needs atMs or at, not both"),
        ({"kind": "every", "everyMs": 5000, "every": "5s"}, "needs everyMs or every, not both"),
        (
            {"kind": "every", "everyMs": 5000, "expr": "* * * * *"},
            "kind 'every' has no 'expr'; it takes everyMs or every",
        ),
        (
            {"kind": "cron", "expr": "* * * * *", "zone": "UTC", "x": 1},
            "kind 'cron' has no 'zone', 'x'; it takes expr, and tz",
        ),
        ({"kind": "cron", "cron": "* * * * *"}, "has no 'cron'; it takes expr"),
        ({"kind": "every", "everyMs": 5000, 7: 1}, "has no 7"),
        (["* * * * *"], "a schedule is text or an object with a kind, not list"),
        (None, "not NoneType"),
        (15, "not int"),
        # the types
        ({"kind": "at", "atMs": True}, "atMs is a whole number of milliseconds, not True"),
        (
            {"kind": "at", "atMs": "1741392000000"},
            "atMs is a whole number of milliseconds, not '1741392000000'",
        ),
        ({"kind": "at", "atMs": float("nan")}, "not nan"),
        ({"kind": "at", "atMs": float("inf")}, "not inf"),
        ({"kind": "every", "everyMs": 1000.5}, "not 1000.5"),
        ({"kind": "every", "everyMs": False}, "not False"),
        ({"kind": "every", "everyMs": [1]}, "not [1]"),
        (
            {"kind": "every", "every": 300000},
            "every is a duration such as '15m'; milliseconds go into everyMs",
        ),
        (
            {"kind": "at", "at": NOW + 1},
            "at is an ISO 8601 time such as '2027-03-01T09:00'; milliseconds go into atMs",
        ),
        ({"kind": "cron", "expr": 5}, "expr is a cron expression such as '0 9 * * 1-5'"),
        ({"kind": "cron", "expr": "* * * * *", "tz": 1}, "tz is the name of a zone"),
        # the bounds
        ({"kind": "at", "atMs": -1}, "years 1970 to 9998"),
        ({"kind": "at", "atMs": LATEST_MS + 1}, "years 1970 to 9998"),
        ({"kind": "at", "atMs": NOW * 1000}, "years 1970 to 9998, in milliseconds"),
        ({"kind": "at", "atMs": 10**5000}, "a number too long to print is out of range"),
        ({"kind": "at", "atMs": 1e300}, "out of range"),
        ({"kind": "every", "everyMs": 999}, "at least 1000 ms"),
        ({"kind": "every", "everyMs": 0}, "at least 1000 ms"),
        ({"kind": "every", "everyMs": -5000}, "at least 1000 ms"),
        ({"kind": "every", "everyMs": LONGEST + 1}, "at most 100 years"),
        ({"kind": "every", "everyMs": 10**5000}, "at most 100 years"),
        ({"kind": "every", "every": "500ms"}, "at least 1000 ms"),
        ({"kind": "at", "at": "0001-01-01T00:00"}, "years 1970 to 9998"),
        ({"kind": "at", "at": "9999-12-31T23:59"}, "years 1970 to 9998"),
        ("9998-12-31T23:59-12:00", "years 1970 to 9998"),
        ("1970-01-01T00:00+14:00", "years 1970 to 9998"),
        ({"kind": "cron", "expr": "* " * 2000}, "it has at most 1000"),
        ("x" * 5000, "at most 1000 characters; this one has 5000"),
        # times
        ("2027-02-30T09:00", "'2027-02-30T09:00' is not a time (day "),
        ("2027-03-01T25:00", "is not a time"),
        ("2027-03-01T09:00 Europe/Berlin", "is not a time"),
        ("2027-03-01", "has no time of day; write '2027-03-01T09:00'"),
        ({"kind": "at", "at": "20270301"}, "has no time of day; write '2027-03-01T09:00'"),
        ({"kind": "at", "at": "tomorrow"}, "'tomorrow' is not a time"),
        ({"kind": "at", "at": ""}, "'' is not a time"),
        ("in 0s", "in the past"),
        # durations
        ("in", "it is empty; write '15m'"),
        ("in a while", "'a while' is not a number with a unit"),
        ("in 20", "the unit is missing"),
        ("in -5m", "negative"),
        ("every", "it is empty"),
        ("@every", "it is empty"),
        ("every 15", "the unit is missing; write '15m'"),
        ("every 500ms", "'every 500ms' is too short: an interval is at least 1000 ms"),
        ("every monday", "'every monday' has no time of day; write one, such as 'every monday at 9:00'"),
        ("every month", "'month' has no fixed length"),
        ({"kind": "every", "every": "soon"}, "'soon' is not a duration"),
        # expressions
        ("", "'' is not a schedule; write a cron expression"),
        ("   ", "is not a schedule"),
        ("tomorrow at nine", "'tomorrow at nine' is not a schedule; did you mean 'tomorrow at 9'?"),
        ("15m", "'15m' is not a schedule"),
        ("* * * *", "'* * * *' is not a schedule"),
        ("* * * * * * * *", "is not a schedule"),
        ("61 * * * *", "minute: '61': 61 is out of range"),
        ("0 9 * * 1-5 2027", "a year goes last of seven fields"),
        ("@fortnightly", "'@fortnightly' is not known; there are @hourly"),
        ("@reboot", "'@reboot' is not a time"),
        ("0 0 31 2 *", "never fires"),
        ({"kind": "cron", "expr": "0 0 30 2 *"}, "never fires"),
        ({"kind": "cron", "expr": "every 15m"}, "has 2 fields"),
        ({"kind": "cron", "expr": ""}, "has 0 fields"),
    ],
)
def test_an_impossible_schedule_is_refused(value, why):
    assert why in refusal(value)


def test_an_expression_whose_years_are_over_is_refused_with_its_last_time():
    message = refusal("0 0 9 1 1 ? 2020", tz="Europe/Berlin")
    assert "'0 0 9 1 1 ? 2020' never fires any more: its last time was 2020-01-01 09:00" in message
    assert "it is now 2026-11-14 12:00:05 UTC" in message


def test_an_expression_whose_years_are_too_far_off_is_refused():
    assert "not within 100 years" in refusal("0 0 9 1 1 ? 2199")


#: Most of these parse.
_SCHEDULES = st.one_of(
    st.lists(st.sampled_from("* */5 0 9 1-5 L ? 7 1,3".split()), min_size=5, max_size=5).map(" ".join),
    st.builds(
        "{}{}{}".format, st.sampled_from(["every ", "in ", ""]), st.integers(0, 99), st.sampled_from("smhd")
    ),
    st.datetimes().map(datetime.isoformat),
)


@settings(deadline=None, max_examples=cases(300, 300))
@given(st.text(max_size=30) | st.text("0123456789*/-,@LW#? mhsd:TZ+.", max_size=20) | _SCHEDULES)
def test_any_text_is_parsed_or_refused(text):
    schedule = None
    with suppress(InvalidSchedule):
        schedule = parse_schedule(text, now_ms=NOW)
    if schedule is not None:
        assert schedule_from_json(schedule.to_json()) == schedule


ANY_JSON = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=10)
    | st.lists(st.integers(), max_size=2)
)
KEYS = st.sampled_from(["kind", "at", "atMs", "every", "everyMs", "expr", "tz", "x"])


ANY_OBJECT = st.builds(
    lambda value, kind: value | {"kind": kind},
    st.dictionaries(KEYS, ANY_JSON, max_size=4),
    st.sampled_from(["at", "every", "cron", None]),
)
VALID_OBJECT = st.one_of(
    st.fixed_dictionaries({"kind": st.just("at"), "atMs": st.integers(NOW + 1, NOW + DAY)}),
    st.fixed_dictionaries({"kind": st.just("every"), "everyMs": st.integers(SECOND, DAY)}),
    st.fixed_dictionaries({"kind": st.just("cron"), "expr": st.sampled_from(["0 9 * * *", "*/5 * * * *"])}),
)


@settings(deadline=None, max_examples=cases(300, 300))
@given(ANY_OBJECT)
def test_any_object_is_parsed_or_refused(value):
    with suppress(InvalidSchedule):
        assert parse_schedule(value, now_ms=NOW).kind == value["kind"]


@given(VALID_OBJECT)
def test_a_valid_object_is_parsed_as_it_is(value):
    assert parse_schedule(value, now_ms=NOW).to_json().items() >= value.items()


# --- words ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        (Every(15 * MINUTE), "Every 15 minutes"),
        (Every(MINUTE), "Every minute"),
        (Every(SECOND), "Every second"),
        (Every(90 * MINUTE), "Every 1 hour 30 minutes"),
        (Every(DAY, "Europe/Berlin"), "Every day"),
        (At(NINE_IN_BERLIN, "Europe/Berlin"), "Once, at 2027-03-01 09:00 (Europe/Berlin)"),
        (At(NINE_IN_BERLIN), "Once, at 2027-03-01 08:00 (UTC)"),
        (At(NINE_IN_BERLIN + 5000), "Once, at 2027-03-01 08:00:05 (UTC)"),
        (At(NINE_IN_BERLIN + 5250), "Once, at 2027-03-01 08:00:05.250 (UTC)"),
        (CronSchedule("0 9 * * MON-FRI", "Europe/Berlin"), "At 09:00, Monday through Friday (Europe/Berlin)"),
    ],
)
def test_a_schedule_is_explained_in_words(schedule, words):
    assert explain_schedule(schedule) == words
