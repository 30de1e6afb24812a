"""What each piece of an expression means. All in UTC; the days of the month and week are in test_calendar."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from wakeful.cron import Cron

NEW_YEAR = datetime(2025, 1, 1, tzinfo=UTC)  # a Wednesday


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def minutes(field: str) -> list[int]:
    """The minutes of one hour that a minute field names."""
    ticks = Cron(f"{field} 0 * * *").upcoming(NEW_YEAR - timedelta(seconds=1), 60)
    return [tick.minute for tick in ticks if tick.date() == NEW_YEAR.date()]


def weekdays(field: str) -> str:
    """The days of one week, from Sunday on, that a day-of-week field names."""
    sunday = at("2025-01-05")
    ticks = Cron(f"0 0 * * {field}").upcoming(sunday - timedelta(seconds=1), 7)
    return " ".join(f"{tick:%a}" for tick in ticks if tick < sunday + timedelta(days=7))


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("7", [7]),
        ("07", [7]),
        ("10,5,10", [5, 10]),
        ("10-13", [10, 11, 12, 13]),
        ("10-50/15", [10, 25, 40]),
        ("10-11/15", [10]),
        ("*/15", [0, 15, 30, 45]),
        ("*/25", [0, 25, 50]),
        ("5/15", [5, 20, 35, 50]),
        ("59/15", [59]),
        ("30-30", [30]),
        ("30-30/7", [30]),
        ("1-3,20/20,59", [1, 2, 3, 20, 40, 59]),
        ("*", list(range(60))),
        ("*/1", list(range(60))),
        ("*/60", [0]),
        ("*/999999999", [0]),
        ("1-7/100", [1]),
        ("30/90", [30]),
        ("*/60,1-3", [0, 1, 2, 3]),
        ("0-59", list(range(60))),
    ],
)
def test_a_minute_field(field: str, expected: list[int]) -> None:
    assert minutes(field) == expected


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("0", "Sun"),
        ("7", "Sun"),
        ("SUN", "Sun"),
        ("1-5", "Mon Tue Wed Thu Fri"),
        ("mon-FRI", "Mon Tue Wed Thu Fri"),
        ("FRI-MON", "Sun Mon Fri Sat"),
        ("5-1", "Sun Mon Fri Sat"),
        ("6-7", "Sun Sat"),
        ("6-0", "Sun Sat"),
        ("sat-sun", "Sun Sat"),
        ("7-1", "Sun Mon"),
        ("5-7", "Sun Fri Sat"),
        ("0-7", "Sun Mon Tue Wed Thu Fri Sat"),
        ("1-7", "Sun Mon Tue Wed Thu Fri Sat"),
        ("MON-SUN", "Sun Mon Tue Wed Thu Fri Sat"),
        ("FRI-MON/2", "Sun Fri"),
        ("5-7/2", "Sun Fri"),
        ("1/2", "Sun Mon Wed Fri"),
        ("5/1", "Sun Fri Sat"),
        ("*/2", "Sun Tue Thu Sat"),
        ("MON,wed,Fri", "Mon Wed Fri"),
        ("SAT-SUN,3", "Sun Wed Sat"),
    ],
)
def test_a_day_of_week_field(field: str, expected: str) -> None:
    assert weekdays(field) == expected


@pytest.mark.parametrize("field", ["1,2,12", "JAN,FEB,DEC", "jan-Feb,dec", "1-2,12", "1-12/11,2"])
def test_a_month_by_number_or_by_name_in_any_case(field: str) -> None:
    ticks = Cron(f"0 0 1 {field} *").upcoming(at("2025-01-15"), 4)
    assert [(tick.year, tick.month) for tick in ticks] == [(2025, 2), (2025, 12), (2026, 1), (2026, 2)]


@pytest.mark.parametrize(
    ("macro", "same"),
    [
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
    ],
)
def test_a_macro_is_short_for_an_expression(macro: str, same: str) -> None:
    moment = at("2025-05-14 13:37")
    assert Cron(macro, "Europe/Riga").upcoming(moment, 30) == Cron(same, "Europe/Riga").upcoming(moment, 30)


def test_six_fields_begin_with_seconds() -> None:
    ticks = Cron("*/15 * * * * *").upcoming(at("2025-01-01 12:00:07"), 4)
    assert [f"{tick:%H:%M:%S}" for tick in ticks] == ["12:00:15", "12:00:30", "12:00:45", "12:01:00"]
    assert Cron("30 5 4 * * *").next(NEW_YEAR) == at("2025-01-01 04:05:30")


def test_five_fields_fire_in_the_first_second_of_the_minute() -> None:
    assert Cron("* * * * *").next(at("2025-01-01 12:00:07")) == at("2025-01-01 12:01:00")


def test_seven_fields_end_with_the_year() -> None:
    assert Cron("0 0 12 4 7 ? 2026/50").upcoming(NEW_YEAR, 3) == [
        at("2026-07-04 12:00"),
        at("2076-07-04 12:00"),
        at("2126-07-04 12:00"),
    ]


def test_blanks_are_only_blanks() -> None:
    assert Cron("  0\t9 *  * 1-5 ").next(NEW_YEAR) == at("2025-01-01 09:00")


def test_next_is_strictly_later() -> None:
    cron = Cron("0 9 * * *")
    assert cron.next(at("2025-01-01 09:00")) == at("2025-01-02 09:00")
    assert cron.next(at("2025-01-01 08:59:59.999999")) == at("2025-01-01 09:00")
    assert cron.next(at("2025-01-01 09:00:00.000001")) == at("2025-01-02 09:00")


def test_prev_is_strictly_earlier() -> None:
    cron = Cron("0 9 * * *")
    assert cron.prev(at("2025-01-02 09:00")) == at("2025-01-01 09:00")
    assert cron.prev(at("2025-01-02 09:00:00.000001")) == at("2025-01-02 09:00")
    assert cron.prev(at("2025-01-02 08:59:59.999999")) == at("2025-01-01 09:00")


@pytest.mark.parametrize("year", [1200, 1969, 2025, 2300, 2600, 9000])
def test_a_microsecond_before_a_tick_is_before_it_in_any_century(year: int) -> None:
    cron, tick = Cron("0 9 * * *"), at("2025-01-01 09:00").replace(year=year)
    moment = tick - timedelta(microseconds=1)
    assert cron.next(moment) == tick
    assert cron.prev(moment) == tick - timedelta(days=1)
    assert cron.count(moment - timedelta(seconds=1), moment) == 0
    assert cron.count(moment, tick) == 1


def test_an_answer_has_no_microseconds() -> None:
    tick = Cron("*/15 * * * * *").next(at("2025-01-01 09:00:00.123456"))
    assert tick == at("2025-01-01 09:00:15")


def test_times_before_1970_work() -> None:
    assert Cron("0 0 29 2 *").next(at("1967-05-05 12:00:00.5")) == at("1968-02-29")
    assert Cron("0 0 * * *").prev(at("1969-12-31 23:59:59.9")) == at("1969-12-31")
    assert Cron("30 23 31 12 *").count(at("1950-01-01"), at("1970-01-01")) == 20


def test_upcoming_gives_as_many_as_there_are_and_no_more() -> None:
    assert Cron("0 9 * * *").upcoming(NEW_YEAR, 0) == []
    assert Cron("0 9 * * *").upcoming(NEW_YEAR, 2) == [at("2025-01-01 09:00"), at("2025-01-02 09:00")]
    assert len(Cron("0 0 0 1 1 ? 2026-2028").upcoming(NEW_YEAR, 10)) == 3


def test_count_leaves_out_the_first_moment_and_takes_in_the_last() -> None:
    cron = Cron("0 9 * * *")
    assert cron.count(at("2025-01-01 09:00"), at("2025-01-03 09:00")) == 2
    assert cron.count(at("2025-01-01 08:59"), at("2025-01-03 08:59")) == 2
    assert cron.count(at("2025-01-01 09:00"), at("2025-01-02 08:59:59.999999")) == 0


def test_between_a_moment_and_itself_or_an_earlier_one_there_is_nothing() -> None:
    cron = Cron("* * * * *")
    assert cron.count(NEW_YEAR, NEW_YEAR) == 0
    assert cron.count(NEW_YEAR, NEW_YEAR - timedelta(days=1)) == 0


def test_count_is_exact_over_a_hundred_years() -> None:
    start, end = at("2000-01-01"), at("2100-01-01")
    assert Cron("* * * * *").count(start, end) == 36525 * 24 * 60
    assert Cron("0 0 29 2 *").count(start, end) == 25
    assert Cron("*/20 * * * * *", "Europe/Berlin").count(start, end) == 36525 * 24 * 60 * 3


def test_a_shared_expression_returns_the_same_ticks() -> None:
    shared = Cron.shared("0 9 * * MON-FRI", "Europe/Berlin")
    assert shared is Cron.shared("0 9 * * MON-FRI", "Europe/Berlin")
    assert shared is not Cron.shared("0 9 * * MON-FRI", "Europe/Riga")
    own = Cron("0 9 * * MON-FRI", "Europe/Berlin")
    assert shared.upcoming(NEW_YEAR, 300) == own.upcoming(NEW_YEAR, 300)
    assert shared.next(NEW_YEAR - timedelta(days=9000)) == own.next(NEW_YEAR - timedelta(days=9000))


def test_threads_that_share_an_expression_get_the_answers_they_would_get_alone() -> None:
    moments = [NEW_YEAR + timedelta(hours=7 * n % 5000) for n in range(400)]
    alone = Cron("15,45 2,9 * * *", "Europe/Berlin")
    expected = [alone.uncached_next(moment) for moment in moments]
    shared = Cron("15,45 2,9 * * *", "Europe/Berlin")
    with ThreadPoolExecutor(4) as pool:
        for answers in pool.map(lambda _: [shared.next(moment) for moment in moments], range(8)):
            assert answers == expected


def test_uncached_next_returns_the_same_ticks() -> None:
    cron = Cron("15,45 2,3 * * *", "Europe/Berlin", dst_overlap="both")
    moment = at("2025-03-28")
    for tick in cron.upcoming(moment, 1000):
        assert cron.uncached_next(moment) == tick
        moment = tick.astimezone(UTC)


def test_an_explanation_is_a_sentence_with_its_zone() -> None:
    explained = Cron("0 9 * * MON-FRI", tz="Europe/Berlin").explain()
    assert explained == "At 09:00, Monday through Friday (Europe/Berlin)"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("*/15 * * * *", ["15 minutes"]),
        ("30 6 * * *", ["06:30"]),
        ("0 0 1 JAN *", ["00:00", "January"]),
        ("0 9 * * MON#2", ["09:00", "second Monday"]),
        ("0 9 * * 5L", ["09:00", "last Friday"]),
        ("0 0 L * *", ["last day"]),
        ("0 0 LW * *", ["last weekday"]),
        ("0 0 13 * FRI", ["13", "Friday", " or "]),
        ("0 0 0 1 1 ? 2030", ["2030"]),
    ],
)
def test_an_explanation_names_what_matters(text: str, words: list[str]) -> None:
    explained = Cron(text).explain()
    assert [word for word in words if word not in explained] == [], explained


@pytest.mark.parametrize(
    ("expression", "after", "expected", "words"),
    [
        ("*/60 * * * *", "2027-01-01T00:10", "2027-01-01T01:00", "Every hour, on the hour"),
        ("0-59/60 * * * *", "2027-01-01T00:10", "2027-01-01T01:00", "Every hour, on the hour"),
        ("0 */24 * * *", "2027-01-01T00:10", "2027-01-02T00:00", "At 00:00, every day"),
        ("1-7/100 * * * *", "2027-01-01T00:10", "2027-01-01T01:01", "At 1 minute past every hour"),
        ("0 0 */32 * *", "2027-01-01T00:10", "2027-02-01T00:00", "At 00:00, on the 1st"),
        ("0 0 1 */13 *", "2027-01-01T00:10", "2028-01-01T00:00", "At 00:00, on the 1st, in January"),
        ("0 0 * * */8", "2027-01-01T00:10", "2027-01-03T00:00", "At 00:00, on Sundays"),
        (
            "0 0 */100,1-7 * MON",
            "2027-01-01T00:10",
            "2027-01-04T00:00",
            "At 00:00, on the 1st through 7th, but only on Mondays",
        ),
    ],
)
def test_a_step_past_the_end_leaves_the_first_value_as_in_debian(expression, after, expected, words):
    cron = Cron(expression)
    moment = datetime.fromisoformat(after).replace(tzinfo=UTC)
    assert cron.next(moment) == datetime.fromisoformat(expected).replace(tzinfo=UTC)
    assert cron.explain() == f"{words} (UTC)"
