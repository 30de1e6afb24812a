"""Durations: every spelling that is read, every one that is refused, and the way back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful.errors import InvalidArgument
from wakeful.values.duration import (
    DAY,
    HOUR,
    LONGEST,
    MINUTE,
    SECOND,
    WEEK,
    format_duration,
    parse_duration,
    spell_duration,
)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("15m", 15 * MINUTE),
        ("1h30m", 90 * MINUTE),
        ("90s", 90 * SECOND),
        ("500ms", 500),
        ("2d", 2 * DAY),
        ("1w", WEEK),
        ("0s", 0),
        ("20 minutes", 20 * MINUTE),
        ("1 hour 30 minutes", 90 * MINUTE),
        ("1 hour, 30 minutes", 90 * MINUTE),
        ("1 hour and 30 minutes", 90 * MINUTE),
        ("1 day, 2 hours, and 3 seconds", DAY + 2 * HOUR + 3 * SECOND),
        ("1.5h", 90 * MINUTE),
        ("0.1s", 100),
        ("  1H  30Min ", 90 * MINUTE),
        ("1w2d3h4m5s6ms", WEEK + 2 * DAY + 3 * HOUR + 4 * MINUTE + 5 * SECOND + 6),
        ("90 secs", 90 * SECOND),
        ("2 hrs", 2 * HOUR),
        ("36525d", LONGEST),
    ],
)
def test_a_duration_is_read(text, ms):
    assert parse_duration(text) == ms


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty"),
        ("   ", "empty"),
        ("15", "unit is missing; write '15m'"),
        ("-15m", "negative"),
        ("m", "'m' is not a number with a unit"),
        ("15 fortnights", "unknown unit 'fortnights'"),
        ("1 month", "'month' has no fixed length"),
        ("2y", "'y' has no fixed length"),
        ("30m1h", "largest first"),
        ("5m5m", "each unit once"),
        ("1h,,30m", "',,30m' is not a number with a unit"),
        ("1h,", "',' is not a number with a unit"),
        ("1h and", "' and' is not a number with a unit"),
        ("1..5h", "'1..5h' is not a number"),
        ("1e3s", "unknown unit 'e'"),
        ("0.0001s", "whole number of milliseconds"),
        ("36526d", "longer than 100 years"),
        ("9" * 400 + "s", "is not a number"),
        ("٣m", "is not a number with a unit"),
        ("nan", "is not a number"),
        ("soon", "is not a number"),
    ],
)
def test_a_bad_duration_is_refused_with_its_text_and_an_example(text, why):
    with pytest.raises(InvalidArgument) as refusal:
        parse_duration(text)
    assert why in refusal.value.message
    assert text[:64] in refusal.value.message
    assert len(refusal.value.message) < 300


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0s"),
        (500, "500ms"),
        (90 * SECOND, "1m30s"),
        (WEEK, "1w"),
        (8 * DAY, "8d"),
        (DAY + 1, "1d1ms"),
        (-MINUTE, "-1m"),
    ],
)
def test_a_duration_is_written_short(ms, text):
    assert format_duration(ms) == text


def test_a_duration_is_written_in_words():
    assert spell_duration(15 * MINUTE) == "15 minutes"
    assert spell_duration(DAY + HOUR + 1500) == "1 day 1 hour 1 second 500 milliseconds"
    assert spell_duration(0) == "0 seconds"


@given(st.integers(0, LONGEST))
def test_what_is_written_is_read_back(ms):
    assert parse_duration(format_duration(ms)) == ms
    assert parse_duration(spell_duration(ms)) == ms
