"""Counts of runs by agent, with a limit on the number of agents.

Each series of a metric costs memory in Prometheus, and a platform has thousands of agents. So the first
agents that a process counts have series of their own, and all others share one. A counter must not change its
labels, so an agent that has a series keeps it until the process ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

#: The labels `workspace` and `agent` of all agents beyond the limit. No slug has an underscore.
OTHER: Final = ("_other", "_other")


class AgentCounts:
    """Counts ended runs by workspace, agent and state.

    >>> counts = AgentCounts(limit=1)
    >>> counts.add([("default", "writer", "succeeded"), ("default", "reader", "failed")])
    >>> sorted(counts.items())
    [(('_other', '_other', 'failed'), 1), (('default', 'writer', 'succeeded'), 1)]
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._agents: set[tuple[str, str]] = set()
        self._counts: Counter[tuple[str, str, str]] = Counter()

    def add(self, ended: Iterable[tuple[str, str, str]]) -> None:
        """Count ended runs, each as workspace, agent and state."""
        for (workspace, agent, state), count in Counter(ended).items():
            owner = (workspace, agent)
            if owner not in self._agents:
                if len(self._agents) < self._limit:
                    self._agents.add(owner)
                else:
                    owner = OTHER
            self._counts[*owner, state] += count

    def items(self) -> Iterable[tuple[tuple[str, str, str], int]]:
        """Return the labels `workspace`, `agent` and `state` of each count."""
        return self._counts.items()
