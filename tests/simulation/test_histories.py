"""Hundreds of random histories: despite all faults no tick is lost or duplicated.

A failure prints its seed and can be repeated: `pytest tests/simulation -k seed_123`. More or other seeds:
`WAKEFUL_SEEDS=1000-5000 pytest tests/simulation/test_histories.py -n auto`.
"""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.simulation.checker import instant
from tests.simulation.history import History
from tests.simulation.virtual_loop import run_virtually
from tests.support.effort import cases

_FIRST, _, _LAST = os.environ.get("WAKEFUL_SEEDS", f"0-{cases(39, 199)}").partition("-")
SEEDS = range(int(_FIRST), int(_LAST or _FIRST) + 1)


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: f"seed_{seed}")
def test_every_tick_has_one_record_and_every_run_one_outcome(seed: int):
    history = History(seed)
    with TemporaryDirectory() as folder:
        try:
            run_virtually(history.tell(Path(folder)))
        except AssertionError as error:
            raise AssertionError(f"{error}\n\n{_tale(history)}") from None


def test_a_history_is_determined_by_its_seed():
    assert _happened(12) == _happened(12) != _happened(13)


@pytest.mark.slow
def test_histories_contain_every_kind_of_event():
    histories = [_happened(seed) for seed in range(40, 50)]
    told = "\n".join(what for history in histories for _, what in history)
    for word in (
        "starts", "is stopped", "dies before", "dies after", "out of the blue", "is created", "is edited",
        "is paused", "is resumed", "is deleted", "is run by hand", "is cancelled", "is replayed",
        "the clock is set",
    ):  # fmt: skip
        assert word in told, word


def _happened(seed: int) -> list[tuple[int, str]]:
    history = History(seed)
    with TemporaryDirectory() as folder:
        run_virtually(history.tell(Path(folder)))
    world = history.world
    told = [(told.at_ms, told.what) for told in world.told]
    return told + [(launch.began_ms, f"{launch.run_id} {launch.end}") for launch in world.journal.launches]


def _tale(history: History) -> str:
    """Describe the settings and the last events of a failed history."""
    lines = [f"  {instant(told.at_ms)} {told.what}" for told in history.world.told]
    head = f"It had a unit of {history.unit} s, {history.config}, {history.odds}. What was done to it:"
    return "\n".join([head, *lines[-60:]])
