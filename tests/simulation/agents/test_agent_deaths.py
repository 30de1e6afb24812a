"""Handlers of replicas that crash and stall, at every call of the store."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from tests.simulation.agents.agent_world import AgentWorld
from tests.simulation.agents.journal import Dispatch, Handling, Plan
from tests.simulation.faults import fated
from tests.simulation.virtual_loop import run_virtually
from tests.support.effort import part
from wakeful.engine.engine import EngineConfig

LEASE = 30
RARELY = EngineConfig(tick_ms=5_000, retention_days=36_500)


async def directs(handling: Handling) -> Plan:
    """Take a moment; a signal of a sender has every kind of directive."""
    await asyncio.sleep(0.5)
    if handling.depth:
        return Plan()
    token = f"{handling.launch.run_id}:{handling.launch.attempt}"
    return Plan(
        (
            Dispatch(f"{token}:1", ("beta", "a")),
            Dispatch(f"{token}:2", ("alpha", "a")),
            Dispatch(f"{token}:3", ("alpha", "a"), 2_000),
        ),
        (f"{token}:4",),
        (("p", f"{token}:5"), ("q", f"{token}:6"), ("p", None)),
    )


@pytest.mark.parametrize("number", part(range(3, 15)))
def test_a_death_after_any_call_leaves_each_signal_one_outcome_with_all_its_directives(
    tmp_path: Path, number: int
):
    async def story() -> None:
        async with AgentWorld(tmp_path, behaviour=directs, config=RARELY) as world:
            sent = [await world.send("alpha", "a", signal_id) for signal_id in ("1", "2")]
            doomed = await world.start()
            fated(doomed.store, number, after=True)
            await world.sleep(6)
            assert not doomed.alive, "it makes at least that many calls"
            world.check()
            assert await world.send("alpha", "a", "2") == sent[1], "a sender that repeats its signal"
            await world.send("alpha", "a", "3")
            await world.start()
            await world.sleep(2 * LEASE)
            world.check()
            runs = [run for run in world.signal_records().runs if run.trigger == "signal"]
            assert Counter((run.agent, run.state) for run in runs) == {
                ("alpha", "succeeded"): 3 + 3 + 3,
                ("beta", "succeeded"): 3,
            }

    run_virtually(story())


@pytest.mark.parametrize("stalled_s", [20, 3 * LEASE], ids=["within_the_lease", "past_the_lease"])
def test_a_stalled_replica_does_not_write_the_outcome_of_a_signal_that_another_has_handled(
    tmp_path: Path, stalled_s: int
):
    async def story() -> None:
        async with AgentWorld(tmp_path, behaviour=directs) as world:
            world.journal.slow = True
            stalled = await world.start()
            await world.send("alpha", "a", "1", through=stalled)
            await world.sleep(0.2)
            stalled.store.silence(stalled_s)
            await world.start()
            await world.sleep(6 * LEASE)
            world.check()
            handled = [each for each in world.signals.handlings if each.depth == 0]
            assert len({each.launch.worker for each in handled}) == (1 if stalled_s < LEASE else 2)

    run_virtually(story())


def test_an_instance_that_hibernates_continues_with_its_state_on_another_replica(tmp_path: Path):
    async def story() -> None:
        async with AgentWorld(tmp_path) as world:
            first = await world.start()
            await world.send("alpha", "a", "1", through=first)
            await world.sleep(1)
            world.hibernate(first, "alpha", "a")
            await first.stop()
            second = await world.start()
            await world.send("alpha", "a", "2", through=second)
            await world.sleep(100)
            assert len(world.launchers[second].cache) == 0, "it is idle"
            await world.send("alpha", "a", "3", through=second)
            await world.sleep(1)
            world.check(over=True)
            assert [len(each.saw) for each in world.signals.handlings] == [0, 1, 2]
            assert (world.signals.thaws, world.signals.hibernations) == (3, 2)

    run_virtually(story())
