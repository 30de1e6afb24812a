"""Pauses with an end time, and ticks skipped on request."""

from __future__ import annotations

import pytest

from tests.simulation.journal import Plain, Rules
from tests.simulation.stories import simulated
from tests.simulation.world import World, takes
from wakeful.service.auth.access import LOCAL

MINUTE = 60_000
MINUTELY = Plain(cron="* * * * *")


@simulated()
async def test_a_pause_ends_at_its_end_time_and_the_tick_at_that_time_fires(world: World):
    job = await world.create("job", MINUTELY, Rules(catchup="fire_immediately"))
    await world.start()
    await world.sleep(5 * 60 + 30)
    until_ms = world.clock.now_ms() + 10 * MINUTE - 30_000
    await world.pause(job, until_ms=until_ms)
    await world.sleep(9 * 60)
    assert len(world.recorded(job)) == 5
    await world.sleep(5 * 60)
    ran = world.recorded(job, "succeeded")
    assert [run.scheduled_ms for run in ran[5:]] == [until_ms + n * MINUTE for n in range(5)]
    assert len(ran) == len(world.recorded(job)), "time while paused is never missed"


@simulated()
async def test_a_pause_ends_once_with_several_replicas(world: World):
    job = await world.create("job", MINUTELY)
    for _ in range(3):
        await world.start()
    await world.pause(job, until_ms=world.clock.now_ms() + 90_000)
    await world.sleep(5 * 60)
    stored = await world.service().get(LOCAL, "default", "default", "job")
    assert (stored.enabled, stored.pause_until_ms, stored.disabled_reason) == (True, None, None)
    assert stored.version == 3, "created, paused, resumed"
    assert world.recorded(job)


@pytest.mark.parametrize(("catchup", "missed", "ran"), [("none", 19, 1), ("fire_immediately", 0, 20)])
@simulated()
async def test_ticks_after_a_pause_that_ends_during_an_outage_are_caught_up(
    world: World, catchup: str, missed: int, ran: int
):
    job = await world.create("job", MINUTELY, Rules(catchup=catchup), body=takes(0.1))
    replica = await world.start()
    await world.sleep(30)
    until_ms = world.clock.now_ms() // MINUTE * MINUTE + 10 * MINUTE
    await world.pause(job, until_ms=until_ms)
    await world.sleep(60)
    replica.crash()
    await world.sleep(28 * 60)
    await world.start()
    await world.sleep(10)
    assert sum(run.covers for run in world.recorded(job, "missed")) == missed
    assert min(run.scheduled_ms for run in world.recorded(job)) == until_ms
    assert len(world.recorded(job, "succeeded")) == ran


@simulated()
async def test_a_tick_skipped_on_request_is_recorded_and_the_next_one_runs(world: World):
    job = await world.create("job", MINUTELY)
    await world.start()
    await world.sleep(2 * 60 + 30)
    done = await world.service().skip_next(LOCAL, "default", "default", "job")
    await world.sleep(2 * 60)
    (skipped,) = world.recorded(job, "skipped")
    assert (skipped.reason, skipped.scheduled_ms) == ("asked", done.run.scheduled_ms)
    assert [run.state for run in world.recorded(job)] == ["succeeded", "succeeded", "skipped", "succeeded"]
