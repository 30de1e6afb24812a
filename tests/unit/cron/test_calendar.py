"""Which days an expression means, over decades and centuries. All in UTC, at midnight."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from random import Random

import pytest

from tests.support.effort import cases, part
from tests.unit.cron.agreement import backwards
from tests.unit.cron.expressions import day_fields, day_of_month, day_of_week, expression_with_years, month
from tests.unit.cron.oracle import days, has_a_day
from wakeful.cron import Cron
from wakeful.errors import InvalidSchedule


def midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


def first_days(text: str, after: date, n: int) -> list[str]:
    return [f"{tick:%Y-%m-%d}" for tick in Cron(text).upcoming(midnight(after), n)]


def test_the_29th_of_february_comes_every_four_years_but_not_in_2100() -> None:
    assert first_days("0 0 29 2 *", date(2025, 1, 1), 3) == ["2028-02-29", "2032-02-29", "2036-02-29"]
    assert first_days("0 0 29 2 *", date(2095, 1, 1), 3) == ["2096-02-29", "2104-02-29", "2108-02-29"]
    assert Cron("0 0 29 2 *").prev(midnight(date(2104, 2, 29))) == midnight(date(2096, 2, 29))


def test_a_fifth_monday_in_february_comes_next_in_2044() -> None:
    assert first_days("0 0 * 2 MON#5", date(2026, 1, 1), 2) == ["2044-02-29", "2072-02-29"]
    assert Cron("0 0 * 2 MON#5").prev(midnight(date(2026, 1, 1))) == midnight(date(2016, 2, 29))


def test_it_is_forty_years_between_two_of_them_round_2100() -> None:
    assert first_days("0 0 * 2 MON#5", date(2073, 1, 1), 1) == ["2112-02-29"]
    assert Cron("0 0 * 2 MON#5").prev(midnight(date(2112, 2, 29))) == midnight(date(2072, 2, 29))


def test_the_year_is_found_from_a_lifetime_away_on_either_side() -> None:
    cron = Cron("0 0 0 1 1 ? 2050")
    assert cron.next(midnight(date(1955, 1, 1))) == midnight(date(2050, 1, 1))
    assert cron.prev(midnight(date(2145, 1, 1))) == midnight(date(2050, 1, 1))


def test_l_is_the_last_day_of_the_month() -> None:
    assert first_days("0 0 L * *", date(2024, 1, 15), 4) == [
        "2024-01-31",
        "2024-02-29",
        "2024-03-31",
        "2024-04-30",
    ]


def test_l_minus_three_is_the_third_day_before_the_last() -> None:
    assert first_days("0 0 L-3 * *", date(2025, 1, 1), 3) == ["2025-01-28", "2025-02-25", "2025-03-28"]


def test_lw_is_the_last_monday_to_friday_of_the_month() -> None:
    assert first_days("0 0 LW * *", date(2025, 5, 1), 4) == [
        "2025-05-30",
        "2025-06-30",
        "2025-07-31",
        "2025-08-29",
    ]


def test_15w_is_the_monday_to_friday_nearest_to_the_15th() -> None:
    # The 15th is a Saturday in March 2025, a Sunday in June 2025, a Tuesday in July 2025.
    assert first_days("0 0 15W 3,6,7 *", date(2025, 1, 1), 3) == ["2025-03-14", "2025-06-16", "2025-07-15"]


def test_a_nearest_weekday_never_leaves_its_month() -> None:
    assert first_days("0 0 1W 2,3 *", date(2025, 1, 1), 2) == ["2025-02-03", "2025-03-03"]
    assert first_days("0 0 31W 8 *", date(2025, 1, 1), 1) == ["2025-08-29"]


def test_31w_is_silent_in_a_month_without_a_31st() -> None:
    assert first_days("0 0 31W * *", date(2025, 3, 1), 3) == ["2025-03-31", "2025-05-30", "2025-07-31"]


def test_5l_is_the_last_friday_of_the_month() -> None:
    assert first_days("0 9 * * 5L", date(2025, 1, 1), 3) == ["2025-01-31", "2025-02-28", "2025-03-28"]
    assert first_days("0 9 * * FRIL", date(2025, 1, 1), 3) == ["2025-01-31", "2025-02-28", "2025-03-28"]


def test_sunday_may_be_the_last_one_as_0_or_as_7() -> None:
    assert first_days("0 0 * * 0L", date(2025, 1, 1), 2) == ["2025-01-26", "2025-02-23"]
    assert first_days("0 0 * * 7L", date(2025, 1, 1), 2) == ["2025-01-26", "2025-02-23"]


def test_mon_2_is_the_second_monday_of_the_month() -> None:
    assert first_days("0 0 * * MON#2", date(2025, 1, 1), 3) == ["2025-01-13", "2025-02-10", "2025-03-10"]


def test_day_of_month_and_day_of_week_both_given_are_either() -> None:
    assert first_days("0 0 13 * FRI", date(2025, 6, 1), 4) == [
        "2025-06-06",
        "2025-06-13",
        "2025-06-20",
        "2025-06-27",
    ]
    assert first_days("0 0 10 * MON", date(2025, 6, 1), 3) == ["2025-06-02", "2025-06-09", "2025-06-10"]


@pytest.mark.parametrize("fields", ["*/2 * MON", "*/2,20 * MON"])
def test_where_day_of_month_starts_with_a_star_both_must_match(fields: str) -> None:
    assert first_days(f"0 0 {fields}", date(2025, 6, 1), 2) == ["2025-06-09", "2025-06-23"]


def test_where_day_of_week_starts_with_a_star_both_must_match() -> None:
    assert first_days("0 0 1-7 * */7", date(2025, 6, 2), 2) == ["2025-07-06", "2025-08-03"]


def test_a_star_that_is_not_first_makes_no_difference() -> None:
    assert first_days("0 0 1,*/10 * MON", date(2025, 6, 1), 3) == ["2025-06-02", "2025-06-09", "2025-06-11"]


def test_a_question_mark_is_a_star() -> None:
    assert first_days("0 0 ? * MON", date(2025, 6, 1), 2) == ["2025-06-02", "2025-06-09"]
    assert first_days("0 0 13 * ?", date(2025, 6, 1), 2) == ["2025-06-13", "2025-07-13"]


def test_special_days_stand_in_lists() -> None:
    assert first_days("0 0 1,15W,L * ?", date(2025, 6, 2), 4) == [
        "2025-06-16",
        "2025-06-30",
        "2025-07-01",
        "2025-07-15",
    ]
    assert first_days("0 0 ? * MON#1,FRIL", date(2025, 6, 1), 3) == ["2025-06-02", "2025-06-27", "2025-07-07"]


def test_an_expression_with_a_year_ends_with_it() -> None:
    cron = Cron("0 0 0 1 1 ? 2030")
    assert cron.upcoming(midnight(date(2026, 1, 1)), 5) == [midnight(date(2030, 1, 1))]
    assert cron.next(midnight(date(2030, 1, 1))) is None
    assert cron.prev(midnight(date(2030, 1, 1))) is None
    assert cron.prev(midnight(date(2031, 1, 1))) == midnight(date(2030, 1, 1))
    assert cron.count(midnight(date(2029, 12, 31)), midnight(date(2080, 1, 1))) == 1


def test_there_is_no_answer_where_it_is_more_than_a_hundred_years_away() -> None:
    assert Cron("0 0 0 1 1 ? 2199").next(midnight(date(2026, 1, 1))) is None
    assert Cron("0 0 0 1 1 ? 2199").next(midnight(date(2150, 1, 1))) == midnight(date(2199, 1, 1))
    assert Cron("0 0 0 1 1 ? 1970").prev(midnight(date(2150, 1, 1))) is None


@pytest.mark.parametrize("seed", range(cases(20, 60)))
def test_the_days_of_thirty_years(seed: int) -> None:
    random = Random(seed)
    text = f"0 0 {day_fields(random)}"
    first, last = date(2019, 12, 31), date(2050, 1, 1)
    expected = [midnight(day) for day in days(text, first + timedelta(days=1), last)]
    cron = Cron(text)
    assert cron.upcoming(midnight(first), len(expected)) == expected, text
    assert cron.count(midnight(first), midnight(last)) == len(expected), text
    assert backwards(cron, "UTC", midnight(first), midnight(last)) == expected, text


@pytest.mark.parametrize("seed", part(range(16)))
def test_the_days_of_two_centuries_with_a_year_field(seed: int) -> None:
    text = expression_with_years(Random(seed))
    expected = [midnight(day) for day in days(text, date(1970, 1, 1), date(2199, 12, 31))]
    if not expected:
        with pytest.raises(InvalidSchedule):
            Cron(text)
        return
    cron = Cron(text)
    assert cron.count(midnight(date(1969, 12, 31)), midnight(date(2199, 12, 31))) == len(expected), text
    for start in (midnight(date(1969, 12, 31)), midnight(date(2026, 7, 14))):
        later = [tick for tick in expected if tick > start]
        near = [tick for tick in later if tick.year - start.year < 99]
        if near:
            assert cron.next(start) == near[0], text
        elif not later or later[0].year - start.year > 101:
            assert cron.next(start) is None, text


@pytest.mark.parametrize("seed", part(range(40)))
def test_an_expression_is_refused_exactly_where_no_day_exists_for_it(seed: int) -> None:
    random = Random(seed)
    late = random.choice(["30", "31", "30-31", "31W", "30W,31", "L-29", "L-30", "29", day_of_month(random)])
    months = random.choice(["2", "FEB", "4,6", "2-4/2", "2,11", month(random)])
    text = f"0 0 {late} {months} {random.choice(['*', '?', '*/2', day_of_week(random)])}"
    if has_a_day(text):
        Cron(text)
    else:
        with pytest.raises(InvalidSchedule):
            Cron(text)
