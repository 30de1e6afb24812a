"""The next ticks of a schedule in its zone, and what clock changes do to them. Pure.

A clock change that lies between two ticks is named once. A tick in a gap or an overlap says what happens to
it: a fixed time that does not exist on a day fires after the gap or is skipped, and a time that exists twice
fires the first time, the second time, or both times.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, NamedTuple

from wakeful.cron import Cron
from wakeful.cron.zone import Zone, zone
from wakeful.forecast.peaks import MANY, SUGGESTED_JITTER, Week, peak_warning
from wakeful.job.job import Timing
from wakeful.schedule.schedules import At, CronSchedule
from wakeful.values.duration import spell_duration

DstEffect = Literal[
    "moved",  # its time does not exist on that day: it fires at the first instant after the gap
    "first",  # its time exists twice on that day: it fires the first time
    "second",  # the second time
]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MINUTE: Final = re.compile(r"[0-9]+")


class PreviewTick(NamedTuple):
    """One of the next ticks."""

    at_ms: int
    #: the offset from UTC in seconds
    offset: int
    effect: DstEffect | None = None
    #: what the clock change does to it, as a sentence
    note: str | None = None


class ClockChange(NamedTuple):
    """A clock change between two ticks, or between now and the first tick."""

    at_ms: int
    #: the offsets from UTC before and after it, in seconds
    before: int
    after: int
    #: the fixed time that it skips on that day, as HH:MM; None: no tick is skipped
    skipped: str | None
    note: str


class PeakAdvice(NamedTuple):
    """The next tick starts together with many other jobs."""

    message: str
    at_ms: int
    starts: int
    #: a quieter minute nearby
    quiet_ms: int
    quiet_starts: int
    #: the schedule at the quieter minute, as text; None: it cannot be moved there without another change
    schedule: str | None
    #: the jitter that spreads the starts
    jitter: str = SUGGESTED_JITTER


class SchedulePreview(NamedTuple):
    """The next ticks of a schedule, and the clock changes among them."""

    ticks: tuple[PreviewTick, ...]
    changes: tuple[ClockChange, ...]


def preview_ticks(timing: Timing, anchor_ms: int, after_ms: int, count: int) -> SchedulePreview:
    """Return the next `count` ticks after an instant; fewer if there are no more.

    >>> timing = Timing(CronSchedule("30 2 * * *", "Europe/Berlin"))
    >>> start = datetime(2027, 3, 27, 12, tzinfo=UTC)
    >>> shown = preview_ticks(timing, 0, int(start.timestamp()) * 1000, 1)
    >>> shown.ticks[0].note
    '02:30 does not exist on this day: the job fires at 03:00, when the clocks have gone forward'
    >>> shown.changes[0].note
    'the clocks go forward 1 hour on Sunday 28 March 2027 at 02:00'
    """
    place = zone(timing.schedule.tz or "UTC")
    found = timing.ticks(anchor_ms).upcoming(after_ms, count)
    ticks = tuple(_tick(timing, place, ms) for ms in found)
    return SchedulePreview(ticks, tuple(_changes(timing, place, after_ms, found)))


def peak_advice(week: Week, timing: Timing, next_ms: int) -> PeakAdvice | None:
    """Return the advice for a job whose next tick is then; None: not many others start then."""
    starts, tz = week.starts_at(next_ms), timing.schedule.tz
    if starts is None or starts < MANY:
        return None
    message, quiet = peak_warning(week, next_ms, tz), week.quiet_minute(next_ms)
    if message is None or quiet is None:
        return None
    return PeakAdvice(message, next_ms, starts, *quiet, moved_schedule(timing, next_ms, quiet[0]))


def moved_schedule(timing: Timing, tick_ms: int, to_ms: int) -> str | None:
    """Return the schedule with its tick at another minute, as text; None if it has several minutes or hours.

    >>> nine = 1_800_003_600_000  # 09:00 in UTC
    >>> moved_schedule(Timing(CronSchedule("0 9 * * 1-5")), nine, nine + 7 * 60_000)
    '7 9 * * 1-5'
    >>> moved_schedule(Timing(CronSchedule("0 9 * * 1-5")), nine, nine - 3 * 60_000)
    '57 8 * * 1-5'
    >>> moved_schedule(Timing(CronSchedule("0 * * * *")), nine, nine - 3 * 60_000)
    """
    schedule, place = timing.schedule, zone(timing.schedule.tz or "UTC")
    was, now = _local(place, tick_ms), _local(place, to_ms)
    if isinstance(schedule, At):
        return now.isoformat(timespec="minutes")
    if not isinstance(schedule, CronSchedule) or was.date() != now.date():
        return None
    fields = schedule.expr.split()
    minute, hour = len(fields) - 5, len(fields) - 4
    if not _MINUTE.fullmatch(fields[minute]) or (
        was.hour != now.hour and not _MINUTE.fullmatch(fields[hour])
    ):
        return None
    fields[minute] = str(now.minute)
    if was.hour != now.hour:
        fields[hour] = str(now.hour)
    return " ".join(fields)


def offset_text(seconds: int) -> str:
    """Return an offset from UTC.

    >>> offset_text(19_800), offset_text(-3_600), offset_text(0)
    ('+05:30', '-01:00', '+00:00')
    """
    sign, seconds = "-" if seconds < 0 else "+", abs(seconds)
    text = f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}"
    return text + (f":{seconds % 60:02}" if seconds % 60 else "")


def _tick(timing: Timing, place: Zone, ms: int) -> PreviewTick:
    second = ms // 1000
    offset = place.offset_at(second)
    here = bisect_right(place.starts, second) - 1
    if _is_moved(timing, place, ms, here):
        wanted = _clock(_skipped_wall(timing, place, here) or 0)
        note = (
            f"{wanted} does not exist on this day: the job fires at {_clock(second + offset)}, when the "
            "clocks have gone forward"
        )
        return PreviewTick(ms, offset, "moved", note)
    if here > 0 and second + offset < place.starts[here] + place.offsets[here - 1]:
        return PreviewTick(ms, offset, "second", _twice(second + offset, "second"))
    place.reach(second + 86_400)
    following = place.starts[here + 1] if here + 1 < len(place.starts) else None
    if following is not None and second + offset >= following + place.offsets[here + 1]:
        return PreviewTick(ms, offset, "first", _twice(second + offset, "first"))
    return PreviewTick(ms, offset)


def _twice(wall: int, which: str) -> str:
    return f"{_clock(wall)} exists twice on this day, because the clocks go back: this is the {which} one"


def _is_moved(timing: Timing, place: Zone, ms: int, here: int) -> bool:
    """Return whether a tick at a clock change stands for a time in the gap: no other tick is then."""
    if not isinstance(timing.schedule, CronSchedule) or place.starts[here] * 1000 != ms or here == 0:
        return False
    return not _matches(timing.schedule, ms // 1000 + place.offsets[here])


def _matches(schedule: CronSchedule, wall: int) -> bool:
    """Return whether a time of the wall clock matches the expression."""
    return Cron.shared(schedule.expr, "UTC", "run_after", "first").second_after(wall - 1) == wall


def _skipped_wall(timing: Timing, place: Zone, index: int) -> int | None:
    """Return the first time of the expression in the gap of a clock change, if any."""
    schedule, low = timing.schedule, place.starts[index] + place.offsets[index - 1]
    high = place.starts[index] + place.offsets[index]
    if not isinstance(schedule, CronSchedule) or high <= low:
        return None
    cron = Cron.shared(schedule.expr, "UTC", "run_after", "first")
    wall = cron.second_after(low - 1)
    return wall if wall is not None and wall < high and not cron.expression.follows_real_time else None


def _changes(timing: Timing, place: Zone, after_ms: int, ticks: Sequence[int]) -> Iterator[ClockChange]:
    """Yield the last clock change between two ticks whose offsets differ, and each that skips a tick."""
    earlier = after_ms if timing.start_ms is None else max(after_ms, timing.start_ms - 1)
    for tick in ticks:
        first, last = bisect_right(place.starts, earlier // 1000), bisect_right(place.starts, tick // 1000)
        for index in range(first, last):
            skipped = None
            if timing.dst_gap == "skip" and _would_tick(timing, place, index):
                wall = _skipped_wall(timing, place, index)
                skipped = None if wall is None else _clock(wall)
            differs = place.offset_at(earlier // 1000) != place.offset_at(tick // 1000)
            if skipped is not None or (index == last - 1 and differs):
                yield _change(place, index, skipped)
        earlier = tick


def _would_tick(timing: Timing, place: Zone, index: int) -> bool:
    """Return whether `run_after` has a tick at a clock change: excluded days and the limits count."""
    at_ms = place.starts[index] * 1000
    return replace(timing, dst_gap="run_after").ticks(0).next(at_ms - 1) == at_ms


def _change(place: Zone, index: int, skipped: str | None) -> ClockChange:
    start, before, after = place.starts[index], place.offsets[index - 1], place.offsets[index]
    way, at = ("forward" if after > before else "back"), _at((start + before) * 1000)
    note = (
        f"the clocks go {way} {spell_duration(abs(after - before) * 1000)} on {at:%A} {at.day} {at:%B %Y} "
        f"at {at:%H:%M}"
    )
    if skipped is not None:
        note += f": {skipped} does not exist on this day, and the job does not fire"
    return ClockChange(start * 1000, before, after, skipped, note)


def _clock(wall: int) -> str:
    at = _at(wall * 1000)
    return f"{at:%H:%M:%S}" if at.second else f"{at:%H:%M}"


def _local(place: Zone, ms: int) -> datetime:
    return _at(ms + place.offset_at(ms // 1000) * 1000).replace(tzinfo=None)


def _at(ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=ms)
