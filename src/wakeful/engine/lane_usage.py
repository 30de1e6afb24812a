"""Who uses the slots of each lane in this process, now and lately, so that they can be shared.

An owner that has had a slot lately counts as if it still had a part of one, the longer the more. So owners
whose share is less than one slot take turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import nlargest
from math import exp
from typing import Final, TypeVar

from wakeful.engine.in_flight import InFlight
from wakeful.store.lane_shares import LaneUse, Owner

K = TypeVar("K")

#: After how many seconds most of the use is forgotten. Much smaller parts still tell who was the last one.
_MEMORY_S: Final = 10
_FORGOTTEN: Final = 1e-30
#: How many owners are remembered, those with the most use: each claim goes through all of them.
_MOST_REMEMBERED: Final = 1_000


class LaneUsage:
    """The use of lanes with a backlog. The time is that of the event loop."""

    def __init__(self, lanes: Iterable[str]) -> None:
        self._recent = {lane: _Recent() for lane in lanes}

    def started(self, run: InFlight) -> None:
        """Note that a run is submitted."""
        self._recent[run.lane].busy.add(run.owner)

    def measure(
        self,
        runs: Iterable[InFlight],
        lanes: Iterable[str],
        now_s: float,
        *,
        waiting: bool = True,
    ) -> dict[str, LaneUse]:
        """Return who uses these lanes. `waiting` counts prefetched runs that wait for a slot as well."""
        used: dict[str, dict[Owner, int]] = {lane: {} for lane in lanes}
        for run in runs:
            owners = used.get(run.lane)
            if owners is not None and (not run.ended or run.holds_slot) and (waiting or not run.waiting):
                owners[run.owner] = owners.get(run.owner, 0) + 1
        return {lane: self._recent[lane].measure(owners, now_s) for lane, owners in used.items()}


class _Recent:
    """The recent use of one lane."""

    def __init__(self) -> None:
        #: who has used it since the last measurement
        self.busy: set[Owner] = set()
        self._at = 0.0
        self._owners: dict[Owner, float] = {}
        self._workspaces: dict[str, float] = {}

    def measure(self, used: Mapping[Owner, int], now_s: float) -> LaneUse:
        kept = exp(-max(0.0, now_s - self._at) / _MEMORY_S)
        self._at = now_s
        self._owners = _mix(self._owners, self.busy, kept)
        self._workspaces = _mix(self._workspaces, {workspace for workspace, _ in self.busy}, kept)
        self.busy = set(used)
        owners, workspaces = dict(self._owners), dict(self._workspaces)
        for (workspace, agent), count in used.items():
            owners[workspace, agent] = owners.get((workspace, agent), 0) + count
            workspaces[workspace] = workspaces.get(workspace, 0) + count
        return LaneUse(owners, workspaces, saturated=True)


def _mix(recent: Mapping[K, float], busy: Iterable[K], kept: float) -> dict[K, float]:
    mixed = {key: part * kept for key, part in recent.items() if part > _FORGOTTEN}
    for key in busy:
        mixed[key] = mixed.get(key, 0) + 1 - kept
    if len(mixed) > _MOST_REMEMBERED:
        return dict(nlargest(_MOST_REMEMBERED, mixed.items(), key=lambda item: item[1]))
    return mixed
