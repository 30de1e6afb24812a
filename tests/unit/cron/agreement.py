"""Holding the evaluator against the scan: every question it can be asked, over one window."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise, product
from random import Random
from typing import Literal
from zoneinfo import ZoneInfo

from tests.unit.cron.oracle import Window, ticks
from wakeful.cron import Cron

Gap = Literal["run_after", "skip"]
Overlap = Literal["first", "second", "both"]

GAPS: tuple[Gap, ...] = ("run_after", "skip")
OVERLAPS: tuple[Overlap, ...] = ("first", "second", "both")
CHOICES: tuple[tuple[Gap, Overlap], ...] = tuple(product(GAPS, OVERLAPS))


def in_utc(tick: datetime, zone_name: str) -> datetime:
    """The instant of an answer, once it is seen to stand in its zone as zoneinfo itself would put it."""
    assert isinstance(tick.tzinfo, ZoneInfo)
    assert tick.tzinfo.key == zone_name
    instant = tick.astimezone(UTC)
    again = instant.astimezone(tick.tzinfo)
    assert (tick.replace(tzinfo=None), tick.fold) == (again.replace(tzinfo=None), again.fold)
    return instant


def forwards(cron: Cron, zone_name: str, start: datetime, end: datetime) -> list[datetime]:
    """All ticks after `start` up to `end`, each asked for with the answer before it."""
    found: list[datetime] = []
    tick = cron.next(start)
    while tick is not None and (instant := in_utc(tick, zone_name)) <= end:
        assert instant > (found[-1] if found else start)
        found.append(instant)
        tick = cron.next(tick)
    return found


def backwards(cron: Cron, zone_name: str, start: datetime, end: datetime) -> list[datetime]:
    """The same ticks, asked for from the end."""
    found: list[datetime] = []
    tick = cron.prev(end + timedelta(microseconds=1))
    while tick is not None and (instant := in_utc(tick, zone_name)) > start:
        assert instant <= end
        assert not found or instant < found[-1]
        found.append(instant)
        tick = cron.prev(tick)
    return found[::-1]


def seen_from_somewhere(random: Random, instant: datetime, zone_name: str) -> datetime:
    """The same instant in UTC, in the expression's own zone, or in one that has nothing to do with it."""
    return instant.astimezone(
        random.choice([UTC, ZoneInfo(zone_name), timezone(timedelta(hours=5, minutes=30))])
    )


def moments(random: Random, window: Window, expected: list[datetime]) -> list[datetime]:
    """Some instants of a window: odd microseconds, and ticks themselves."""
    width = (window.end - window.start) // timedelta(microseconds=1)
    chosen = [window.start + timedelta(microseconds=random.randrange(width)) for _ in range(3)]
    if expected:
        tick = random.choice(expected)
        chosen += [tick, tick - timedelta(microseconds=1), tick + timedelta(microseconds=1)]
    return sorted(moment for moment in chosen if window.start <= moment <= window.end)


def assert_agrees(
    text: str, window: Window, dst_gap: Gap = "run_after", dst_overlap: Overlap = "first"
) -> list[datetime]:
    """Ask for every tick of a window in every way there is; the ticks are handed back."""
    zone_name = window.zone.key
    expected = ticks(text, window, dst_gap, dst_overlap)
    cron = Cron(text, tz=zone_name, dst_gap=dst_gap, dst_overlap=dst_overlap)
    asked = f"{text!r} in {zone_name}, {dst_gap}, {dst_overlap}, ({window.start} to {window.end}]"

    assert forwards(cron, zone_name, window.start, window.end) == expected, f"next: {asked}"
    assert backwards(cron, zone_name, window.start, window.end) == expected, f"prev: {asked}"
    upcoming = [in_utc(tick, zone_name) for tick in cron.upcoming(window.start, len(expected))]
    assert upcoming == expected, f"upcoming: {asked}"
    assert cron.count(window.start, window.end) == len(expected), f"count: {asked}"
    assert_agrees_at_moments(cron, window, expected, asked)
    return expected


def assert_agrees_at_moments(cron: Cron, window: Window, expected: list[datetime], asked: str) -> None:
    """Ask from the middle of things, in whatever zone the question comes."""
    random, zone_name = Random(asked), window.zone.key
    chosen = moments(random, window, expected)
    for moment in chosen:
        question = seen_from_somewhere(random, moment, zone_name)
        later = expected[bisect_right(expected, moment) :]
        if later:
            tick = cron.next(question)
            assert tick is not None, f"next({question}): {asked}"
            assert in_utc(tick, zone_name) == later[0], f"next({question}): {asked}"
        earlier = expected[: bisect_left(expected, moment)]
        if earlier:
            tick = cron.prev(question)
            assert tick is not None, f"prev({question}): {asked}"
            assert in_utc(tick, zone_name) == earlier[-1], f"prev({question}): {asked}"
    for after, until in pairwise(chosen):
        number = bisect_right(expected, until) - bisect_right(expected, after)
        assert cron.count(after, until) == number, f"count({after}, {until}): {asked}"
