"""Load peaks: the starts of a week against a scan of all ticks, jitter, and when a warning is given."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.effort import cases
from wakeful.document import Defaults, policy_to_text, read_definition, timing_to_text
from wakeful.errors import InvalidSchedule
from wakeful.forecast.peaks import MANY, WEEK_MINUTES, TimingCount, Week, compute_week, peak_warning
from wakeful.values.duration import MINUTE

#: a Friday, two days before the end of DST in Berlin, within a minute
NOW = int(datetime(2027, 10, 29, 7, 3, 21, tzinfo=UTC).timestamp() * 1000)
START = NOW // MINUTE * MINUTE


def _count(schedule: object, jobs: int = 1, phase: int = 0, **fields: object) -> TimingCount:
    document = {"name": "a", "schedule": schedule, **fields}
    definition = read_definition(document, now_ms=NOW - 86_400_000, defaults=Defaults())
    assert definition.timing is not None
    return TimingCount(timing_to_text(definition.timing), policy_to_text(definition.policy), phase, jobs)


def _scanned(schedule: object, anchor_ms: int = 0, **fields: object) -> Counter[int]:
    """Return the ticks of each minute of the week, from a walk over all ticks."""
    document = {"name": "a", "schedule": schedule, **fields}
    timing = read_definition(document, now_ms=NOW - 86_400_000, defaults=Defaults()).timing
    assert timing is not None
    ticks, found = timing.ticks(anchor_ms), Counter[int]()
    tick = ticks.next(START - 1)
    while tick is not None and tick < START + WEEK_MINUTES * MINUTE:
        found[(tick - START) // MINUTE] += 1
        tick = ticks.next(tick)
    return found


def _starts(week: Week) -> dict[int, int]:
    return {minute: round(starts) for minute, starts in enumerate(week.starts) if round(starts)}


@pytest.mark.parametrize(
    ("schedule", "fields"),
    [
        ("0 9 * * 1-5", {"tz": "Europe/Berlin"}),
        ("*/5 * * * *", {"tz": "Europe/Berlin"}),
        ("* * * * *", {"tz": "Asia/Kathmandu"}),
        ("30 2 * * *", {"tz": "Europe/Berlin", "dstOverlap": "both"}),
        ("7-59/3 */2 * * SAT,SUN", {"tz": "America/New_York"}),
        ("*/7 8-18 * * *", {"exclude": ["2027-10-31"]}),
        ("0,20,40 */4 9 * * *", {}),
        ("*/20 * * * * *", {}),
        ("0,20,40 */4 9 * * * 2027", {}),
        ("2027-11-01T08:00:00Z", {}),
        ("0 0 29 2 *", {}),
        ("0 * * * *", {"startAt": "2027-10-30T00:00:00Z", "endAt": "2027-10-31T12:00:00Z"}),
        ("every 5m", {"exclude": ["2027-10-30/2027-10-31"]}),
    ],
)
def test_the_starts_are_those_of_a_walk_over_all_ticks(schedule: str, fields: dict[str, Any]) -> None:
    week = compute_week([_count(schedule, 3, **fields)], NOW)
    assert _starts(week) == {minute: 3 * ticks for minute, ticks in _scanned(schedule, **fields).items()}


@settings(max_examples=cases(15, 40), deadline=None)
@given(
    every_s=st.integers(60, 100_000),
    anchor=st.integers(0, 10**6),
    start=st.none() | st.integers(-5, 200),
    end=st.none() | st.integers(-5, 200),
)
def test_intervals_start_in_the_minutes_of_their_ticks(
    every_s: int, anchor: int, start: int | None, end: int | None
) -> None:
    every_ms = every_s * 1_000
    fields: dict[str, object] = {}
    if start is not None:
        fields["startAt"] = START + start * 3_600_000
    if end is not None and (start is None or end > start):
        fields["endAt"] = START + end * 3_600_000
    anchor_ms = anchor * MINUTE if start is None else START + start * 3_600_000
    phase = anchor_ms % every_ms // MINUTE
    try:
        count = _count({"kind": "every", "everyMs": every_ms}, 1, phase, **fields)
    except InvalidSchedule:
        return  # it ends before its first tick
    found = _starts(compute_week([count], NOW))
    scanned = _scanned({"kind": "every", "everyMs": every_ms}, phase * MINUTE, **fields)
    assert found == dict(scanned)


def test_a_short_interval_is_a_rate() -> None:
    week = compute_week([_count("every 10s", 5)], NOW)
    assert set(week.starts) == {30.0}


def test_jobs_of_one_timing_are_counted_together_and_others_added() -> None:
    nine = [_count("0 9 * * *", 40), _count("0 9 * * *", 2, maxAttempts=9), _count("*/30 * * * *", 8)]
    week = compute_week(nine, NOW)
    assert (week.jobs, week.timings) == (50, 2)
    assert week.starts_at(START + 60 * MINUTE * 2) == week.starts_at(NOW + 60 * MINUTE * 2) == 0
    peak = week.peaks[0]
    assert datetime.fromtimestamp(peak.at_ms / 1000, UTC).strftime("%H:%M") == "09:00"
    assert peak.starts == 50
    assert [each.jobs for each in peak.schedules] == [42, 8]
    assert peak.schedules[0].explain == "At 09:00, every day (UTC)"
    assert sum(hour.starts for hour in week.hours()) == round(sum(week.starts)) == 7 * 42 + 7 * 48 * 8
    busiest = max(week.hours(), key=lambda hour: hour.peak_starts)
    assert (busiest.peak_at_ms, busiest.peak_starts) == (peak.at_ms, 50)


def test_jitter_spreads_the_starts_and_loses_none() -> None:
    week = compute_week([_count("0 12 * * *", 110, jitter="5m")], NOW)
    assert max(week.starts) == pytest.approx(10)
    assert sum(week.starts) == pytest.approx(7 * 110)
    assert len([each for each in week.starts if each > 0.5]) == 7 * 11


def test_phases_of_an_interval_are_apart() -> None:
    week = compute_week([_count("every 10m", 5, phase) for phase in (1, 4)], NOW)
    counts = _starts(week)
    assert sorted({(START // MINUTE + minute) % 10 for minute in counts}) == [1, 4]
    assert week.peaks[0].schedules == (("Every 10 minutes", 5),)


def test_a_timing_that_cannot_be_read_is_left_out() -> None:
    broken = [TimingCount("{}", "{}", 0, 7), TimingCount("no json", "no json", 0, 7)]
    assert compute_week([*broken, _count("0 9 * * *", 2)], NOW).jobs == 2


def test_there_is_a_pause_after_each_timing() -> None:
    pauses: list[None] = []
    compute_week([_count(f"{minute} 9 * * *") for minute in range(20)], NOW, lambda: pauses.append(None))
    assert len(pauses) >= 20


def _nine(week: Week) -> int:
    return next(peak.at_ms for peak in week.peaks)


def test_a_warning_names_the_number_and_a_quiet_minute_in_the_zone_of_the_job() -> None:
    counts = [_count("0 9 * * *", 1_234), *(_count(f"{minute} 9 * * *", 9) for minute in range(1, 7))]
    week = compute_week(counts, NOW)
    warning = peak_warning(week, _nine(week), "Europe/Berlin")
    assert warning is not None
    assert warning.startswith("about 1,234 jobs of this workspace start at 11:00 (Europe/Berlin)") or (
        "10:00 (Europe/Berlin)" in warning  # after the end of DST
    )
    assert "set a jitter (5m), or choose" in warning
    assert "no other starts" in warning


@pytest.mark.parametrize(("jobs", "warned"), [(MANY - 1, False), (MANY, True)])
def test_a_warning_is_given_from_the_threshold_on(jobs: int, warned: bool) -> None:
    week = compute_week([_count("0 9 * * *", jobs)], NOW)
    assert (peak_warning(week, _nine(week), None) is not None) is warned


def test_an_even_load_gives_no_warning() -> None:
    week = compute_week([_count("* * * * *", 500)], NOW)
    assert peak_warning(week, START + 90 * MINUTE, None) is None


def test_a_tick_after_the_week_gives_no_warning() -> None:
    week = compute_week([_count("0 9 * * *", 500)], NOW)
    assert week.starts_at(START - 1) is None
    assert peak_warning(week, START + WEEK_MINUTES * MINUTE, None) is None
    assert peak_warning(week, _nine(week), None) is not None
