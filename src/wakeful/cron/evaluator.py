"""The ticks of an expression in a time zone: next, previous, and the number between two instants.

Nothing here steps through time. `walltimes` finds the next match on the wall clock in bit sets,
`pieces` decides which wall times exist under the DST choices, and this module combines both. Each search
is limited to a century.
"""

from __future__ import annotations

from bisect import bisect_right
from datetime import UTC, datetime
from threading import Lock
from typing import Final, get_args

from wakeful.cron.explain import explain
from wakeful.cron.expression import Expression, parse
from wakeful.cron.pieces import CENTURY, NOWHERE, SLACK, DstGap, DstOverlap, Pieces
from wakeful.cron.walltimes import DAY, EPOCH_DAY, WallTimes
from wakeful.cron.zone import Zone, zone
from wakeful.errors import InvalidArgument, InvalidSchedule
from wakeful.values.bounded_cache import MB, bounded_cache, text_size

#: How many ticks an expression caches; a catch-up pass visits at most a hundred.
_REMEMBERED: Final = 128
#: The approximate size of an expression with its cache, in bytes.
CRON_SIZE: Final = 10_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Cron:
    """A cron expression in a time zone. It does not read the clock.

    >>> c = Cron("0 9 * * MON-FRI", tz="Europe/Berlin")
    >>> c.next(datetime(2027, 3, 26, 12, 0, tzinfo=c.zone.tzinfo)).isoformat()
    '2027-03-29T09:00:00+02:00'
    """

    __slots__ = (
        "_answers",
        "_here",
        "_next_lock",
        "_pieces",
        "_ticks",
        "_tzinfo",
        "_walls",
        "dst_gap",
        "dst_overlap",
        "expression",
        "zone",
    )

    def __init__(
        self, expr: str, tz: str = "UTC", *, dst_gap: DstGap = "run_after", dst_overlap: DstOverlap = "first"
    ) -> None:
        if dst_gap not in get_args(DstGap):
            raise InvalidArgument(f"dst_gap is 'run_after' or 'skip', not {dst_gap!r}")
        if dst_overlap not in get_args(DstOverlap):
            raise InvalidArgument(f"dst_overlap is 'first', 'second' or 'both', not {dst_overlap!r}")
        for name, value, example in (("expression", expr, "0 9 * * 1-5"), ("time zone", tz, "Europe/Berlin")):
            if not isinstance(value, str):
                raise InvalidSchedule(f"the {name} is text such as '{example}', not {value!r:.100}")
        self.expression: Expression = parse(expr)
        self.zone: Zone = zone(tz)
        self.dst_gap: DstGap = dst_gap
        self.dst_overlap: DstOverlap = dst_overlap
        self._walls = WallTimes(self.expression)
        if self.expression.follows_real_time:
            dst_gap, dst_overlap = "skip", "both"
        self._pieces = Pieces(self.zone, dst_gap, dst_overlap)
        self._ticks: list[int] = []
        self._answers: dict[datetime, datetime] = {}
        #: the last used piece
        self._here = NOWHERE
        self._tzinfo = self.zone.tzinfo
        self._next_lock = Lock()

    @staticmethod
    def shared(
        expr: str, tz: str = "UTC", dst_gap: DstGap = "run_after", dst_overlap: DstOverlap = "first"
    ) -> Cron:
        """Return the shared `Cron` of these arguments, whose cached ticks serve all jobs that have them."""
        return _shared_cron(expr, tz, dst_gap, dst_overlap)

    def next(self, after: datetime) -> datetime | None:
        """Return the first tick strictly later than `after`, or None if there is none within 100 years."""
        if after.fold:  # for Python it equals the first occurrence
            return self.uncached_next(after)
        answer = self._answers.get(after)
        if answer is None:
            answer = self.uncached_next(after)
            if answer is not None:
                if len(self._answers) >= _REMEMBERED:
                    self._answers = {}
                self._answers[after] = answer
        return answer

    def prev(self, before: datetime) -> datetime | None:
        """Return the last tick strictly earlier than `before`, or None if there is none within 100 years."""
        return self._datetime(self.second_before(self._second(before) + (before.microsecond > 0)))

    def upcoming(self, after: datetime, n: int = 5) -> list[datetime]:
        """Return the next `n` ticks; fewer if there are no more."""
        ticks: list[datetime] = []
        second: int | None = self._second(after)
        while second is not None and len(ticks) < n:
            second = self.second_after(second)
            tick = self._datetime(second)
            if tick is not None:
                ticks.append(tick)
        return ticks

    def count(self, after: datetime, until: datetime) -> int:
        """Return how many ticks are later than `after` and not later than `until`, without visiting them."""
        return self.count_seconds(self._second(after), self._second(until))

    def uncached_next(self, after: datetime) -> datetime | None:
        """Compute `next` without the cache, for benchmarks."""
        if after.tzinfo is self._tzinfo and self._walls.minutely:
            answer = self._later(after)
            if answer is not None:
                return answer
        return self._datetime(self._find_after(self._second(after)))

    def explain(self) -> str:
        """Return the expression in words, with its zone."""
        return explain(self.expression, self.zone.name)

    def __repr__(self) -> str:
        return f"Cron({self.expression.text!r}, tz={self.zone.name!r})"

    def second_after(self, utc: int) -> int | None:
        """Return `next` in UTC seconds."""
        ticks = self._ticks
        index = bisect_right(ticks, utc)
        if 0 < index < len(ticks):
            return ticks[index]
        return self._compute_next(utc)

    def second_before(self, utc: int) -> int | None:
        """Return `prev` in UTC seconds."""
        return self._find_at_or_before(utc - 1)

    def count_seconds(self, after: int, until: int) -> int:
        """Return `count` in UTC seconds."""
        if until <= after:
            return 0
        pieces, starts, offsets = self._pieces, self.zone.starts, self.zone.offsets
        last, first = pieces.at(until), pieces.at(after)
        total = 0
        for index in range(first, last + 1):
            start, offset = starts[index], offsets[index]
            low, high = pieces.low(index), min(pieces.high(index), until + offset + 1)
            if after >= start:
                low = max(low, after + 1 + offset)
            elif low < start + offset:
                # All wall times in a gap are one tick, together with the instant at its end.
                found = self._walls.at_or_after(low)
                low = start + offset + 1
                total += found is not None and found < min(low, high)
            total += self._walls.count(low, high)
        return total

    def _compute_next(self, utc: int) -> int | None:
        """Compute the next tick, and cache it if the cached ticks stay contiguous."""
        found = self._find_after(utc)
        if found is None:
            return None
        with self._next_lock:
            ticks = self._ticks
            if ticks and utc >= ticks[-1] and (utc == ticks[-1] or self._find_after(ticks[-1]) == found):
                ticks.append(found)
                if len(ticks) > _REMEMBERED:
                    self._ticks = ticks[-_REMEMBERED // 2 :]
            elif not (ticks and ticks[0] <= utc < ticks[-1]):
                self._ticks = [utc, found]
        return found

    def _later(self, after: datetime) -> datetime | None:
        """Return the next tick if no clock change is near; None means unknown."""
        here = self._here
        day = after.toordinal() - EPOCH_DAY
        if here[4] <= day < here[5]:
            return self._walls.later(after, day, here[5])
        return None

    def _find_after(self, utc: int) -> int | None:
        first, end, high, offset, _, _ = self._here
        wall = utc + offset
        if first <= wall < end:
            found = self._walls.at_or_after(wall + 1)
            if found is None:
                return None
            return found - offset if found < high else self._search_after(utc, found)
        return self._search_after(utc)

    def _search_after(self, utc: int, found: int | None = None) -> int | None:
        """Run `_find_after` piece by piece; `found` is the next wall time, if known."""
        pieces, starts, offsets = self._pieces, self.zone.starts, self.zone.offsets
        index = pieces.at(utc)
        wall = max(utc + 1 + offsets[index], pieces.low(index))
        if found is None:
            found = self._walls.at_or_after(wall)
        while found is not None and found >= pieces.high(index):
            index += 1
            if pieces.low(index) >= wall:  # skip pieces that end before `found`
                index = max(index, bisect_right(starts, found - SLACK) - 1)
            low = pieces.low(index)
            if not wall <= low <= found:
                found = self._walls.at_or_after(low)
            wall = low
        if found is None or found - utc > CENTURY:
            return None
        self._here = pieces.sure(index)
        return max(found - offsets[index], starts[index])

    def _find_at_or_before(self, utc: int) -> int | None:
        pieces, starts, offsets = self._pieces, self.zone.starts, self.zone.offsets
        index = pieces.at(utc)
        wall = min(utc + offsets[index], pieces.high(index) - 1)
        found = self._walls.at_or_before(wall)
        while found is not None and found < pieces.low(index):
            index -= 1
            if pieces.high(index) <= wall + 1:
                index = min(index, bisect_right(starts, found + SLACK) - 1)
            wall = pieces.high(index) - 1
            found = self._walls.at_or_before(wall)
        if found is None or utc - found > CENTURY:
            return None
        return max(found - offsets[index], starts[index])

    def _second(self, when: datetime) -> int:
        """Return the UTC second of `when`; if it is in this zone, select its piece."""
        if when.tzinfo is None:
            raise InvalidArgument(f"{when.isoformat()} has no time zone; give an aware datetime")
        since = when - _EPOCH
        utc = since.days * DAY + since.seconds
        if not self._here.first <= utc + self._here.offset < self._here.end:
            self._here = self._pieces.sure(self._pieces.at(utc))
        return utc

    def _datetime(self, utc: int | None) -> datetime | None:
        try:
            return None if utc is None else datetime.fromtimestamp(utc, self.zone.tzinfo)
        except (ValueError, OverflowError):
            return None  # beyond the last year of datetime


@bounded_cache(16 * MB, lambda cron, expr, *_: CRON_SIZE + text_size(expr))
def _shared_cron(expr: str, tz: str, dst_gap: DstGap, dst_overlap: DstOverlap) -> Cron:
    return Cron(expr, tz, dst_gap=dst_gap, dst_overlap=dst_overlap)
