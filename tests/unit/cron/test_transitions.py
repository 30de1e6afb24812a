"""Jumps of the clocks in ten years and twenty-four zones, and some more, against the scan.

Round each jump a window of a day is asked for forwards, backwards, by number and from the middle:
with expressions aimed at the very minutes that are missing or doubled, under every choice of `dst_gap` and
`dst_overlap`, and with random ones. The random ones are seeded by the jump, so a failure can be run again.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from zoneinfo import available_timezones

import pytest

from tests.support.effort import FULL, cases, part
from tests.unit.cron.agreement import CHOICES, assert_agrees, in_utc
from tests.unit.cron.expressions import expression, expression_with_seconds
from tests.unit.cron.oracle import DAY_NAMES, SECOND, Window, look
from tests.unit.cron.zones import (
    STRANGER_ZONES,
    ZONES,
    Transition,
    each_kind_of_transition,
    every_transition,
    transitions,
)
from wakeful.cron import Cron


def hours_round(transition: Transition, hours: int = 12) -> Window:
    return look(
        transition.zone, transition.at - timedelta(hours=hours), transition.at + timedelta(hours=hours)
    )


def aimed_at(transition: Transition) -> list[str]:
    """Fixed expressions that fall into the gap or the overlap, on its edges, and across them."""
    first, last = transition.first_wall, transition.last_wall - timedelta(minutes=1)
    middle = (first + (last - first) / 2).replace(second=0)
    weekday = DAY_NAMES[middle.isoweekday() % 7]
    return [
        f"{first.minute} {first.hour} * * *",
        f"{last.minute} {last.hour} {last.day} * *",
        f"{transition.last_wall.minute} {transition.last_wall.hour} * * *",
        f"{middle.minute},59 {middle.hour}/2 * {middle.month} {weekday}",
        f"7-59/13 {min(first.hour, last.hour)}-{max(first.hour, last.hour)} {middle.day} * {weekday}#2",
    ]


def following_real_time_through(transition: Transition) -> list[str]:
    first, last = transition.first_wall, transition.last_wall - timedelta(minutes=1)
    return [
        f"*/9 {first.hour},{last.hour} * * *",
        f"{first.minute},{last.minute} */2 * * *",
        "0-59/17 * * * *",
    ]


@pytest.mark.parametrize(
    "transition", every_transition() if FULL else part(each_kind_of_transition()), ids=str
)
def test_every_question_round_a_jump_of_the_clock(transition: Transition) -> None:
    random, window = Random(str(transition)), hours_round(transition)
    for text in aimed_at(transition):
        for dst_gap, dst_overlap in CHOICES:
            assert_agrees(text, window, dst_gap, dst_overlap)
    for text in following_real_time_through(transition):
        assert_agrees(text, window, *random.choice(CHOICES))
    for _ in range(6):
        assert_agrees(expression(random), window, *random.choice(CHOICES))


@pytest.mark.parametrize("zone", part(zone for zone in (*ZONES, *STRANGER_ZONES) if transitions(zone)))
def test_every_single_minute_through_a_jump_of_the_clock(zone: str) -> None:
    for transition in transitions(zone)[-2:]:
        hours = hours_round(transition, 5)
        assert len(assert_agrees("* * * * *", hours)) == 10 * 60
        assert_agrees("0-59 0-23 * * *", hours, "skip", "second")
        assert_agrees("0-59 0-23 * * *", hours, "run_after", "both")


@pytest.mark.parametrize("zone", part(zone for zone in (*ZONES, *STRANGER_ZONES) if transitions(zone)))
def test_seconds_through_a_jump_of_the_clock(zone: str) -> None:
    for transition in transitions(zone)[-cases(2, 2) :]:
        random = Random(str(transition))
        wall = transition.first_wall + timedelta(minutes=3)
        minutes = look(
            zone, transition.at - timedelta(minutes=40), transition.at + timedelta(minutes=40), SECOND
        )
        for dst_gap, dst_overlap in CHOICES:
            assert_agrees(f"*/20 {wall.minute} {wall.hour} * * *", minutes, dst_gap, dst_overlap)
            assert_agrees(f"59 {wall.minute}-59 {wall.hour} * * *", minutes, dst_gap, dst_overlap)
        assert_agrees(f"5/25 * {wall.hour} * * *", minutes)
        for _ in range(3):
            assert_agrees(expression_with_seconds(random), minutes, *random.choice(CHOICES))


@pytest.mark.parametrize(
    "text", ["0 9 30 12 *", "30 8,20 * * *", "0-59/7 5 * * FRI", "*/30 * * * *", "0 0 31 12 *"]
)
def test_the_day_that_apia_left_out_with_a_day_on_either_side(text: str) -> None:
    window = look(
        "Pacific/Apia", datetime(2011, 12, 28, 10, tzinfo=UTC), datetime(2012, 1, 1, 10, tzinfo=UTC)
    )
    for dst_gap, dst_overlap in CHOICES:
        assert_agrees(text, window, dst_gap, dst_overlap)


@pytest.mark.parametrize(
    ("zone", "year"),
    [
        ("Pacific/Kwajalein", 1993),  # left out a day
        ("Pacific/Kiritimati", 1994),  # left out New Year's Eve
        ("Asia/Singapore", 1981),  # half an hour, to begin the year with
        ("America/Anchorage", 1983),  # two hours back
        ("Asia/Pyongyang", 2018),  # half an hour before midnight
    ],
)
def test_the_strangest_jumps_of_the_last_century(zone: str, year: int) -> None:
    for transition in transitions(zone, year, year):
        window = hours_round(transition, 30)
        for text in [*aimed_at(transition), *following_real_time_through(transition)]:
            for dst_gap, dst_overlap in CHOICES:
                assert_agrees(text, window, dst_gap, dst_overlap)


def test_the_jump_that_began_within_a_minute() -> None:
    # Monrovia left out 44 and a half minutes on 1972-01-07, from 00:00:00 on.
    jump = datetime(1972, 1, 7, 0, 44, 30, tzinfo=UTC)
    window = look("Africa/Monrovia", jump - timedelta(hours=1), jump + timedelta(hours=1), SECOND)
    for text in [
        "0 0 * * *",
        "30 0 * * *",
        "44,45 0 * * *",
        "*/5 * * * *",
        "29,31 44 0 * * *",
        "15 * 0 * * *",
    ]:
        for dst_gap, dst_overlap in CHOICES:
            assert_agrees(text, window, dst_gap, dst_overlap)


@pytest.mark.parametrize("letter", part(sorted({zone[0] for zone in available_timezones()})))
def test_every_zone_of_the_database_reads_its_own_clock(letter: str) -> None:
    # A fixed time outside of gaps fires when that zone's clock shows it, now and in decades.
    random = Random(letter)
    for zone in sorted(zone for zone in available_timezones() if zone[0] == letter):
        cron = Cron("17 3,15 * * *", zone, dst_gap="skip")
        for _ in range(25):
            moment = datetime(
                random.randint(1973, 2110), random.randint(1, 12), random.randint(1, 28), tzinfo=UTC
            )
            tick = cron.next(moment)
            assert tick is not None
            assert (tick.hour, tick.minute, tick.second) in {(3, 17, 0), (15, 17, 0)}, (zone, moment)
            assert timedelta() < in_utc(tick, zone) - moment <= timedelta(hours=50), (zone, moment)


@pytest.mark.parametrize("zone", ["America/New_York", "Australia/Lord_Howe"])
def test_seven_weeks_minute_by_minute(zone: str) -> None:
    weeks = look(zone, datetime(2024, 2, 21, tzinfo=UTC), datetime(2024, 4, 10, tzinfo=UTC))
    random = Random(zone)
    for text in [
        "30 2 * * *",
        "*/40 1-3 * * *",
        "15,45 2/6 L,15W * MON#1",
        "0 */5 */3 * FRI-MON",
        "0 0 29 2 *",
    ]:
        assert_agrees(text, weeks, *random.choice(CHOICES))
