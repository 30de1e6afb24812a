"""It always comes back: at the ends of the calendar, with the rarest expressions, with the strangest text.

Each case may take a second, which is thousands of times what it needs: a hang is what is looked for here.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from tests.support.effort import part
from tests.unit.cron.zones import STRANGER_ZONES, ZONES
from wakeful.cron import Cron
from wakeful.errors import InvalidSchedule


@pytest.fixture(autouse=True)
def _comes_back_within_a_second() -> Iterator[None]:
    start = time.process_time()
    yield
    assert time.process_time() - start < 1


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


RARE = [
    "0 0 * 2 MON#5",
    "0 0 29 2 *",
    "59 23 L-28 2 ?",
    "59 59 23 31 12 ? 2199",
    "0 0 0 29 2 MON 2096",
    "0 0 0 ? 2 SUN#5 2000-2199",
    "0 0 31W 1 ?",
    "1 1 1 1 1 */7",
]


@pytest.mark.parametrize("text", RARE)
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Africa/Casablanca"])
def test_the_rarest_expressions_are_answered_from_anywhere_in_three_centuries(text: str, zone: str) -> None:
    cron = Cron(text, zone)
    for year in range(1900, 2210, 13):
        moment = datetime(year, 6, 1, tzinfo=UTC)
        following, before = cron.next(moment), cron.prev(moment)
        assert following is None or following > moment
        assert before is None or before < moment
        end = moment + timedelta(days=36524)
        assert (cron.count(moment, end) > 0) == (following is not None and following <= end)


@pytest.mark.parametrize("zone", part([*ZONES, *STRANGER_ZONES]))
def test_the_year_9990_works(zone: str) -> None:
    for text in ("57-58 */3 * * *", "0 0 * * MON#2", "30 2 * * *", "* * * * *"):
        cron = Cron(text, zone)
        for moment in (at("9990-01-01"), at("9997-12-30 12:00")):
            following, before = cron.next(moment), cron.prev(moment)
            assert following is not None
            assert before is not None
            assert before < moment < following
            assert len(cron.upcoming(moment, 3)) == 3
            assert cron.count(moment - timedelta(days=60), moment) > 0


@pytest.mark.parametrize("zone", part([*ZONES, *STRANGER_ZONES]))
def test_the_last_year_of_the_calendar_works(zone: str) -> None:
    for text in ("57-58 */3 * * *", "0 0 * 2 MON#5", "30 2 * * *", "* * * * *"):
        cron = Cron(text, zone)
        for moment in (at("9998-12-31"), at("9999-01-01"), at("9999-12-30 12:00"), at("9999-12-31 23:59")):
            following, before = cron.next(moment), cron.prev(moment)
            assert following is None or following > moment
            assert before is None or before < moment
            assert cron.upcoming(moment, 1) == ([] if following is None else [following])
            start, end = moment - timedelta(days=1), moment - timedelta(microseconds=1)
            if moment < at("9999-12-31"):  # on the last day `prev` may be None
                assert (cron.count(start, end) > 0) == (before is not None and before > start)


def test_looking_back_from_the_last_year_sees_the_one_before() -> None:
    assert Cron("0 0 * * *").prev(at("9999-01-01")) == at("9998-12-31")


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Apia", "America/New_York"])
@pytest.mark.parametrize("text", ["* * * * *", "0 0 1 1 *", "30 2 * * *", "*/7 * * * * *"])
def test_at_the_very_last_and_the_very_first_moment_there_is_an_answer_or_none(zone: str, text: str) -> None:
    cron = Cron(text, zone)
    last, first = datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC)
    assert cron.next(last) is None
    assert cron.prev(first) is None
    assert cron.upcoming(last, 5) == []
    assert cron.count(last, last) == 0
    before, following = cron.prev(last), cron.next(first)
    assert before is None or before.year >= 9998
    assert following is None or following.year <= 2


def test_chatham_is_answered_at_once_all_through_its_transition() -> None:
    zone = ZoneInfo("Pacific/Chatham")
    cron = Cron("57-58 */3 * * *", "Pacific/Chatham")
    moment = datetime(2023, 4, 2, 0, 58, tzinfo=zone)
    walls: list[str] = []
    for _ in range(4):
        tick = cron.next(moment)
        assert tick is not None
        walls.append(f"{tick:%H:%M}")
        moment = tick
    assert walls == ["03:57", "03:58", "06:57", "06:58"]


@pytest.mark.parametrize(
    "text",
    [
        "9" * 900 + " * * * *",
        "*/" + "9" * 900 + " * * * *",
        ",".join(["*/2"] * 240) + ",x * * * *",
        "1-" * 450 + " * * * *",
        "* " * 500,
        "@" * 900,
        "* * L-" + "9" * 900 + " * *",
        "\0 * * * *",
        "* * * * *\n* * * * *",
    ],
    ids=["digits", "step", "list", "ranges", "fields", "macro", "last", "nul", "lines"],
)
def test_strange_text_is_answered_quickly_whatever_the_answer(text: str) -> None:
    assert len(text) <= 1000, "a longer expression is rejected without reading it"
    with pytest.raises(InvalidSchedule):
        Cron(text)


def test_a_long_stretch_is_counted_without_walking_it() -> None:
    cron = Cron("* * * * * *", "America/New_York")
    start, end = at("1975-01-01"), at("2075-01-01")
    assert cron.count(start, end) == (end - start) // timedelta(seconds=1)


def test_a_thousand_expressions_are_made_within_a_second() -> None:
    for n in range(1000):
        Cron(f"{n % 60} {n % 24} {n % 28 + 1} * *", "Europe/Berlin")
