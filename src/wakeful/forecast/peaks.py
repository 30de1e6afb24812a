"""How many runs the schedules start in each minute of the coming week, and where it is too many. Pure.

Jobs with the same timing are counted together, and the week of a timing is computed in bounded time: a dense
day is computed once and repeated for each day that has the same ticks. Ticks of a job with jitter are spread
evenly over the minutes in which it may start. The phase of an interval is known to the minute.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from heapq import nlargest
from itertools import accumulate
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from wakeful.document import policy_from_text, timing_from_text
from wakeful.errors import WakefulError
from wakeful.job.job import Timing
from wakeful.schedule.schedules import CronSchedule, Every, Schedule, explain_schedule
from wakeful.schedule.ticks import Ticks
from wakeful.values.bounded_cache import bypass
from wakeful.values.duration import MINUTE

DAY_MINUTES: Final = 24 * 60
WEEK_MINUTES: Final = 7 * DAY_MINUTES
#: From so many other starts in the minute of a new job on, there is a warning: the size of the default lane.
MANY: Final = 30
#: How far a suggested minute may be away, and how much quieter it must be: then moving a job helps.
NEARBY_MINUTES: Final = 15
QUIETER: Final = 3
#: The jitter that a warning suggests.
SUGGESTED_JITTER: Final = "5m"

_DAY_MS: Final = DAY_MINUTES * MINUTE
#: From so many ticks on, a day is repeated and not computed again.
_DENSE: Final = 24
#: How many peaks a week names, and how many schedules each.
_PEAKS: Final = 10
_SCHEDULES: Final = 3
#: a cron expression with so many fields, or with a year as well, begins with seconds
_SECONDS_FIELDS: Final = 6


class TimingCount(NamedTuple):
    """How many jobs have this timing."""

    #: the stored texts
    timing: str
    policy: str
    #: of an interval: the minute of its anchor, counted within the interval
    phase: int
    jobs: int
    #: the first of these jobs: agent and name with a slash
    example: str = ""

    def merge(self, other: TimingCount) -> TimingCount:
        """Return the count of both, which have the same timing."""
        return self._replace(jobs=self.jobs + other.jobs, example=min(self.example, other.example))


class BusySchedule(NamedTuple):
    """A schedule that ticks in a minute."""

    explain: str
    jobs: int


class Peak(NamedTuple):
    """A minute with many starts."""

    at_ms: int
    starts: int
    #: the schedules with the most jobs in it; jobs with jitter of a minute or more are not among them
    schedules: tuple[BusySchedule, ...] = ()


class Hour(NamedTuple):
    """The starts of an hour, and those of its busiest minute."""

    at_ms: int
    starts: int
    peak_at_ms: int
    peak_starts: int


class Week(NamedTuple):
    """The starts of the coming week, or of so many days."""

    #: the beginning of its first minute
    start_ms: int
    #: the expected starts in each minute
    starts: array[float]
    jobs: int
    timings: int
    peaks: tuple[Peak, ...]

    def starts_at(self, ms: int) -> int | None:
        """Return the starts in the minute of an instant; None: it is not in the week."""
        minute = (ms - self.start_ms) // MINUTE
        return round(self.starts[minute]) if 0 <= minute < len(self.starts) else None

    def hours(self) -> Iterator[Hour]:
        """Return the hours of the week."""
        for first in range(0, len(self.starts), 60):
            minutes = self.starts[first : first + 60]
            most = max(minutes)
            yield Hour(
                self._at(first), round(sum(minutes)), self._at(first + minutes.index(most)), round(most)
            )

    def starts_between(self, from_ms: int, until_ms: int) -> float | None:
        """Return the starts from an instant to another one, at full minutes; None: they are not in it."""
        first = max(0, (from_ms - self.start_ms) // MINUTE)
        last = (until_ms - self.start_ms) // MINUTE
        return sum(self.starts[first:last]) if 0 <= first < last <= len(self.starts) else None

    def quiet_minute(self, ms: int) -> tuple[int, int] | None:
        """Return the quietest minute near an instant, with its starts, if moving a job there helps."""
        minute, starts = (ms - self.start_ms) // MINUTE, self.starts_at(ms)
        if starts is None:
            return None
        near = range(max(0, minute - NEARBY_MINUTES), min(len(self.starts), minute + NEARBY_MINUTES + 1))
        # Of equal ones the nearest, and of these the later one.
        best = min(near, key=lambda other: (self.starts[other], abs(other - minute), -other))
        return None if self.starts[best] * QUIETER > starts else (self._at(best), round(self.starts[best]))

    def _at(self, minute: int) -> int:
        return self.start_ms + minute * MINUTE


def compute_week(
    counts: Iterable[TimingCount], now_ms: int, pause: Callable[[], object] = lambda: None, days: int = 7
) -> Week:
    """Return the week, or so many days, from the minute of `now_ms` on. `pause` is called after each timing.

    A timing that cannot be read is left out.
    """
    start_ms = now_ms // MINUTE * MINUTE
    length = days * DAY_MINUTES
    starts = array("d", bytes(8 * length))
    #: the change of the spread starts from one minute to the next
    changes = array("d", bytes(8 * (length + 1)))
    steady: list[_Steady] = []
    jobs = 0
    groups = _group_counts(counts)
    with bypass():  # the caches are for the timings that the planner uses
        for text, phases in groups.items():
            try:
                timing = timing_from_text(text)
                by_phase = [
                    (numbers, list(_minutes(timing, phase, start_ms, days)))
                    for phase, numbers in phases.items()
                ]
            except (WakefulError, ValueError, LookupError):
                continue
            for numbers, minutes in by_phase:
                for spread, number in numbers.items():
                    jobs += number
                    if spread == 0:
                        for minute, times in minutes:
                            starts[minute] += times * number
                    else:
                        share = number / (2 * spread + 1)
                        for minute, times in minutes:
                            changes[max(0, minute - spread)] += times * share
                            changes[min(length, minute + spread + 1)] -= times * share
            steady.append(_Steady(timing, {phase: numbers.get(0, 0) for phase, numbers in phases.items()}))
            pause()
        for minute, spread_starts in zip(range(length), accumulate(changes), strict=False):
            starts[minute] += spread_starts
        peaks = tuple(_peaks(start_ms, starts, steady, pause))
    return Week(start_ms, starts, jobs, len(groups), peaks)


def peak_warning(week: Week, next_ms: int, tz: str | None) -> str | None:
    """Return the warning about a new job whose next tick is then, or None.

    It is given if many others start in that minute, and a minute nearby is much quieter.
    """
    starts = week.starts_at(next_ms)
    if starts is None or starts < MANY:
        return None
    quiet = week.quiet_minute(next_ms)
    if quiet is None:
        return None
    others = "no other" if quiet[1] == 0 else f"about {quiet[1]:,}"
    return (
        f"about {starts:,} jobs of this workspace start at {_clock(next_ms, tz)}, and may wait for each "
        f"other; set a jitter ({SUGGESTED_JITTER}), or choose {_clock(quiet[0], tz)}, when {others} "
        f"{'start' if quiet[1] > 1 else 'starts'}"
    )


def _clock(ms: int, tz: str | None) -> str:
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    return f"{at.astimezone(ZoneInfo(tz or 'UTC')):%H:%M} ({tz or 'UTC'})"


#: the numbers of jobs by jitter in whole minutes
_Numbers = dict[int, int]


def _group_counts(counts: Iterable[TimingCount]) -> Mapping[str, Mapping[int, _Numbers]]:
    """Return the numbers of jobs by timing, phase and jitter."""
    groups: dict[str, dict[int, _Numbers]] = {}
    jitters: dict[str, int] = {}
    for each in counts:
        spread = jitters.get(each.policy)
        if spread is None:
            try:
                spread = policy_from_text(each.policy).jitter_ms // MINUTE
            except (WakefulError, ValueError):
                spread = 0
            spread = jitters[each.policy] = min(spread, WEEK_MINUTES)
        numbers = groups.setdefault(each.timing, {}).setdefault(each.phase, {})
        numbers[spread] = numbers.get(spread, 0) + each.jobs
    return groups


def _minutes(timing: Timing, phase: int, start_ms: int, days: int) -> Iterator[tuple[int, float]]:
    """Return the minutes of so many days that have ticks, and how many."""
    schedule = timing.schedule
    if isinstance(schedule, Every) and not timing.exclude:
        return _interval(timing, schedule.every_ms, phase * MINUTE, start_ms, days)
    return _days(schedule, timing.ticks(phase * MINUTE), start_ms, days)


def _interval(
    timing: Timing, every_ms: int, anchor_ms: int, start_ms: int, days: int
) -> Iterator[tuple[int, float]]:
    """Return the minutes of an interval. A short one is a rate."""
    begin_ms = start_ms if timing.start_ms is None else max(start_ms, timing.start_ms)
    end_ms = start_ms + days * _DAY_MS
    if timing.end_ms is not None:
        end_ms = min(end_ms, timing.end_ms + 1)
    if every_ms < MINUTE:
        rate = MINUTE / every_ms
        for minute in range((begin_ms - start_ms) // MINUTE, -((start_ms - end_ms) // MINUTE)):
            yield minute, rate
        return
    first_ms = begin_ms + (anchor_ms - begin_ms) % every_ms
    for tick in range(first_ms - start_ms, end_ms - start_ms, every_ms):
        yield tick // MINUTE, 1


def _days(schedule: Schedule, ticks: Ticks, start_ms: int, days: int) -> Iterator[tuple[int, float]]:
    """Return the minutes of any schedule, day by day."""
    several = (
        len(schedule.expr.split()) >= _SECONDS_FIELDS
        if isinstance(schedule, CronSchedule)
        else isinstance(schedule, Every) and schedule.every_ms < MINUTE
    )
    known: dict[tuple[int, int | None, int | None], list[tuple[int, float]]] = {}
    for day in range(days):
        begin = start_ms + day * _DAY_MS
        count = ticks.count(begin - 1, begin + _DAY_MS - 1)
        if count == 0:
            continue
        found = _day(ticks, begin, several) if count < _DENSE else None
        if found is None:
            first, last = ticks.next(begin - 1), ticks.prev(begin + _DAY_MS)
            key = count, first and first - begin, last and last - begin
            found = known.get(key)
            if found is None:
                found = known[key] = _day(ticks, begin, several)
        for minute, times in found:
            yield day * DAY_MINUTES + minute, times


def _day(ticks: Ticks, begin_ms: int, several: bool) -> list[tuple[int, float]]:
    """Return the minutes of a day that have ticks, and how many."""
    found: list[tuple[int, float]] = []
    tick = ticks.next(begin_ms - 1)
    while tick is not None and tick < begin_ms + _DAY_MS:
        minute = (tick - begin_ms) // MINUTE
        end_ms = begin_ms + (minute + 1) * MINUTE - 1
        found.append((minute, ticks.count(tick - 1, end_ms) if several else 1))
        tick = ticks.next(end_ms)
    return found


class _Steady:
    """The jobs of a timing without jitter: how many of them start in a minute."""

    def __init__(self, timing: Timing, by_phase: Mapping[int, int]) -> None:
        self.schedule = timing.schedule
        self._by_phase = by_phase
        every_ms = timing.schedule.every_ms if isinstance(timing.schedule, Every) else 0
        #: of an interval of whole minutes, which ticks in a minute at one phase only
        self._step = every_ms // MINUTE if every_ms % MINUTE == 0 else 0
        self._timing = timing
        #: the ticks of the others
        self._ticks = [
            (timing.ticks(phase * MINUTE), number)
            for phase, number in by_phase.items()
            if number and not self._step
        ]

    def jobs_at(self, at_ms: int) -> int:
        """Return how many jobs start in the minute that begins then."""
        if self._step:
            phase = at_ms // MINUTE % self._step
            number = self._by_phase.get(phase, 0)
            return number if number and self._starts(self._timing.ticks(phase * MINUTE), at_ms) else 0
        return sum(number for ticks, number in self._ticks if self._starts(ticks, at_ms))

    @staticmethod
    def _starts(ticks: Ticks, at_ms: int) -> bool:
        return ticks.count(at_ms - 1, at_ms + MINUTE - 1) > 0


def _peaks(
    start_ms: int, starts: array[float], steady: Iterable[_Steady], pause: Callable[[], object]
) -> Iterator[Peak]:
    """Return the busiest minutes, busiest first, with the schedules that have most jobs in them."""
    most = nlargest(_PEAKS, range(len(starts)), key=lambda minute: (starts[minute], -minute))
    for minute in most:
        if round(starts[minute]) == 0:
            return
        at_ms = start_ms + minute * MINUTE
        jobs: dict[Schedule, int] = {}
        for each in steady:
            if number := each.jobs_at(at_ms):
                jobs[each.schedule] = jobs.get(each.schedule, 0) + number
        pause()
        busiest = nlargest(_SCHEDULES, jobs.items(), key=lambda item: item[1])
        named = tuple(BusySchedule(explain_schedule(schedule), number) for schedule, number in busiest)
        yield Peak(at_ms, round(starts[minute]), named)
