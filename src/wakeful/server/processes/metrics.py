"""Adds up the metrics of several processes: pure.

Counters and histograms are added, those of processes that have ended included. Each gauge has its own rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from prometheus_client.core import Metric

Labels = tuple[tuple[str, str], ...]


class Series(NamedTuple):
    """The name and the labels of a value."""

    name: str
    labels: Labels


@dataclass(frozen=True, slots=True)
class Family:
    """A metric with its values."""

    name: str
    documentation: str
    kind: str
    values: Mapping[Series, float]

    @property
    def grows(self) -> bool:
        """Whether its values only grow: they stay when their process ends."""
        return self.kind in ("counter", "histogram")


#: The metrics of a process by name.
Snapshot = Mapping[str, Family]

#: How the gauges of several processes become one. The others are of the whole database: those of the process
#: that is asked count.
GAUGES: Final[Mapping[str, Callable[[Iterable[float]], float]]] = {
    "wakeful_processes_responding": sum,
    "wakeful_last_planning_pass_timestamp_seconds": min,
    "wakeful_loop_stalled": max,
    "wakeful_lane_used": sum,
    "wakeful_lane_size": sum,
    "wakeful_rpc_connections": sum,
    "wakeful_event_streams": sum,
    "process_virtual_memory_bytes": sum,
    "process_resident_memory_bytes": sum,
    "process_open_fds": sum,
    "process_max_fds": sum,
    "process_start_time_seconds": max,  # it changes with each restart
}


def snapshot_of(metrics: Iterable[Metric]) -> Snapshot:
    """Return the current values of a process."""
    return {
        metric.name: Family(
            metric.name,
            metric.documentation,
            metric.type,
            {
                Series(sample.name, tuple(sorted(sample.labels.items()))): sample.value
                for sample in metric.samples
            },
        )
        for metric in metrics
    }


def lasting(snapshot: Snapshot) -> Snapshot:
    """Return what stays when the process ends: counters and histograms."""
    return {name: family for name, family in snapshot.items() if family.grows}


def continued(earlier: Snapshot, own: Snapshot) -> Snapshot:
    """Return the values of a process that continues the counters of an earlier one."""
    return merged(own, [earlier], gauges={})


def merged(
    own: Snapshot,
    others: Sequence[Snapshot],
    gauges: Mapping[str, Callable[[Iterable[float]], float]] = GAUGES,
) -> Snapshot:
    """Return the metrics of this process and others as one."""
    result: dict[str, Family] = {}
    for name in dict.fromkeys(name for each in (own, *others) for name in each):
        found = [each[name] for each in (own, *others) if name in each]
        first = found[0]
        combine = sum if first.grows else gauges.get(name)
        if combine is None:
            if name in own:
                result[name] = own[name]
            continue
        by_series: dict[Series, list[float]] = {}
        for family in found:
            for series, value in family.values.items():
                by_series.setdefault(series, []).append(value)
        values = {series: combine(each) for series, each in by_series.items()}
        result[name] = Family(name, first.documentation, first.kind, values)
    return result


class Collected:
    """Metrics for the text format: a registry as far as `generate_latest` needs it."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterable[Metric]:
        """Return the metrics."""
        for family in self._snapshot.values():
            metric = Metric(family.name, family.documentation, family.kind)
            for series, value in family.values.items():
                metric.add_sample(series.name, dict(series.labels), value)
            yield metric


def to_json(snapshot: Snapshot) -> list[object]:
    """Return the snapshot as JSON."""
    return [
        [
            family.name,
            family.documentation,
            family.kind,
            [[*each, value] for each, value in family.values.items()],
        ]
        for family in snapshot.values()
    ]


def from_json(read: Iterable[tuple[str, str, str, list[tuple[str, list[list[str]], float]]]]) -> Snapshot:
    """Return the snapshot of JSON."""
    return {
        name: Family(
            name,
            documentation,
            kind,
            {
                Series(sample, tuple((key, text) for key, text in labels)): value
                for sample, labels, value in values
            },
        )
        for name, documentation, kind, values in read
    }
