"""The timeline of the home page, and the figures that it compares."""

from __future__ import annotations

import pytest

from wakeful.dashboard import charts
from wakeful.dashboard.pages.home import timeline
from wakeful.errors import InvalidArgument
from wakeful.service.admin.figures import LIMIT, AttentionFacts, Upcoming, compare, concerns, midnights
from wakeful.store.sql.run_counts import HOUR_MS, HourCount
from wakeful.store.stats import Troubles, UpcomingRun
from wakeful.values.duration import MINUTE

START = 1_800_000_000_000
NOTHING = Troubles(0, 0, 0, 0, 0, 0)


def _run(minute: int, name: str = "report") -> UpcomingRun:
    return UpcomingRun("id", "ops", name, START + minute * MINUTE + 5)


def test_a_minute_of_the_timeline_names_its_first_runs() -> None:
    minutes = (3.0, 0.0, 1.0, *[0.0] * 57)
    found = timeline(Upcoming(START, minutes, [_run(0, "a"), _run(0, "b"), _run(2, "c")]), "UTC")
    assert found.total == 4
    assert found.titles[0] == "08:00: 3 runs (ops/a, ops/b and others)"
    assert found.titles[2] == "08:02: 1 run (ops/c)"


def test_a_job_that_is_newer_than_the_counts_is_in_the_timeline() -> None:
    found = timeline(Upcoming(START, (0.0,) * 60, [_run(5)]), "Asia/Tokyo")
    assert (found.minutes or ())[5] == 1
    assert found.titles[5] == "17:05: 1 run (ops/report)"


def test_without_counts_there_is_no_timeline() -> None:
    assert timeline(Upcoming(START, None, [_run(0)]), "UTC").minutes is None


def test_the_chart_escapes_the_names_of_jobs() -> None:
    chart = charts.minutes([1.0, 0.0], ['<script>"', "x"], label="Runs & more")
    assert "<script>" not in chart
    assert "&lt;script&gt;&quot;" in chart
    assert chart.count("<rect") == 1


@pytest.mark.parametrize(
    ("tz", "today", "yesterday"),
    [
        ("UTC", "2027-01-15T00:00", "2027-01-14T00:00"),
        ("Asia/Kolkata", "2027-01-14T18:30", "2027-01-13T18:30"),
        ("America/New_York", "2027-01-15T05:00", "2027-01-14T05:00"),
    ],
)
def test_a_day_begins_at_midnight_in_the_zone(tz: str, today: str, yesterday: str) -> None:
    from datetime import UTC, datetime

    expected = [
        round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)
        for text in (today, yesterday)
    ]
    assert list(midnights(START, tz)) == expected  # 2027-01-15 08:00 UTC


def test_a_day_with_a_clock_change_has_its_own_length() -> None:
    # 2027-03-28 in Berlin has 23 hours. On the 29th at 12:00, yesterday is 23 hours before midnight.
    noon = 1_806_314_400_000
    today, yesterday = midnights(noon, "Europe/Berlin")
    assert today - yesterday == 23 * HOUR_MS


@pytest.mark.parametrize("tz", ["", "Nowhere/City", "../etc/passwd", "\0"])
def test_an_unknown_zone_is_refused(tz: str) -> None:
    with pytest.raises(InvalidArgument, match="tz"):
        midnights(START, tz)


def test_yesterday_counts_until_the_same_time_and_a_part_of_the_last_hour() -> None:
    counts = [HourCount(hour, "succeeded", 10) for hour in range(48)]
    found = compare(counts, 24 * HOUR_MS, 0, 24 * HOUR_MS + 2 * HOUR_MS + HOUR_MS // 2)
    assert found.yesterday == {"succeeded": 25}
    assert found.today == {"succeeded": 240}


def test_nothing_needs_attention_if_all_is_well() -> None:
    assert concerns(AttentionFacts(NOTHING, 0, 0, None, 1)) == []


def test_every_concern_has_its_number_and_what_to_do() -> None:
    troubles = Troubles(LIMIT + 1, 1, 3, 2, 1, 1)
    found = concerns(AttentionFacts(troubles, 7, 2, None, 0, ["cron", "main"], 5_000))
    assert [each.kind for each in found] == [
        "workers", "clock", "blocked_runs", "incidents", "dead_letters", "failing_jobs", "unclaimed_runs",
        "lanes", "budgets", "missed",
    ]  # fmt: skip
    assert all(each.advice.endswith(".") for each in found)
    by_kind = {each.kind: each for each in found}
    assert (by_kind["dead_letters"].number, by_kind["dead_letters"].more) == (LIMIT, True)
    assert by_kind["incidents"].number == 2
    assert "1 more" in by_kind["incidents"].advice
    assert by_kind["lanes"].text == "full lanes: cron, main"
    assert by_kind["missed"].number == 7


def test_acknowledged_incidents_alone_need_no_attention() -> None:
    assert concerns(AttentionFacts(NOTHING._replace(open_incidents=2), 0, 0, None, None)) == []
