"""A zone's line of wall times, cut into pieces of constant offset.

The two DST choices only move the cuts: a gap's wall times belong to the piece after it (`run_after`)
or to none (`skip`), an overlap's to the piece before (`first`), the piece after (`second`) or to both.
An expression that follows real time owns each piece as it is.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, Literal, NamedTuple

from wakeful.cron.walltimes import DAY
from wakeful.cron.zone import FAR_FUTURE, FAR_PAST, Zone

DstGap = Literal["run_after", "skip"]
DstOverlap = Literal["first", "second", "both"]

CENTURY: Final = 36525 * DAY
#: No offset, and no change of one, is longer.
SLACK: Final = 2 * DAY


class Table(NamedTuple):
    """Piece i holds from the UTC second `starts[i]`, and owns the wall times [`lows[i]`, `highs[i]`).

    One that is lower than `starts[i] + offsets[i]` was swallowed by a gap, and fires as the piece starts.
    """

    starts: list[int]
    offsets: list[int]
    lows: list[int]
    highs: list[int]
    sure: list[tuple[int, int, int, int]]
    """For each piece: the wall times [first, end) that are its own beyond doubt, its high and its offset."""


class Pieces:
    """The pieces of a zone under one pair of DST choices; grows with the zone, shared by all expressions."""

    __slots__ = ("_gap", "_overlap", "_zone", "horizon", "table")

    def __init__(self, zone: Zone, gap: DstGap, overlap: DstOverlap) -> None:
        self._zone, self._gap, self._overlap = zone, gap, overlap
        self.table = Table([], [], [], [], [])
        #: the table answers for everything within a century of any second up to this one
        self.horizon = FAR_PAST

    def reach(self, utc: int) -> None:
        """Move the horizon to `utc` at least."""
        self._zone.reach(utc + 2 * CENTURY)
        offsets = self._zone.offsets[: len(self._zone.starts)]
        starts = self._zone.starts[: len(offsets)]
        lows, highs, firsts, ends = [FAR_PAST], [], [FAR_PAST], []
        for index in range(1, len(starts)):
            change, before, after = starts[index], offsets[index - 1], offsets[index]
            low, high = change + after, change + before
            firsts.append(max(low, high))
            ends.append(min(low, high))
            if (after > before and self._gap == "run_after") or (after < before and self._overlap == "first"):
                low = high
            elif after < before and self._overlap == "second":
                high = low
            lows.append(low)
            highs.append(high)
        highs.append(FAR_FUTURE)
        self.horizon = utc + CENTURY - SLACK
        ends.append(self.horizon - SLACK)
        self.table = Table(starts, offsets, lows, highs, list(zip(firsts, ends, highs, offsets, strict=True)))


@lru_cache(maxsize=4096)
def pieces(zone: Zone, gap: DstGap, overlap: DstOverlap) -> Pieces:
    """The one `Pieces` for these. `skip` with `both` leaves the cuts alone: real time."""
    return Pieces(zone, gap, overlap)
