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
from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from wakeful.engine.rescuer import LEASE_MS
from wakeful.errors import Unavailable
from wakeful.logs import get_logger
from wakeful.store.port import Store
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
        self._store: Store | None = None
        self._backlog: Backlog | None = None
        self._began = -_MAX_AGE_S
        self._read_at = 0.0
        self._errors = 0
        self._reading: asyncio.Task[None] | None = None

    async def refresh(self, store: Store) -> None:
        """Read the values, unless they were read a moment ago. Never raises, never waits for long."""
        self._store = store
        if self._reading is None and time.monotonic() - self._began >= _MAX_AGE_S:
            self._began = time.monotonic()
            self._reading = asyncio.create_task(self._read(store), name="wakeful-metrics")
        if self._reading is not None:
            await asyncio.wait({self._reading}, timeout=_WAIT_S)

    async def _read(self, store: Store) -> None:
        now_ms = store.clock.now_ms()
        try:
            async with asyncio.timeout(_GIVE_UP_S):
                self._backlog = await store.backlog(now_ms, now_ms - LEASE_MS, self._agents)
            self._read_at = time.time()
        except Exception as error:
            self._errors += 1
            expected = isinstance(error, Unavailable | TimeoutError)
            log.warning("metrics.not_read", error=str(error) or "timeout", exc_info=not expected)
        finally:
            self._reading = None

    @property
    def kind(self) -> str:
        """The kind of the database; empty before the first read."""
        return "" if self._store is None else self._store.kind

    def collect(self, lanes: Iterable[str]) -> Iterator[Metric]:
        """Return the metrics, with a value for each of these lanes."""
        yield CounterMetricFamily("wakeful_database_read_errors", "Failed reads.", self._errors)
        backlog = self._backlog
        if self._store is None or backlog is None:
            return
        now_ms = self._store.clock.now_ms()

        def age(since_ms: int | None) -> float:
            return 0.0 if since_ms is None else max(0, now_ms - since_ms) / 1000

        yield GaugeMetricFamily(
            "wakeful_database_read_timestamp_seconds",
            "When the metrics of the database were read.",
            self._read_at,
        )
        depth = GaugeMetricFamily("wakeful_queue_depth", "Due runs that wait for a worker.", labels=["lane"])
        wait = GaugeMetricFamily(
            "wakeful_lane_wait_seconds", "Age of the oldest due run of the lane.", labels=["lane"]
        )
        for lane in sorted({*lanes, *backlog.lanes}):
            due = backlog.lanes.get(lane)
            depth.add_metric([lane], due.number if due else 0)
            wait.add_metric([lane], age(due.oldest_ms) if due else 0.0)
        yield depth
        yield wait
        oldest = [due.oldest_ms for due in backlog.lanes.values() if due.oldest_ms is not None]
        yield GaugeMetricFamily(
            "wakeful_oldest_due_run_age_seconds",
            "Age of the oldest due run that waits for a worker.",
            age(min(oldest, default=None)),
        )
        yield GaugeMetricFamily(
            "wakeful_oldest_due_job_age_seconds",
            "Age of the oldest due job that waits for the planner.",
            age(backlog.next_wake_ms),
        )
        pull = GaugeMetricFamily(
            "wakeful_pull_queue_depth", "Due runs that wait for an executor.", labels=["workspace", "agent"]
        )
        for workspace, agent, count in sorted(backlog.pull_by_agent):
            pull.add_metric([workspace, agent], count)
        counted = sum(count for _, _, count in backlog.pull_by_agent)
        pull.add_metric(list(OTHER), max(0, backlog.pull.number - counted))
        yield pull
        yield GaugeMetricFamily(
            "wakeful_oldest_unclaimed_run_age_seconds",
            "Age of the oldest due run that waits for an executor.",
            age(backlog.pull.oldest_ms),
        )
        yield GaugeMetricFamily("wakeful_dead_letters", "Dead letters.", backlog.dead_letters)
        incidents = GaugeMetricFamily("wakeful_open_incidents", "Open incidents.", labels=["state"])
        incidents.add_metric(["open"], backlog.open_incidents)
        incidents.add_metric(["acknowledged"], backlog.acknowledged_incidents)
        yield incidents
        yield GaugeMetricFamily("wakeful_workers_alive", "Workers with a heartbeat.", backlog.workers)
