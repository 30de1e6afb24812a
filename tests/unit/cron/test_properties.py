"""What holds for every expression, in every zone, at every moment."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from zoneinfo import ZoneInfo

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.support.effort import cases
from tests.unit.cron.agreement import CHOICES, Gap, Overlap, assert_agrees, in_utc
from tests.unit.cron.expressions import expression, expression_with_seconds
from tests.unit.cron.oracle import SECOND, look
from tests.unit.cron.zones import STRANGER_ZONES, ZONES, Transition, every_transition
from wakeful.cron import Cron

# The same examples on every machine and on every run, and no clock: a slow machine is not a failure.
bounded = settings(
    max_examples=cases(120, 120),
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)

randoms: st.SearchStrategy[Random] = st.randoms(use_true_random=False)
expressions = st.builds(expression, randoms)
expressions_with_seconds = st.builds(expression_with_seconds, randoms)
zones = st.sampled_from(ZONES + STRANGER_ZONES)
choices = st.sampled_from(CHOICES)
jumps = st.sampled_from(every_transition())
moments = st.datetimes(datetime(1990, 1, 1), datetime(2060, 1, 1), timezones=st.just(UTC))


@bounded
@given(text=expressions, jump=jumps, hours=st.integers(-30, 6), choice=choices)
def test_any_expression_agrees_with_the_scan_near_any_jump(
    text: str, jump: Transition, hours: int, choice: tuple[Gap, Overlap]
) -> None:
    start = jump.at + timedelta(hours=hours)
    assert_agrees(text, look(jump.zone, start, start + timedelta(hours=26)), *choice)


@settings(bounded, max_examples=cases(50, 50))
@given(text=expressions_with_seconds, jump=jumps, minutes=st.integers(-30, 5), choice=choices)
def test_any_expression_with_seconds_agrees_with_the_scan_near_any_jump(
    text: str, jump: Transition, minutes: int, choice: tuple[Gap, Overlap]
) -> None:
    start = jump.at + timedelta(minutes=minutes)
    assert_agrees(text, look(jump.zone, start, start + timedelta(minutes=35), SECOND), *choice)


@bounded
@given(
    text=expressions,
    zone=zones,
    day=st.dates(datetime(1995, 1, 1).date(), datetime(2060, 1, 1).date()),
    choice=choices,
)
def test_any_expression_agrees_with_the_scan_on_any_day(
    text: str, zone: str, day: datetime, choice: tuple[Gap, Overlap]
) -> None:
    start = datetime(day.year, day.month, day.day, tzinfo=UTC)
    assert_agrees(text, look(zone, start, start + timedelta(hours=24)), *choice)


@bounded
@given(text=expressions, zone=zones, choice=choices, moment=moments)
def test_next_and_prev_are_mirror_images(
    text: str, zone: str, choice: tuple[Gap, Overlap], moment: datetime
) -> None:
    cron = Cron(text, zone, dst_gap=choice[0], dst_overlap=choice[1])
    following = cron.next(moment)
    assume(following is not None)
    assert following is not None
    assert in_utc(following, zone) > moment
    before = cron.prev(following)
    assert before is not None
    assert in_utc(before, zone) <= moment
    again = cron.next(before)
    assert again is not None
    assert in_utc(again, zone) == in_utc(following, zone)


@bounded
@given(text=expressions, zone=zones, choice=choices, moment=moments, n=st.integers(0, 40))
def test_upcoming_is_next_over_and_over_and_count_counts_it(
    text: str, zone: str, choice: tuple[Gap, Overlap], moment: datetime, n: int
) -> None:
    cron = Cron(text, zone, dst_gap=choice[0], dst_overlap=choice[1])
    walked: list[datetime] = []
    tick = cron.next(moment)
    while tick is not None and len(walked) < n:
        walked.append(in_utc(tick, zone))
        tick = cron.next(tick)
    assert [in_utc(tick, zone) for tick in cron.upcoming(moment, n)] == walked
    if walked:
        assert cron.count(moment, walked[-1]) == len(walked)
        assert cron.count(moment, walked[-1] - timedelta(microseconds=1)) == len(walked) - 1


@bounded
@given(text=expressions, zone=zones, choice=choices, moment=moments, seconds=st.integers(0, 40 * 24 * 3600))
def test_counts_of_two_stretches_add_up(
    text: str, zone: str, choice: tuple[Gap, Overlap], moment: datetime, seconds: int
) -> None:
    cron = Cron(text, zone, dst_gap=choice[0], dst_overlap=choice[1])
    end = moment + timedelta(days=40)
    middle = moment + timedelta(seconds=seconds)
    assert cron.count(moment, middle) + cron.count(middle, end) == cron.count(moment, end)


@bounded
@given(
    text=expressions,
    jump=jumps,
    choice=choices,
    minutes=st.lists(st.integers(-60 * 24 * 20, 60 * 24 * 20), min_size=2, max_size=12),
)
def test_an_answer_does_not_depend_on_what_was_asked_before(
    text: str, jump: Transition, choice: tuple[Gap, Overlap], minutes: list[int]
) -> None:
    used = Cron(text, jump.zone, dst_gap=choice[0], dst_overlap=choice[1])
    own_zone = ZoneInfo(jump.zone)
    for n, offset in enumerate(minutes):
        moment = jump.at + timedelta(minutes=offset)
        fresh = Cron(text, jump.zone, dst_gap=choice[0], dst_overlap=choice[1])
        question = moment.astimezone(own_zone) if n % 2 else moment
        for _ in range(3):  # asked, asked again, and asked from the answer on
            expected = fresh.uncached_next(moment)
            tick = used.next(question)
            assert (tick is None) == (expected is None)
            if tick is None or expected is None:
                break
            assert in_utc(tick, jump.zone) == expected.astimezone(UTC)
            again = used.next(question)
            assert again is not None
            assert (again, again.fold) == (tick, tick.fold)
            question, moment = tick, expected.astimezone(UTC)


@bounded
@given(text=expressions, zone=zones)
def test_every_expression_can_be_explained(text: str, zone: str) -> None:
    sentence = Cron(text, zone).explain()
    assert sentence[0].isupper()
    assert sentence.endswith(f"({zone})")
