"""Hundreds of histories, each from one seed: whatever happens in them, no tick is lost and none is doubled.

A failing one names its seed, and is told again alone: `make test ARGS='tests/simulation -k seed_123'`.
More of them: `WAKEFUL_HISTORIES=1000-3000 make test ARGS=tests/simulation/test_histories.py`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.simulation.history import History
from tests.simulation.virtual_loop import run_virtually

FIRST, LAST = map(int, os.environ.get("WAKEFUL_HISTORIES", "0-299").split("-"))


@pytest.mark.parametrize("seed", range(FIRST, LAST + 1), ids=lambda seed: f"seed_{seed}")
def test_no_tick_is_lost_and_none_is_doubled_whatever_happens(seed: int, tmp_path: Path) -> None:
    run_virtually(History(seed).tell(tmp_path))
