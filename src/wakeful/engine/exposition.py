"""The metrics of a process in the model of Prometheus.

Only a process whose metrics are collected imports this module, and with it the client library.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from wakeful.engine.database_metrics import OTHER, DatabaseMetrics
from wakeful.engine.metrics import Histogram, Metrics
from wakeful.job.target_kinds import BROKER_KINDS
from wakeful.run.run import RunState
from wakeful.values.package import VERSION
from wakeful.values.process_share import current_share

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
_SOURCES: Final = ("pending", "active", "failed", "ending")
#: States of attempts after which the run goes on.
_UNFINISHED: Final = frozenset({"retrying", "running"})


def new_registry(metrics: Metrics) -> CollectorRegistry:
    """Return a registry with these metrics and those of the process."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(MetricsCollector(metrics))
    ProcessCollector(registry=registry)
    return registry


class MetricsCollector:
    """Collects the metrics of a process and of its database."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def describe(self) -> list[Metric]:
        """Return nothing: the registry is our own, so no names can collide."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Return all metrics in the Prometheus model."""
        metrics = self._metrics
        info = GaugeMetricFamily("wakeful_build_info", "Always 1.", labels=["version", "database"])
        info.add_metric([VERSION, metrics.database.kind], 1)
        yield info
        yield GaugeMetricFamily("wakeful_processes", "Processes of this server.", current_share().count)
        yield GaugeMetricFamily("wakeful_processes_responding", "Processes that respond.", 1)
        states = metrics.finished
        failed, again = states["failed"] + states["retrying"], states["retrying"]
        yield _counter("schedules_due", "Planned due jobs.", metrics.schedules_due)
        yield _counter("runs_emitted", "Ticks that became runs.", metrics.runs_emitted)
        yield _counter("runs_skipped_overlap", "Ticks skipped because of another run.", metrics.runs_skipped)
        yield _counter("runs_missed", "Missed ticks.", metrics.runs_missed)
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
            [(labels, n) for labels, n in metrics.agents.items() if labels[2] not in _UNFINISHED],
        )
        yield _histogram("drift_seconds", "Start delay of first attempts.", metrics.drift)
        yield _histogram("run_duration_seconds", "Duration of attempts.", metrics.duration)
        yield GaugeMetricFamily(
            "wakeful_last_planning_pass_timestamp_seconds",
            "When the planner last completed a pass.",
            metrics.planned_at,
        )
        yield _with_labels(
            GaugeMetricFamily("wakeful_loop_stalled", "1 if the loop hangs or fails.", labels=["loop"]),
            [((name,), int(stalled)) for name, stalled in metrics.loops().items()],
        )
        lanes = metrics.lanes()
        yield _with_labels(
            GaugeMetricFamily("wakeful_lane_used", "Used slots of the lane.", labels=["lane"]),
            [((lane,), used) for lane, (used, _) in lanes.items()],
        )
        yield _with_labels(
            GaugeMetricFamily("wakeful_lane_size", "Slots of the lane.", labels=["lane"]),
            [((lane,), size) for lane, (_, size) in lanes.items()],
        )
        yield from _collect_database(metrics.database, lanes)
        yield _with_labels(
            CounterMetricFamily("wakeful_webhook_responses", "Webhook responses.", labels=["class"]),
            _from_zero(_CLASSES, metrics.webhooks),
        )
        yield _with_labels(
            CounterMetricFamily("wakeful_chat_responses", "Chat endpoint responses.", labels=["class"]),
            _from_zero(_CLASSES, metrics.chats),
        )
        yield _with_labels(
            CounterMetricFamily(
                "wakeful_broker_messages", "Launches for brokers.", labels=["target", "result"]
            ),
            _of_brokers(_MESSAGES, metrics.messages),
        )
        yield _with_labels(
            CounterMetricFamily(
                "wakeful_broker_reports", "Reports of brokers' workers.", labels=["target", "result"]
            ),
            _of_brokers(_REPORTS, metrics.reports),
        )
        yield _with_labels(
            CounterMetricFamily(
                "wakeful_http_requests", "HTTP requests.", labels=["method", "route", "status"]
            ),
            metrics.requests.items(),
        )
        connections = metrics.connections()
        yield GaugeMetricFamily("wakeful_rpc_connections", "Open RPC connections.", connections.get("rpc", 0))
        yield _with_labels(
            CounterMetricFamily("wakeful_rpc_calls", "RPC requests.", labels=["method", "outcome"]),
            metrics.calls.items(),
        )
        yield _with_labels(
            CounterMetricFamily(
                "wakeful_rpc_dropped", "RPC connections that were closed.", labels=["reason"]
            ),
            _from_zero(_DROPS, metrics.drops),
        )
        yield GaugeMetricFamily("wakeful_event_streams", "Open event streams.", connections.get("events", 0))
        yield _with_labels(
            CounterMetricFamily("wakeful_pings", "Pings to the watchdog.", labels=["result"]),
            _from_zero(_PINGS, metrics.pings),
        )
        yield _with_labels(
            CounterMetricFamily("wakeful_deliveries", "Delivery attempts.", labels=["result"]),
            _from_zero(_DELIVERIES, metrics.deliveries),
        )
        yield _with_labels(
            CounterMetricFamily("wakeful_verifications", "Checks of runs.", labels=["result"]),
            _from_zero(_VERIFICATIONS, metrics.verifications),
        )


def _collect_database(database: DatabaseMetrics, lanes: Iterable[str]) -> Iterator[Metric]:
    """Return the metrics, with a value for each of these lanes."""
    yield CounterMetricFamily("wakeful_database_read_errors", "Failed reads.", database.errors)
    store, backlog, events = database.store, database.backlog, database.events
    if store is None or backlog is None or events is None:
        return
    now_ms = store.clock.now_ms()

    def age(since_ms: int | None) -> float:
        return 0.0 if since_ms is None else max(0, now_ms - since_ms) / 1000

    yield GaugeMetricFamily(
        "wakeful_database_read_timestamp_seconds",
        "When the metrics of the database were read.",
        database.read_at,
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
    yield GaugeMetricFamily("wakeful_event_subscriptions", "Active subscriptions.", events.subscriptions)
    yield GaugeMetricFamily(
        "wakeful_event_subscriptions_failing", "Subscriptions whose callbacks fail.", events.failing
    )
    yield GaugeMetricFamily(
        "wakeful_event_feed_lag_seconds",
        "Age of the oldest change whose events are no deliveries yet.",
        age(events.oldest_ms),
    )
    yield _with_labels(
        GaugeMetricFamily("wakeful_event_sources", "Subscriptions of jobs by state.", labels=["state"]),
        _from_zero(_SOURCES, events.sources),
    )
    yield GaugeMetricFamily(
        "wakeful_event_sources_overdue_seconds", "How late the first of them is.", age(events.due_ms)
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
