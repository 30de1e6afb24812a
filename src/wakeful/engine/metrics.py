"""What is counted and measured, for Prometheus. One set of meters a process: apps side by side do not mix.

| metric | what it says |
|---|---|
| `wakeful_build_info{version,database}` | always 1 |
| `wakeful_schedules_due_total` | due jobs that this process has planned |
| `wakeful_runs_emitted_total` | ticks that became runs to be started |
| `wakeful_runs_skipped_overlap_total` | ticks that were skipped because of another run of their job |
| `wakeful_runs_missed_total` | ticks that were missed |
| `wakeful_runs_failed_launch_total` | attempts that failed, whether or not they are tried again |
| `wakeful_retries_total` | attempts that are tried again |
| `wakeful_runs_finished_total{state}` | runs that this process has ended, by how |
| `wakeful_drift_seconds` | histogram: from when a run was to start to when it did, first attempts |
| `wakeful_run_duration_seconds` | histogram: from when an attempt started to when it ended |
| `wakeful_lane_used{lane}`, `wakeful_lane_size{lane}` | places taken in the lanes of this process, and all |
| `wakeful_queue_depth{lane}` | runs of all workspaces that are due and wait |
| `wakeful_dead_letters` | dead letters of all workspaces |
| `wakeful_webhook_responses_total{class}` | answers to webhooks: `2xx` … `5xx`, `none`: there was none |
| `wakeful_http_requests_total{method,route,status}` | requests that were answered |
| `wakeful_rpc_connections` | connections over a WebSocket that are open |
| `wakeful_rpc_calls_total{method,outcome}` | requests over a WebSocket: `ok`, or the code of the error |
| `wakeful_rpc_dropped_total{reason}` | connections that were ended: `slow`, `limit` |
| `wakeful_event_streams` | streams of events that are open |
| `wakeful_deliveries_total{result}` | attempts: `delivered`, `suppressed`, `failed`, `unknown`, `retrying` |
| `wakeful_pings_total{result}` | pings to the watchdog: `answered`, `failed` |

Counting must cost a storm nothing: it is done a batch at a time, in plain numbers, and only whoever scrapes
makes metrics of them. The two of the whole database are asked for when somebody scrapes, and kept a while.
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
#: Seconds for which what the database said holds.
_HOLDS_S: Final = 5.0

#: By lane, how many places are taken, and how many there are.
Lanes = Mapping[str, tuple[int, int]]


class Spread:
    """Numbers of milliseconds, counted by how large they are.

    >>> spread = Spread((10, 100))
    >>> spread.add([3, 10, 50, 5000])
    >>> spread.buckets()
    [('0.01', 2), ('0.1', 3), ('+Inf', 4)]
    """

    def __init__(self, bounds: Sequence[int]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.sum_ms = 0

    def add(self, values: Iterable[int]) -> None:
        """Count these. Many are equal, mostly: so equal ones are looked up once."""
        for value, times in Counter(values).items():
            self._counts[bisect_left(self._bounds, value)] += times
            self.sum_ms += value * times

    def buckets(self) -> list[tuple[str, int]]:
        """How many are at most so large, in seconds."""
        names = [*(f"{bound / 1000:g}" for bound in self._bounds), "+Inf"]
        return list(zip(names, accumulate(self._counts), strict=True))


class Metrics:
    """Counts. Also what a registry collects from."""

    def __init__(self) -> None:
        #: these meters and no others
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)
        self.schedules_due = 0
        self.runs_emitted = 0
        self.runs_skipped = 0
        self.runs_missed = 0
        self.finished: Counter[str] = Counter()
        self.drift = Spread(_DRIFT)
        self.duration = Spread(_DURATION)
        self.webhooks: Counter[str] = Counter()
        self.requests: Counter[tuple[str, str, str]] = Counter()
        self.calls: Counter[tuple[str, str]] = Counter()
        self.drops: Counter[str] = Counter()
        self.pings: Counter[str] = Counter()
        self.deliveries: Counter[str] = Counter()
        #: says how full the lanes are; an engine that starts puts its own here
        self.lanes: Callable[[], Lanes] = dict
        #: says how many connections are open, by kind; who counts them puts that here
        self.connections: Callable[[], Mapping[str, int]] = dict
        self._database = ""
        self._backlog: Backlog | None = None
        self._asked = -_HOLDS_S

    # --- counting --------------------------------------------------------------------------------

    def planned(self, planned: Planned) -> None:
        """A planning pass is over."""
        self.schedules_due += planned.claimed
        emitted = 0
        for run in planned.born:
            state = run[9]
            if state == "running" or state == "pending":
                emitted += 1
            elif state == "skipped":
                if run[10] not in BLOCK_REASONS:
                    self.runs_skipped += run.covers
            elif state == "missed":
                self.runs_missed += run.covers
        self.runs_emitted += emitted

    def ended(self, batch: Sequence[Finished], drift_ms: Iterable[int]) -> None:
        """These attempts are over, and written; those that were first ones began so late."""
        self.finished.update([outcome[3] for outcome in batch])
        self.duration.add([outcome[5] - outcome[4] for outcome in batch])
        self.drift.add(drift_ms)

    def answered(self, status: int | None) -> None:
        """A webhook was answered with this status, or not at all."""
        self.webhooks["none" if status is None else f"{status // 100}xx"] += 1

    def requested(self, method: str, route: str, status: int) -> None:
        """A request was answered."""
        self.requests[method, route, str(status)] += 1

    def called(self, method: str, outcome: str) -> None:
        """A request over a WebSocket was answered."""
        self.calls[method, outcome] += 1

    def dropped(self, reason: str) -> None:
        """A connection over a WebSocket was ended because its client took nothing, or there are too many."""
        self.drops[reason] += 1

    def carried(self, became: str) -> None:
        """An attempt to deliver what a run said is over; one that is `pending` is tried again."""
        self.deliveries["retrying" if became == "pending" else became] += 1

    def pinged(self, answered: bool) -> None:
        """The watchdog was told that all is well, and has heard it or not."""
        self.pings["answered" if answered else "failed"] += 1

    async def ask(self, store: Store) -> None:
        """Ask the database what only it knows, unless that was a moment ago."""
        self._database = store.kind
        if time.monotonic() - self._asked < _HOLDS_S:
            return
        self._asked = time.monotonic()
        try:
            self._backlog = await store.backlog(store.clock.now_ms())
        except Unavailable:
            self._backlog = None  # no number is better than an old one

    # --- telling ---------------------------------------------------------------------------------

    def describe(self) -> list[Metric]:
        """Nothing: a registry need not look for names that are taken; it is all our own."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Everything, as Prometheus has it."""
        info = GaugeMetricFamily("wakeful_build_info", "Always 1.", labels=["version", "database"])
        info.add_metric([version("wakeful"), self._database], 1)
        yield info
        states = self.finished
        failed, again = states["failed"] + states["retrying"], states["retrying"]
        yield _counter("schedules_due", "Due jobs that were planned.", self.schedules_due)
        yield _counter("runs_emitted", "Ticks that became runs to be started.", self.runs_emitted)
        yield _counter("runs_skipped_overlap", "Ticks skipped because of another run.", self.runs_skipped)
        yield _counter("runs_missed", "Ticks that were missed.", self.runs_missed)
        yield _counter("runs_failed_launch", "Attempts that failed.", failed)
        yield _counter("retries", "Attempts that are tried again.", again)
        yield _labelled(
            CounterMetricFamily("wakeful_runs_finished", "Runs that ended, by how.", labels=["state"]),
            [((state,), n) for state, n in states.items() if state not in ("retrying", "running")],
        )
        yield _histogram("drift_seconds", "From when a run was to start to when it did.", self.drift)
        yield _histogram("run_duration_seconds", "From an attempt's start to its end.", self.duration)
        lanes = self.lanes()
        yield _labelled(
            GaugeMetricFamily("wakeful_lane_used", "Places taken in the lane.", labels=["lane"]),
            [((lane,), used) for lane, (used, _) in lanes.items()],
        )
        yield _labelled(
            GaugeMetricFamily("wakeful_lane_size", "Places in the lane.", labels=["lane"]),
            [((lane,), size) for lane, (_, size) in lanes.items()],
        )
        if self._backlog is not None:
            due = self._backlog.due
            yield _labelled(
                GaugeMetricFamily("wakeful_queue_depth", "Runs that are due and wait.", labels=["lane"]),
                [((lane,), due.get(lane, 0)) for lane in {*lanes, *due}],
            )
            yield GaugeMetricFamily("wakeful_dead_letters", "Dead letters.", self._backlog.dead_letters)
        yield _labelled(
            CounterMetricFamily("wakeful_webhook_responses", "Answers to webhooks.", labels=["class"]),
            [((kind,), count) for kind, count in self.webhooks.items()],
        )
        yield _labelled(
            CounterMetricFamily(
                "wakeful_http_requests", "Requests answered.", labels=["method", "route", "status"]
            ),
            self.requests.items(),
        )
        connections = self.connections()
        yield GaugeMetricFamily("wakeful_rpc_connections", "Open WebSockets.", connections.get("rpc", 0))
        yield _labelled(
            CounterMetricFamily("wakeful_rpc_calls", "Requests by RPC.", labels=["method", "outcome"]),
            self.calls.items(),
        )
        yield _labelled(
            CounterMetricFamily("wakeful_rpc_dropped", "WebSockets that were ended.", labels=["reason"]),
            [((reason,), count) for reason, count in self.drops.items()],
        )
        yield GaugeMetricFamily("wakeful_event_streams", "Open streams.", connections.get("events", 0))
        yield _labelled(
            CounterMetricFamily("wakeful_pings", "Pings to the watchdog.", labels=["result"]),
            [((result,), count) for result, count in self.pings.items()],
        )
        yield _labelled(
            CounterMetricFamily("wakeful_deliveries", "Attempts to deliver.", labels=["result"]),
            [((result,), count) for result, count in self.deliveries.items()],
        )


def _counter(name: str, about: str, value: int) -> Metric:
    return CounterMetricFamily(f"wakeful_{name}", about, value)


def _histogram(name: str, about: str, spread: Spread) -> Metric:
    return HistogramMetricFamily(
        f"wakeful_{name}", about, buckets=spread.buckets(), sum_value=spread.sum_ms / 1000
    )


def _labelled(
    family: CounterMetricFamily | GaugeMetricFamily, values: Iterable[tuple[Sequence[str], int]]
) -> Metric:
    for labels, value in sorted(values):
        family.add_metric(list(labels), value)
    return family
