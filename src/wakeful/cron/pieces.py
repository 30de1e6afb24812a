"""A zone's line of wall times, cut into pieces of constant offset.

The two DST choices only move the cuts: a gap's wall times belong to the piece after it (`run_after`)
or to none (`skip`), an overlap's to the piece before (`first`), the piece after (`second`) or to both.
An expression that follows real time owns each piece as it is, which is `skip` and `both`.

Piece i holds from the UTC second `zone.starts[i]` at `zone.offsets[i]`. It owns the wall times [low, high);
one that is lower than the piece's start was swallowed by a gap, and fires as the piece starts.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, Literal, NamedTuple

from wakeful.cron.walltimes import DAY
from wakeful.cron.zone import FAR_FUTURE, FAR_PAST, Zone

DstGap = Literal["run_after", "skip"]
DstOverlap = Literal["first", "second", "both"]

CENTURY: Final = 36525 * DAY
#: No offset, and no change of one, is longer.
SLACK: Final = 2 * DAY


class Sure(NamedTuple):
    """What belongs to one piece beyond doubt: wall times [`first`, `end`), and of these the whole days."""

    first: int
    end: int
    high: int
    offset: int
    first_day: int
    end_day: int


NOWHERE: Final = Sure(0, 0, 0, 0, 0, 0)


class Pieces:
    """The pieces of a zone under one pair of DST choices. Nothing is kept beside the zone's own table."""

    __slots__ = ("_by_gap", "_first", "_second", "zone")

    def __init__(self, zone: Zone, gap: DstGap, overlap: DstOverlap) -> None:
        self.zone = zone
        self._by_gap = gap == "run_after"
        self._first = overlap == "first"
        self._second = overlap == "second"

    def at(self, utc: int) -> int:
        """The piece that a UTC second lies in; all within a century of it are known from then on."""
        if utc + CENTURY + SLACK > self.zone.known_until:
            self.zone.reach(utc + 2 * CENTURY)
        return bisect_right(self.zone.starts, utc) - 1

    def low(self, index: int) -> int:
        """The first wall time that piece `index` owns."""
        if index == 0:
            return FAR_PAST
        change, before, after = self._change(index)
        moved = self._by_gap if after > before else self._first
        return change + (before if moved else after)

    def high(self, index: int) -> int:
        """The wall time after the last that piece `index` owns."""
        if index + 1 >= len(self.zone.starts):
            return FAR_FUTURE
        change, before, after = self._change(index + 1)
        return change + (after if self._second and after < before else before)

    def sure(self, index: int) -> Sure:
        """What is this piece's beyond doubt."""
        first, end = FAR_PAST, self.zone.known_until - CENTURY
        if index:
            change, before, after = self._change(index)
            first = change + max(before, after)
        if index + 1 < len(self.zone.starts):
            change, before, after = self._change(index + 1)
            end = change + min(before, after)
        return Sure(first, end, self.high(index), self.zone.offsets[index], -(-first // DAY), end // DAY)

    def _change(self, index: int) -> tuple[int, int, int]:
        """When piece `index` begins, the offset before and the offset from then on."""
        zone = self.zone
        return zone.starts[index], zone.offsets[index - 1], zone.offsets[index]
