"""A run that kills its process ends as a dead letter; the runs that die with it do not."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from tests.simulation.journal import Life, Plain, Rules
from tests.simulation.stories import simulated
from tests.simulation.world import Body, World, takes
from tests.support.effort import cases
from wakeful.engine.engine import EngineConfig
from wakeful.launch.port import Launch

NOON = Plain(cron="0 12 * * *")
MINUTELY = Plain(cron="* * * * *")
ALLOW = Rules(overlap="allow")
NARROW = EngineConfig(lanes={"cron": 4}, retention_days=36_500)


def _poison(world: World, after_s: float = 0.5) -> Body:
    """Return a body that kills the process that runs it."""

    async def body(run: Launch) -> None:
        await asyncio.sleep(after_s)
        for replica in world.alive:
            if any(launch.run_id == run.id for launch in replica.running):
                replica.crash("of poison")
        await asyncio.sleep(60)

    return body


async def _supervise(world: World, replicas: int, seconds: int, kill: Random | None = None) -> None:
    """Keep that many replicas alive for so long; kill one in a hundred seconds on average."""
    for _ in range(seconds):
        while len(world.alive) < replicas:
            await world.start()
        if kill is not None and kill.random() < 0.01:
            kill.choice(world.alive).crash("for no reason")
        await world.sleep(1)


async def _given(world: World, poison: Body, innocents: int, seconds: float = 20) -> tuple[Life, list[Life]]:
    bad = await world.create("poison", NOON, ALLOW, body=poison)
    good = [await world.create(f"innocent-{n}", NOON, ALLOW, body=takes(seconds)) for n in range(innocents)]
    return bad, good


@pytest.mark.parametrize("replicas", [1, 2, 3])
@simulated()
async def test_a_poison_is_a_dead_letter_and_the_runs_beside_it_succeed(world: World, replicas: int):
    bad, good = await _given(world, _poison(world), 8)
    other = await world.create("other", MINUTELY, Rules(max_attempts=1), body=takes(1))
    for each in [*good, bad]:
        await world.trigger(each)
    await _supervise(world, replicas, 10 * 60)
    (run,) = world.recorded(bad)
    assert (run.state, run.reason, run.dead) == ("failed", "lost", True)
    assert len(world.launches(bad)) <= 9
    for each in good:
        (run,) = world.recorded(each)
        assert run.state == "succeeded", f"{each.name}: {run}"
    # Other work goes on while suspects wait for each other.
    assert len(world.recorded(other, "succeeded")) >= 7


@pytest.mark.parametrize("seed", range(cases(3, 12)))
@simulated()
async def test_innocent_runs_survive_a_poison_and_random_kills(world: World, seed: int):
    rng = Random(seed)
    bad, good = await _given(world, _poison(world, rng.uniform(0, 5)), 12, rng.uniform(1, 30))
    for each in rng.sample([*good, bad], 13):
        await world.trigger(each)
    await _supervise(world, 2, 15 * 60, rng)
    (run,) = world.recorded(bad)
    assert (run.state, run.reason) == ("failed", "lost")
    for each in good:
        (run,) = world.recorded(each)
        assert run.state == "succeeded", f"{each.name}: {run}"


@pytest.mark.parametrize("limit", [1, 3])
@simulated()
async def test_a_run_that_is_always_lost_in_company_ends_too(world: World, limit: int):
    rules = Rules(overlap="allow", max_attempts=3, lost_limit=limit)
    bad = await world.create("poison", NOON, rules, body=_poison(world, 5))
    await world.create("busy", Plain(every_ms=5_000), ALLOW, body=takes(6))
    await world.trigger(bad)
    await _supervise(world, 1, 12 * 60)
    (run,) = world.recorded(bad)
    assert (run.state, run.reason, run.dead) == ("failed", "lost", True)
    assert len(world.launches(bad)) == limit + 3
    await world.sleep(60)


@simulated()
async def test_runs_of_a_dead_worker_are_lost_together_in_several_batches_too(world: World):
    once = Rules(overlap="allow", max_attempts=1)
    good = [await world.create(f"innocent-{n}", NOON, once, body=takes(20)) for n in range(3)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("wakeful.engine.rescuer._BATCH", 2)
        for each in good:
            await world.trigger(each)
        await world.start()
        await world.sleep(5)
        world.alive[0].crash("for no reason")
        await _supervise(world, 1, 3 * 60)
    assert [run.state for each in good for run in world.recorded(each)] == ["succeeded"] * 3


@simulated(config=NARROW)
async def test_runs_that_were_lost_together_start_although_others_wait_for_slots(world: World):
    busy = [await world.create(f"busy-{n}", Plain(every_ms=1_000), ALLOW, body=takes(3)) for n in range(2)]
    lost = [await world.create(f"lost-{n}", NOON, ALLOW, body=takes(20)) for n in range(3)]
    for each in lost:
        await world.trigger(each)
    await world.start()
    await world.sleep(15)
    world.alive[0].crash("for no reason")
    await _supervise(world, 1, 4 * 60)
    assert len(world.recorded(busy[0], "pending")) > 10, "the lane has a backlog"
    assert [run.state for each in lost for run in world.recorded(each)] == ["succeeded"] * 3


@simulated()
async def test_the_runs_of_a_killed_process_do_not_wait_for_each_other_one_by_one(world: World):
    good = [await world.create(f"innocent-{n}", NOON, ALLOW, body=takes(60)) for n in range(21)]
    for each in good:
        await world.trigger(each)
    await world.start()
    await world.sleep(30)
    world.alive[0].crash("for no reason")
    await _supervise(world, 1, 7 * 60)
    assert [run.state for each in good for run in world.recorded(each)] == ["succeeded"] * 21
