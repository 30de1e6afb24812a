"""The slots of each lane, who waits for one, and who has used them lately.

A run takes a slot of its lane from when it is ready to start until its attempt ends. If more runs are due
than a lane has slots, the worker claims some of them before a slot is free. A slot that becomes free goes to
the first of these, so that the lane does not idle until the next claim.

The transaction that writes the outcome of a signal also takes the next one of the instance, if it is due and
this process can handle it (`Store.finish_and_take`). So a signal keeps its slot until its outcome is written.

An owner that has had a slot lately counts as if it still had a part of one, the longer the more. So owners
whose share is less than one slot take turns.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from heapq import nlargest
from math import exp
from typing import Final, NamedTuple, TypeVar

from wakeful.engine.in_flight import InFlight, Lease
from wakeful.store.lane_shares import Demand, LaneOccupancy, Owner, OwnerMemory, Wants, in_order
from wakeful.store.rows import TakenRun

#: How many seconds a prefetched run waits for a slot at most. Then it is given back.
HOLD_S: Final = 1
#: How long prefetched runs should wait for a slot, by the duration of the last attempts of their lane.
_EXPECTED_WAIT_MS: Final = 500
#: How many signals of an instance follow one another in a slot before other runs may have it.
_MOST_IN_A_ROW: Final = 16
#: The share of the last attempt in the average duration.
_SHARE: Final = 0.1
K = TypeVar("K")

#: After how many seconds most of the use is forgotten. Much smaller parts still tell who was the last one.
_MEMORY_S: Final = 10
_FORGOTTEN: Final = 1e-30
#: How many owners are remembered, those with the most use: each claim goes through all of them.
_MOST_REMEMBERED: Final = 1_000


class ReservedSlots(NamedTuple):
    """What one claim may use."""

    #: free slots by lane; the claim counts down those that it uses
    free: dict[str, int]
    #: how many runs to claim besides, which wait for a slot
    prefetch: dict[str, int]

    def copy(self) -> ReservedSlots:
        """Return a copy that can be counted down."""
        return ReservedSlots(dict(self.free), dict(self.prefetch))


class Slots:
    """The slots of the lanes.

    `start` is called with each prefetched run that gets a slot, and `on_overdue` with those that have waited
    for `HOLD_S`. `running` returns who has slots of a lane.
    """

    def __init__(
        self,
        lanes: Mapping[str, int],
        start: Callable[[InFlight], None],
        on_overdue: Callable[[Sequence[InFlight]], None],
        running: Callable[[str], LaneOccupancy],
    ) -> None:
        self.sizes = dict(lanes)
        self._start = start
        self._on_overdue = on_overdue
        self._running = running
        #: how many slots may be given until the prefetched runs are arranged again
        self._arranged: Counter[str] = Counter()
        self._timer: asyncio.TimerHandle | None = None
        self._free = dict(lanes)
        self._waiting: dict[str, deque[InFlight]] = {lane: deque() for lane in lanes}
        #: how many runs the claims under way may prefetch
        self._prefetching: Counter[str] = Counter()
        #: the average duration of attempts in ms; a lane without one has none yet
        self._average_ms: dict[str, float] = {}
        #: the lanes whose last claim found as many due runs as it had slots: there are probably more
        self.backlog: set[str] = set()
        #: the lanes in which the last claim of the dispatcher could take nothing: runs may wait there
        self._unclaimed: Collection[str] = self.sizes.keys()

    def reserve(self, *, prefetch: bool = True, without: Iterable[str] = ()) -> ReservedSlots:
        """Reserve all free slots, except those of the lanes in `without`, and room to prefetch there."""
        free = [lane for lane, count in self._free.items() if count > 0]
        reserved = self._reserve(free, prefetch, without)
        if prefetch:
            self._unclaimed = self.sizes.keys() - reserved.free.keys()
        return reserved

    def reserve_after(self, lanes: Iterable[str]) -> ReservedSlots:
        """Reserve slots and room to prefetch in these lanes, in which attempts have ended, if runs wait."""
        return self._reserve(self.backlog.intersection(lanes), True, ())

    def _reserve(self, lanes: Iterable[str], prefetch: bool, without: Iterable[str]) -> ReservedSlots:
        reserved = ReservedSlots({}, {})
        for lane in set(lanes).difference(without):
            if self._free[lane] > 0:
                reserved.free[lane] = self._free[lane]
                self._free[lane] = 0
            room = self.room(lane) if prefetch else 0
            if room > 0:
                reserved.prefetch[lane] = room
                self._prefetching[lane] += room
        return reserved

    def room(self, lane: str) -> int:
        """Return how many runs of this lane may be prefetched: at most its size, fewer if they are slow."""
        average_ms = self._average_ms.get(lane)
        if average_ms is None or lane not in self.backlog:
            return 0
        size = self.sizes[lane]
        most = size if average_ms <= _EXPECTED_WAIT_MS else int(size * _EXPECTED_WAIT_MS / average_ms)
        return max(0, most - len(self._waiting[lane]) - self._prefetching[lane])

    def most_in_a_row(self, lane: str) -> int:
        """Return how many signals of an instance may follow one another: fewer if others wait for long."""
        average_ms = self._average_ms.get(lane, 0)
        if lane not in self.backlog or average_ms * _MOST_IN_A_ROW <= _EXPECTED_WAIT_MS:
            return _MOST_IN_A_ROW
        return int(_EXPECTED_WAIT_MS / average_ms)

    def count_claimed(self, reserved: ReservedSlots, taken: Sequence[TakenRun]) -> None:
        """Count down the slots that claimed runs use, and note which lanes have probably more runs."""
        used = Counter(run.lane for run in taken if run.slot == "free")
        prefetched = Counter(run.lane for run in taken if run.slot == "later")
        for lane in {*reserved.free, *reserved.prefetch}:
            free, more = reserved.free.get(lane, 0), reserved.prefetch.get(lane, 0)
            full = used[lane] >= free if free else prefetched[lane] >= more
            (self.backlog.add if full else self.backlog.discard)(lane)
            if free:
                reserved.free[lane] = free - used[lane]

    def settle(self, reserved: ReservedSlots) -> None:
        """Return what a claim did not use."""
        for lane, count in reserved.free.items():
            unused, waiting = count, self._waiting[lane]
            while unused and waiting:
                self.release(lane)
                unused -= 1
            self._free[lane] += unused
        self._prefetching.subtract(reserved.prefetch)

    def release(self, lane: str) -> None:
        """Free a slot. The first prefetched run of the lane that waits gets it."""
        waiting = self._waiting[lane]
        if waiting:
            if self._arranged[lane] <= 0:
                self._arrange(lane)
            self._arranged[lane] -= 1
            run = waiting.popleft()
            run.waiting = False
            self._start(run)
        else:
            self._free[lane] += 1

    def record_duration(self, lane: str, ms: int) -> None:
        """Note the duration of an attempt."""
        before = self._average_ms.get(lane)
        self._average_ms[lane] = ms if before is None else before + _SHARE * (max(0, ms) - before)

    def wait(self, run: InFlight) -> None:
        """Start a prefetched run if there is a slot; else it waits for one."""
        if self._free[run.lane] > 0:
            self._free[run.lane] -= 1
            run.waiting = False
            self._start(run)
        else:
            run.waiting = True
            self._waiting[run.lane].append(run)
            self._arranged[run.lane] = 0
            loop = asyncio.get_running_loop()
            run.deadline = loop.time() + HOLD_S
            if self._timer is None:
                self._timer = loop.call_at(run.deadline, self._check)

    def _check(self) -> None:
        """Report the runs that have waited for too long, and set the timer for the others."""
        self._timer = None
        loop = asyncio.get_running_loop()
        waiting, now = self.waiting(), loop.time()
        left = [run.deadline for run in waiting if run.deadline > now]
        if left:
            self._timer = loop.call_at(min(left), self._check)
        self._on_overdue([run for run in waiting if run.deadline <= now])

    def _arrange(self, lane: str) -> None:
        """Put the prefetched runs of the lane in the order in which their owners should get slots."""
        self._arranged[lane] = max(1, self.sizes[lane] // 8)
        waiting = self._waiting[lane]
        runs: dict[Owner, list[InFlight]] = {}
        for run in waiting:
            runs.setdefault(run.owner, []).append(run)
        if len(runs) > 1:
            wanted = {owner: Wants(each[0].launch.fire_ms, len(each)) for owner, each in runs.items()}
            weights = {owner[0]: each[0].weight for owner, each in runs.items()}
            order = Demand(wanted, weights).share(len(waiting), self._running(lane))
            waiting.clear()
            waiting.extend(in_order(runs, order))

    def discard(self, run: InFlight) -> None:
        """Remove a prefetched run that waits."""
        run.waiting = False
        self._waiting[run.lane].remove(run)

    def waiting(self) -> list[InFlight]:
        """Return the prefetched runs that wait, in each lane the first to start first."""
        return [run for lane in self._waiting.values() for run in lane]

    def any_claimable(self, lanes: Iterable[str], *, reserved: bool = False) -> bool:
        """Return whether any of these lanes has a free slot for which runs may have waited.

        A lane whose last claim left slots free had no more due runs. Those that became due since then were
        published, or their time was known. `reserved`: a planner or a claim has free slots just now, which it
        may return.
        """
        return any(
            (reserved or self._free[lane] > 0) and (lane in self._unclaimed or lane in self.backlog)
            for lane in lanes
        )


def slots_to_follow(ended: Iterable[InFlight], most: Callable[[str], int]) -> dict[str, str]:
    """Return the ended signals whose slot the next one of their instance may use, each with its lane.

    `most` returns how many of a lane may follow one another.
    """
    return {
        run.launch.id: run.lane
        for run in ended
        if run.launch.instance_id is not None and run.holds_slot and run.follows < most(run.lane)
    }


def following(
    ended: Iterable[InFlight],
    written: Collection[str],
    taken: Sequence[TakenRun],
    prepare: Callable[[TakenRun, Lease], InFlight],
    lease: Lease,
) -> list[InFlight]:
    """Return the taken signals, ready to submit, each with the slot of the one before it."""
    next_signals = [run for run in taken if run.slot == "previous"]
    if not next_signals:
        return []
    before = {run.launch.instance_id: run for run in ended if run.launch.id in written}
    runs = []
    for each in next_signals:
        run, previous = prepare(each, lease), before[each.instance_id]
        run.follows = previous.follows + 1
        previous.holds_slot = False
        runs.append(run)
    return runs


class LaneUsage:
    """The use of lanes with a backlog. The time is that of the event loop."""

    def __init__(self, lanes: Iterable[str]) -> None:
        self._recent = {lane: _Recent() for lane in lanes}

    def record_start(self, run: InFlight) -> None:
        """Note that a run is submitted."""
        self._recent[run.lane].busy.add(run.owner)

    def measure(
        self,
        runs: Iterable[InFlight],
        lanes: Iterable[str],
        now_s: float,
        *,
        waiting: bool = True,
    ) -> dict[str, LaneOccupancy]:
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
        self._memory = OwnerMemory()
        self._at = 0.0
        self._owners: dict[Owner, float] = {}
        self._workspaces: dict[str, float] = {}

    def measure(self, used: Mapping[Owner, int], now_s: float) -> LaneOccupancy:
        kept = exp(-max(0.0, now_s - self._at) / _MEMORY_S)
        self._at = now_s
        self._owners = _mix(self._owners, self.busy, kept)
        self._workspaces = _mix(self._workspaces, {workspace for workspace, _ in self.busy}, kept)
        self.busy = set(used)
        owners, workspaces = dict(self._owners), dict(self._workspaces)
        for (workspace, agent), count in used.items():
            owners[workspace, agent] = owners.get((workspace, agent), 0) + count
            workspaces[workspace] = workspaces.get(workspace, 0) + count
        return LaneOccupancy(owners, workspaces, saturated=True, memory=self._memory)


def _mix(recent: Mapping[K, float], busy: Iterable[K], kept: float) -> dict[K, float]:
    mixed = {key: part * kept for key, part in recent.items() if part > _FORGOTTEN}
    for key in busy:
        mixed[key] = mixed.get(key, 0) + 1 - kept
    if len(mixed) > _MOST_REMEMBERED:
        return dict(nlargest(_MOST_REMEMBERED, mixed.items(), key=lambda item: item[1]))
    return mixed
