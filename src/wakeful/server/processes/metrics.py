"""The metrics of several processes: added up by pure functions, and exchanged by `MetricsExchange`.

Counters and histograms are added, those of processes that have ended included. Each gauge has its own rule.

The processes read each other's metrics over unix sockets in a directory of their own. A process also writes
its counters to a file, before it returns them. So a counter never goes back: if the process ends, its file
has all that was ever returned, and the process that replaces it continues from there.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from wakeful.logs import get_logger
from wakeful.values.process_share import ProcessShare

Labels = tuple[tuple[str, str], ...]

#: Seconds for the response of another process.
_TIMEOUT_S: Final = 2.0
_MAX_BYTES: Final = 1 << 24

log = get_logger("wakeful.metrics")


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


def take_snapshot(metrics: Iterable[Metric]) -> Snapshot:
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


def continue_counters(earlier: Snapshot, own: Snapshot) -> Snapshot:
    """Return the values of a process that continues the counters of an earlier one."""
    return merge_snapshots(own, [earlier], gauges={})


def merge_snapshots(
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


class MetricsExchange:
    """The metrics of this process for the others, and theirs for it."""

    def __init__(self, folder: Path, share: ProcessShare, registry: CollectorRegistry) -> None:
        self._folder = folder
        self._share = share
        self._registry = registry
        self._earlier: Snapshot = {}
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._earlier = self._read_snapshot(self._share.number)
        place = self._socket(self._share.number)
        place.unlink(missing_ok=True)  # of the process that this one replaces
        self._server = await asyncio.start_unix_server(self._respond, place)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()
            self._socket(self._share.number).unlink(missing_ok=True)
            self._snapshot()

    async def collect_all(self) -> Collected:
        """Return the metrics of all processes. Of one that does not respond, the counters it wrote last."""
        others = [number for number in range(1, self._share.count + 1) if number != self._share.number]
        found = await asyncio.gather(*map(self._fetch_snapshot, others))
        return Collected(merge_snapshots(self._snapshot(), found))

    def _snapshot(self) -> Snapshot:
        """Return the metrics of this process, after their counters are written."""
        snapshot = continue_counters(self._earlier, take_snapshot(self._registry.collect()))
        file = self._file(self._share.number)
        new = file.with_suffix(".new")
        try:
            new.write_text(json.dumps(to_json(lasting(snapshot))), encoding="utf-8")
            os.replace(new, file)
        except FileNotFoundError:  # the supervisor has ended, and this process will
            pass
        except OSError as error:
            log.warning("metrics.not_written", error=str(error))
        return snapshot

    async def _fetch_snapshot(self, number: int) -> Snapshot:
        with suppress(OSError, ValueError, asyncio.IncompleteReadError):
            async with asyncio.timeout(_TIMEOUT_S):
                reader, writer = await asyncio.open_unix_connection(self._socket(number), limit=_MAX_BYTES)
                try:
                    return from_json(json.loads(await reader.read(-1)))
                finally:
                    writer.close()
        return self._read_snapshot(number)

    def _read_snapshot(self, number: int) -> Snapshot:
        try:
            return from_json(json.loads(self._file(number).read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return {}

    async def _respond(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):  # the other process has ended
            writer.write(json.dumps(to_json(self._snapshot())).encode())
            await writer.drain()
        writer.close()

    def _socket(self, number: int) -> Path:
        return self._folder / f"{number}.sock"

    def _file(self, number: int) -> Path:
        return self._folder / f"{number}.json"
