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

from wakeful.run.outcome import TAKEN_OVER

T = TypeVar("T")


#: a workspace and an agent: the owner of runs
Owner: TypeAlias = tuple[str, str]

#: How many owners with waiting runs a claim looks at per lane and requirement, and how many of one workspace.
#: The first is the owner of the run that is due longest, so that every owner has its turn.
MOST_OWNERS: Final = 128
MOST_AGENTS: Final = 16


class LaneUse(NamedTuple):
    """Who uses a lane in this process.

    The numbers are slots, with prefetched runs that wait for one, and up to one more for slots used lately.
    """

    owners: Mapping[Owner, float]
    workspaces: Mapping[str, float]
    #: whether the last claim found as many due runs as it had slots: there are probably more
    saturated: bool


#: the use of a lane that has probably slots for all due runs
UNKNOWN_USE: Final = LaneUse(MappingProxyType({}), MappingProxyType({}), saturated=False)
#: lanes that are not shared: the runs that are due longest are first
NOT_SHARED: Final[Mapping[str, LaneUse]] = MappingProxyType({})


class Wants(NamedTuple):
    """What an owner wants of a lane."""

    #: since when its first run is due
    since_ms: int
    #: how many runs are due, as far as is known
    runs: float = math.inf


def share(
    slots: int, wanted: Mapping[Owner, Wants], use: LaneUse, weights: Mapping[str, float]
) -> list[Owner]:
    """Return who gets these slots, in the order in which they should be given.

    `weights` has the workspaces with another weight than 1.

    >>> wanted = {("a", "x"): Wants(0), ("b", "x"): Wants(5), ("b", "y"): Wants(6)}
    >>> share(4, wanted, LaneUse({("a", "x"): 1.5}, {"a": 1.5}, saturated=True), {})
    [('b', 'x'), ('b', 'y'), ('a', 'x'), ('b', 'x')]
    """
    left = {owner: each.runs for owner, each in wanted.items()}
    agents: dict[str, list[tuple[float, int, str]]] = {}
    for (workspace, agent), each in wanted.items():
        has = use.owners.get((workspace, agent), 0)
        agents.setdefault(workspace, []).append((has, each.since_ms, agent))
    queue: list[tuple[float, int, str]] = []
    for workspace, members in agents.items():
        since_ms = min(each[1] for each in members)
        queue.append((use.workspaces.get(workspace, 0) / weights.get(workspace, 1), since_ms, workspace))
        heapify(members)
    heapify(queue)
    order: list[Owner] = []
    while queue and len(order) < slots:
        part, since_ms, workspace = queue[0]
        members = agents[workspace]
        has, agent_since_ms, agent = members[0]
        owner = workspace, agent
        order.append(owner)
        left[owner] -= 1
        if left[owner] > 0:
            heapreplace(members, (has + 1, agent_since_ms, agent))
        else:
            heappop(members)
        if members:
            heapreplace(queue, (part + 1 / weights.get(workspace, 1), since_ms, workspace))
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

    @staticmethod
    def by_lane(found: Iterable[DueOwner]) -> dict[str, Contenders]:
        """Return the contenders of each lane that has more than one."""
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
        return {name: lane for name, lane in lanes.items() if len(lane.wanted) > 1}

    async def choose(
        self,
        slots: int,
        use: LaneUse,
        pick: Callable[[Mapping[Owner, int]], Awaitable[dict[Owner, list[T]]]],
    ) -> list[T]:
        """Return the runs for these slots, in the order in which they should start.

        `pick` returns the runs of each owner that are due longest and may start, up to the given number. If
        some have fewer than their share, it is called once more for the others.
        """
        limits = Counter(share(slots, self.wanted, use, self.weights))
        runs = await pick(limits)
        missing = slots - sum(map(len, runs.values()))
        more = {
            owner: limits[owner] + missing
            for owner in self.wanted
            if len(runs.get(owner, ())) >= limits[owner]
        }
        if missing > 0 and more:
            runs.update(await pick(more))
        wanted = {
            owner: Wants(self.wanted[owner].since_ms, len(found)) for owner, found in runs.items() if found
        }
        return in_order(runs, share(slots, wanted, use, self.weights))


class ChosenRuns(NamedTuple, Generic[T]):
    """The runs that a claim takes."""

    #: by lane, in the order in which they should start
    lanes: dict[str, list[T]]
    #: the workspaces of shared lanes that have another weight than 1
    weights: Mapping[str, float]


async def choose_runs(
    slots: Mapping[str, int],
    usage: Mapping[str, LaneUse],
    contenders: Callable[[Collection[str]], Awaitable[dict[str, Contenders]]],
    longest_due: Callable[[Collection[str]], Awaitable[dict[str, list[T]]]],
    of_owners: Callable[[str, Contenders, Mapping[Owner, int]], Awaitable[dict[Owner, list[T]]]],
    identity: Callable[[T], Hashable],
) -> ChosenRuns[T]:
    """Return the runs for these slots, by lane. The lanes in `usage` are shared.

    The functions read a database: the owners with due runs in these lanes, for lanes with several of them;
    the runs of these lanes that are due longest; and the runs of each owner in a lane, up to its number, as
    `Contenders.choose` needs them.
    """
    saturated = [lane for lane in slots if lane in usage and usage[lane].saturated]
    shared = await contenders(saturated)
    chosen = await longest_due(slots.keys() - shared.keys())
    full = {lane for lane in chosen if lane in usage and len(chosen[lane]) >= slots[lane]}
    shared.update(await contenders(full.difference(saturated)))
    weights: dict[str, float] = {}
    for lane, each in shared.items():
        weights.update(each.weights)
        runs = await each.choose(slots[lane], usage[lane], partial(of_owners, lane, each))
        if len(runs) < slots[lane]:  # nobody else is due, or too many are to look at all of them
            known = set(map(identity, runs))
            others = (await longest_due([lane])).get(lane, ())
            runs += [run for run in others if identity(run) not in known]
            del runs[slots[lane] :]
        chosen[lane] = runs
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
