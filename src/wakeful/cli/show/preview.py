"""The next ticks in the schedule's zone and the user's, with the DST changes between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

from rich.console import RenderableType
from rich.text import Text

from wakeful.cli.times import relative


def preview(explain: str, ticks: Sequence[int], tz: str, yours: str, now_ms: int) -> Iterator[RenderableType]:
    """Yield the schedule in words, a line per tick, and a line per clock change between two ticks."""
    yield Text(explain, "bold")
    if not ticks:
        yield Text("never within 100 years", "yellow")
        return
    zones = [ZoneInfo(name) for name in dict.fromkeys((tz, yours))]
    wide = max(len(_wall(ms, zones[0])) for ms in ticks)
    yield _line(ticks[0], zones, wide, now_ms)
    for earlier, later in pairwise(ticks):
        for zone in zones:
            if change := _offset(later, zone) - _offset(earlier, zone):
                way = "forward" if change > timedelta(0) else "back"
                where = f" in {zone.key}" if len(zones) > 1 else ""
                yield Text(f"-- clocks go {way} {_amount(abs(change))}{where} --", "yellow")
        yield _line(later, zones, wide, now_ms)


def _line(ms: int, zones: Sequence[ZoneInfo], wide: int, now_ms: int) -> Text:
    own, *yours = zones
    line = Text(_wall(ms, own).ljust(wide))
    for zone in yours:
        line.append(f"   {_wall(ms, zone)} {zone.key}", "cyan")
    return line.append(f"   {relative(ms, now_ms)}", "dim")


def _wall(ms: int, zone: ZoneInfo) -> str:
    at = _at(ms, zone)
    return f"{at:%a} {at.isoformat(' ', 'seconds')}"


def _offset(ms: int, zone: ZoneInfo) -> timedelta:
    return _at(ms, zone).utcoffset() or timedelta(0)


def _at(ms: int, zone: ZoneInfo) -> datetime:
    return datetime.fromtimestamp(ms // 1000, UTC).astimezone(zone)


def _amount(change: timedelta) -> str:
    hours, minutes = divmod(int(change.total_seconds()) // 60, 60)
    return " ".join(part for part in (f"{hours} h" * bool(hours), f"{minutes} min" * bool(minutes)) if part)
