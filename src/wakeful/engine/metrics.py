"""Metrics for Prometheus. Each app has its own set, also if several run in one process.

`docs/reference/metrics.md` lists them. The values of a process are here, those of the whole database in
`database_metrics`, and `process_*` comes from the client library.

Counting must be cheap: it is done per batch, in plain integers, which become metrics only when they are
collected.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from wakeful.engine.database_metrics import AgentCounts, DatabaseMetrics
from wakeful.job.start_rules import BLOCK_REASONS
from wakeful.job.target_kinds import BROKER_KINDS
from wakeful.run.outcome import Finished
from wakeful.run.run import RunState
from wakeful.store.plans import Planned
from wakeful.store.port import Store
from wakeful.values.package import VERSION
from wakeful.values.process_share import current_share

#: upper bounds in ms
_DRIFT: Final = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 60_000, 600_000)
_DURATION: Final = (1, 5, 10, 50, 100, 500, 1_000, 5_000, 10_000, 30_000, 60_000, 300_000, 600_000, 3_600_000)
#: The number of agents that have series of their own, if no setting says otherwise.
AGENTS: Final = 20
#: The known values of labels. Their counters are returned from the start: a counter that first appears with 1
#: has no increase in Prometheus, and the first failure would be overlooked.
_STATES: Final = tuple(state.value for state in RunState if state.terminal and state is not RunState.MISSED)
_CLASSES: Final = ("2xx", "3xx", "4xx", "5xx", "none")
_DELIVERIES: Final = ("delivered", "suppressed", "failed", "unknown", "retrying")
_VERIFICATIONS: Final = ("verified", "unverified", "error")
_PINGS: Final = ("answered", "failed")
_MESSAGES: Final = ("sent", "failed")
_REPORTS: Final = ("applied", "refused", "delayed")
_DROPS: Final = ("slow", "limit")
_METHODS: Final = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})
#: States of attempts after which the run goes on.
_UNFINISHED: Final = frozenset({"retrying", "running"})

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
    """The counters of a process, and the collector of a Prometheus registry.

    `agents` is how many agents have series of their own.
    """

    def __init__(self, agents: int = AGENTS) -> None:
        #: a registry with these metrics and those of the process
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)
        ProcessCollector(registry=self.registry)
        self._database = DatabaseMetrics(agents)
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
        await self._database.refresh(store)

    # --- collecting ------------------------------------------------------------------------------

    def describe(self) -> list[Metric]:
        """Return nothing: the registry is our own, so no names can collide."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Return all metrics in the Prometheus model."""
        info = GaugeMetricFamily("wakeful_build_info", "Always 1.", labels=["version", "database"])
        info.add_metric([VERSION, self._database.kind], 1)
        yield info
        yield GaugeMetricFamily("wakeful_processes", "Processes of this server.", current_share().count)
        yield GaugeMetricFamily("wakeful_processes_responding", "Processes that respond.", 1)
        states = self.finished
        failed, again = states["failed"] + states["retrying"], states["retrying"]
        yield _counter("schedules_due", "Planned due jobs.", self.schedules_due)
        yield _counter("runs_emitted", "Ticks that became runs.", self.runs_emitted)
        yield _counter("runs_skipped_overlap", "Ticks skipped because of another run.", self.runs_skipped)
        yield _counter("runs_missed", "Missed ticks.", self.runs_missed)
        yield _counter("runs_failed_launch", "Failed attempts.", failed)
        yield _counter("retries", "Failed attempts that are retried.", again)
        yield _with_labels(
            CounterMetricFamily("wakeful_runs_finished", "Ended runs by state.", labels=["state"]),
            _from_zero(_STATES, {state: n for state, n in states.items() if state not in _UNFINISHED}),
        )
        yield _with_labels(
            CounterMetricFamily(
                "wakeful_agent_runs_finished", "Ended runs by agent.", labels=["workspace", "agent", "state"]
            ),
            [(labels, n) for labels, n in self.agents.items() if labels[2] not in _UNFINISHED],
        )
        yield _histogram("drift_seconds", "Start delay of first attempts.", self.drift)
        yield _histogram("run_duration_seconds", "Duration of attempts.", self.duration)
        yield GaugeMetricFamily(
            "wakeful_last_planning_pass_timestamp_seconds",
            "When the planner last completed a pass.",
            self.planned_at,
        )
        yield _with_labels(
            GaugeMetricFamily("wakeful_loop_stalled", "1 if the loop hangs or fails.", labels=["loop"]),
            [((name,), int(stalled)) for name, stalled in self.loops().items()],
        )
        lanes = self.lanes()
        yield _with_labels(
            GaugeMetricFamily("wakeful_lane_used", "Used slots of the lane.", labels=["lane"]),
            [((lane,), used) for lane, (used, _) in lanes.items()],
        )
        yield _with_labels(
            GaugeMetricFamily("wakeful_lane_size", "Slots of the lane.", labels=["lane"]),
            [((lane,), size) for lane, (_, size) in lanes.items()],
        )
        yield from self._database.collect(lanes)
        yield _with_labels(
            CounterMetricFamily("wakeful_webhook_responses", "Webhook responses.", labels=["class"]),
            _from_zero(_CLASSES, self.webhooks),
        )
        yield _with_labels(
            CounterMetricFamily("wakeful_chat_responses", "Chat endpoint responses.", labels=["class"]),
            _from_zero(_CLASSES, self.chats),
        )
        yield _with_labels(
            CounterMetricFamily(
                "wakeful_broker_messages", "Launches for brokers.", labels=["target", "result"]
            ),
            _of_brokers(_MESSAGES, self.messages),
        )
        yield _with_labels(
            CounterMetricFamily(
                "wakeful_broker_reports", "Reports of brokers' workers.", labels=["target", "result"]
            ),
            _of_brokers(_REPORTS, self.reports),
        )
        yield _with_labels(
            CounterMetricFamily(
                "wakeful_http_requests", "HTTP requests.", labels=["method", "route", "status"]
            ),
            self.requests.items(),
        )
        connections = self.connections()
        yield GaugeMetricFamily("wakeful_rpc_connections", "Open RPC connections.", connections.get("rpc", 0))
        yield _with_labels(
            CounterMetricFamily("wakeful_rpc_calls", "RPC requests.", labels=["method", "outcome"]),
            self.calls.items(),
        )
        yield _with_labels(
            CounterMetricFamily(
                "wakeful_rpc_dropped", "RPC connections that were closed.", labels=["reason"]
            ),
            _from_zero(_DROPS, self.drops),
        )
        yield GaugeMetricFamily("wakeful_event_streams", "Open event streams.", connections.get("events", 0))
        yield _with_labels(
            CounterMetricFamily("wakeful_pings", "Pings to the watchdog.", labels=["result"]),
            _from_zero(_PINGS, self.pings),
        )
        yield _with_labels(
            CounterMetricFamily("wakeful_deliveries", "Delivery attempts.", labels=["result"]),
            _from_zero(_DELIVERIES, self.deliveries),
        )
        yield _with_labels(
            CounterMetricFamily("wakeful_verifications", "Checks of runs.", labels=["result"]),
            _from_zero(_VERIFICATIONS, self.verifications),
        )


def _counter(name: str, about: str, value: int) -> Metric:
    return CounterMetricFamily(f"wakeful_{name}", about, value)


def _histogram(name: str, about: str, histogram: Histogram) -> Metric:
    return HistogramMetricFamily(
        f"wakeful_{name}", about, buckets=histogram.buckets(), sum_value=histogram.sum_ms / 1000
    )


def _with_labels(
    family: CounterMetricFamily | GaugeMetricFamily, values: Iterable[tuple[Sequence[str], int]]
) -> Metric:
    for labels, value in sorted(values):
        family.add_metric(list(labels), value)
    return family


def _from_zero(known: Iterable[str], counts: Mapping[str, int]) -> list[tuple[Sequence[str], int]]:
    """Return the counts by label, with 0 for known values that have none."""
    return [((value,), count) for value, count in {**dict.fromkeys(known, 0), **counts}.items()]


def _of_brokers(
    results: Iterable[str], counts: Mapping[tuple[str, str], int]
) -> list[tuple[Sequence[str], int]]:
    """Return the counts by target and result, with 0 for those that have none."""
    none = {(kind, result): 0 for result in results for kind in BROKER_KINDS}
    return [(labels, count) for labels, count in {**none, **counts}.items()]


def _status_class(status: int | None) -> str:
    return "none" if status is None else f"{status // 100}xx"
