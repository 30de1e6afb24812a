"""How workspaces, and within a workspace its agents, share the slots of a lane. Pure.

A lane that has a free slot for every due run is not shared: all of them start. If more runs are due, each
free slot goes to the workspace that has the fewest for its weight, and within it to the agent that has the
fewest. No slot is kept free: one that nobody else wants goes to a workspace that has many.

Also which due runs a worker may claim before it has a free slot for them. The start of such a run is not
written before its launch. So only a run that may start twice is claimed early, and only its first attempt: if
the worker dies, the next attempt is claimed with a slot, and its start is written. Then a run that kills its
process is not retried without limit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping, Sequence
from functools import partial
from heapq import heapify, heappop, heapreplace
from itertools import takewhile
from types import MappingProxyType
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from wakeful.job.start_rules import Capabilities
from wakeful.run.outcome import TAKEN_OVER

T = TypeVar("T")

#: a workspace and an agent: the owner of runs
Owner: TypeAlias = tuple[str, str]

#: How many owners with waiting runs a claim looks at per lane and requirement, and how many of one workspace.
#: The first is the owner of the run that is due longest, so that every owner has its turn.
MOST_OWNERS: Final = 128
MOST_AGENTS: Final = 16
#: How long the claims of a full lane use the owners that one of them has read. So long may a new owner wait
#: until its runs are seen.
REMEMBERED_MS: Final = 50


class LaneOccupancy(NamedTuple):
    """Who uses a lane in this process.

    The numbers are slots, with prefetched runs that wait for one, and up to one more for slots used lately.
    """

    owners: Mapping[Owner, float]
    workspaces: Mapping[str, float]
    #: whether the last claim found as many due runs as it had slots: there are probably more
    saturated: bool
    #: who wants the lane, for the claims of one process; without it, each claim reads who does
    memory: OwnerMemory | None = None


#: the use of a lane that has probably slots for all due runs
UNKNOWN_USE: Final = LaneOccupancy(MappingProxyType({}), MappingProxyType({}), saturated=False)
#: lanes that are not shared: the runs that are due longest are first
NOT_SHARED: Final[Mapping[str, LaneOccupancy]] = MappingProxyType({})


#: reads the runs of each owner that are due longest, up to the given number
Pick: TypeAlias = Callable[[Mapping[Owner, int]], Awaitable[dict[Owner, list[T]]]]


class Wants(NamedTuple):
    """What an owner wants of a lane."""

    #: since when its first run is due
    since_ms: int
    #: how many runs are due, as far as is known
    runs: float = math.inf


class Demand:
    """Who wants slots of a lane. `weights` has the workspaces with another weight than 1."""

    def __init__(self, wanted: Mapping[Owner, Wants], weights: Mapping[str, float]) -> None:
        self._agents: dict[str, list[tuple[str, Wants]]] = {}
        for (workspace, agent), each in wanted.items():
            self._agents.setdefault(workspace, []).append((agent, each))
        #: of each workspace since when its first run is due, its name and its weight
        self._workspaces = [
            (min([each.since_ms for _, each in agents]), workspace, weights.get(workspace, 1))
            for workspace, agents in self._agents.items()
        ]

    def share(self, slots: int, use: LaneOccupancy) -> list[Owner]:
        """Return who gets these slots, in the order in which they should be given.

        >>> wanted = {("a", "x"): Wants(0), ("b", "x"): Wants(5), ("b", "y"): Wants(6)}
        >>> Demand(wanted, {}).share(4, LaneOccupancy({("a", "x"): 1.5}, {"a": 1.5}, saturated=True))
        [('b', 'x'), ('b', 'y'), ('a', 'x'), ('b', 'x')]
        """
        has = use.workspaces
        queue = [(has.get(name, 0) / weight, since, name, weight) for since, name, weight in self._workspaces]
        heapify(queue)
        members: dict[str, list[tuple[float, int, str, float]]] = {}
        order: list[Owner] = []
        while queue and len(order) < slots:
            part, since_ms, workspace, weight = queue[0]
            agents = members.get(workspace)
            if agents is None:
                agents = members[workspace] = [
                    (use.owners.get((workspace, agent), 0), each.since_ms, agent, each.runs)
                    for agent, each in self._agents[workspace]
                ]
                heapify(agents)
            used, agent_since_ms, agent, runs = agents[0]
            order.append((workspace, agent))
            if runs > 1:
                heapreplace(agents, (used + 1, agent_since_ms, agent, runs - 1))
            else:
                heappop(agents)
            if agents:
                heapreplace(queue, (part + 1 / weight, since_ms, workspace, weight))
            else:
                heappop(queue)
        return order


def in_order(runs: Mapping[Owner, Sequence[T]], order: Iterable[Owner]) -> list[T]:
    """Return the runs in the order of their owners, those of one owner in their own order.

    >>> in_order({("a", "x"): [1, 2], ("b", "x"): [3]}, [("a", "x"), ("b", "x"), ("a", "x")])
    [1, 3, 2]
    """
    rest = {owner: iter(each) for owner, each in runs.items()}
    return [next(rest[owner]) for owner in order]


class DueOwner(NamedTuple):
    """An owner that has due runs in a lane, of one requirement."""

    lane: str
    requires: str
    workspace: str
    agent: str
    #: when its first run was due
    due_ms: int
    #: the weight of its workspace
    weight: float = 1


class Contenders:
    """The owners that have due runs in one lane."""

    def __init__(self) -> None:
        self.wanted: dict[Owner, Wants] = {}
        #: what the due runs of each require
        self.requires: dict[Owner, list[str]] = {}
        self.weights: dict[str, float] = {}
        #: how many owners were read
        self.count = 0
        self._demand: Demand | None = None

    @staticmethod
    def by_lane(found: Iterable[DueOwner]) -> dict[str, Contenders]:
        """Return the contenders of each lane that has some."""
        lanes: dict[str, Contenders] = {}
        for each in found:
            lane = lanes.setdefault(each.lane, Contenders())
            owner = each.workspace, each.agent
            earlier = lane.wanted.get(owner)
            since_ms = each.due_ms if earlier is None else min(each.due_ms, earlier.since_ms)
            lane.wanted[owner] = Wants(since_ms)
            lane.requires.setdefault(owner, []).append(each.requires)
            if each.weight != 1:
                lane.weights[each.workspace] = each.weight
        for lane in lanes.values():
            lane.count = len(lane.wanted)
        return lanes

    @property
    def is_stale(self) -> bool:
        """Whether few are left of many: others, at which the claim did not look, may have due runs."""
        return self.count >= MOST_AGENTS and len(self.wanted) < self.count / 2

    async def choose(
        self, slots: int, use: LaneOccupancy, pick: Pick[T], *, thorough: bool = True
    ) -> tuple[list[T], bool]:
        """Return the runs for these slots, in the order in which they should start, and whether all are used.

        `pick` returns the runs of each owner that are due longest and may start, up to the given number. If
        some have fewer than their share, it is called once more for those that get the rest, and, if it is to
        be thorough, for all. Those that have fewer than asked for are no contenders any more.
        """
        wanted = self.wanted.copy()  # another claim may exclude some meanwhile
        if self._demand is None:
            self._demand = Demand(wanted, self.weights)
        order = self._demand.share(slots, use)
        limits = Counter(order)
        runs = await pick(limits)
        missing = slots - sum(map(len, runs.values()))
        if not missing:
            return in_order(runs, order), True
        self._exclude(limits, runs, wanted)
        rest = Counter(Demand(wanted, self.weights).share(slots, use))
        more = {owner: limit for owner, limit in rest.items() if limit > len(runs.get(owner, ()))}
        if more:
            runs.update(await pick(more))
            self._exclude(more, runs, wanted)
            missing = slots - sum(map(len, runs.values()))
        if missing > 0 and thorough:
            more = {owner: len(runs.get(owner, ())) + missing for owner in self.wanted if owner in wanted}
            runs.update(await pick(more) if more else {})
            self._exclude(more, runs, wanted)
        found = {owner: Wants(wanted[owner].since_ms, len(each)) for owner, each in runs.items() if each}
        order = Demand(found, self.weights).share(slots, use)
        return in_order(runs, order), len(order) == slots

    def _exclude(
        self, limits: Mapping[Owner, int], runs: Mapping[Owner, Sequence[T]], wanted: dict[Owner, Wants]
    ) -> None:
        """Remove the owners that have fewer runs than asked for; in `wanted`, note how many they have."""
        self._demand = None
        for owner, limit in limits.items():
            found = len(runs.get(owner, ()))
            if found < limit:
                self.wanted.pop(owner, None)
                if found:
                    wanted[owner] = Wants(wanted[owner].since_ms, found)
                else:
                    del wanted[owner]


class OwnerMemory:
    """Who had due runs in a lane when a claim of this process read it last.

    An owner whose runs are all claimed meanwhile is found out by the claim that would give it a slot. One
    that is not known yet, or whose first run of another requirement is new, waits until the next reading.
    """

    def __init__(self) -> None:
        self._known: tuple[int, Capabilities, Contenders] | None = None

    def recall(self, now_ms: int, capabilities: Capabilities) -> Contenders | None:
        """Return who wants the lane, if that was read a moment ago for the same capabilities."""
        if self._known is not None:
            read_ms, read_for, contenders = self._known
            if 0 <= now_ms - read_ms < REMEMBERED_MS and read_for == capabilities and not contenders.is_stale:
                return contenders
        return None

    def keep(self, now_ms: int, capabilities: Capabilities, contenders: Contenders | None) -> None:
        """Note who wants the lane; None if that is to be read again."""
        self._known = None if contenders is None else (now_ms, capabilities, contenders)


class ChosenRuns(NamedTuple, Generic[T]):
    """The runs that a claim takes."""

    #: by lane, in the order in which they should start
    lanes: dict[str, list[T]]
    #: the workspaces of shared lanes that have another weight than 1
    weights: Mapping[str, float]


async def choose_runs(
    now_ms: int,
    capabilities: Capabilities,
    slots: Mapping[str, int],
    usage: Mapping[str, LaneOccupancy],
    contenders: Callable[[Collection[str]], Awaitable[dict[str, Contenders]]],
    longest_due: Callable[[Collection[str]], Awaitable[dict[str, list[T]]]],
    of_owners: Callable[[str, Contenders, Mapping[Owner, int]], Awaitable[dict[Owner, list[T]]]],
    identity: Callable[[T], Hashable],
) -> ChosenRuns[T]:
    """Return the runs for these slots, by lane. The lanes in `usage` are shared.

    The functions read a database: the owners with due runs in these lanes; the runs of these lanes that are
    due longest; and the runs of each owner in a lane, up to its number, as `Contenders.choose` needs them.
    """
    chosen: dict[str, list[T]] = {}
    weights: dict[str, float] = {}
    saturated = [lane for lane in slots if lane in usage and usage[lane].saturated]
    unknown: list[str] = []
    for lane in saturated:
        memory = usage[lane].memory
        known = None if memory is None else memory.recall(now_ms, capabilities)
        if known is None:
            unknown.append(lane)
        elif len(known.wanted) > 1:
            pick = partial(of_owners, lane, known)
            runs, complete = await known.choose(slots[lane], usage[lane], pick, thorough=False)
            if complete:
                chosen[lane] = runs
                weights.update(known.weights)
            else:
                unknown.append(lane)
    found = await contenders(unknown)
    shared = {lane: each for lane, each in found.items() if len(each.wanted) > 1}
    chosen.update(await longest_due(slots.keys() - chosen.keys() - shared.keys()))
    full = {lane for lane in chosen if lane in usage and len(chosen[lane]) >= slots[lane]}
    late = await contenders(full.difference(saturated))
    shared.update((lane, each) for lane, each in late.items() if len(each.wanted) > 1)
    for lane, each in shared.items():
        weights.update(each.weights)
        runs, complete = await each.choose(slots[lane], usage[lane], partial(of_owners, lane, each))
        if not complete:  # nobody else is due, or too many are to look at all of them
            seen = set(map(identity, runs))
            others = (await longest_due([lane])).get(lane, ())
            runs += [run for run in others if identity(run) not in seen]
            del runs[slots[lane] :]
        chosen[lane] = runs
    for lane in unknown:
        memory = usage[lane].memory
        if memory is not None:
            memory.keep(now_ms, capabilities, found.get(lane))
    return ChosenRuns(chosen, weights)


#: a part of the stored policy of each job whose runs must not start twice
ON_LOST_FAIL: Final = '"onLost":"fail"'


def may_prefetch(attempt: int, policy: str, reason: str | None, is_signal: bool) -> bool:
    """Return whether a run may be claimed before a slot is free. `policy` is the stored text.

    A run that was taken over has the same attempt again, so its `reason` tells that it is not the first time.

    >>> may_prefetch(1, "{}", None, False), may_prefetch(2, "{}", None, False)
    (True, False)
    >>> may_prefetch(1, '{"maxAttempts":3,"onLost":"fail"}', None, False)
    False
    """
    first = attempt == 1 and reason != TAKEN_OVER
    return first and not is_signal and ON_LOST_FAIL not in policy


def divide(due: Sequence[T], free: int, allowed: Callable[[T], bool]) -> tuple[Sequence[T], list[T]]:
    """Return the runs for the free slots of a lane, and those to prefetch. `due` is longest due first.

    A run that may not be prefetched ends the second list: otherwise runs behind it would overtake it again
    and again.

    >>> divide([1, 2, 3, 4, -5, 6], 2, lambda number: number > 0)
    ([1, 2], [3, 4])
    """
    return due[:free], list(takewhile(allowed, due[free:]))


def totals(free: Mapping[str, int], prefetch: Mapping[str, int]) -> dict[str, int]:
    """Return how many runs to claim in each lane, without lanes that need none.

    >>> totals({"cron": 2, "main": 0}, {"cron": 3})
    {'cron': 5}
    """
    lanes = {lane: free.get(lane, 0) + prefetch.get(lane, 0) for lane in {**free, **prefetch}}
    return {lane: count for lane, count in lanes.items() if count > 0}
