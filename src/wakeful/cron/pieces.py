"""The wall times of a zone, divided into pieces of constant offset.

The two DST choices only move the boundaries: wall times in a gap belong to the piece after it (`run_after`)
or to none (`skip`), those in an overlap to the piece before (`first`), after (`second`) or to both. An
expression that follows real time uses `skip` and `both`.

Piece i starts at the UTC second `zone.starts[i]` with `zone.offsets[i]`. It has the wall times [low, high);
a wall time below the piece's start is in a gap, and fires when the piece starts.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, Literal, NamedTuple

from wakeful.cron.walltimes import DAY
from wakeful.cron.zone import FAR_FUTURE, FAR_PAST, Zone

DstGap = Literal["run_after", "skip"]
DstOverlap = Literal["first", "second", "both"]

CENTURY: Final = 36525 * DAY
#: The upper bound of offsets and their changes.
SLACK: Final = 2 * DAY


class CoreSpan(NamedTuple):
    """The wall times [`first`, `end`) far from any clock change, and the whole days among them."""

    first: int
    end: int
    high: int
    offset: int
    first_day: int
    end_day: int


NOWHERE: Final = CoreSpan(0, 0, 0, 0, 0, 0)


class Pieces:
    """The pieces of a zone under one pair of DST choices, computed from the zone's table."""

    __slots__ = ("_by_gap", "_first", "_second", "zone")

    def __init__(self, zone: Zone, gap: DstGap, overlap: DstOverlap) -> None:
        self.zone = zone
        self._by_gap = gap == "run_after"
        self._first = overlap == "first"
        self._second = overlap == "second"

    def at(self, utc: int) -> int:
        """Return the piece of a UTC second; extends the zone's table to a century after it."""
        if utc + CENTURY + SLACK > self.zone.known_until:
            self.zone.reach(utc + 2 * CENTURY)
        return bisect_right(self.zone.starts, utc) - 1

    def low(self, index: int) -> int:
        """Return the first wall time of piece `index`."""
        if index == 0:
            return FAR_PAST
        change, before, after = self._change(index)
        moved = self._by_gap if after > before else self._first
        return change + (before if moved else after)

    def high(self, index: int) -> int:
        """Return the wall time after the last of piece `index`."""
        if index + 1 >= len(self.zone.starts):
            return FAR_FUTURE
        change, before, after = self._change(index + 1)
        return change + (after if self._second and after < before else before)

    def sure(self, index: int) -> CoreSpan:
        """Return the wall times of this piece that are far from any clock change."""
        first, end = FAR_PAST, self.zone.known_until - CENTURY
        if index:
            change, before, after = self._change(index)
            first = change + max(before, after)
        if index + 1 < len(self.zone.starts):
            change, before, after = self._change(index + 1)
            end = change + min(before, after)
        return CoreSpan(first, end, self.high(index), self.zone.offsets[index], -(-first // DAY), end // DAY)

    def _change(self, index: int) -> tuple[int, int, int]:
        """Return the start of piece `index`, the offset before it and its own."""
        zone = self.zone
        return zone.starts[index], zone.offsets[index - 1], zone.offsets[index]
