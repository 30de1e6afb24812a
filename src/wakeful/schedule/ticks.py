"""The ticks of a job: its schedule, between start and end, without what its calendar excludes.

Instants are epoch milliseconds. No function steps from tick to tick: an interval is arithmetic, the evaluator
handles cron expressions, and an excluded span of days or minutes is skipped, or counted and subtracted, as a
whole. Each search ends after 100 years, or 20 years with holidays, and after `_MAX_JUMPS` spans.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Final, Protocol

from wakeful.cron import Cron, DstGap, DstOverlap
from wakeful.cron.evaluator import CRON_SIZE
from wakeful.cron.zone import Zone, zone
from wakeful.schedule.calendars import NOTHING, Calendar
from wakeful.schedule.day_rules import CronRule
from wakeful.schedule.schedules import CronSchedule, Every, Schedule
from wakeful.values.duration import LONGEST
from wakeful.values.instants import LATEST_MS

_DAY: Final = 86400
_MINUTE: Final = 60
_HOLIDAY_SEARCH: Final = LONGEST // 5
_MAX_JUMPS: Final = 10_000
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_SLACK_DAYS: Final = 2  # no zone is further from UTC


@dataclass(frozen=True, slots=True)
class Ticks:
    """The ticks of a job.

    `start_ms` and `end_ms` are both inclusive, and no tick is later than `LATEST_MS`. An `every` schedule
    ticks at anchor + n·interval: from n = 0 if there is a start (which is the anchor and the first tick),
    else from n = 1 (the anchor is the creation of the job, which is no tick). A tick is excluded if its date
    or minute in the schedule's zone is.

    >>> ticks = Ticks(Every(60_000), anchor_ms=5_000)
    >>> ticks.next(5_000), ticks.next(64_999), ticks.next(65_000)
    (65000, 65000, 125000)
    >>> ticks.count(5_000, 5_000 + 365 * 86_400_000)
    525600
    """

    schedule: Schedule
    anchor_ms: int
    start_ms: int | None = None
    end_ms: int | None = None
    exclude: Calendar = NOTHING
    dst_gap: DstGap = "run_after"
    dst_overlap: DstOverlap = "first"
    #: ticks that are left out, because they have a record already
    taken: frozenset[int] = frozenset()
    _unlimited: _Unlimited = field(init=False, repr=False, compare=False)
    _zone: Zone | None = field(init=False, repr=False, compare=False)
    _last_ms: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        last_ms = LATEST_MS if self.end_ms is None else min(self.end_ms, LATEST_MS)
        object.__setattr__(self, "_last_ms", last_ms)
        object.__setattr__(self, "_unlimited", self._without_limits())
        object.__setattr__(self, "_zone", zone(self.schedule.tz or "UTC") if self.exclude else None)

    @property
    def size(self) -> int:
        """The approximate size in memory, including caches."""
        plain = CRON_SIZE if isinstance(self.schedule, CronSchedule) else 500
        return plain + 200 * len(self.exclude.entries)

    def without(self, taken: Collection[int]) -> Ticks:
        """Return these ticks without the given ones; without any given, all of them.

        >>> ticks = Ticks(Every(60_000), anchor_ms=0).without([120_000])
        >>> ticks.next(60_000), ticks.prev(180_000), ticks.count(0, 180_000)
        (180000, 60000, 2)
        """
        return self if len(taken) == len(self.taken) == 0 else replace(self, taken=frozenset(taken))

    def next(self, after_ms: int) -> int | None:
        """Return the first tick strictly later than `after_ms`, or None."""
        tick = self._next(after_ms)
        while tick is not None and tick in self.taken:
            tick = self._next(tick)
        return tick

    def _next(self, after_ms: int) -> int | None:
        if self.start_ms is not None and after_ms < self.start_ms:
            after_ms = self.start_ms - 1
        tick = self._unlimited.next(after_ms)
        if self._zone is not None:
            tick = self._next_kept(tick, after_ms + self._search, self._zone)
        if tick is None or tick > self._last_ms:
            return None
        return tick

    def prev(self, before_ms: int) -> int | None:
        """Return the last tick strictly earlier than `before_ms`, or None."""
        tick = self._prev(before_ms)
        while tick is not None and tick in self.taken:
            tick = self._prev(tick)
        return tick

    def _prev(self, before_ms: int) -> int | None:
        if before_ms > self._last_ms:
            before_ms = self._last_ms + 1
        tick = self._unlimited.prev(before_ms)
        if self._zone is not None:
            tick = self._prev_kept(tick, before_ms - self._search, self._zone)
        if tick is None or (self.start_ms is not None and tick < self.start_ms):
            return None
        return tick

    def count(self, after_ms: int, until_ms: int) -> int:
        """Return the number of ticks later than `after_ms` and not later than `until_ms`."""
        if self.start_ms is not None and after_ms < self.start_ms:
            after_ms = self.start_ms - 1
        if until_ms > self._last_ms:
            until_ms = self._last_ms
        if until_ms <= after_ms:
            return 0
        total = self._unlimited.count(after_ms, until_ms)
        if total and self._zone is not None:
            total -= sum(
                self._unlimited.count(*span) for span in self._find_excluded(after_ms, until_ms, self._zone)
            )
        taken = [tick for tick in self.taken if after_ms < tick <= until_ms and self._next(tick - 1) == tick]
        return total - len(taken)

    def upcoming(self, after_ms: int, n: int = 5) -> list[int]:
        """Return the next `n` ticks, or fewer if there are no more."""
        found: list[int] = []
        while len(found) < n:
            tick = self.next(after_ms)
            if tick is None:
                break
            found.append(after_ms := tick)
        return found

    def _without_limits(self) -> _Unlimited:
        schedule = self.schedule
        if isinstance(schedule, CronSchedule):
            return _CronTicks(
                Cron.shared(schedule.expr, schedule.tz or "UTC", self.dst_gap, self.dst_overlap)
            )
        if isinstance(schedule, Every):
            return _IntervalTicks(self.anchor_ms, schedule.every_ms, 1 if self.start_ms is None else 0)
        return _SingleTick(schedule.at_ms)

    @property
    def _search(self) -> int:
        return _HOLIDAY_SEARCH if self.exclude.regions else LONGEST

    def _next_kept(self, tick: int | None, limit_ms: int, zone: Zone) -> int | None:
        for _ in range(_MAX_JUMPS):
            end = None if tick is None else self._edge(tick, zone, 1)
            if tick is None or end is None:
                return tick
            if tick > limit_ms:
                return None
            # The span is valid up to the zone's next offset change; after that it is computed again.
            end = min(end, limit_ms // 1000 + 1)
            zone.reach(end)
            change = bisect_right(zone.starts, tick // 1000)
            if change < len(zone.starts):
                end = min(end, zone.starts[change])
            tick = self._unlimited.next(end * 1000 - 1)
        return None

    def _prev_kept(self, tick: int | None, limit_ms: int, zone: Zone) -> int | None:
        for _ in range(_MAX_JUMPS):
            begin = None if tick is None else self._edge(tick, zone, -1)
            if tick is None or begin is None:
                return tick
            if tick < limit_ms:
                return None
            change = zone.starts[bisect_right(zone.starts, tick // 1000) - 1]
            tick = self._unlimited.prev(max(begin, change) * 1000)
        return None

    def _edge(self, tick: int, zone: Zone, step: int) -> int | None:
        """Return the second at which the excluded span around a tick ends (`step` 1) or begins (-1).

        It is valid while the offset of the zone does not change. None: the tick is not excluded.
        """
        exclude, offset = self.exclude, zone.offset_at(tick // 1000)
        day, second = divmod(tick // 1000 + offset, _DAY)
        ordinal = day + _EPOCH_DAY
        if exclude.excludes_ordinal(ordinal):
            kept = exclude.first_kept(ordinal, step) - _EPOCH_DAY
            return (kept if step > 0 else kept + 1) * _DAY - offset
        rule = exclude.rule_at(ordinal, second // _MINUTE) if exclude.windows else None
        if rule is None:
            return None
        low, high = 0, _DAY
        if not self._unlimited.stays_within(rule, offset):
            low, high = (_MINUTE * minute for minute in rule.window_around(second // _MINUTE))
        return day * _DAY + (high if step > 0 else low) - offset

    def _find_excluded(self, after_ms: int, until_ms: int, zone: Zone) -> Iterator[tuple[int, int]]:
        """Return the excluded spans within (after, until], each as (exclusive start, inclusive end)."""
        first = after_ms // 1000 // _DAY + _EPOCH_DAY - _SLACK_DAYS
        last = until_ms // 1000 // _DAY + _EPOCH_DAY + _SLACK_DAYS
        slack = _SLACK_DAYS * _DAY
        zone.reach(until_ms // 1000 + 2 * slack)
        starts, offsets = zone.starts, zone.offsets
        for low, high in self.exclude.spans(first, last):
            wall_from, wall_to = low * _MINUTE - _EPOCH_DAY * _DAY, high * _MINUTE - _EPOCH_DAY * _DAY
            # A span of the wall clock is one span of time per offset of the zone.
            for piece in range(
                bisect_right(starts, wall_from - slack) - 1, bisect_right(starts, wall_to + slack)
            ):
                begin = max(wall_from - offsets[piece], starts[piece])
                end = wall_to - offsets[piece]
                if piece + 1 < len(starts):
                    end = min(end, starts[piece + 1])
                span = max(begin * 1000 - 1, after_ms), min(end * 1000 - 1, until_ms)
                if span[0] < span[1]:
                    yield span


class _Unlimited(Protocol):
    """The ticks of a schedule without start, end and calendar."""

    def next(self, after_ms: int) -> int | None: ...

    def prev(self, before_ms: int) -> int | None: ...

    def count(self, after_ms: int, until_ms: int) -> int: ...

    def stays_within(self, rule: CronRule, offset: int) -> bool:
        """Return whether the rule excludes all ticks of a day on which it matches, at this offset."""
        ...


class _SingleTick:
    __slots__ = ("_at",)

    def __init__(self, at_ms: int) -> None:
        self._at = at_ms

    def next(self, after_ms: int) -> int | None:
        return self._at if after_ms < self._at else None

    def prev(self, before_ms: int) -> int | None:
        return self._at if self._at < before_ms else None

    def count(self, after_ms: int, until_ms: int) -> int:
        return 1 if after_ms < self._at <= until_ms else 0

    def stays_within(self, rule: CronRule, offset: int) -> bool:
        return True


class _IntervalTicks:
    __slots__ = ("_anchor", "_every", "_first")

    def __init__(self, anchor_ms: int, every_ms: int, first: int) -> None:
        self._anchor, self._every, self._first = anchor_ms, every_ms, first

    def next(self, after_ms: int) -> int | None:
        n = (after_ms - self._anchor) // self._every + 1
        return self._anchor + (n if n > self._first else self._first) * self._every

    def prev(self, before_ms: int) -> int | None:
        n = (before_ms - 1 - self._anchor) // self._every
        return self._anchor + n * self._every if n >= self._first else None

    def count(self, after_ms: int, until_ms: int) -> int:
        before = max((after_ms - self._anchor) // self._every, self._first - 1)
        return max(0, (until_ms - self._anchor) // self._every - before)

    def stays_within(self, rule: CronRule, offset: int) -> bool:
        every = self._every // 1000
        if self._every % (_MINUTE * 1000) or _DAY % every:
            return False  # its times differ from day to day, or are too many to check
        first = (self._anchor // 1000 + offset) % every
        return all(rule.at(second // _MINUTE) for second in range(first, _DAY, every))


class _CronTicks:
    """The ticks of a cron expression. The evaluator counts in whole seconds."""

    __slots__ = ("_cron",)

    def __init__(self, cron: Cron) -> None:
        self._cron = cron

    def stays_within(self, rule: CronRule, offset: int) -> bool:
        times = self._cron.expression
        return rule.contains(times.hours, times.minutes)

    def next(self, after_ms: int) -> int | None:
        second = self._cron.second_after(after_ms // 1000)
        return None if second is None else second * 1000

    def prev(self, before_ms: int) -> int | None:
        second = self._cron.second_before(-(-before_ms // 1000))
        return None if second is None else second * 1000

    def count(self, after_ms: int, until_ms: int) -> int:
        return self._cron.count_seconds(after_ms // 1000, until_ms // 1000)
