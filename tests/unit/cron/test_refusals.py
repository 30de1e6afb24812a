"""What is refused, and that each refusal says which field, which text, and what would be right."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, cast

import pytest

import wakeful
from tests.unit.cron.agreement import Gap, Overlap
from wakeful.cron import Cron
from wakeful.errors import InvalidArgument, InvalidSchedule

NOW = datetime(2025, 1, 1, tzinfo=UTC)


def refusal(text: str, tz: str = "UTC") -> str:
    with pytest.raises(InvalidSchedule) as caught:
        Cron(text, tz)
    assert caught.value.code == "invalid-argument"
    return str(caught.value)


def test_the_error_is_exported_by_the_package() -> None:
    assert wakeful.InvalidSchedule is InvalidSchedule


@pytest.mark.parametrize(
    ("text", "field", "offending", "right"),
    [
        ("60 * * * *", "minute", "60", "59"),
        ("* 24 * * *", "hour", "24", "23"),
        ("* * 0 * *", "day.of.month", "0", "31"),
        ("* * 32 * *", "day.of.month", "32", "31"),
        ("* * * 0 *", "month", "0", "12"),
        ("* * * 13 *", "month", "13", "12"),
        ("* * * * 8", "day.of.week", "8", "7"),
        ("61 * * * * *", "second", "61", "59"),
        ("0 0 0 1 1 * 1969", "year", "1969", "1970"),
        ("0 0 0 1 1 * 2200", "year", "2200", "2199"),
        ("10-75 * * * *", "minute", "75", "59"),
        ("1,2,99 * * * *", "minute", "99", "59"),
        ("70/5 * * * *", "minute", "70", "59"),
        ("* * 32W * *", "day.of.month", "32W", "31"),
        ("* * 0W * *", "day.of.month", "0W", "1"),
        ("* * L-31 * *", "day.of.month", "L-31", "30"),
        ("* * * * MON#6", "day.of.week", "MON#6", "5"),
        ("* * * * MON#0", "day.of.week", "MON#0", "1"),
        ("* * * * 9#2", "day.of.week", "9#2", "7"),
        ("* * * * 8L", "day.of.week", "8L", "7"),
    ],
)
def test_a_number_out_of_range_is_refused_with_the_range(
    text: str, field: str, offending: str, right: str
) -> None:
    said = refusal(text)
    assert re.search(field, said), said
    assert offending in said
    assert re.search(rf"\b{right}\b", said), said


@pytest.mark.parametrize(
    ("text", "field", "offending"),
    [
        ("a * * * *", "minute", "a"),
        ("* noon * * *", "hour", "noon"),
        ("* * * FOO *", "month", "FOO"),
        ("* * * MON *", "month", "MON"),
        ("* * * * XYZ", "day.of.week", "XYZ"),
        ("* * * * JAN", "day.of.week", "JAN"),
        ("* * MON * *", "day.of.month", "MON"),
        ("? * * * *", "minute", "?"),
        ("* ? * * *", "hour", "?"),
        ("* * * ? *", "month", "?"),
        ("L * * * *", "minute", "L"),
        ("* * 5L * *", "day.of.month", "5L"),
        ("* * * * LW", "day.of.week", "LW"),
        ("* * * * 15W", "day.of.week", "15W"),
        ("* * MON#2 * *", "day.of.month", "MON#2"),
        ("* * 1-15W * *", "day.of.month", "1-15W"),
        ("* * * * MON-FRI#2", "day.of.week", "MON-FRI#2"),
        ("*/0 * * * *", "minute", "*/0"),
        ("10-50/0 * * * *", "minute", "10-50/0"),
        ("*/a * * * *", "minute", "*/a"),
        ("5/ * * * *", "minute", "5/"),
        ("/5 * * * *", "minute", "/5"),
        ("1/2/3 * * * *", "minute", "1/2/3"),
        ("1- * * * *", "minute", "1-"),
        ("-5 * * * *", "minute", "-5"),
        ("1-2-3 * * * *", "minute", "1-2-3"),
        ("1,,2 * * * *", "minute", "1,,2"),
        (",1 * * * *", "minute", ",1"),
        ("1, * * * *", "minute", "1,"),
        ("+5 * * * *", "minute", "+5"),
        ("1_0 * * * *", "minute", "1_0"),
        ("1.5 * * * *", "minute", "1.5"),
        ("** * * * *", "minute", "**"),
        ("*5 * * * *", "minute", "*5"),
        ("*-5 * * * *", "minute", "*-5"),
        ("٣ * * * *", "minute", "٣"),
        ("² * * * *", "minute", "²"),
        ("0 0 0 1 1 * L", "year", "L"),
    ],
)
def test_an_unreadable_field_is_refused_with_its_name_and_text(text: str, field: str, offending: str) -> None:
    said = refusal(text)
    assert re.search(field, said), said
    assert offending in said


@pytest.mark.parametrize(
    ("text", "field", "instead"),
    [
        ("50-10 * * * *", "minute", "50-59,0-10"),
        ("0 22-4 * * *", "hour", "22-23,0-4"),
        ("0 0 25-5 * *", "day.of.month", "25-31,1-5"),
        ("0 0 1 11-2 *", "month", "11-12,1-2"),
        ("50-10 * * * * *", "second", "50-59,0-10"),
    ],
)
def test_a_range_that_runs_backwards_is_refused_with_the_way_to_write_it(
    text: str, field: str, instead: str
) -> None:
    said = refusal(text)
    assert re.search(field, said), said
    assert instead in said


def test_a_range_of_years_or_months_that_runs_backwards_is_refused() -> None:
    assert "2030-2020" in refusal("0 0 0 1 1 * 2030-2020")
    assert "NOV-FEB" in refusal("0 0 1 NOV-FEB *")


@pytest.mark.parametrize("text", ["", "   ", "*", "5 4 3", "* * * *", "* * * * * * * *"])
def test_a_wrong_number_of_fields_is_refused_with_the_right_ones(text: str) -> None:
    number = len(text.split())
    fields = "1 field" if number == 1 else f"{number} fields"
    said = refusal(text)
    assert f"'{text}' has {fields}; an expression has 5 (" in said
    assert "6 with leading seconds, or 7 with a year" in said


@pytest.mark.parametrize(
    "text",
    [
        "0 0 31 2 *",
        "0 0 30 FEB ?",
        "0 0 30-31 2 *",
        "0 0 31 4,6,9,11 *",
        "0 0 31W 2 *",
        "0 0 L-29 2 *",
        "0 0 L-30 APR *",
        "0 0 0 29 2 * 2027",
        "0 0 0 29 2 ? 2025-2027",
        "0 0 0 29 2 * 2100",
        "0 0 0 ? 2 MON#5 2027",
        "0 0 0 */31 1 TUE 2024",
    ],
)
def test_an_expression_that_never_fires_is_refused_when_it_is_made(text: str) -> None:
    assert re.search("never", refusal(text))


@pytest.mark.parametrize(
    "text",
    [
        "0 0 29 2 *",
        "0 0 31 2 MON",
        "0 0 31 2,3 *",
        "0 0 L-28 2 *",
        "0 0 29W 2 *",
        "0 0 31 * *",
        "0 0 0 29 2 * 2028",
        "0 0 0 1 1 * 1970",
        "0 0 * 2 SUN#5",
    ],
)
def test_an_expression_that_fires_rarely_is_accepted(text: str) -> None:
    assert Cron(text).explain()


def test_an_interval_is_not_an_expression() -> None:
    said = refusal("@every 15m")
    assert "@every 15m" in said
    assert "interval" in said


def test_a_reboot_is_not_a_time() -> None:
    assert "@reboot" in refusal("@reboot")


def test_an_unknown_macro_is_refused_with_the_known_ones() -> None:
    said = refusal("@fortnightly")
    assert "@fortnightly" in said
    assert "@weekly" in said


@pytest.mark.parametrize(
    "tz", ["Mars/Olympus", "", "Europe/berlinn", "../../etc/passwd", "/etc/localtime", "UTC\0", "Europe"]
)
def test_an_unknown_zone_is_refused(tz: str) -> None:
    said = refusal("0 9 * * *", tz)
    assert f"unknown time zone '{tz}'" in said
    assert "Europe/Berlin" in said


@pytest.mark.parametrize(
    ("tz", "meant"),
    [
        ("PST", "America/Los_Angeles"),
        ("berlin", "Europe/Berlin"),
        ("Europe/Vienn", "Europe/Vienna"),
        ("New York", "America/New_York"),
    ],
)
def test_the_zone_that_was_probably_meant_is_suggested(tz: str, meant: str) -> None:
    assert f"unknown time zone '{tz}'; give an IANA name such as '{meant}'" in refusal("0 9 * * *", tz)


def test_an_unknown_dst_choice_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidArgument) as caught:
        Cron("0 9 * * *", dst_gap=cast(Gap, "run_before"))
    assert "run_before" in str(caught.value)
    assert "run_after" in str(caught.value)
    with pytest.raises(InvalidArgument) as caught:
        Cron("0 9 * * *", dst_overlap=cast(Overlap, "third"))
    assert "third" in str(caught.value)
    assert "both" in str(caught.value)


@pytest.mark.parametrize(
    ("expr", "tz", "says"),
    [
        (None, "UTC", "the expression is text such as '0 9 * * 1-5', not None"),
        (["0", "9"], "UTC", "not ['0', '9']"),
        ("0 9 * * *", None, "the time zone is text such as 'Europe/Berlin', not None"),
        ("0 9 * * *", 2, "not 2"),
    ],
)
def test_an_expression_or_a_zone_that_is_not_text_is_refused(expr: Any, tz: Any, says: str) -> None:
    with pytest.raises(InvalidSchedule, match=re.escape(says)):
        Cron(expr, tz)


def test_a_naive_datetime_is_refused_by_every_method() -> None:
    cron, naive = Cron("0 9 * * *"), datetime(2025, 1, 1)
    with pytest.raises(InvalidArgument):
        cron.next(naive)
    with pytest.raises(InvalidArgument):
        cron.prev(naive)
    with pytest.raises(InvalidArgument):
        cron.upcoming(naive, 3)
    with pytest.raises(InvalidArgument):
        cron.count(naive, NOW)
    with pytest.raises(InvalidArgument):
        cron.count(NOW, naive)
    with pytest.raises(InvalidArgument):
        cron.uncached_next(naive)
