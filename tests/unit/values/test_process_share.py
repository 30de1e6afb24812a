"""The parts of lanes, and the number of usable cores."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful.values import process_share
from wakeful.values.process_share import ProcessShare


@given(st.integers(1, 2_000), st.integers(1, 256))
def test_the_parts_of_a_lane_add_up_to_it_and_none_is_empty(size: int, count: int):
    parts = [ProcessShare(number, count).divide_lane(size) for number in range(1, count + 1)]
    assert sum(parts) == max(size, count)
    assert min(parts) >= 1
    assert max(parts) - min(parts) <= 1


def test_the_connections_of_one_server_have_names_of_the_same_start():
    first, second = ProcessShare(1, 2, 71), ProcessShare(2, 2, 71)
    assert first.server_connections == second.server_connections
    assert second.connection_name == f"{first.server_connections} process 2"
    assert ProcessShare().connection_name.endswith(f":{os.getpid()}")
    assert len(second.connection_name) < 64, "PostgreSQL cuts longer names"


def test_the_limit_of_each_control_group_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    group = tmp_path / "system.slice" / "wakeful.service"
    group.mkdir(parents=True)
    own = tmp_path / "cgroup"
    own.write_text("0::/system.slice/wakeful.service\n")
    monkeypatch.setattr(process_share, "_CGROUP_ROOT", tmp_path)
    monkeypatch.setattr(process_share, "_OWN_CGROUP", own)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    assert process_share.usable_cores() == 8
    (tmp_path / "system.slice" / "cpu.max").write_text("250000 100000\n")
    assert process_share.usable_cores() == 3
    (group / "cpu.max").write_text("50000 100000\n")
    assert process_share.usable_cores() == 1
