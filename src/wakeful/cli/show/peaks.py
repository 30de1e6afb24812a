"""The load of a week: a chart of its hours and a table of its peaks."""

from __future__ import annotations

from datetime import datetime
from typing import Final
from zoneinfo import ZoneInfo

from rich.table import Table
from rich.text import Text

from wakeful.cli.show.tables import Cell, table
from wakeful.cli.times import instant, moment
from wakeful.client.types import PeakShape, PeaksShape

_BARS: Final = " ▁▂▃▄▅▆▇█"


def week_chart(found: PeaksShape, tz: str) -> list[Text]:
    """Return a line for each day with a bar for each hour: the starts in its busiest minute."""
    most = max(hour["peakStarts"] for hour in found["hours"])
    days: dict[str, dict[int, int]] = {}
    for hour in found["hours"]:
        at = datetime.fromisoformat(hour["at"]).astimezone(ZoneInfo(tz))
        day = days.setdefault(f"{at:%a %d}", {})
        day[at.hour] = max(hour["peakStarts"], day.get(at.hour, 0))
    lines = [Text(f"{'':7}{'00':6}{'06':6}{'12':6}{'18':6}", "dim").append(f"{tz}", "dim")]
    for name, hours in days.items():
        bars = "".join(_bar(hours.get(hour, 0), most) for hour in range(24))
        line = Text(f"{name:7}").append(bars, "cyan")
        lines.append(line.append(f"  {max(hours.values()):,}", "dim"))
    return lines


def peak_table(found: PeaksShape, tz: str) -> Table:
    """Return a table of the busiest minutes."""
    now_ms = instant(found["from"])
    rows: list[list[Cell]] = [
        [moment(peak["atMs"], tz, now_ms), f"{peak['starts']:,}", _schedules(peak), _quiet(peak, tz)]
        for peak in found["peaks"]
    ]
    return table(["PEAK", "STARTS", "SCHEDULES", "QUIETER"], rows, elastic="SCHEDULES")


def _bar(starts: int, most: int) -> str:
    """Return a bar; any start is visible."""
    return _BARS[-(-starts * (len(_BARS) - 1) // most)] if most else " "


def _schedules(peak: PeakShape) -> str:
    return "; ".join(f"{each['explain']}: {each['jobs']:,}" for each in peak["schedules"])


def _quiet(peak: PeakShape, tz: str) -> str:
    at = peak["quietAt"]
    if at is None:
        return ""
    return f"{datetime.fromisoformat(at).astimezone(ZoneInfo(tz)):%H:%M} ({peak['quietStarts']:,})"
