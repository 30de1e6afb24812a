"""Metrics by agent, and those of the whole database: what waits, dead letters and live workers.

Each series of a metric costs memory in Prometheus, and a platform has thousands of agents. So the first
agents that a process counts have series of their own, and all others share one. A counter must not change its
labels, so an agent that has a series keeps it until the process ends.

The metrics of the database are read when metrics are collected, at most every few seconds. A database that is
slow or unavailable delays a collection by two seconds at most: the last values are returned then, with the
time when they were read, and the error is counted.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable
from typing import Final

from wakeful.engine.rescuer import LEASE_MS
from wakeful.errors import Unavailable
from wakeful.logs import get_logger
from wakeful.store.port import Store
from wakeful.store.sql.event_figures import EventFigures
from wakeful.store.stats import Backlog

#: The labels `workspace` and `agent` of all agents beyond the limit. No slug has an underscore.
OTHER: Final = ("_other", "_other")
#: Seconds for which values are kept.
_MAX_AGE_S: Final = 5.0
#: Seconds that a collection waits for a read, and after which the read is given up.
_WAIT_S: Final = 2.0
_GIVE_UP_S: Final = 30.0

log = get_logger("wakeful.metrics")


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


class DatabaseMetrics:
    """The backlog as of the last read. `agents` is how many agents have a series of their own."""

    def __init__(self, agents: int) -> None:
        self._agents = agents
        #: the store of the last read, what was read, and when in epoch seconds
        self.store: Store | None = None
        self.backlog: Backlog | None = None
        self.events: EventFigures | None = None
        self.read_at = 0.0
        #: how many reads failed
        self.errors = 0
        self._began = -_MAX_AGE_S
        self._reading: asyncio.Task[None] | None = None

    async def refresh(self, store: Store) -> None:
        """Read the values, unless they were read a moment ago. Never raises, never waits for long."""
        self.store = store
        if self._reading is None and time.monotonic() - self._began >= _MAX_AGE_S:
            self._began = time.monotonic()
            self._reading = asyncio.create_task(self._read(store), name="wakeful-metrics")
        if self._reading is not None:
            await asyncio.wait({self._reading}, timeout=_WAIT_S)

    async def _read(self, store: Store) -> None:
        now_ms = store.clock.now_ms()
        try:
            async with asyncio.timeout(_GIVE_UP_S):
                self.events = await store.event_figures(None)
                self.backlog = await store.backlog(now_ms, now_ms - LEASE_MS, self._agents)
            self.read_at = time.time()
        except Exception as error:
            self.errors += 1
            expected = isinstance(error, Unavailable | TimeoutError)
            log.warning("metrics.not_read", error=str(error) or "timeout", exc_info=not expected)
        finally:
            self._reading = None

    @property
    def kind(self) -> str:
        """The kind of the database; empty before the first read."""
        return "" if self.store is None else self.store.kind
