"""What a schedule reads like, and that no sentence lies about its schedule."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.support.effort import cases
from wakeful.cron.explain import explain
from wakeful.cron.expression import Expression, parse
from wakeful.errors import InvalidSchedule

SENTENCES = {
    # Fixed times
    "0 9 * * *": "At 09:00, every day",
    "@daily": "At 00:00, every day",
    "30 9,17 * * *": "At 09:30 and 17:30, every day",
    "0 9,12,15 * * *": "At 09:00, 12:00 and 15:00, every day",
    "0,30 9 * * *": "At 09:00 and 09:30, every day",
    "0 10,11 * * *": "At 10:00 and 11:00, every day",
    "0 0,12 * * *": "At 00:00 and 12:00, every day",
    "15 0 9 * * *": "At 09:00:15, every day",
    "0 0 9 * * *": "At 09:00, every day",
    "0,30 0 9 * * *": "At 09:00:00 and 09:00:30, every day",
    # By the hour
    "@hourly": "Every hour, on the hour",
    "30 * * * *": "At 30 minutes past every hour",
    "1 * * * *": "At 1 minute past every hour",
    "15 0 * * * *": "At 15 seconds past every hour",
    "15 30 * * * *": "At 30 minutes and 15 seconds past every hour",
    "0 */4 * * *": "Every 4 hours, on the hour",
    "30 */4 * * *": "Every 4 hours, at 30 minutes past the hour",
    "0 9-17 * * *": "Every hour from 09:00 through 17:00",
    "30 9-17 * * *": "Every hour from 09:30 through 17:30",
    "15 0 9-17 * * *": "Every hour from 09:00:15 through 17:00:15",
    "0 0-8,12-20 * * *": "Every hour from 00:00 through 08:00 and from 12:00 through 20:00",
    "0 1-23/2 * * *": "Every 2 hours from 01:00 through 23:00",
    # Five hours do not go evenly into a day, nor ten into what is left of it
    "0 */5 * * *": "At 00:00, 05:00, 10:00, 15:00 and 20:00, every day",
    "0 */10 * * *": "At 00:00, 10:00 and 20:00, every day",
    "0 0-4,6,8-9 * * *": "At 00:00, 01:00, 02:00, 03:00, 04:00, 06:00, 08:00 and 09:00, every day",
    # By the minute
    "* * * * *": "Every minute",
    "*/15 * * * *": "Every 15 minutes",
    "0,15,30,45 * * * *": "Every 15 minutes",
    "*/7 * * * *": "At minutes 0, 7, 14, 21, 28, 35, 42, 49 and 56 past every hour",
    "*/40 * * * *": "At minutes 0 and 40 past every hour",
    "5/15 * * * *": "At minutes 5, 20, 35 and 50 past every hour",
    "0-10,20,30-40 * * * *": "At minutes 0 through 10, 20 and 30 through 40 past every hour",
    "* 2 * * *": "Every minute from 02:00 through 02:59",
    "0-30 9 * * *": "Every minute from 09:00 through 09:30",
    "50-59 8,12 * * *": "Every minute from 08:50 through 08:59 and from 12:50 through 12:59",
    "*/30 9 * * *": "Every 30 minutes from 09:00 through 09:59",
    "*/5 9-17 * * *": "Every 5 minutes from 09:00 through 17:59",
    "*/5 22-23,0-1 * * *": "Every 5 minutes from 00:00 through 01:59 and from 22:00 through 23:59",
    "*/5 */2 * * *": "Every 5 minutes during every 2nd hour from 00:00",
    "*/5 1,4-6,9,13 * * *": "Every 5 minutes during hours 1, 4 through 6, 9 and 13",
    "10-20 9-17 * * *": "At minutes 10 through 20 past every hour from 09:00 through 17:59",
    "10-20 */6 * * *": "At minutes 10 through 20 past every 6th hour from 00:00",
    "10-20 1,4,9,13 * * *": "At minutes 10 through 20 past hours 1, 4, 9 and 13, every day",
    "15 * * * * *": "Every minute, at second 15",
    "15 */5 9-17 * * *": "Every 5 minutes from 09:00 through 17:59, at second 15",
    # By the second
    "* * * * * *": "Every second",
    "*/15 * * * * *": "Every 15 seconds",
    "*/25 * * * * *": "At seconds 0, 25 and 50 of every minute",
    "*/15 * 9-17 * * *": "Every 15 seconds from 09:00:00 through 17:59:59",
    "*/15 30 9 * * *": "Every 15 seconds from 09:30:00 through 09:30:59",
    "0-30 30 9 * * *": "Every second from 09:30:00 through 09:30:30",
    "*/15 30 * * * *": "Every 15 seconds during minute 30 of every hour",
    "*/15 * */2 * * *": "Every 15 seconds during every 2nd hour from 00:00",
    "*/15 */5 * * * *": "Every 15 seconds during every 5th minute from minute 0 of every hour",
    "5,10 0,7 9-17 * * *": "At seconds 5 and 10 of minutes 0 and 7 of every hour from 09:00 through 17:59",
    # Days of the week
    "0 9 * * MON-FRI": "At 09:00, Monday through Friday",
    "0 9 * * FRI-MON": "At 09:00, Friday through Monday",
    "0 9 * * 5-7": "At 09:00, Friday through Sunday",
    "0 9 * * SUN": "At 09:00, on Sundays",
    "0 9 * * SAT,SUN": "At 09:00, on Saturdays and Sundays",
    "0 9 * * MON-WED,FRI": "At 09:00, on Mondays, Tuesdays, Wednesdays and Fridays",
    "0 9 * * */2": "At 09:00, on Tuesdays, Thursdays, Saturdays and Sundays",
    "0 9 * * 5L": "At 09:00, on the last Friday of the month",
    "0 9 * * MON#2": "At 09:00, on the second Monday of the month",
    "0 9 * * TUE,MON#1,5L": (
        "At 09:00, on Tuesdays, on the first Monday of the month and on the last Friday of the month"
    ),
    "*/15 * * * MON": "Every 15 minutes, on Mondays",
    # Days of the month
    "@monthly": "At 00:00, on the 1st",
    "0 9 1,15 * *": "At 09:00, on the 1st and 15th",
    "0 9 2-3,11-13,22,23 * *": "At 09:00, on the 2nd, 3rd, 11th through 13th, 22nd and 23rd",
    "0 9 */2 * *": "At 09:00, every 2 days from the 1st of each month",
    "0 9 */10 * *": "At 09:00, on the 1st, 11th, 21st and 31st",
    "0 9 2/4 * *": "At 09:00, on the 2nd, 6th, 10th, 14th, 18th, 22nd, 26th and 30th",
    "0 9 L * *": "At 09:00, on the last day of the month",
    "0 9 L-1 * *": "At 09:00, 1 day before the last day of the month",
    "0 9 L-3 * *": "At 09:00, 3 days before the last day of the month",
    "0 9 LW * *": "At 09:00, on the last weekday of the month",
    "0 9 15W * *": "At 09:00, on the weekday nearest to the 15th",
    "0 9 1,15,L,L * *": "At 09:00, on the 1st and 15th and on the last day of the month",
    # Both: either one is enough, unless one of them starts with a star
    "0 0 13 * FRI": "At 00:00, on the 13th or on Fridays",
    "0 0 1-7 * MON-FRI": "At 00:00, on the 1st through 7th or Monday through Friday",
    "0 0 L * MON#1": "At 00:00, on the last day of the month or on the first Monday of the month",
    "0 0 */2 * MON": "At 00:00, every 2 days from the 1st of each month, but only on Mondays",
    "0 0 13 * */5": "At 00:00, on the 13th, but only on Fridays and Sundays",
    "0 0 1-31 * MON": "At 00:00, every day",
    "0 0 13 * SUN-SAT": "At 00:00, every day",
    "0 0 *,13 * MON": "At 00:00, on Mondays",
    "0 0 ? * MON": "At 00:00, on Mondays",
    # Months and years
    "@yearly": "At 00:00, on the 1st, in January",
    "0 0 * 1-3 *": "At 00:00, every day, in January through March",
    "0 0 1 JUN,DEC *": "At 00:00, on the 1st, in June and December",
    "0 0 1 */3 *": "At 00:00, on the 1st, in January, April, July and October",
    "0 0 13 1-3,6 FRI": "At 00:00, on the 13th or on Fridays, in January through March and June",
    "* * * 8 *": "Every minute, in August",
    "0 0 0 ? * * 2027": "At 00:00, every day, in 2027",
    "0 0 0 1 6 ? 2027,2029": "At 00:00, on the 1st, in June of 2027 and 2029",
    "0 0 0 ? * * 2027-2030": "At 00:00, every day, in 2027 through 2030",
    "0 0 0 29 2 ? 2028/4": "At 00:00, on the 29th, in February of every 4th year from 2028 through 2196",
    "0 0 0 ? * * *": "At 00:00, every day",
}


@pytest.mark.parametrize(("text", "sentence"), SENTENCES.items())
def test_an_expression_is_explained(text: str, sentence: str) -> None:
    assert explain(parse(text), "UTC") == f"{sentence} (UTC)"


def test_the_zone_is_named_at_the_end() -> None:
    sentence = explain(parse("0 9 * * MON-FRI"), "Europe/Berlin")
    assert sentence == "At 09:00, Monday through Friday (Europe/Berlin)"


# Expressions of every shape


def fields(low: int, high: int, *others: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    value = st.integers(low, high)
    step = st.integers(1, max(high - low, 1) if high < 1000 else 9)
    span = st.tuples(value, value).map(lambda ends: f"{min(ends)}-{max(ends)}")
    stepped = st.builds("{}/{}".format, st.one_of(st.just("*"), value, span), step)
    items = st.one_of(st.just("*"), value.map(str), span, stepped, *others)
    return st.lists(items, min_size=1, max_size=3).map(",".join)


SIXTY, HOURS, MONTHS, YEARS = fields(0, 59), fields(0, 23), fields(1, 12), fields(1970, 2199)
DATES = fields(
    1,
    31,
    st.sampled_from(["L", "LW"]),
    st.integers(1, 30).map("L-{}".format),
    st.integers(1, 31).map("{}W".format),
)
WEEKDAYS = fields(
    0,
    7,
    st.builds("{}#{}".format, st.integers(0, 7), st.integers(1, 5)),
    st.integers(0, 7).map("{}L".format),
    st.builds("{}-{}".format, st.integers(0, 7), st.integers(0, 7)),
)
ALL = (SIXTY, SIXTY, HOURS, DATES, MONTHS, WEEKDAYS, YEARS)


def accepted(parts: tuple[str, ...]) -> Expression:
    try:
        return parse(" ".join(parts))
    except InvalidSchedule:
        assume(False)
        raise


@st.composite
def near_pairs(draw: st.DrawFn) -> tuple[Expression, Expression]:
    """Two expressions that differ in one field: those most likely to be given the same sentence."""
    parts = list(draw(st.tuples(*ALL)))
    first = accepted(tuple(parts))
    position = draw(st.integers(0, len(ALL) - 1))
    parts[position] = draw(ALL[position])
    return first, accepted(tuple(parts))


def meaning(expression: Expression) -> tuple[object, ...]:
    """All that decides when it fires: times of the day, days of every shape of month, months, years."""
    days = [expression.days_in(first, length) for first, length in product(range(7), (28, 29, 30, 31))]
    years = expression.years.values() if expression.years else list(range(1970, 2200))
    clock = (expression.seconds.bits, expression.minutes.bits, expression.hours.bits)
    return *clock, days, expression.months.bits, years


@settings(max_examples=cases(100, 100), deadline=None)
@given(st.tuples(*ALL), st.sampled_from(["UTC", "Europe/Berlin", "America/Argentina/Ushuaia"]))
def test_every_expression_has_a_sentence_of_one_line(parts: tuple[str, ...], tz: str) -> None:
    sentence = explain(accepted(parts), tz)
    told = sentence.removesuffix(f" ({tz})")
    assert told != sentence
    assert told[0].isupper()
    assert re.fullmatch(r"\S+( \S+)*", told)


@settings(max_examples=cases(100, 100), deadline=None)
@given(near_pairs())
def test_schedules_that_differ_read_differently(pair: tuple[Expression, Expression]) -> None:
    one, other = pair
    assert explain(one, "UTC") != explain(other, "UTC") or meaning(one) == meaning(other)


def assert_a_sentence_each(texts: list[str]) -> None:
    told: dict[str, tuple[str, tuple[object, ...]]] = {}
    for text in texts:
        expression = parse(text)
        twin, same = told.setdefault(explain(expression, "UTC"), (text, meaning(expression)))
        assert same == meaning(expression), f"'{twin}' and '{text}' are told alike"


def test_no_two_times_of_day_read_alike() -> None:
    seconds = "0 15 * */15 */7 0-14 0,30".split()
    minutes = "* 0 30 */5 */30 */7 0,30 5/15 0-4 0-30 30-59 1,3,5 0,2-59".split()
    hours = "* 0 9 */2 */5 */12 1-23/2 9-10 9-17 9,13 0-8,12-23 1,5,9,20".split()
    assert_a_sentence_each([f"{time} * * *" for time in map(" ".join, product(seconds, minutes, hours))])


def test_no_two_choices_of_days_read_alike() -> None:
    dates = "* 1 1,15 1-7 1-31 */2 */2,L 2/2 */6 */7 L L-1 LW 15W 1,L".split()
    weekdays = "* 1 1-5 5-1 0-6 */2 */3 1,3 6-7 1#2 1,1#2 1#2,1#3 5L 5,1L".split()
    assert_a_sentence_each([f"0 0 {date} * {weekday}" for date, weekday in product(dates, weekdays)])


# A reader who takes every sentence at its word


def spoken(text: str, value: Callable[[str], int] = int, around: int = 10_000) -> list[int]:
    """The numbers of a list such as "1, 3 through 5 and 9"."""
    numbers: list[int] = []
    for part in re.split(", | and ", text):
        first, _, last = part.partition(" through ")
        count = (value(last) - value(first)) % around + 1 if last else 1
        numbers += [(value(first) + extra) % around for extra in range(count)]
    return numbers


def second_of_day(clock: str) -> int:
    hour, minute, second = map(int, f"{clock}:00".split(":")[:3])
    return hour * 3600 + minute * 60 + second


def stepping(step: int, limit: str) -> set[int]:
    """Every so many seconds, through the day or in the windows that the limit names."""
    if not limit:
        return set(range(0, 86400, step))
    if limit.startswith(" during "):
        return stepping(step, "") & seconds_in(limit.removeprefix(" during "))
    windows = re.findall(r"from (\S+) through ([\d:]+)", limit)
    return {
        at for first, last in windows for at in range(second_of_day(first), second_of_day(last) + 1, step)
    }


def seconds_in(noun: str) -> set[int]:
    """Every second of a noun such as "minutes 0 and 7 of every hour from 09:00 through 17:59"."""
    minutes, of, hours = noun.partition(" of ")
    if of:
        return {
            at + 60 * minute + second
            for at in hours_in(hours)
            for minute in chosen(minutes, "minute", 60)
            for second in range(60)
        }
    if noun.startswith("every minute"):
        return {at + second for at in stepping(60, noun.removeprefix("every minute")) for second in range(60)}
    return {at + second for at in hours_in(noun) for second in range(3600)}


def hours_in(noun: str) -> set[int]:
    if re.fullmatch(r"every hour( from .*)?", noun):
        return stepping(3600, noun.removeprefix("every hour"))
    return {hour * 3600 for hour in chosen(noun, "hour", 24)}


def chosen(noun: str, unit: str, size: int) -> list[int]:
    if nth := re.fullmatch(rf"every (\d+)(?:st|nd|rd|th) {unit} from (?:minute 0|00:00)", noun):
        return list(range(0, size, int(nth[1])))
    return spoken(re.sub(rf"^{unit}s? ", "", noun))


def past(told: str) -> int:
    """The seconds of "30 minutes and 15 seconds"."""
    found = {unit: int(number) for number, unit in re.findall(r"(\d+) (minute|second)", told)}
    return found.get("minute", 0) * 60 + found.get("second", 0)


def times_told(sentence: str) -> set[int]:
    """The seconds of the day that a sentence without days names."""
    told = sentence.removesuffix(" (UTC)").removesuffix(", every day")
    told, _, second = told.partition(", at second ")
    shift = int(second or 0)
    if re.fullmatch(r"At [\d:, and]+", told):
        return {second_of_day(clock) for clock in re.findall(r"[\d:]+", told)}
    if match := re.fullmatch(r"At minutes (.+) past (.+)", told):
        return {at + 60 * minute + shift for at in hours_in(match[2]) for minute in spoken(match[1])}
    if match := re.fullmatch(r"At seconds (.+?) of (.+)", told):
        seconds = set(spoken(match[1]))
        return {at for at in seconds_in(match[2]) if at % 60 in seconds}
    if match := re.fullmatch(r"At (.+) past every hour", told):
        return {at + past(match[1]) for at in range(0, 86400, 3600)}
    if match := re.fullmatch(r"Every (?:(\d+) )?hours?, (?:on|at (.+) past) the hour", told):
        return {at + past(match[2] or "") for at in range(0, 86400, 3600 * int(match[1] or 1))}
    match = re.fullmatch(r"Every (?:(\d+) )?(second|minute|hour)s?( .*)?", told)
    assert match, f"nobody understands '{told}'"
    unit = {"second": 1, "minute": 60, "hour": 3600}[match[2]]
    return {at + shift for at in stepping(int(match[1] or 1) * unit, match[3] or "")}


@settings(max_examples=cases(100, 100), deadline=None)
@given(st.tuples(st.one_of(st.just("0"), SIXTY), st.one_of(st.just("0"), SIXTY), HOURS))
def test_the_explained_times_are_the_matching_times(parts: tuple[str, ...]) -> None:
    expression = accepted((*parts, "*", "*", "*"))
    seconds, minutes = expression.seconds.values(), expression.minutes.values()
    matching = {
        hour * 3600 + minute * 60 + second
        for hour in expression.hours.values()
        for minute in minutes
        for second in seconds
    }
    assert times_told(explain(expression, "UTC")) == matching


def test_every_set_of_weekdays_is_explained_exactly() -> None:
    names = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"]
    for bits in range(1, 127):
        days = [day for day in range(7) if bits >> day & 1]
        sentence = explain(parse(f"* * * * {','.join(map(str, days))}"), "UTC")
        told = sentence.removeprefix("Every minute, ").removeprefix("on ").removesuffix(" (UTC)")
        assert sorted(spoken(told, lambda name: names.index(name[:3]), around=7)) == days


@settings(max_examples=cases(100, 100), deadline=None)
@given(fields(1, 31), MONTHS)
def test_the_explained_dates_are_the_matching_dates(dates: str, months: str) -> None:
    expression = accepted(("*", "*", dates, months, "*"))
    dates_told = r"(?:, on the (.+?)|, every (\d+) days from the 1st of each month)?"
    told = re.fullmatch(rf"Every minute{dates_told}(?:, in (.+))? \(UTC\)", explain(expression, "UTC"))
    assert told
    on = spoken(told[1], lambda date: int(date[:-2])) if told[1] else [*range(1, 32, int(told[2] or 1))]
    names = ["", "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
    within = spoken(told[3], lambda name: names.index(name[:3])) if told[3] else [*range(1, 13)]
    assert (on, within) == (expression.days.values(), expression.months.values())
