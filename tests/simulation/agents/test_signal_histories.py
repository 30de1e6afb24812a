"""Random histories of agents: despite all faults each signal is handled to the end exactly once.

A failure prints its seed and can be repeated: `pytest tests/simulation/agents -k seed_123`. More or other
seeds: `WAKEFUL_AGENT_SEEDS=1000-5000 pytest tests/simulation/agents/test_signal_histories.py -n auto`.
"""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.simulation.agents.history import AgentHistory
from tests.simulation.checker import instant
from tests.simulation.virtual_loop import run_virtually
from tests.support.effort import cases

_FIRST, _, _LAST = os.environ.get("WAKEFUL_AGENT_SEEDS", f"0-{cases(11, 11)}").partition("-")
SEEDS = range(int(_FIRST), int(_LAST or _FIRST) + 1)


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: f"seed_{seed}")
def test_every_signal_is_handled_once_and_in_order_with_all_its_directives(seed: int):
    history = AgentHistory(seed)
    with TemporaryDirectory() as folder:
        try:
            run_virtually(history.tell(Path(folder)))
        except AssertionError as error:
            raise AssertionError(f"{error}\n\n{_tale(history)}") from None


def test_a_history_of_agents_is_determined_by_its_seed():
    assert _happened(12) == _happened(12) != _happened(13)


@pytest.mark.slow
def test_histories_of_agents_contain_every_kind_of_event():
    missing = set(KINDS)
    for seed in range(40, 80):
        missing -= _kinds(_history(seed))
        if not missing:
            return
    raise AssertionError(f"no history has {', '.join(sorted(missing))}")


KINDS = (
    "starts", "is stopped", "dies before", "dies after", "out of the blue", "is sent again", "hibernates",
    ": pause", ": resume", ": stop", ": start", "is cancelled", "is replayed", "is stopped; start it",
    "an outcome with Stop", "a schedule that is cancelled", "a delay with an id", "an emitted signal",
    "an unloaded object", "succeeded", "failed", "permanent", "cut short", "crashed",
)  # fmt: skip


def _kinds(history: AgentHistory) -> set[str]:
    """Return which kinds of events a history has."""
    signals = history.world.signals
    plans = [each.plan for each in signals.handlings if each.plan is not None]
    found = {
        "an outcome with Stop": any(plan.stop for plan in plans),
        "a schedule that is cancelled": any(token is None for plan in plans for _, token in plan.crons),
        "a delay with an id": any(send.delay_ms and send.signal_id for plan in plans for send in plan.sends),
        "an emitted signal": any(plan.emitted for plan in plans),
        "an unloaded object": signals.hibernations > 0,
    }
    told = "\n".join(told.what for told in history.world.told)
    ends = {str(each.launch.end) for each in signals.handlings}
    return {kind for kind, true in found.items() if true} | {kind for kind in KINDS if kind in told} | ends


def _history(seed: int) -> AgentHistory:
    history = AgentHistory(seed)
    with TemporaryDirectory() as folder:
        run_virtually(history.tell(Path(folder)))
    return history


def _happened(seed: int) -> list[tuple[int, str]]:
    world = _history(seed).world
    told = [(told.at_ms, told.what) for told in world.told]
    return told + [(launch.began_ms, f"{launch.run_id} {launch.end}") for launch in world.journal.launches]


def _tale(history: AgentHistory) -> str:
    """Describe the settings and the last events of a failed history."""
    lines = [f"  {instant(told.at_ms)} {told.what}" for told in history.world.told]
    head = f"It had a unit of {history.unit} s, {history.config}, {history.odds}. What was done to it:"
    return "\n".join([head, *lines[-60:]])
