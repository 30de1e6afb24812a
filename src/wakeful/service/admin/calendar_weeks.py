"""The calendar of a week: days and hours in a zone, excluded days, and the schedules of an hour. Pure.

A day has the hours of its zone: 23 or 25 of them, or a shorter one, if the clocks change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from heapq import nlargest
from itertools import groupby, pairwise
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from wakeful.document import timing_from_text
from wakeful.errors import WakefulError
from wakeful.forecast.peaks import TimingCount
from wakeful.job.job import Timing
from wakeful.schedule.calendars import HOLIDAYS, Calendar, stored_exclude
from wakeful.schedule.schedules import explain_schedule
from wakeful.values.bounded_cache import bypass
from wakeful.values.duration import MINUTE

HOUR_MS: Final = 3_600_000
#: How many schedules of an hour are named, and how many reasons of an excluded day.
NAMED: Final = 50
_REASONS: Final = 3
#: Offsets of zones, and changes of them, are multiples of this.
_STEP: Final = timedelta(minutes=15)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class CalendarHour(NamedTuple):
    """An hour of a day, as the clocks show it."""

    start_ms: int
    end_ms: int
    #: 0 to 23
    hour: int
    #: the offset of the zone in minutes
    offset_minutes: int
    #: whether the clocks show this hour for the second time on this day
    repeated: bool = False


class CalendarDay(NamedTuple):
    """A day and its hours."""

    day: date
    hours: tuple[CalendarHour, ...]
    #: what the clocks do on this day; None: nothing
    clock_change: str | None = None


class ExcludedDay(NamedTuple):
    """A day on which jobs have no ticks."""

    jobs: int
    #: the entries that exclude it, such as `holidays:DE-BY`
    reasons: tuple[str, ...]

    @property
    def is_holiday(self) -> bool:
        """Whether it is a public holiday of one of the jobs."""
        return any(reason.startswith(HOLIDAYS) for reason in self.reasons)


class HourSchedule(NamedTuple):
    """A schedule that fires in an hour."""

    explain: str
    jobs: int
    #: all starts in the hour
    starts: int
    #: the first of the jobs: agent and name with a slash
    example: str
    #: the first start of a job with this schedule
    first_ms: int


class HourSchedules(NamedTuple):
    """The schedules that fire in an hour, those with most jobs first, and how many more there are."""

    named: tuple[HourSchedule, ...]
    more: int


def find_monday(day: date) -> date:
    """Return the first day of the week of a day.

    >>> find_monday(date(2026, 11, 22))
    datetime.date(2026, 11, 16)
    """
    return day - timedelta(days=day.weekday())


def midnight_ms(day: date, tz: str) -> int:
    """Return the instant at which a day begins in a zone."""
    at = datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(tz))
    return round((at.astimezone(UTC) - _EPOCH) / timedelta(milliseconds=1))


def week_days(first: date, tz: str) -> list[CalendarDay]:
    """Return seven days from `first` on, with their hours in a zone."""
    return [_day(first + timedelta(days=number), tz) for number in range(7)]


def _day(day: date, tz: str) -> CalendarDay:
    zone = ZoneInfo(tz)
    hours: list[CalendarHour] = []
    steps = _steps(midnight_ms(day, tz), midnight_ms(day + timedelta(days=1), tz), zone)
    for (hour, offset), group in groupby(steps, key=lambda at: (at.hour, at.utcoffset() or timedelta())):
        found = list(group)
        start_ms, minutes = _ms(found[0]), round(offset / timedelta(minutes=1))
        repeated = any(each.hour == hour for each in hours)
        hours.append(CalendarHour(start_ms, start_ms + len(found) * 15 * MINUTE, hour, minutes, repeated))
    before = datetime.fromtimestamp(hours[0].start_ms / 1_000 - 1, zone).utcoffset() or timedelta()
    return CalendarDay(day, tuple(hours), _clock_change(round(before / timedelta(minutes=1)), hours))


def _steps(start_ms: int, end_ms: int, zone: ZoneInfo) -> Iterator[datetime]:
    at = _EPOCH + timedelta(milliseconds=start_ms)
    while _ms(at) < end_ms:
        yield at.astimezone(zone)
        at += _STEP


def _clock_change(offset_before: int, hours: list[CalendarHour]) -> str | None:
    """Return what the clocks do at the beginning of a day, or between two of its hours.

    >>> spring = week_days(date(2027, 3, 22), "Europe/Berlin")[6]
    >>> len(spring.hours), spring.clock_change
    (23, 'The clocks go forward from 02:00 to 03:00.')
    """
    first = hours[0]
    midnight = CalendarHour(first.start_ms - HOUR_MS, first.start_ms, -1, offset_before)
    for before, after in pairwise([midnight, *hours]):
        ahead = after.offset_minutes - before.offset_minutes
        if ahead:
            end = before.hour * 60 + (before.end_ms - before.start_ms) // MINUTE
            direction = "forward" if ahead > 0 else "back"
            return f"The clocks go {direction} from {_clock(end)} to {_clock(end + ahead)}."
    return None


def _clock(minutes: int) -> str:
    return f"{minutes // 60 % 24:02d}:{minutes % 60:02d}"


def _ms(at: datetime) -> int:
    return round((at - _EPOCH) / timedelta(milliseconds=1))


# --- exclusions and schedules -----------------------------------------------------------------------


def excluded_days(
    counts: Iterable[TimingCount], first: date, days: int, pause: Callable[[], object] = lambda: None
) -> dict[date, ExcludedDay]:
    """Return the days on which calendars of jobs exclude ticks, with the number of these jobs."""
    calendars: dict[Calendar, int] = {}
    with bypass():
        for timing, of_timing in _by_timing(counts).items():
            if timing.exclude:
                jobs = sum(each.jobs for each in of_timing)
                calendars[timing.exclude] = calendars.get(timing.exclude, 0) + jobs
    jobs_of: dict[date, int] = {}
    reasons: dict[date, dict[str, None]] = {}
    low = first.toordinal()
    for calendar, jobs in calendars.items():
        for begin, end in calendar.stretches(low, low + days - 1):
            for ordinal in range(begin, end + 1):
                day = date.fromordinal(ordinal)
                jobs_of[day] = jobs_of.get(day, 0) + jobs
                reasons.setdefault(day, {}).update(dict.fromkeys(_reasons(calendar, ordinal)))
        pause()
    return {day: ExcludedDay(jobs, tuple(reasons[day])[:_REASONS]) for day, jobs in sorted(jobs_of.items())}


def _reasons(calendar: Calendar, ordinal: int) -> list[str]:
    """Return the entries of a calendar that exclude a day."""
    return [entry for entry in calendar.entries if stored_exclude((entry,)).excludes_ordinal(ordinal)]


def hour_schedules(
    counts: Iterable[TimingCount], start_ms: int, end_ms: int, pause: Callable[[], object] = lambda: None
) -> HourSchedules:
    """Return the schedules with ticks from an instant to another one."""
    found: dict[str, HourSchedule] = {}
    with bypass():
        for timing, of_timing in _by_timing(counts).items():
            for each in of_timing:
                ticks = timing.ticks(each.phase * MINUTE)
                first_ms = ticks.next(start_ms - 1)
                if first_ms is None or first_ms >= end_ms:
                    continue
                starts = ticks.count(start_ms - 1, end_ms - 1) * each.jobs
                explain = explain_schedule(timing.schedule)
                known = found.get(explain, HourSchedule(explain, 0, 0, each.example, first_ms))
                found[explain] = HourSchedule(
                    explain,
                    known.jobs + each.jobs,
                    known.starts + starts,
                    min(known.example, each.example),
                    min(known.first_ms, first_ms),
                )
            pause()
    named = nlargest(NAMED, found.values(), key=lambda each: (each.starts, -each.first_ms))
    return HourSchedules(tuple(named), len(found) - len(named))


def _by_timing(counts: Iterable[TimingCount]) -> Mapping[Timing, list[TimingCount]]:
    """Return the counts by timing; a timing that cannot be read is left out."""
    texts: dict[str, list[TimingCount]] = {}
    for each in counts:
        texts.setdefault(each.timing, []).append(each)
    found: dict[Timing, list[TimingCount]] = {}
    for text, of_text in texts.items():
        try:
            timing = timing_from_text(text)
        except (WakefulError, ValueError, LookupError):
            continue
        found.setdefault(timing, []).extend(of_text)
    return found
