"""The metrics of several processes as one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from wakeful.engine.exposition import new_registry
from wakeful.engine.metrics import Metrics
from wakeful.server.processes.metrics import (
    GAUGES,
    Collected,
    MetricsExchange,
    Snapshot,
    continue_counters,
    from_json,
    lasting,
    merge_snapshots,
    take_snapshot,
    to_json,
)
from wakeful.values.process_share import ProcessShare

#: Gauges that every process reads from the database, or that are the same in each.
_SAME = {"wakeful_build_info", "wakeful_processes"}


def counted(pings: int, *, lanes: tuple[int, int] = (0, 5), planned_at: float = 100.0) -> Metrics:
    metrics = Metrics()
    for _ in range(pings):
        metrics.record_ping(True)
    metrics.duration.add([3] * pings)
    metrics.lanes = lambda: {"cron": lanes}
    metrics.planned_at = planned_at
    return metrics


def text(snapshot: Snapshot) -> dict[str, float]:
    lines = generate_latest(Collected(snapshot)).decode().splitlines()
    values = [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]
    return {series: float(value) for series, value in values}


def snapshot(metrics: Metrics) -> Snapshot:
    return take_snapshot(new_registry(metrics).collect())


def test_one_snapshot_has_the_text_of_its_registry():
    metrics = counted(3)
    unchanged = {
        line
        for line in generate_latest(new_registry(metrics)).decode().splitlines()
        if "process_" not in line
    }
    again = generate_latest(Collected(snapshot(metrics))).decode()
    assert unchanged <= set(again.splitlines())


def test_counters_histograms_and_gauges_are_combined():
    found = text(
        merge_snapshots(
            snapshot(counted(3, lanes=(1, 8), planned_at=100.0)),
            [snapshot(counted(4, lanes=(2, 7), planned_at=90.0))],
        )
    )
    assert found['wakeful_pings_total{result="answered"}'] == 7
    assert found["wakeful_run_duration_seconds_count"] == 7
    assert found['wakeful_run_duration_seconds_bucket{le="0.005"}'] == 7
    assert found['wakeful_lane_used{lane="cron"}'] == 3
    assert found['wakeful_lane_size{lane="cron"}'] == 15
    assert found["wakeful_last_planning_pass_timestamp_seconds"] == 90
    assert found["wakeful_processes_responding"] == 2


def test_a_snapshot_survives_json_and_an_end_keeps_only_what_grows():
    whole = snapshot(counted(2))
    assert from_json(json.loads(json.dumps(to_json(whole)))) == whole
    assert {family.kind for family in lasting(whole).values()} == {"counter", "histogram"}
    found = text(continue_counters(lasting(whole), snapshot(counted(1))))
    assert found['wakeful_pings_total{result="answered"}'] == 3
    assert found["wakeful_processes_responding"] == 1


def test_every_gauge_of_a_process_has_its_rule():
    """Break it by adding a gauge: decide whether it is added, or that of the process that responds counts."""
    gauges = {family.name for family in snapshot(counted(1)).values() if family.kind == "gauge"}
    assert gauges - set(GAUGES) == _SAME


@pytest.fixture
def exchange_of(tmp_path: Path) -> Callable[[int, Metrics], MetricsExchange]:
    return lambda number, metrics: MetricsExchange(
        tmp_path, ProcessShare(number, 2, 1), new_registry(metrics)
    )


async def test_a_process_that_ended_keeps_its_counters_and_its_successor_continues_them(
    exchange_of: Callable[[int, Metrics], MetricsExchange],
):
    def pings(collected: Collected) -> tuple[float, float]:
        found = text(collected._snapshot)
        return found['wakeful_pings_total{result="answered"}'], found["wakeful_processes_responding"]

    own = counted(5)
    async with exchange_of(1, own) as first:
        assert pings(await first.collect_all()) == (5, 1)
        async with exchange_of(2, counted(10)) as second:
            assert pings(await first.collect_all()) == (15, 2)
            assert pings(await second.collect_all()) == (15, 2)
        assert pings(await first.collect_all()) == (15, 1)
        async with exchange_of(2, counted(1)) as second:
            own.record_ping(True)
            assert pings(await second.collect_all()) == (17, 2)
            assert pings(await first.collect_all()) == (17, 2)
