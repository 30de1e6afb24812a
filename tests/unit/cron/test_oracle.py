"""The scan itself, held against days that everybody can check on a calendar."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest

from tests.unit.cron.oracle import SECOND, days, has_a_day, look, ticks
from tests.unit.cron.zones import every_transition, transitions


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ("L * *", [31]),
        ("L-3 * *", [28]),
        ("LW * *", [29]),  # 31 August 2025 is a Sunday
        ("2W * *", [1]),  # a Saturday
        ("3W * *", [4]),  # a Sunday
        ("31W * *", [29]),
        ("* * 5L", [29]),
        ("* * sunl", [31]),
        ("* * MON#2", [11]),
        ("* * FRI-MON/3", [1, 4, 8, 11, 15, 18, 22, 25, 29]),
        ("* * 6/1", [2, 3, 9, 10, 16, 17, 23, 24, 30, 31]),
        ("13 * FRI", [1, 8, 13, 15, 22, 29]),
        ("*/30 * SUN", [31]),
        ("? * sat", [2, 9, 16, 23, 30]),
    ],
)
def test_the_days_of_august_2025(fields: str, expected: list[int]) -> None:
    assert [day.day for day in days(f"0 0 {fields}", date(2025, 8, 1), date(2025, 8, 31))] == expected


def test_a_day_that_no_calendar_has() -> None:
    assert not has_a_day("0 0 31 2 *")
    assert not has_a_day("0 0 0 29 2 * 2027")
    assert has_a_day("0 0 * 2 MON#5")


def test_the_night_in_berlin_that_has_no_half_past_two() -> None:
    night = look("Europe/Berlin", at("2025-03-29 12:00"), at("2025-03-30 12:00"))
    assert ticks("30 2 * * *", night) == [at("2025-03-30 01:00")]
    assert ticks("30 2 * * *", night, dst_gap="skip") == []
    assert ticks("*/30 2 * * *", night) == []
    assert len(ticks("0 * * * *", night)) == 24


def test_the_night_in_berlin_that_has_two() -> None:
    night = look("Europe/Berlin", at("2025-10-25 12:00"), at("2025-10-26 12:00"))
    assert ticks("30 2 * * *", night) == [at("2025-10-26 00:30")]
    assert ticks("30 2 * * *", night, dst_overlap="second") == [at("2025-10-26 01:30")]
    assert ticks("30 2 * * *", night, dst_overlap="both") == [at("2025-10-26 00:30"), at("2025-10-26 01:30")]
    assert ticks("30 */2 26 * *", night)[1:3] == [at("2025-10-26 00:30"), at("2025-10-26 01:30")]


def test_the_day_that_apia_left_out() -> None:
    new_year = look("Pacific/Apia", at("2011-12-29 12:00"), at("2011-12-31 12:00"))
    assert ticks("0 9 30 12 *", new_year) == [at("2011-12-30 10:00")]
    assert ticks("0 9 * * *", new_year) == [
        at("2011-12-29 19:00"),
        at("2011-12-30 10:00"),
        at("2011-12-30 19:00"),
    ]


def test_seconds_are_looked_at_one_by_one() -> None:
    hour = look("UTC", at("2025-01-01 00:00"), at("2025-01-01 01:00"), SECOND)
    assert len(ticks("*/15 * * * * *", hour)) == 240
    assert ticks("7 30 0 * * *", hour) == [at("2025-01-01 00:30:07")]


def test_the_transitions_are_the_ones_in_the_almanac() -> None:
    berlin = [transition.at for transition in transitions("Europe/Berlin", 2025, 2025)]
    assert berlin == [at("2025-03-30 01:00"), at("2025-10-26 01:00")]
    (howe, _) = transitions("Australia/Lord_Howe", 2024, 2024)
    assert (howe.is_gap, howe.last_wall - howe.first_wall) == (False, timedelta(minutes=30))
    assert len(every_transition()) > 300
