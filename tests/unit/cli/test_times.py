"""Instants and durations as text."""

from __future__ import annotations

from pathlib import Path

import pytest

from wakeful.cli.times import instant, local_zone, moment, relative, span

SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000


@pytest.mark.parametrize(
    ("away", "text"),
    [
        (0, "now"),
        (999, "now"),
        (1000, "in 1 s"),
        (9_960, "in 10 s"),
        (59_400, "in 59 s"),
        (59_600, "in 1 min"),
        (89 * SECOND, "in 1 min"),
        (90 * SECOND, "in 2 min"),
        (59 * MINUTE + 40 * SECOND, "in 1 h"),
        (3 * HOUR, "in 3 h"),
        (47 * HOUR, "in 47 h"),
        (48 * HOUR, "in 2 days"),
        (59 * DAY, "in 59 days"),
        (61 * DAY, "in 2 months"),
        (3 * 365 * DAY, "in 3 years"),
        (-2 * MINUTE, "2 min ago"),
        (-1, "now"),
    ],
)
def test_the_distance_from_now_is_rounded_to_one_unit(away: int, text: str):
    assert relative(1_800_000_000_000 + away, 1_800_000_000_000) == text


def test_short_durations_keep_a_decimal():
    assert [span(ms) for ms in (0, 12, 1_000, 1_540, 61_000)] == ["0 ms", "12 ms", "1 s", "1.5 s", "1 min"]


def test_a_moment_names_its_zone():
    assert moment(1_800_000_001_000, "Asia/Tokyo") == "Fri 2027-01-15 17:00:01 Asia/Tokyo"
    assert moment(1_800_000_000_000, "Asia/Tokyo", now_ms=1_800_000_000_000 - 7 * DAY) == (
        "Fri 2027-01-15 17:00 Asia/Tokyo"
    )


def test_an_instant_is_parsed_to_the_millisecond():
    assert instant("2027-01-15T09:00:00.123+01:00") == 1_800_000_000_123
    assert instant(None) is None


def test_the_local_zone_comes_from_tz_or_etc_localtime(tmp_path: Path):
    zones = tmp_path / "zoneinfo" / "Europe"
    zones.mkdir(parents=True)
    (zones / "Berlin").touch()
    link = tmp_path / "localtime"
    link.symlink_to(zones / "Berlin")

    assert local_zone({}, link) == "Europe/Berlin"
    assert local_zone({"TZ": ":Asia/Tokyo"}, link) == "Asia/Tokyo"
    assert local_zone({"TZ": "no such zone"}, tmp_path / "nothing") == "UTC"
    assert local_zone({"TZ": "Etc/UTC"}, link) == "UTC"
