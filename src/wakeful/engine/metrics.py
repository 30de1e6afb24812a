"""Metrics for Prometheus. Each app has its own set, also if several run in one process.

| metric | meaning |
|---|---|
| `wakeful_build_info{version,database}` | always 1 |
| `wakeful_schedules_due_total` | due jobs that this process has planned |
| `wakeful_runs_emitted_total` | ticks that became runs |
| `wakeful_runs_skipped_overlap_total` | ticks skipped because of another run of their job |
| `wakeful_runs_missed_total` | missed ticks |
| `wakeful_runs_failed_launch_total` | failed attempts, retried or not |
| `wakeful_retries_total` | failed attempts that are retried |
| `wakeful_runs_finished_total{state}` | runs that this process has ended, by final state |
| `wakeful_drift_seconds` | histogram: start delay of first attempts |
| `wakeful_run_duration_seconds` | histogram: duration of attempts |
| `wakeful_lane_used{lane}`, `wakeful_lane_size{lane}` | used and total slots of this process by lane |
| `wakeful_queue_depth{lane}` | due runs of all workspaces that wait |
| `wakeful_dead_letters` | dead letters of all workspaces |
| `wakeful_webhook_responses_total{class}` | webhook responses: `2xx` … `5xx`, or `none` |
| `wakeful_http_requests_total{method,route,status}` | HTTP requests |
| `wakeful_rpc_connections` | open RPC connections |
| `wakeful_rpc_calls_total{method,outcome}` | RPC requests: `ok`, or the error code |
| `wakeful_rpc_dropped_total{reason}` | RPC connections that were closed: `slow`, `limit` |
| `wakeful_event_streams` | open event streams |
| `wakeful_deliveries_total{result}` | attempts: `delivered`, `suppressed`, `failed`, `unknown`, `retrying` |
| `wakeful_pings_total{result}` | pings to the watchdog: `answered`, `failed` |

Counting must be cheap: it is done per batch, in plain integers, which become metrics only when they are
collected. The metrics of the whole database are read at collection and kept for a few seconds.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from wakeful.errors import Unavailable
from wakeful.outcome import Finished
from wakeful.start_rules import BLOCK_REASONS
from wakeful.store.port import Planned, Store
from wakeful.store.stats import Backlog

#: upper bounds in ms
_DRIFT: Final = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 60_000, 600_000)
_DURATION: Final = (1, 5, 10, 50, 100, 500, 1_000, 5_000, 10_000, 30_000, 60_000, 300_000, 600_000, 3_600_000)
#: Seconds for which the values of the database are kept.
_MAX_AGE_S: Final = 5.0

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
    """The counters of a process, and the collector of a Prometheus registry."""

    def __init__(self) -> None:
        #: a registry with these metrics only
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)
        self.schedules_due = 0
        self.runs_emitted = 0
        self.runs_skipped = 0
        self.runs_missed = 0
        self.finished: Counter[str] = Counter()
        self.drift = Histogram(_DRIFT)
        self.duration = Histogram(_DURATION)
        self.webhooks: Counter[str] = Counter()
        self.requests: Counter[tuple[str, str, str]] = Counter()
        self.calls: Counter[tuple[str, str]] = Counter()
        self.drops: Counter[str] = Counter()
        self.pings: Counter[str] = Counter()
        self.deliveries: Counter[str] = Counter()
        #: returns the used and total slots by lane; set by the engine
        self.lanes: Callable[[], Lanes] = dict
        #: returns the number of open connections by kind; set by the server
        self.connections: Callable[[], Mapping[str, int]] = dict
        self._database = ""
        self._backlog: Backlog | None = None
        self._read_at = -_MAX_AGE_S

    # --- counting --------------------------------------------------------------------------------

    def record_planned(self, planned: Planned) -> None:
        """Count a planning pass."""
        self.schedules_due += planned.claimed
        emitted = 0
        for run in planned.runs:
            state = run[9]
            if state == "running" or state == "pending":
                emitted += 1
            elif state == "skipped":
                if run[10] not in BLOCK_REASONS:
                    self.runs_skipped += run.covers
            elif state == "missed":
                self.runs_missed += run.covers
        self.runs_emitted += emitted

    def record_finished(self, batch: Sequence[Finished], drift_ms: Iterable[int]) -> None:
        """Count written outcomes, and how late their first attempts started."""
        self.finished.update([outcome[3] for outcome in batch])
        self.duration.add([outcome[5] - outcome[4] for outcome in batch])
        self.drift.add(drift_ms)

    def record_webhook(self, status: int | None) -> None:
        """Count a response to a webhook by its status; None: there was no response."""
        self.webhooks["none" if status is None else f"{status // 100}xx"] += 1

    def record_request(self, method: str, route: str, status: int) -> None:
        """Count an HTTP request."""
        self.requests[method, route, str(status)] += 1

    def record_rpc_call(self, method: str, outcome: str) -> None:
        """Count an RPC request."""
        self.calls[method, outcome] += 1

    def record_rpc_drop(self, reason: str) -> None:
        """Count an RPC connection that was closed: its client did not read, or there were too many."""
        self.drops[reason] += 1

    def record_delivery(self, state: str) -> None:
        """Count an attempt at a delivery by its new state; a `pending` one is retried."""
        self.deliveries["retrying" if state == "pending" else state] += 1

    def record_ping(self, succeeded: bool) -> None:
        """Count a ping to the watchdog."""
        self.pings["answered" if succeeded else "failed"] += 1

    async def refresh(self, store: Store) -> None:
        """Read the metrics of the whole database, unless they were read a moment ago."""
        self._database = store.kind
        if time.monotonic() - self._read_at < _MAX_AGE_S:
            return
        self._read_at = time.monotonic()
        try:
            self._backlog = await store.backlog(store.clock.now_ms())
        except Unavailable:
            self._backlog = None  # no value is better than an old one

    # --- collecting ------------------------------------------------------------------------------

    def describe(self) -> list[Metric]:
        """Return nothing: the registry is our own, so no names can collide."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Return all metrics in the Prometheus model."""
        info = GaugeMetricFamily("wakeful_build_info", "Always 1.", labels=["version", "database"])
        info.add_metric([version("wakeful"), self._database], 1)
        yield info
        states = self.finished
        failed, again = states["failed"] + states["retrying"], states["retrying"]
        yield _counter("schedules_due", "Planned due jobs.", self.schedules_due)
        yield _counter("runs_emitted", "Ticks that became runs.", self.runs_emitted)
        yield _counter("runs_skipped_overlap", "Ticks skipped because of another run.", self.runs_skipped)
        yield _counter("runs_missed", "Missed ticks.", self.runs_missed)
        yield _counter("runs_failed_launch", "Failed attempts.", failed)
        yield _counter("retries", "Failed attempts that are retried.", again)
        yield _labelled(
            CounterMetricFamily("wakeful_runs_finished", "Ended runs by state.", labels=["state"]),
            [((state,), n) for state, n in states.items() if state not in ("retrying", "running")],
        )
        yield _histogram("drift_seconds", "Start delay of first attempts.", self.drift)
        yield _histogram("run_duration_seconds", "Duration of attempts.", self.duration)
        lanes = self.lanes()
        yield _labelled(
            GaugeMetricFamily("wakeful_lane_used", "Used slots of the lane.", labels=["lane"]),
            [((lane,), used) for lane, (used, _) in lanes.items()],
        )
        yield _labelled(
            GaugeMetricFamily("wakeful_lane_size", "Slots of the lane.", labels=["lane"]),
            [((lane,), size) for lane, (_, size) in lanes.items()],
        )
        if self._backlog is not None:
            waiting = self._backlog.due.items()
            due = {f"pull:{lane}" if is_pull else lane: count for (lane, is_pull), count in waiting}
            yield _labelled(
                GaugeMetricFamily("wakeful_queue_depth", "Due runs that wait.", labels=["lane"]),
                [((lane,), due.get(lane, 0)) for lane in {*lanes, *due}],
            )
            yield GaugeMetricFamily("wakeful_dead_letters", "Dead letters.", self._backlog.dead_letters)
        yield _labelled(
            CounterMetricFamily("wakeful_webhook_responses", "Webhook responses.", labels=["class"]),
            [((kind,), count) for kind, count in self.webhooks.items()],
        )
        yield _labelled(
            CounterMetricFamily(
                "wakeful_http_requests", "HTTP requests.", labels=["method", "route", "status"]
            ),
            self.requests.items(),
        )
        connections = self.connections()
        yield GaugeMetricFamily("wakeful_rpc_connections", "Open RPC connections.", connections.get("rpc", 0))
        yield _labelled(
            CounterMetricFamily("wakeful_rpc_calls", "RPC requests.", labels=["method", "outcome"]),
            self.calls.items(),
        )
        yield _labelled(
            CounterMetricFamily(
                "wakeful_rpc_dropped", "RPC connections that were closed.", labels=["reason"]
            ),
            [((reason,), count) for reason, count in self.drops.items()],
        )
        yield GaugeMetricFamily("wakeful_event_streams", "Open event streams.", connections.get("events", 0))
        yield _labelled(
            CounterMetricFamily("wakeful_pings", "Pings to the watchdog.", labels=["result"]),
            [((result,), count) for result, count in self.pings.items()],
        )
        yield _labelled(
            CounterMetricFamily("wakeful_deliveries", "Delivery attempts.", labels=["result"]),
            [((result,), count) for result, count in self.deliveries.items()],
        )


def _counter(name: str, about: str, value: int) -> Metric:
    return CounterMetricFamily(f"wakeful_{name}", about, value)


def _histogram(name: str, about: str, histogram: Histogram) -> Metric:
    return HistogramMetricFamily(
        f"wakeful_{name}", about, buckets=histogram.buckets(), sum_value=histogram.sum_ms / 1000
    )


def _labelled(
    family: CounterMetricFamily | GaugeMetricFamily, values: Iterable[tuple[Sequence[str], int]]
) -> Metric:
    for labels, value in sorted(values):
        family.add_metric(list(labels), value)
    return family
