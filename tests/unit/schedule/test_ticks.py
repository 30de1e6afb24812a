"""Ticks: next, previous and count, compared with a naive enumeration."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime, timedelta
from time import process_time
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.effort import cases
from tests.unit.cron import oracle
from wakeful.cron import DstGap, DstOverlap
from wakeful.errors import InvalidSchedule
from wakeful.schedule.calendars import Calendar, parse_exclude
from wakeful.schedule.schedules import At, CronSchedule, Every, Schedule
from wakeful.schedule.ticks import Ticks
from wakeful.values.duration import DAY, HOUR, LONGEST, MINUTE, SECOND
from wakeful.values.instants import LATEST_MS


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


CREATED = ms("2027-01-01T10:00:07.250Z")
YEAR = 365 * DAY


# --- every ------------------------------------------------------------------------------------------------


def test_the_first_tick_of_an_interval_is_one_period_after_its_creation():
    assert Ticks(Every(MINUTE), CREATED).next(CREATED) == CREATED + MINUTE


def test_the_creation_is_not_a_tick():
    ticks = Ticks(Every(MINUTE), CREATED)
    assert ticks.next(CREATED - 5 * DAY) == CREATED + MINUTE
    assert ticks.prev(CREATED + MINUTE) is None
    assert ticks.count(CREATED - DAY, CREATED) == 0


def test_the_offset_of_the_anchor_is_kept():
    ticks = Ticks(Every(MINUTE), CREATED)
    assert ticks.next(CREATED + MINUTE + 12_345) == CREATED + 2 * MINUTE


def test_from_a_tick_the_next_one_is_a_full_period_away():
    ticks = Ticks(Every(MINUTE), CREATED)
    assert ticks.next(CREATED + 3 * MINUTE) == CREATED + 4 * MINUTE
    assert ticks.next(CREATED + 3 * MINUTE - 1) == CREATED + 3 * MINUTE
    assert ticks.prev(CREATED + 3 * MINUTE) == CREATED + 2 * MINUTE
    assert ticks.prev(CREATED + 3 * MINUTE + 1) == CREATED + 3 * MINUTE


def test_skipped_periods_do_not_move_the_ticks():
    ticks = Ticks(Every(7 * MINUTE), CREATED)
    assert ticks.next(CREATED + 1000 * 7 * MINUTE + 1) == CREATED + 1001 * 7 * MINUTE
    assert ticks.count(CREATED, CREATED + 1000 * 7 * MINUTE) == 1000


def test_the_tick_of_a_short_interval_after_a_long_gap_is_found_immediately():
    ticks = Ticks(Every(SECOND), CREATED)
    assert ticks.next(CREATED + 50 * YEAR + 1) == CREATED + 50 * YEAR + SECOND
    assert ticks.count(CREATED, CREATED + 50 * YEAR) == 50 * YEAR // SECOND


def test_an_interval_never_drifts_over_a_million_ticks():
    ticks = Ticks(Every(1001), CREATED)
    tick = CREATED
    for _ in range(1_000_000):
        found = ticks.next(tick)
        assert found is not None
        tick = found
    assert tick == CREATED + 1_000_000 * 1001


def test_with_a_start_the_first_tick_is_the_start_itself():
    start = CREATED + DAY
    ticks = Ticks(Every(HOUR), start, start_ms=start)
    assert ticks.next(CREATED) == start
    assert ticks.next(start) == start + HOUR
    assert ticks.prev(start + 1) == start
    assert ticks.prev(start) is None
    assert ticks.count(CREATED, start + 2 * HOUR) == 3


def test_ticks_after_a_later_start_stay_aligned_with_the_anchor():
    ticks = Ticks(Every(HOUR), CREATED, start_ms=CREATED + 90 * MINUTE)
    assert ticks.next(CREATED) == CREATED + 2 * HOUR


# --- at and cron ------------------------------------------------------------------------------------------


def test_a_one_time_schedule_has_one_tick():
    ticks = Ticks(At(CREATED + HOUR), CREATED)
    assert ticks.next(CREATED) == CREATED + HOUR
    assert ticks.next(CREATED + HOUR) is None
    assert ticks.prev(CREATED + HOUR) is None
    assert ticks.prev(CREATED + HOUR + 1) == CREATED + HOUR
    assert ticks.count(CREATED, CREATED + HOUR) == 1
    assert ticks.count(CREATED + HOUR, CREATED + DAY) == 0
    assert ticks.upcoming(CREATED) == [CREATED + HOUR]


def test_a_cron_tick_is_on_a_whole_second_for_any_millisecond():
    ticks = Ticks(CronSchedule("0 9 * * *", "Europe/Berlin"), CREATED)
    nine = ms("2027-01-05T09:00+01:00")
    assert ticks.next(nine - 1) == nine
    assert ticks.next(nine) == nine + DAY
    assert ticks.next(nine + 999) == nine + DAY
    assert ticks.prev(nine) == nine - DAY
    assert ticks.prev(nine + 1) == nine
    assert [ticks.count(nine - 1, nine), ticks.count(nine, nine + 1), ticks.count(nine - 1, nine - 1)] == [
        1,
        0,
        0,
    ]


def test_a_cron_schedule_without_a_zone_is_in_utc():
    assert Ticks(CronSchedule("0 9 * * *"), CREATED).next(CREATED) == ms("2027-01-02T09:00Z")


@pytest.mark.parametrize(
    ("gap", "overlap", "expected"),
    [
        ("run_after", "first", ["2027-03-28T01:00Z", "2027-10-31T00:30Z"]),
        ("skip", "second", ["2027-10-31T01:30Z"]),
        ("skip", "both", ["2027-10-31T00:30Z", "2027-10-31T01:30Z"]),
    ],
)
def test_the_dst_options_are_passed_to_the_evaluator(gap: DstGap, overlap: DstOverlap, expected: list[str]):
    schedule = CronSchedule("30 2 28,31 3,10 *", "Europe/Berlin")
    ticks = Ticks(
        schedule, 0, exclude=Calendar(("2027-03-31", "2027-10-28")), dst_gap=gap, dst_overlap=overlap
    )
    assert ticks.upcoming(ms("2027-01-01T00:00Z"), len(expected)) == [ms(text) for text in expected]


def test_an_invalid_stored_expression_is_rejected_immediately():
    with pytest.raises(InvalidSchedule):
        Ticks(CronSchedule("61 * * * *"), CREATED)


# --- start and end ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "schedule",
    [CronSchedule("0 * * * *", "UTC"), Every(HOUR), At(ms("2027-01-02T10:00Z"))],
    ids=lambda s: s.kind,
)
def test_start_and_end_are_both_inclusive(schedule):
    ten = ms("2027-01-02T10:00Z")
    ticks = Ticks(schedule, ten, start_ms=ten, end_ms=ten)
    assert ticks.upcoming(0) == [ten]
    assert ticks.prev(ten + DAY) == ten
    assert ticks.count(0, ten + DAY) == 1
    assert ticks.next(ten) is None
    assert ticks.prev(ten) is None


@pytest.mark.parametrize(
    "schedule",
    [CronSchedule("0 10 * * *", "UTC"), Every(DAY), At(ms("2027-01-02T10:00Z"))],
    ids=lambda s: s.kind,
)
def test_a_tick_one_millisecond_outside_start_and_end_does_not_exist(schedule):
    ten = ms("2027-01-02T10:00Z")
    late = Ticks(schedule, ten, start_ms=ten + 1, end_ms=ten + HOUR)
    early = Ticks(schedule, ten, start_ms=ten - HOUR, end_ms=ten - 1)
    for ticks in (late, early):
        assert ticks.next(0) is None
        assert ticks.prev(ten + DAY) is None
        assert ticks.count(0, ten + YEAR) == 0


# --- excluded days ----------------------------------------------------------------------------------------


def test_an_excluded_day_is_in_the_time_zone_of_the_schedule():
    christmas = Calendar(("2027-12-25",))
    hourly = Ticks(CronSchedule("0 * * * *", "Asia/Tokyo"), 0, exclude=christmas)
    assert hourly.next(ms("2027-12-25T00:00+09:00") - 1) == ms("2027-12-26T00:00+09:00")
    assert hourly.prev(ms("2027-12-26T00:00+09:00")) == ms("2027-12-24T23:00+09:00")
    interval = Ticks(Every(HOUR, "Asia/Tokyo"), 0, exclude=christmas)
    assert interval.next(ms("2027-12-25T00:00+09:00") - 1) == ms("2027-12-26T00:00+09:00")
    assert Ticks(Every(HOUR), 0, exclude=christmas).next(ms("2027-12-25T00:00Z") - 1) == ms(
        "2027-12-26T00:00Z"
    )


def test_a_one_time_schedule_on_an_excluded_day_has_no_tick():
    ticks = Ticks(At(ms("2027-12-25T12:00Z")), 0, exclude=Calendar(("2027-12-25",)))
    assert ticks.next(0) is None
    assert ticks.prev(ms("2028-01-01T00:00Z")) is None
    assert ticks.count(0, ms("2028-01-01T00:00Z")) == 0


def test_public_holidays_have_no_ticks():
    ticks = Ticks(CronSchedule("0 9 * * 1-5", "Europe/Berlin"), 0, exclude=parse_exclude(["holidays:DE-BY"]))
    assert ticks.next(ms("2026-12-24T09:00+01:00")) == ms("2026-12-28T09:00+01:00")
    assert ticks.count(ms("2026-12-24T09:00+01:00"), ms("2027-01-07T09:00+01:00")) == 7


def test_decades_of_excluded_seconds_are_skipped():
    ticks = Ticks(Every(SECOND), CREATED, exclude=Calendar(("2027-01-02/2110-12-31",)))
    last, first = ms("2027-01-01T23:59:59.250Z"), ms("2111-01-01T00:00:00.250Z")
    assert ticks.next(last) == first
    assert ticks.prev(first) == last
    assert ticks.count(last - 1, first) == 2


def test_a_search_over_excluded_days_stops_after_a_hundred_years():
    exclude = Calendar(("2027-01-02/2199-12-31",))
    for schedule in (Every(SECOND, "Europe/Berlin"), CronSchedule("* * * * *", "Europe/Berlin")):
        ticks = Ticks(schedule, CREATED, exclude=exclude)
        assert ticks.next(ms("2027-01-02T00:00Z")) is None
        assert ticks.prev(ms("2199-12-31T00:00Z")) is None


def test_a_tick_more_than_a_hundred_years_away_is_found_without_a_search():
    far = ms("2400-01-01T00:00Z")
    ticks = Ticks(At(far, "Europe/Berlin"), CREATED, exclude=Calendar(("2027-01-02",)))
    assert ticks.next(CREATED) == far
    assert ticks.prev(far + 300 * YEAR) == far


def test_a_schedule_only_on_holidays_has_no_tick():
    known_until = ms("2100-12-31T00:00Z")
    schedule = CronSchedule("0 9 25 12 *", "Europe/Berlin")
    ticks = Ticks(schedule, 0, start_ms=CREATED, end_ms=known_until, exclude=parse_exclude(["holidays:DE"]))
    assert ticks.next(CREATED) is None
    assert ticks.prev(known_until) is None
    assert ticks.count(CREATED, known_until) == 0


def test_a_schedule_with_all_days_excluded_has_no_tick():
    ticks = Ticks(Every(DAY), CREATED, exclude=Calendar(("0001-01-01/9999-12-31",)))
    assert ticks.next(CREATED) is None
    assert ticks.prev(CREATED + YEAR) is None
    assert ticks.count(CREATED, CREATED + YEAR) == 0


def test_a_day_repeated_by_a_clock_change_is_excluded_both_times():
    # In St. John's the clock went from 00:01 on the 29th back to 23:01 on the 28th.
    change = ms("2006-10-29T00:01-02:30")
    ticks = Ticks(Every(SECOND, "America/St_Johns"), 0, exclude=Calendar(("2006-10-28",)))
    assert ticks.next(change - MINUTE - 1) == change - MINUTE, "the first minute of the 29th"
    assert ticks.next(change - SECOND) == change + 59 * MINUTE, "and after the 28th came again"
    assert ticks.prev(change + 59 * MINUTE) == change - SECOND
    assert ticks.count(change - MINUTE - 1, change + 59 * MINUTE) == 61


def test_a_day_between_two_parts_of_an_excluded_day_keeps_its_ticks():
    change = ms("2006-10-29T00:01-02:30")
    ticks = Ticks(Every(SECOND, "America/St_Johns"), 0, exclude=Calendar(("2006-10-29",)))
    assert ticks.next(change - MINUTE - SECOND) == change, "the 28th again, after a minute of the 29th"
    assert ticks.prev(change) == change - MINUTE - SECOND
    assert ticks.count(change - MINUTE - SECOND, change + 59 * MINUTE) == 59 * 60


@pytest.mark.parametrize("day", ["2027-03-28", "2027-10-31"])
def test_an_excluded_day_with_a_clock_change_ends_at_its_local_midnight(day):
    berlin = ZoneInfo("Europe/Berlin")
    midnight = datetime.fromisoformat(day).replace(tzinfo=berlin)
    begin, end = (round(moment.timestamp() * 1000) for moment in (midnight, midnight + timedelta(days=1)))
    for schedule in (Every(MINUTE, "Europe/Berlin"), CronSchedule("* * * * *", "Europe/Berlin")):
        ticks = Ticks(schedule, 0, exclude=Calendar((day,)))
        assert ticks.next(begin - 1) == end
        assert ticks.prev(end) == begin - MINUTE
        assert ticks.count(begin - 1, end) == 1


# --- counting ---------------------------------------------------------------------------------------------


def test_a_year_of_seconds_is_counted_exactly():
    start, end = ms("2027-01-01T00:00Z"), ms("2028-01-01T00:00Z")
    assert Ticks(Every(SECOND), start).count(start, end) == 31_536_000
    cron = CronSchedule("* * * * * *", "Europe/Berlin")
    assert Ticks(cron, start).count(start, end) == 31_536_000
    # 28 March 2027 has 23 hours in Berlin, 31 October 25, Christmas 24.
    exclude = Calendar(("2027-03-28", "2027-10-31", "2027-12-25"))
    for schedule in (cron, Every(SECOND, "Europe/Berlin")):
        assert Ticks(schedule, start, exclude=exclude).count(start, end) == 31_536_000 - 72 * 3600


def test_an_empty_or_reversed_window_has_no_ticks():
    ticks = Ticks(Every(SECOND), 0, exclude=Calendar(("2027-01-01",)))
    assert ticks.count(CREATED, CREATED) == 0
    assert ticks.count(CREATED + DAY, CREATED) == 0


# --- value semantics --------------------------------------------------------------------------------------


def test_ticks_are_comparable_hashable_and_immutable():
    ticks = Ticks(Every(HOUR), 5, exclude=parse_exclude(["2027-12-25"]))
    assert ticks == Ticks(Every(HOUR), 5, exclude=parse_exclude(["2027-12-25"]))
    assert hash(ticks) == hash(Ticks(Every(HOUR), 5, exclude=parse_exclude(["2027-12-25"])))
    assert ticks != Ticks(Every(HOUR), 6, exclude=parse_exclude(["2027-12-25"]))
    with pytest.raises(FrozenInstanceError):
        ticks.anchor_ms = 7  # type: ignore[misc]


@pytest.mark.parametrize("exclude", [[], ["weekends"], ["9998-12-30/9999-12-31"]])
@pytest.mark.parametrize("schedule", [Every(LONGEST), Every(DAY), Every(9 * DAY), CronSchedule("0 0 * * *")])
def test_the_last_tick_is_an_instant_that_can_be_shown(schedule: Schedule, exclude: list[str]):
    start_ms = LATEST_MS - 3 * DAY
    ticks = Ticks(schedule, start_ms, start_ms, exclude=parse_exclude(exclude))
    found = ticks.upcoming(0, 10)
    assert all(start_ms <= tick <= LATEST_MS for tick in found)
    assert found == [] or (ticks.next(found[-1]), ticks.prev(LATEST_MS + LONGEST)) == (None, found[-1])
    assert ticks.count(0, LATEST_MS + LONGEST) == len(found)


def test_upcoming_stops_after_the_last_tick():
    ticks = Ticks(Every(HOUR), CREATED, end_ms=CREATED + 2 * HOUR)
    assert ticks.upcoming(CREATED) == [CREATED + HOUR, CREATED + 2 * HOUR]
    assert ticks.upcoming(CREATED, 1) == [CREATED + HOUR]
    assert ticks.upcoming(CREATED, 0) == []


# --- against a naive enumeration --------------------------------------------------------------------------

# A few days around a clock change: by an hour, by half an hour, at midnight, at one minute past it and back
# into the day before, by a whole day; and a zone without changes.
PLACES = {
    "Europe/Berlin": datetime(2027, 3, 26, tzinfo=UTC),
    "America/New_York": datetime(2027, 11, 5, tzinfo=UTC),
    "Australia/Lord_Howe": datetime(2027, 10, 1, tzinfo=UTC),
    "America/Havana": datetime(2027, 11, 5, tzinfo=UTC),
    "America/Santiago": datetime(2027, 4, 2, tzinfo=UTC),
    "America/St_Johns": datetime(2006, 10, 27, tzinfo=UTC),
    "Pacific/Apia": datetime(2011, 12, 28, tzinfo=UTC),
    "UTC": datetime(2027, 2, 26, tzinfo=UTC),
}
LENGTH = 3 * DAY
EXPRESSIONS = [
    "*/7 * * * *",
    "30 2 * * *",
    "0 */5 * * *",
    "1 0 * * *",
    "15,45 0-3,23 * * *",
    "0 12 * * 1-5",
    "*/13 */2 * * *",
]


def schedule_of(when: str | int | None, at_ms: int, tz: str) -> Schedule:
    if when is None:
        return At(at_ms, tz)
    return CronSchedule(when, tz) if isinstance(when, str) else Every(when, tz)


def enumerate_schedule(
    schedule: Schedule, anchor_ms: int, begin: datetime, start_ms: int | None, dst: tuple[str, str]
):
    """Return every tick of the schedule in the window by enumeration."""
    first = round(begin.timestamp() * 1000)
    if isinstance(schedule, At):
        return [schedule.at_ms]
    if isinstance(schedule, CronSchedule):
        window = oracle.look(schedule.tz or "UTC", begin, begin + timedelta(milliseconds=LENGTH))
        return [round(tick.timestamp() * 1000) for tick in oracle.ticks(schedule.expr, window, *dst)]
    tick = anchor_ms if start_ms is not None else anchor_ms + schedule.every_ms
    found = []
    while tick <= first + LENGTH:
        found.append(tick)
        tick += schedule.every_ms
    return found


def local_time(tick_ms: int, tz: str) -> datetime:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=tick_ms)).astimezone(ZoneInfo(tz))


def is_excluded(tick_ms: int, tz: str, entries: Iterable[str]) -> bool:
    """Whether the entries exclude the tick: a naive implementation."""
    at = local_time(tick_ms, tz)
    for entry in entries:
        if entry.startswith("cron:"):
            minutes, hours, days, _, weekdays = (oracle_values(part) for part in entry[5:].split())
            named = {at.day} & days if days else {(at.weekday() + 1) % 7} & weekdays if weekdays else {0}
            if named and (not minutes or at.minute in minutes) and (not hours or at.hour in hours):
                return True
        elif entry == "weekends":
            if at.weekday() > 4:
                return True
        elif len(entry) == 5:
            if f"{at:%m-%d}" == entry:
                return True
        elif entry[:10] <= at.date().isoformat() <= entry[-10:]:
            return True
    return False


def oracle_values(part: str) -> set[int]:
    """Return the values of a field of ranges and lists; an empty set for a star."""
    values: set[int] = set()
    for item in part.split(",") if part != "*" else []:
        low, _, high = item.partition("-")
        values.update(range(int(low), int(high or low) + 1))
    return values


#: Recurring entries: weekends, dates in some of the windows, and cron expressions.
AGAIN = [
    "weekends",
    "03-28",
    "11-07",
    "cron:* 2-4 * * *",
    "cron:30 2 * * *",
    "cron:* * * * 0",
    "cron:0-30 0-3,23 * * 6,0",
    "cron:* 20-23 28-30 * *",
    "cron:0 0-12 * * *",
]
OFFSETS = st.integers(0, LENGTH)
DAYS = st.integers(-1, 4)


@settings(deadline=None, max_examples=cases(100, 500))
@given(
    tz=st.sampled_from(list(PLACES)),
    when=st.sampled_from(EXPRESSIONS)
    | st.integers(10 * MINUTE, 2 * DAY)
    | st.sampled_from([30 * MINUTE, HOUR, 3 * HOUR, DAY])
    | st.none(),
    anchor=OFFSETS,
    start=st.none() | OFFSETS,
    end=st.none() | OFFSETS,
    excluded=st.lists(st.tuples(DAYS, DAYS).map(sorted), max_size=3),
    again=st.lists(st.sampled_from(AGAIN), max_size=3, unique=True),
    dst=st.tuples(st.sampled_from(["run_after", "skip"]), st.sampled_from(["first", "second", "both"])),
    asked=st.lists(st.tuples(OFFSETS, st.booleans()), min_size=1, max_size=4),
)
def test_next_prev_and_count_agree_with_a_naive_enumeration(
    tz, when, anchor, start, end, excluded, again, dst, asked
):
    begin = PLACES[tz]
    first = round(begin.timestamp() * 1000)
    last = first + LENGTH
    start_ms = None if start is None else first + start
    end_ms = None if end is None else first + end
    anchor_ms = first + anchor if start_ms is None else start_ms
    schedule = schedule_of(when, first + anchor, tz)
    entries = [f"{begin.date() + timedelta(low)}/{begin.date() + timedelta(high)}" for low, high in excluded]
    entries += again
    ticks = Ticks(schedule, anchor_ms, start_ms, end_ms, parse_exclude(entries), *dst)
    expected = [
        tick
        for tick in enumerate_schedule(schedule, anchor_ms, begin, start_ms, dst)
        if first < tick <= last
        and (start_ms is None or start_ms <= tick)
        and (end_ms is None or tick <= end_ms)
        and not is_excluded(tick, tz, entries)
    ]
    for offset, on_a_tick in asked:
        instant = expected[offset % len(expected)] if on_a_tick and expected else first + offset
        for nearby in {max(first, instant - 1), instant, min(last, instant + 1)}:
            following, preceding = ticks.next(nearby), ticks.prev(nearby)
            assert next((tick for tick in expected if tick > nearby), None) == (
                following if following is not None and following <= last else None
            )
            assert next((tick for tick in reversed(expected) if tick < nearby), None) == (
                preceding if preceding is not None and preceding > first else None
            )
            assert ticks.count(first, nearby) == sum(first < tick <= nearby for tick in expected)
            assert ticks.count(nearby, last) == sum(nearby < tick <= last for tick in expected)


@settings(deadline=None, max_examples=cases(200, 200))
@given(st.integers(SECOND, LONGEST), st.integers(0, 10**13), st.integers(0, 10**13))
def test_next_and_prev_are_inverse(every_ms, anchor_ms, instant):
    ticks = Ticks(Every(every_ms), anchor_ms)
    tick = ticks.next(instant)
    assert tick is not None
    assert tick > max(instant, anchor_ms)
    assert ticks.prev(tick + 1) == tick
    before = ticks.prev(tick)
    assert before is None or (before <= instant and ticks.next(before) == tick)
    assert ticks.count(tick - 1, tick) == 1


@pytest.mark.parametrize(
    ("schedule", "exclude"),
    [
        (CronSchedule("0 9 * * 6", "Europe/Berlin"), ["weekends"]),
        (CronSchedule("0 9 25 12 *", "Europe/Berlin"), ["12-24/12-26"]),
        (CronSchedule("30 2 * * *", "UTC"), ["cron:* 2-4 * * *"]),
        (CronSchedule("* * * * * *", "UTC"), ["cron:* * * * *"]),
        (Every(SECOND), ["weekdays", "weekends"]),
        (Every(DAY), ["01-01/12-31"]),
        (CronSchedule("0 9 25 12 *", "Europe/Berlin"), ["holidays:DE"]),
    ],
)
def test_the_search_ends_for_a_schedule_whose_every_tick_is_excluded(schedule, exclude):
    ticks = Ticks(schedule, ms("2027-01-01T00:00Z"), exclude=parse_exclude(exclude))
    ticks.next(CREATED)  # computes and caches the holidays
    began = process_time()
    assert ticks.next(CREATED) is None
    assert ticks.prev(CREATED) is None
    assert process_time() - began < 1


def test_an_interval_has_no_ticks_in_an_excluded_maintenance_window():
    ticks = Ticks(Every(15 * MINUTE, "Europe/Berlin"), 0, exclude=parse_exclude(["cron:* 2-4 * * *"]))
    night = ms("2027-02-01T00:00+01:00")
    assert ticks.next(night + 2 * HOUR - 1) == night + 5 * HOUR
    assert ticks.prev(night + 5 * HOUR) == night + 2 * HOUR - 15 * MINUTE
    assert ticks.count(night - 1, night + DAY - 1) == 21 * 4


@pytest.mark.parametrize("schedule", [CronSchedule("0 * * * *", "UTC"), Every(HOUR)])
def test_months_of_excluded_hours_are_skipped(schedule):
    ticks = Ticks(schedule, 0, exclude=parse_exclude(["cron:0 * * 1-9 *"]))
    began = process_time()
    assert ticks.next(CREATED) == ms("2027-10-01T00:00Z")
    assert ticks.prev(ms("2027-10-01T00:00Z")) == ms("2026-12-31T23:00Z")
    assert ticks.count(ms("2027-01-01T00:00Z"), ms("2028-01-01T00:00Z")) == (31 + 30 + 31) * 24
    assert process_time() - began < 1
