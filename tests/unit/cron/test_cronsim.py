"""Second opinion: cronsim, where it is right.

cronsim reads a smaller language (no `W`, no `L-3`, no `FRIL`, no `?`, no ranges round the end of the week, no
years) and we are held against it only in what both read, where no clock jumps or the jump is a plain hour.
What it is not asked about, because its answers there (version 2.8) are not the rules of this project:

- `57-58 */3 * * *` in Pacific/Chatham after 2023-04-02 00:58: it never returns.
- Jumps that are not a whole hour: in Australia/Lord_Howe on 2024-10-06 `* 4 * * *` loses half of its ticks.
- Six fields round a jump: it takes them all to follow real time.
- `5-5/10`: it reads a range of one value with a step as "from 5 on".
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from random import Random
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim, CronSimError

from tests.unit.cron.expressions import expression, expression_with_seconds
from wakeful.cron import Cron


def both_read(text: str) -> bool:
    if any(first == last for first, last in re.findall(r"(\w+)-(\w+)/", text.upper())):
        return False
    try:
        CronSim(text, datetime(2025, 1, 1, tzinfo=UTC))
    except CronSimError:
        return False
    return True


def some(number: int, seed: str, seconds: bool = False) -> list[str]:
    """Expressions that both can read."""
    random, found = Random(seed), list[str]()
    while len(found) < number:
        text = expression_with_seconds(random) if seconds else expression(random)
        if both_read(text):
            found.append(text)
    return found


def assert_same(text: str, zone_name: str, start: datetime, number: int = 12) -> None:
    zone = UTC if zone_name == "UTC" else ZoneInfo(zone_name)
    theirs = CronSim(text, start.astimezone(zone))
    expected = [next(theirs).astimezone(UTC) for _ in range(number)]
    ours = [tick.astimezone(UTC) for tick in Cron(text, zone_name).upcoming(start, number)]
    assert ours == expected, f"{text!r} in {zone_name} after {start}"


@pytest.mark.parametrize("seconds", [False, True], ids=["minutes", "seconds"])
def test_in_utc_any_expression_fires_when_cronsim_says(seconds: bool) -> None:
    for text in some(120, "UTC", seconds):
        assert_same(text, "UTC", datetime(2024, 2, 27, 13, 37, 7, tzinfo=UTC))


@pytest.mark.parametrize(
    "zone", ["Asia/Kathmandu", "Asia/Kolkata", "Asia/Ho_Chi_Minh", "Etc/GMT+12", "Pacific/Kiritimati"]
)
def test_in_a_zone_whose_clock_never_jumps_any_expression_fires_when_cronsim_says(zone: str) -> None:
    for text in some(40, zone):
        assert_same(text, zone, datetime(2024, 12, 30, 22, 59, 58, tzinfo=UTC))


@pytest.mark.parametrize(
    ("zone", "eve"),
    [
        ("America/New_York", "2025-03-08"),
        ("America/New_York", "2025-11-01"),
        ("Europe/Berlin", "2025-03-29"),
        ("Europe/Berlin", "2025-10-25"),
        ("Europe/London", "2025-03-29"),
        ("Europe/London", "2025-10-25"),
        ("Europe/Riga", "2025-03-29"),
        ("Europe/Riga", "2025-10-25"),
    ],
)
def test_through_a_jump_of_one_hour_any_expression_fires_when_cronsim_says(zone: str, eve: str) -> None:
    for text in some(30, f"{zone} {eve}"):
        assert_same(text, zone, datetime.fromisoformat(eve).replace(tzinfo=UTC), 60)
