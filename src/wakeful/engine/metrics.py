"""Metrics for Prometheus. Each app has its own set, also if several run in one process.

`docs/reference/metrics.md` lists them. The values of a process are here, those of the whole database in
`database_metrics`, and `process_*` comes from the client library.

Counting must be cheap: it is done per batch, in plain integers, which become metrics only when they are
collected (`exposition`).
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Final

from wakeful.engine.database_metrics import AgentCounts, DatabaseMetrics
from wakeful.job.start_rules import BLOCK_REASONS
from wakeful.run.outcome import Finished
from wakeful.store.plans import Planned
from wakeful.store.port import Store

#: upper bounds in ms
_DRIFT: Final = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 60_000, 600_000)
_DURATION: Final = (1, 5, 10, 50, 100, 500, 1_000, 5_000, 10_000, 30_000, 60_000, 300_000, 600_000, 3_600_000)
#: The number of agents that have series of their own, if no setting says otherwise.
AGENTS: Final = 20
_METHODS: Final = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})

#: The used and total slots by lane.
Lanes = Mapping[str, tuple[int, int]]


class Histogram:
    """Counts milliseconds in buckets.

    >>> histogram = Histogram((10, 100))
    >>> histogram.add([3, 10, 50, 5000])
    >>> histogram.buckets()
    [('0.01', 2), ('0.1', 3), ('+Inf', 4)]
    """

    def __init__(self, bounds: Sequence[int]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.sum_ms = 0

    def add(self, values: Iterable[int]) -> None:
        """Add values. Most are equal, so each distinct value is looked up once."""
        for value, times in Counter(values).items():
            self._counts[bisect_left(self._bounds, value)] += times
            self.sum_ms += value * times

    def buckets(self) -> list[tuple[str, int]]:
        """Return the cumulative counts by upper bound in seconds."""
        names = [*(f"{bound / 1000:g}" for bound in self._bounds), "+Inf"]
        return list(zip(names, accumulate(self._counts), strict=True))


class Metrics:
    """The counters of a process.

    `agents` is how many agents have series of their own.
    """

    def __init__(self, agents: int = AGENTS) -> None:
        #: the metrics of the whole database
        self.database = DatabaseMetrics(agents)
        #: when the planner last completed a pass, or the process started, in epoch seconds
        self.planned_at = time.time()
        self.schedules_due = 0
        self.runs_emitted = 0
        self.runs_skipped = 0
        self.runs_missed = 0
        self.finished: Counter[str] = Counter()
        self.agents = AgentCounts(agents)
        self.drift = Histogram(_DRIFT)
        self.duration = Histogram(_DURATION)
        self.webhooks: Counter[str] = Counter()
        self.chats: Counter[str] = Counter()
        self.requests: Counter[tuple[str, str, str]] = Counter()
        self.calls: Counter[tuple[str, str]] = Counter()
        self.drops: Counter[str] = Counter()
        self.pings: Counter[str] = Counter()
        self.messages: Counter[tuple[str, str]] = Counter()
        self.reports: Counter[tuple[str, str]] = Counter()
        self.deliveries: Counter[str] = Counter()
        self.verifications: Counter[str] = Counter()
        #: returns the used and total slots by lane; set by the engine
        self.lanes: Callable[[], Lanes] = dict
        #: returns whether each loop of the engine is stalled, by name; set by the engine
        self.loops: Callable[[], Mapping[str, bool]] = dict
        #: returns the number of open connections by kind; set by the server
        self.connections: Callable[[], Mapping[str, int]] = dict

    # --- counting --------------------------------------------------------------------------------

    def record_planned(self, planned: Planned) -> None:
        """Count a planning pass."""
        self.planned_at = time.time()
        self.schedules_due += planned.claimed
        emitted = 0
        for run in planned.runs:
            state = run.state
            if state == "running" or state == "pending":
                emitted += 1
            elif state == "skipped":
                if run.reason not in BLOCK_REASONS:
                    self.runs_skipped += run.covers
            elif state == "missed":
                self.runs_missed += run.covers
        self.runs_emitted += emitted

    def record_finished(
        self, batch: Sequence[Finished], drift_ms: Iterable[int], owners: Iterable[tuple[str, str, str]]
    ) -> None:
        """Count written outcomes: all, how late first attempts started, and workspace, agent and state."""
        self.finished.update([outcome.state for outcome in batch])
        # An attempt that awaits its callback (`running`) is not over.
        over = [outcome for outcome in batch if outcome.state != "running"]
        self.duration.add([outcome.finished_ms - outcome.started_ms for outcome in over])
        self.drift.add(drift_ms)
        self.agents.add(owners)

    def record_webhook(self, status: int | None) -> None:
        """Count a response to a webhook by its status; None: there was no response."""
        self.webhooks[_status_class(status)] += 1

    def record_chat(self, status: int | None) -> None:
        """Count a response of a chat endpoint by its status; None: there was no response."""
        self.chats[_status_class(status)] += 1

    def record_request(self, method: str, route: str, status: int) -> None:
        """Count an HTTP request. A client can send any method; unknown ones share a series."""
        self.requests[method if method in _METHODS else "other", route, str(status)] += 1

    def record_rpc_call(self, method: str, outcome: str) -> None:
        """Count an RPC request."""
        self.calls[method, outcome] += 1

    def record_rpc_drop(self, reason: str) -> None:
        """Count an RPC connection that was closed: its client did not read, or there were too many."""
        self.drops[reason] += 1

    def record_delivery(self, state: str) -> None:
        """Count an attempt at a delivery by its new state; a `pending` one is retried."""
        self.deliveries["retrying" if state == "pending" else state] += 1

    def record_verification(self, result: str) -> None:
        """Count a check of a run by its result; after an `error` it is tried again."""
        self.verifications[result] += 1

    def record_message(self, kind: str, sent: bool) -> None:
        """Count a launch for a broker: whether the broker has the message."""
        self.messages[kind, "sent" if sent else "failed"] += 1

    def record_report(self, kind: str, result: str) -> None:
        """Count what a worker of a broker reports: `applied`, `refused`, or `delayed` to be applied later."""
        self.reports[kind, result] += 1

    def record_ping(self, succeeded: bool) -> None:
        """Count a ping to the watchdog."""
        self.pings["answered" if succeeded else "failed"] += 1

    async def refresh(self, store: Store) -> None:
        """Read the metrics of the whole database, unless they were read a moment ago. Never raises."""
        await self.database.refresh(store)


def _status_class(status: int | None) -> str:
    return "none" if status is None else f"{status // 100}xx"
