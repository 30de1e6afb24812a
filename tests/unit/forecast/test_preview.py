"""The next ticks of a schedule, and what clock changes do to them."""

from __future__ import annotations

from array import array
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful.cron import DstGap, DstOverlap
from wakeful.forecast.peaks import WEEK_MINUTES, Week
from wakeful.forecast.preview import (
    SchedulePreview,
    moved_schedule,
    offset_text,
    peak_advice,
    preview_ticks,
)
from wakeful.job.job import Timing
from wakeful.schedule.calendars import parse_exclude
from wakeful.schedule.schedules import At, CronSchedule, Every
from wakeful.values.duration import MINUTE

BERLIN = "Europe/Berlin"
SPRING, AUTUMN = datetime(2027, 3, 27, 12, tzinfo=UTC), datetime(2027, 10, 30, 12, tzinfo=UTC)


def ms(at: datetime) -> int:
    return int(at.timestamp()) * 1000


def preview(
    expr: str,
    after: datetime,
    count: int = 3,
    tz: str = BERLIN,
    gap: DstGap = "run_after",
    overlap: DstOverlap = "first",
) -> SchedulePreview:
    timing = Timing(CronSchedule(expr, tz), dst_gap=gap, dst_overlap=overlap)
    return preview_ticks(timing, 0, ms(after), count)


def test_a_time_in_the_gap_is_marked_as_moved():
    shown = preview("30 2 * * *", SPRING)
    assert [tick.effect for tick in shown.ticks] == ["moved", None, None]
    assert [offset_text(tick.offset) for tick in shown.ticks] == ["+02:00"] * 3
    assert "02:30 does not exist" in str(shown.ticks[0].note)


def test_a_regular_tick_at_the_end_of_the_gap_is_not_moved():
    shown = preview("0 3 * * *", SPRING)
    assert [tick.effect for tick in shown.ticks] == [None] * 3
    assert [change.note for change in shown.changes] == [
        "the clocks go forward 1 hour on Sunday 28 March 2027 at 02:00"
    ]


def test_a_skipped_time_is_named_with_its_clock_change():
    shown = preview("30 2 * * *", SPRING, gap="skip")
    assert [tick.effect for tick in shown.ticks] == [None] * 3
    (change,) = shown.changes
    assert (change.skipped, offset_text(change.before), offset_text(change.after)) == (
        "02:30",
        "+01:00",
        "+02:00",
    )
    assert change.note.endswith("02:30 does not exist on this day, and the job does not fire")


def test_a_time_on_an_excluded_day_is_not_skipped_by_the_clocks():
    timing = Timing(CronSchedule("30 2 * * *", BERLIN), exclude=parse_exclude(["2027-03-28"]), dst_gap="skip")
    (change,) = preview_ticks(timing, 0, ms(SPRING), 3).changes
    assert change.skipped is None


@pytest.mark.parametrize(
    ("overlap", "effects"),
    [("first", ["first", None]), ("second", ["second", None]), ("both", ["first", "second"])],
)
def test_a_time_that_exists_twice_says_which_one_it_is(overlap: DstOverlap, effects: list[str | None]):
    shown = preview("30 2 * * *", AUTUMN, 2, overlap=overlap)
    assert [tick.effect for tick in shown.ticks] == effects


def test_clock_changes_before_the_first_tick_count_from_the_start_of_the_job():
    timing = Timing(CronSchedule("0 9 * * *", BERLIN), start_ms=ms(datetime(2027, 7, 1, tzinfo=UTC)))
    winter = ms(datetime(2027, 1, 1, tzinfo=UTC))
    assert preview_ticks(timing, 0, winter, 3).changes == ()


def test_intervals_and_single_times_have_their_clock_changes():
    every = preview_ticks(Timing(Every(86_400_000, BERLIN)), ms(SPRING), ms(SPRING), 2)
    assert [tick.effect for tick in every.ticks] == [None, None]
    assert len(every.changes) == 1
    at = ms(datetime(2027, 10, 31, 1, 30, tzinfo=UTC))
    (once,) = preview_ticks(Timing(At(at, BERLIN)), 0, ms(AUTUMN), 5).ticks
    assert once.effect == "second"


@given(
    st.sampled_from(["30 2 * * *", "0 2,3 * * *", "*/20 * * * *", "15 1-3 * * *", "0 0 1 * *"]),
    st.sampled_from(["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Chatham", "UTC"]),
    st.datetimes(datetime(2020, 1, 1), datetime(2040, 1, 1)),
    st.sampled_from(["run_after", "skip"]),
    st.sampled_from(["first", "second", "both"]),
)
def test_effects_follow_from_the_wall_clock(
    expr: str, tz: str, after: datetime, gap: DstGap, overlap: DstOverlap
):
    zone, start = ZoneInfo(tz), after.replace(tzinfo=UTC)
    shown = preview(expr, start, 12, tz, gap, overlap)
    for tick in shown.ticks:
        local = datetime.fromtimestamp(tick.at_ms / 1000, zone)
        assert local.utcoffset() == timedelta(seconds=tick.offset)
        twice = local.replace(fold=0).utcoffset() != local.replace(fold=1).utcoffset()
        if tick.effect in ("first", "second"):
            assert twice
            assert local.fold == (tick.effect == "second")
        elif tick.effect is None:
            assert not twice
        else:
            assert gap == "run_after"
    offsets = [tick.offset for tick in shown.ticks]
    changed = {change.at_ms for change in shown.changes}
    for earlier, later in zip(shown.ticks, shown.ticks[1:], strict=False):
        if earlier.offset != later.offset:
            assert any(earlier.at_ms < at <= later.at_ms for at in changed)
    assert len(offsets) == 12


def week_with(starts: dict[int, int], start_ms: int) -> Week:
    minutes = array("d", bytes(8 * WEEK_MINUTES))
    for minute, number in starts.items():
        minutes[minute] = number
    return Week(start_ms, minutes, 1, 1, ())


def test_a_busy_minute_has_a_suggestion_for_the_schedule():
    nine = ms(datetime(2027, 1, 15, 9, tzinfo=UTC))
    week = week_with({60: 500, 61: 400}, nine - 60 * MINUTE)
    advice = peak_advice(week, Timing(CronSchedule("0 9 * * 5", "UTC")), nine)
    assert advice is not None
    assert (advice.starts, advice.quiet_starts, advice.schedule, advice.jitter) == (
        500,
        0,
        "59 8 * * 5",
        "5m",
    )
    assert "500" in advice.message
    assert peak_advice(week_with({60: 3}, nine), Timing(CronSchedule("0 9 * * 5")), nine) is None


def test_a_schedule_with_several_hours_moves_only_within_the_hour():
    nine = ms(datetime(2027, 1, 15, 9, tzinfo=UTC))
    every_hour = Timing(CronSchedule("0 * * * *", "UTC"))
    assert moved_schedule(every_hour, nine, nine + 4 * MINUTE) == "4 * * * *"
    assert moved_schedule(every_hour, nine, nine - MINUTE) is None
    assert moved_schedule(Timing(CronSchedule("*/5 9 * * *", "UTC")), nine, nine + MINUTE) is None
    assert moved_schedule(Timing(CronSchedule("30 0 9 * * *", "UTC")), nine, nine + MINUTE) == "30 1 9 * * *"
    assert moved_schedule(Timing(Every(3_600_000)), nine, nine + MINUTE) is None
    once = Timing(At(nine, "Asia/Tokyo"))
    assert moved_schedule(once, nine, nine + MINUTE) == "2027-01-15T18:01"
