"""Claims of executors that ask together, and which of the claimable runs each of them gets. Pure.

Several claims of one workspace are one transaction. Its result is that of the same claims one after the
other: each gets the runs of its agents and lanes that are due longest, up to its limit, and an earlier claim
comes before a later one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, NamedTuple, TypeVar

from wakeful.store.rows import RunView, TakenRun

T = TypeVar("T")

#: Separates names in a text: no lane or agent has it in its name.
_SEPARATOR: Final = "\x1e"

#: How many agents of one scope are looked at one by one.
_MOST_AGENTS: Final = 16


class ClaimScope(NamedTuple):
    """Which runs a claim asks for; None: those of all agents, or of all lanes."""

    workspace: str
    agents: frozenset[str] | None = None
    lanes: frozenset[str] | None = None

    @classmethod
    def of(cls, workspace: str, agents: Collection[str] | None, lanes: Collection[str] | None) -> ClaimScope:
        """Return the scope of these names."""
        return cls(
            workspace,
            None if agents is None else frozenset(agents),
            None if lanes is None else frozenset(lanes),
        )

    def overlaps(self, other: ClaimScope) -> bool:
        """Return whether a run of this workspace may be in both."""
        return _overlap(self.agents, other.agents) and _overlap(self.lanes, other.lanes)

    def ranges(self) -> list[ClaimScope]:
        """Return it in parts that are each a range of an index: one for each agent, or one for all."""
        if self.agents is None:
            return [self]
        return [self._replace(agents=frozenset((agent,))) for agent in sorted(self.agents)]

    def coarse_ranges(self) -> list[ClaimScope]:
        """Return few ranges with all runs of the scope, and maybe others: instead of many agents, all."""
        if self.agents is not None and len(self.agents) > _MOST_AGENTS:
            return [self._replace(agents=None)]
        return self.ranges()

    @property
    def agent(self) -> str | None:
        """The agent of a range; None: all agents."""
        return None if self.agents is None else next(iter(self.agents))

    @property
    def size(self) -> int:
        """Its size in bytes, estimated from above."""
        names = (*(self.agents or ()), *(self.lanes or ()))
        return 512 + sum(128 + 4 * len(name) for name in names)

    @property
    def lanes_text(self) -> str | None:
        """The lanes as one text, each between two separators; None: all lanes."""
        if self.lanes is None:
            return None
        return _SEPARATOR + "".join(lane + _SEPARATOR for lane in sorted(self.lanes))


class ClaimRequest(NamedTuple):
    """A claim of an executor."""

    scope: ClaimScope
    worker: str
    limit: int
    claim_id: str | None = None


class ClaimedRun(NamedTuple):
    """A claimed run: what a launch needs, and all its fields."""

    run: TakenRun
    view: RunView
    #: whether its agent or its workspace has a budget
    has_budget: bool = False


def plan_ranges(requests: Sequence[ClaimRequest]) -> list[tuple[ClaimScope, int]]:
    """Return the ranges of runs to read for these requests, and how many of each.

    Of a range, as many as all requests may get that it has runs for: whatever of it the others get, enough is
    left.

    >>> everything, writer = ClaimScope("default"), ClaimScope("default", frozenset({"writer"}))
    >>> first = ClaimRequest(everything, "a", 2)
    >>> [most for _, most in plan_ranges([first, ClaimRequest(writer, "b", 1)])]
    [3, 3]
    >>> [most for _, most in plan_ranges([first, first])]
    [4]
    """
    limits: dict[ClaimScope, int] = {}
    for request in requests:
        limits[request.scope] = limits.get(request.scope, 0) + request.limit
    ranges = dict.fromkeys(part for scope in limits for part in scope.ranges())
    return [(part, sum(limit for scope, limit in limits.items() if scope.overlaps(part))) for part in ranges]


def assign_runs(
    requests: Sequence[ClaimRequest], found: Iterable[T], owner: Callable[[T], tuple[str, str]]
) -> list[list[T]]:
    """Return the runs that each request gets of those that were `found`, longest due first.

    `owner` returns the agent and the lane of a run.

    >>> writer = ClaimRequest(ClaimScope("default", frozenset({"writer"})), "a", 1)
    >>> anyone = ClaimRequest(ClaimScope("default"), "b", 2)
    >>> runs = [("cook", "cron"), ("writer", "cron"), ("writer", "main")]
    >>> assign_runs([writer, anyone], runs, lambda run: run)
    [[('writer', 'cron')], [('cook', 'cron'), ('writer', 'main')]]
    """
    given: list[list[T]] = [[] for _ in requests]
    waiting = [number for number, request in enumerate(requests) if request.limit > 0]
    for run in found:
        agent, lane = owner(run)
        for number in waiting:
            request = requests[number]
            _, agents, lanes = request.scope
            if (agents is None or agent in agents) and (lanes is None or lane in lanes):
                given[number].append(run)
                if len(given[number]) == request.limit:
                    waiting.remove(number)
                break
        if not waiting:
            break
    return given


def _overlap(names: frozenset[str] | None, others: frozenset[str] | None) -> bool:
    return names is None or others is None or not names.isdisjoint(others)
