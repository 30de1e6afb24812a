"""Days on which the clocks change, one by one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from tests.unit.cron.agreement import CHOICES, GAPS, OVERLAPS, Gap, Overlap, backwards, forwards
from wakeful.cron import Cron

BERLIN = ZoneInfo("Europe/Berlin")
NEW_YORK = ZoneInfo("America/New_York")

# Berlin: 2025-03-30 02:00 becomes 03:00, and 2025-10-26 03:00 becomes 02:00.
SPRING, AUTUMN = "2025-03-30", "2025-10-26"


def on(
    day: str,
    text: str,
    zone: str = "Europe/Berlin",
    *,
    dst_gap: Gap = "run_after",
    dst_overlap: Overlap = "first",
) -> list[str]:
    """The ticks of one day, by the clock on the wall and how far it is from UTC: `02:30+01:00`."""
    cron = Cron(text, zone, dst_gap=dst_gap, dst_overlap=dst_overlap)
    noon = datetime.fromisoformat(f"{day}T12:00+00:00")
    ticks = cron.upcoming(noon - timedelta(hours=40), 6000)
    return [tick.isoformat(timespec="minutes")[11:] for tick in ticks if f"{tick:%Y-%m-%d}" == day]


def test_a_fixed_time_in_the_spring_gap_fires_at_the_first_instant_after_it() -> None:
    assert on(SPRING, "30 2 * * *") == ["03:00+02:00"]
    assert on(SPRING, "0 2 * * *") == ["03:00+02:00"]
    assert on(SPRING, "59 2 * * *") == ["03:00+02:00"]


def test_a_fixed_time_in_the_spring_gap_is_skipped_with_skip() -> None:
    assert on(SPRING, "30 2 * * *", dst_gap="skip") == []
    assert on("2025-03-29", "30 2 * * *", dst_gap="skip") == ["02:30+01:00"]
    assert on("2025-03-31", "30 2 * * *", dst_gap="skip") == ["02:30+02:00"]


def test_several_fixed_times_in_one_gap_are_one_tick() -> None:
    assert on(SPRING, "0,15,30,45 2 * * *") == ["03:00+02:00"]


def test_a_fixed_time_in_the_gap_that_lands_on_a_regular_tick_is_one_with_it() -> None:
    assert on(SPRING, "0,30 2,3 * * *") == ["03:00+02:00", "03:30+02:00"]
    assert on(SPRING, "0,30 2,3 * * *", dst_gap="skip") == ["03:00+02:00", "03:30+02:00"]


def test_the_minutes_on_the_edges_of_the_gap_are_ordinary() -> None:
    assert on(SPRING, "59 1 * * *") == ["01:59+01:00"]
    assert on(SPRING, "0 3 * * *") == ["03:00+02:00"]


def test_a_fixed_time_in_the_autumn_overlap_fires_once_at_the_first_occurrence() -> None:
    assert on(AUTUMN, "30 2 * * *") == ["02:30+02:00"]


def test_a_fixed_time_in_the_autumn_overlap_fires_at_the_second_occurrence_with_second() -> None:
    assert on(AUTUMN, "30 2 * * *", dst_overlap="second") == ["02:30+01:00"]


def test_a_fixed_time_in_the_autumn_overlap_fires_twice_with_both() -> None:
    assert on(AUTUMN, "30 2 * * *", dst_overlap="both") == ["02:30+02:00", "02:30+01:00"]


def test_several_fixed_times_in_one_overlap_keep_to_the_pass_that_is_chosen() -> None:
    assert on(AUTUMN, "0,30 1-3 * * *", dst_overlap="first") == [
        *["01:00+02:00", "01:30+02:00", "02:00+02:00", "02:30+02:00"],
        *["03:00+01:00", "03:30+01:00"],
    ]
    assert on(AUTUMN, "0,30 1-3 * * *", dst_overlap="second") == [
        *["01:00+02:00", "01:30+02:00"],
        *["02:00+01:00", "02:30+01:00", "03:00+01:00", "03:30+01:00"],
    ]


def test_the_minutes_on_the_edges_of_the_overlap_are_ordinary() -> None:
    for overlap in OVERLAPS:
        assert on(AUTUMN, "59 1 * * *", dst_overlap=overlap) == ["01:59+02:00"]
        assert on(AUTUMN, "0 3 * * *", dst_overlap=overlap) == ["03:00+01:00"]


def test_the_fold_of_an_answer_says_which_pass_it_is() -> None:
    cron = Cron("30 2 * * *", "Europe/Berlin", dst_overlap="both")
    first, second = cron.upcoming(datetime(2025, 10, 25, 12, tzinfo=UTC), 2)
    assert (first.fold, second.fold) == (0, 1)
    assert first.replace(fold=0, tzinfo=None) == second.replace(fold=0, tzinfo=None)
    assert second.astimezone(UTC) - first.astimezone(UTC) == timedelta(hours=1)


def test_next_from_the_second_occurrence_is_not_the_first() -> None:
    cron = Cron("30 2 * * *", "Europe/Berlin", dst_overlap="both")
    asked = datetime(2025, 10, 26, 2, 15, fold=1, tzinfo=BERLIN)
    tick = cron.next(asked)
    assert tick is not None
    assert tick.astimezone(UTC) == datetime(2025, 10, 26, 1, 30, tzinfo=UTC)
    before = cron.prev(asked)
    assert before is not None
    assert before.astimezone(UTC) == datetime(2025, 10, 26, 0, 30, tzinfo=UTC)


def test_next_from_a_wall_time_that_does_not_exist() -> None:
    nowhere = datetime(
        2025, 3, 30, 2, 30, tzinfo=BERLIN
    )  # fold=0 reads it with winter's offset: 01:30 in UTC
    tick = Cron("0 * * * *", "Europe/Berlin").next(nowhere)
    assert tick is not None
    assert tick.isoformat() == "2025-03-30T04:00:00+02:00"


@pytest.mark.parametrize(("dst_gap", "dst_overlap"), CHOICES)
def test_a_schedule_that_follows_real_time_is_never_silent_and_never_doubled(
    dst_gap: Gap, dst_overlap: Overlap
) -> None:
    cron = Cron("*/15 * * * *", "Europe/Berlin", dst_gap=dst_gap, dst_overlap=dst_overlap)
    for day in (SPRING, AUTUMN):
        start = datetime.fromisoformat(f"{day}T00:00+00:00") - timedelta(hours=6)
        ticks = [tick.astimezone(UTC) for tick in cron.upcoming(start, 96)]
        assert ticks == [start + timedelta(minutes=15) * n for n in range(1, 97)]


def test_a_day_of_23_hours_has_92_quarters_and_one_of_25_has_100() -> None:
    assert len(on(SPRING, "*/15 * * * *")) == 92
    assert len(on(AUTUMN, "*/15 * * * *")) == 100


def test_hourly_fires_every_real_hour() -> None:
    assert on(SPRING, "@hourly")[1:4] == ["01:00+01:00", "03:00+02:00", "04:00+02:00"]
    assert on(AUTUMN, "@hourly")[1:5] == ["01:00+02:00", "02:00+02:00", "02:00+01:00", "03:00+01:00"]


def test_a_star_in_the_minutes_alone_follows_real_time() -> None:
    assert on(SPRING, "*/30 2 * * *") == []
    assert on(AUTUMN, "*/30 2 * * *") == ["02:00+02:00", "02:30+02:00", "02:00+01:00", "02:30+01:00"]


def test_a_star_in_the_hours_alone_follows_real_time() -> None:
    assert on(SPRING, "30 */2 * * *")[:2] == ["00:30+01:00", "04:30+02:00"]
    assert on(AUTUMN, "30 */2 * * *")[:4] == ["00:30+02:00", "02:30+02:00", "02:30+01:00", "04:30+01:00"]


def test_a_list_follows_real_time_only_where_it_starts_with_a_star() -> None:
    assert on(AUTUMN, "*/30,45 2 * * *") == [
        *["02:00+02:00", "02:30+02:00", "02:45+02:00"],
        *["02:00+01:00", "02:30+01:00", "02:45+01:00"],
    ]
    assert on(AUTUMN, "45,*/30 2 * * *") == ["02:00+02:00", "02:30+02:00", "02:45+02:00"]


def test_a_whole_range_is_a_fixed_time_and_not_a_star() -> None:
    assert on(SPRING, "0 0-23 * * *")[1:4] == ["01:00+01:00", "03:00+02:00", "04:00+02:00"]
    assert on(AUTUMN, "0 0-23 * * *")[1:4] == ["01:00+02:00", "02:00+02:00", "03:00+01:00"]


def test_a_star_in_the_seconds_makes_no_difference() -> None:
    assert on(SPRING, "*/20 30 2 * * *") == ["03:00+02:00"]
    assert on(AUTUMN, "*/20 30 2 * * *") == ["02:30+02:00"] * 3
    assert on(AUTUMN, "*/20 30 2 * * *", dst_overlap="both") == ["02:30+02:00"] * 3 + ["02:30+01:00"] * 3


def test_seconds_in_the_gap_fire_at_its_end_and_not_seconds_after_it() -> None:
    tick = Cron("7 30 2 * * *", "Europe/Berlin").next(datetime(2025, 3, 29, 12, tzinfo=UTC))
    assert tick == datetime(2025, 3, 30, 3, 0, 0, tzinfo=BERLIN)


def test_daily_fires_once_a_day_for_ten_years_and_the_choices_change_ten_of_them() -> None:
    start, end = datetime(2015, 1, 1, tzinfo=BERLIN), datetime(2025, 1, 1, tzinfo=BERLIN)
    assert (end - start).days == 3653
    assert Cron("30 2 * * *", "Europe/Berlin").count(start, end) == 3653
    assert Cron("30 2 * * *", "Europe/Berlin", dst_gap="skip").count(start, end) == 3643
    assert Cron("30 2 * * *", "Europe/Berlin", dst_overlap="both").count(start, end) == 3663
    assert Cron("30 2 * * *", "Europe/Berlin", dst_overlap="second").count(start, end) == 3653


def test_new_york_changes_at_two_as_well() -> None:
    assert on("2025-03-09", "30 2 * * *", "America/New_York") == ["03:00-04:00"]
    assert on("2025-11-02", "30 1 * * *", "America/New_York") == ["01:30-04:00"]
    assert on("2025-11-02", "30 1 * * *", "America/New_York", dst_overlap="second") == ["01:30-05:00"]


def test_lord_howe_leaves_out_half_an_hour() -> None:
    # 2024-10-06 02:00 becomes 02:30.
    assert on("2024-10-06", "15 2 * * *", "Australia/Lord_Howe") == ["02:30+11:00"]
    assert on("2024-10-06", "45 2 * * *", "Australia/Lord_Howe") == ["02:45+11:00"]


def test_every_minute_from_four_to_five_on_lord_howe_fires_sixty_times() -> None:
    assert on("2024-10-06", "* 4 * * *", "Australia/Lord_Howe") == [f"04:{n:02}+11:00" for n in range(60)]


def test_lord_howe_has_half_an_hour_twice() -> None:
    # 2025-04-06 02:00 becomes 01:30.
    assert on("2025-04-06", "15,45 1 * * *", "Australia/Lord_Howe", dst_overlap="both") == [
        *["01:15+11:00", "01:45+11:00", "01:45+10:30"]
    ]


def test_chatham_changes_at_a_quarter_to_and_is_answered_at_once() -> None:
    # 2023-04-02 03:45 becomes 02:45.
    zone = ZoneInfo("Pacific/Chatham")
    tick = Cron("57-58 */3 * * *", "Pacific/Chatham").next(datetime(2023, 4, 2, 0, 58, tzinfo=zone))
    assert tick is not None
    assert tick.isoformat() == "2023-04-02T03:57:00+12:45"


def test_midnight_that_does_not_exist_fires_at_one() -> None:
    # Santiago goes from 23:59 to 01:00 on 2024-09-08, Havana on 2024-03-10.
    assert on("2024-09-08", "0 0 * * *", "America/Santiago") == ["01:00-03:00"]
    assert on("2024-03-10", "@daily", "America/Havana") == ["01:00-04:00"]
    assert on("2024-03-10", "@daily", "America/Havana", dst_gap="skip") == []


def test_the_first_of_a_month_keeps_its_own_day_where_midnight_is_missing() -> None:
    # Asunción left out the first hour of 2017-10-01; the tick of the first is not September's.
    assert on("2017-10-01", "0 0 1 * *", "America/Asuncion") == ["01:00-03:00"]
    assert on("2017-09-30", "0 0 1 * *", "America/Asuncion") == []


def test_a_midnight_that_comes_twice_fires_once() -> None:
    # Havana goes from 00:59 back to 00:00 on 2024-11-03.
    assert on("2024-11-03", "0 0 * * *", "America/Havana") == ["00:00-04:00"]
    assert on("2024-11-03", "0 0 * * *", "America/Havana", dst_overlap="both") == [
        "00:00-04:00",
        "00:00-05:00",
    ]


def test_the_last_hour_of_a_day_that_comes_twice_fires_once() -> None:
    # Beirut goes from 23:59 on 2024-10-26 back to 23:00 of the same day.
    assert on("2024-10-26", "30 23 * * *", "Asia/Beirut") == ["23:30+03:00"]
    assert on("2024-10-26", "30 23 * * *", "Asia/Beirut", dst_overlap="second") == ["23:30+02:00"]
    assert on("2024-10-27", "0 0 * * *", "Asia/Beirut") == ["00:00+02:00"]


def test_troll_leaves_out_two_hours_and_two_times_in_them_are_one_tick() -> None:
    # 2025-03-30 01:00 becomes 03:00.
    assert on("2025-03-30", "30 1,2 * * *", "Antarctica/Troll") == ["03:00+02:00"]


def test_casablanca_goes_back_for_ramadan() -> None:
    # 2025-02-23 03:00 becomes 02:00, and 2025-04-06 02:00 becomes 03:00.
    assert on("2025-02-23", "30 2 * * *", "Africa/Casablanca") == ["02:30+01:00"]
    assert on("2025-04-06", "30 2 * * *", "Africa/Casablanca") == ["03:00+01:00"]


def test_kathmandu_stands_a_quarter_to_the_hour_all_year() -> None:
    tick = Cron("0 9 * * *", "Asia/Kathmandu").next(datetime(2025, 7, 1, tzinfo=UTC))
    assert tick is not None
    assert tick.isoformat() == "2025-07-01T09:00:00+05:45"


def test_apia_has_no_30th_of_december_2011_and_its_ticks_fire_as_the_31st_begins() -> None:
    assert on("2011-12-31", "0 9 30 12 *", "Pacific/Apia") == ["00:00+14:00"]
    assert on("2011-12-31", "0 9 * * FRI", "Pacific/Apia") == ["00:00+14:00"]
    assert on("2011-12-30", "0 9 * * *", "Pacific/Apia") == []


def test_all_the_ticks_of_the_day_that_apia_left_out_are_one() -> None:
    assert on("2011-12-31", "30 8-20 30 12 *", "Pacific/Apia") == ["00:00+14:00"]
    assert on("2011-12-31", "0 9 * * *", "Pacific/Apia") == ["00:00+14:00", "09:00+14:00"]
    assert on("2011-12-31", "0 0 * * *", "Pacific/Apia") == ["00:00+14:00"]


def test_the_day_that_apia_skipped_has_no_tick_with_skip() -> None:
    assert on("2011-12-31", "0 9 * * *", "Pacific/Apia", dst_gap="skip") == ["09:00+14:00"]
    year_later = Cron("0 9 30 12 *", "Pacific/Apia", dst_gap="skip").next(datetime(2011, 12, 20, tzinfo=UTC))
    assert year_later is not None
    assert year_later.isoformat() == "2012-12-30T09:00:00+14:00"


@pytest.mark.parametrize("dst_gap", GAPS)
@pytest.mark.parametrize("dst_overlap", OVERLAPS)
@pytest.mark.parametrize("day", [SPRING, AUTUMN])
def test_prev_returns_the_ticks_of_next(day: str, dst_gap: Gap, dst_overlap: Overlap) -> None:
    cron = Cron("15,45 1-3 * * *", "Europe/Berlin", dst_gap=dst_gap, dst_overlap=dst_overlap)
    end = datetime.fromisoformat(f"{day}T12:00+00:00")
    start = end - timedelta(days=1)
    seen = forwards(cron, "Europe/Berlin", start, end)
    assert len(seen) > 3
    assert backwards(cron, "Europe/Berlin", start, end) == seen
    assert cron.count(start, end) == len(seen)


def test_the_argument_may_be_in_another_zone() -> None:
    cron = Cron("0 9 * * *", "Europe/Berlin")
    tick = cron.next(datetime(2025, 7, 1, 3, 0, tzinfo=NEW_YORK))
    assert tick is not None
    assert tick.isoformat() == "2025-07-02T09:00:00+02:00"
    assert tick.tzinfo == BERLIN
