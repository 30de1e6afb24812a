"""Ticks during outages, pauses and clock jumps, under every catch-up policy."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.simulation.journal import Plain, Rules
from tests.simulation.stories import simulated
from tests.simulation.world import World, takes
from tests.support.effort import part
from wakeful.engine.engine import EngineConfig
from wakeful.launch.port import Launch
from wakeful.run.outcome import AwaitingCallback
from wakeful.run.planning import Limits
from wakeful.service.auth.access import LOCAL

MINUTE = 60_000
HOUR = 3600
MINUTELY = Plain(cron="* * * * *")
CAPPED = EngineConfig(lanes={"cron": 100}, limits=Limits(max_catchup=7, lead_ms=50), retention_days=36_500)


async def down_for(world: World, seconds: float) -> None:
    """Run a replica for twenty minutes, crash it for so long, and run another for ten minutes."""
    replica = await world.start()
    await world.sleep(20 * 60 + 30)
    replica.crash()
    await world.sleep(seconds)
    await world.start()
    await world.sleep(10 * 60)


@simulated()
async def test_without_catch_up_an_outage_leaves_one_missed_row_with_the_count(world: World):
    job = await world.create("job", MINUTELY)
    await down_for(world, HOUR)
    (missed,) = world.recorded(job, "missed")
    assert missed.reason == "downtime"
    assert missed.covers == 59, "the sixtieth was within the grace"
    assert len(world.recorded(job, "succeeded")) == 20 + 1 + 10


@simulated()
async def test_with_latest_the_newest_missed_tick_runs_and_the_others_are_counted(world: World):
    job = await world.create("job", MINUTELY, Rules(catchup="latest", overlap="queue"))
    await down_for(world, HOUR)
    (missed,) = world.recorded(job, "missed")
    assert (missed.reason, missed.covers) == ("newer_tick_runs", 58)
    assert len(world.recorded(job, "succeeded")) == 20 + 2 + 10


@pytest.mark.parametrize("overlap", part(["skip", "queue", "queue_one", "replace"]))
@simulated()
async def test_the_latest_tick_waits_for_a_run_that_was_in_flight_at_the_crash(world: World, overlap: str):
    rules = Rules(catchup="latest", overlap=overlap)
    job = await world.create("job", Plain(cron="*/10 * * * *"), rules, body=takes(60))
    replica = await world.start()
    await world.sleep(20 * 60 + 30)
    replica.crash()
    await world.sleep(HOUR + 120)
    await world.start()
    await world.sleep(5 * 60)
    (missed,) = world.recorded(job, "missed")
    assert (missed.reason, missed.covers) == ("newer_tick_runs", 5)
    ran = world.recorded(job, "succeeded")
    assert len(ran) == 3, "one before the crash, the one in flight, and the newest missed tick"
    assert ran[2].scheduled_ms - ran[1].scheduled_ms == 60 * MINUTE
    assert ran[1].finished_ms is not None
    assert ran[2].started_ms is not None
    assert ran[2].started_ms >= ran[1].finished_ms, "it waits its turn"
    assert world.recorded(job, "skipped") == []


@pytest.mark.parametrize("overlap", part(["allow", "skip", "queue", "queue_one", "replace"]))
@simulated(config=CAPPED)
async def test_with_fire_immediately_every_missed_tick_runs_oldest_first(world: World, overlap: str):
    rules = Rules(catchup="fire_immediately", overlap=overlap)
    job = await world.create("job", MINUTELY, rules, body=takes(0.2))
    await down_for(world, HOUR)
    assert world.recorded(job, "missed") == []
    ran = world.recorded(job, "succeeded")
    assert len(ran) == 20 + 60 + 10
    begun = [launch.run_id for launch in world.launches(job)]
    assert begun == [run.id for run in ran], "oldest first"


@simulated()
async def test_spread_ticks_keep_their_scheduled_time_and_fire_in_sequence(world: World):
    job = await world.create("job", MINUTELY, Rules(catchup="spread", overlap="queue"), body=takes(0.1))
    await down_for(world, HOUR)
    caught_up = world.recorded(job, "succeeded")[20:80]
    assert [run.scheduled_ms % MINUTE for run in caught_up] == [0] * 60
    apart = {
        late.fire_ms - early.fire_ms for early, late in zip(caught_up[:-2], caught_up[1:-1], strict=True)
    }
    assert apart <= {1016, 1017, 1018}, "59 missed ones over a minute"
    assert world.recorded(job, "missed", "skipped") == []


@pytest.mark.parametrize("overlap", part(["queue", "allow"]))
@simulated(config=CAPPED)
async def test_a_spread_of_many_passes_keeps_the_order_and_fills_one_window(world: World, overlap: str):
    job = await world.create("job", MINUTELY, Rules(catchup="spread", overlap=overlap), body=takes(0.1))
    await down_for(world, HOUR)
    assert world.recorded(job, "missed", "skipped") == []
    caught_up = world.recorded(job, "succeeded")[20:79]
    assert [run.scheduled_ms for run in caught_up] == sorted(run.scheduled_ms for run in caught_up)
    fires = [run.fire_ms for run in caught_up]
    apart = [after - before for before, after in pairwise(fires)]
    assert min(apart) >= 1000, "59 missed ticks over a minute, in passes of seven"
    assert max(apart) <= 1100
    assert fires[-1] - fires[0] < 60_000


@pytest.mark.parametrize("catchup", ["none", "latest", "fire_immediately", "spread"])
@pytest.mark.parametrize("days", part([1.5, 400]))
@simulated()
async def test_a_job_fires_again_after_an_outage_of_any_length(world: World, catchup: str, days: float):
    job = await world.create("job", MINUTELY, Rules(catchup=catchup, overlap="allow", window_ms=30 * MINUTE))
    await down_for(world, days * 24 * HOUR)
    end = world.clock.now_ms()
    last = world.recorded(job, "succeeded")[-10:]
    assert [run.scheduled_ms for run in last] == [
        end // MINUTE * MINUTE - n * MINUTE for n in range(9, -1, -1)
    ]
    if catchup in ("fire_immediately", "spread"):
        (too_old,) = world.recorded(job, "missed")
        assert too_old.reason == "too_old"
        assert len(world.recorded(job, "succeeded")) == 20 + 30 + 10


@simulated()
async def test_ticks_during_a_pause_are_not_missed(world: World):
    job = await world.create("job", MINUTELY, Rules(catchup="fire_immediately"))
    await world.start()
    await world.sleep(10 * 60 + 30)
    await world.pause(job)
    await world.sleep(HOUR)
    await world.resume(job)
    await world.sleep(10 * 60)
    assert len(world.recorded(job)) == 20
    assert len(world.recorded(job, "succeeded")) == 20


@simulated()
async def test_a_pause_during_an_outage_records_the_ticks_missed_before_it(world: World):
    job = await world.create("job", MINUTELY, Rules(catchup="fire_immediately"))
    await world.sleep(10 * 60 + 30)
    await world.pause(job)
    await world.sleep(HOUR)
    await world.resume(job)
    await world.sleep(30)
    await world.start()
    await world.sleep(5 * 60)
    (missed,) = world.recorded(job, "missed")
    assert (missed.reason, missed.covers) == ("paused", 10)
    assert len(world.recorded(job, "succeeded")) == 5


@simulated()
async def test_an_edit_during_an_outage_records_the_ticks_missed_before_it(world: World):
    job = await world.create("job", MINUTELY)
    await world.sleep(10 * 60 + 30)
    await world.edit(job, schedule=Plain(cron="*/5 * * * *"))
    await world.start()
    await world.sleep(10 * 60)
    (missed,) = world.recorded(job, "missed")
    assert (missed.reason, missed.covers) == ("edited", 10)
    assert len(world.recorded(job, "succeeded")) == 2


@simulated()
async def test_a_one_time_job_catches_up_regardless_of_its_policy(world: World):
    job = await world.create("once", Plain(at_ms=world.clock.now_ms() + 60 * MINUTE))
    await world.sleep(40 * 24 * HOUR)
    await world.start()
    await world.sleep(60)
    assert [run.state for run in world.recorded(job)] == ["succeeded"]


@simulated()
async def test_a_clock_set_forward_by_an_hour_is_an_outage(world: World):
    job = await world.create("job", MINUTELY)
    await world.start()
    await world.sleep(10 * 60 + 30)
    world.jump(60 * MINUTE)
    await world.sleep(10 * 60)
    (missed,) = world.recorded(job, "missed")
    assert (missed.reason, missed.covers) == ("downtime", 59)
    assert len(world.recorded(job, "succeeded")) == 10 + 1 + 10


@simulated()
async def test_a_clock_set_back_by_an_hour_repeats_no_tick(world: World):
    job = await world.create("job", MINUTELY)
    await world.start()
    await world.sleep(10 * 60 + 30)
    world.jump(-60 * MINUTE)
    await world.sleep(HOUR)
    assert len(world.recorded(job)) == 10
    await world.sleep(10 * 60)
    assert len(world.recorded(job, "succeeded")) == 20


# --- no replica reaches the database ------------------------------------------------------------------


@pytest.mark.parametrize("silence", part([45, 31, 300]))
@simulated()
async def test_after_a_database_outage_replicas_do_not_rescue_runs_of_live_workers(
    world: World, silence: int
):
    job = await world.create("job", MINUTELY, Rules(on_lost="fail"), body=takes(10))
    replicas = [await world.start() for _ in range(3)]
    await world.sleep(63)
    (begun,) = world.launches(job)
    for replica in replicas:
        # The holder of the run reconnects last.
        replica.store.silence(silence + (8 if replica.worker == begun.worker else 0))
    await world.sleep(silence + 60)
    assert (world.recorded(job)[0].state, world.recorded(job)[0].attempt) == ("succeeded", 1)


@simulated()
async def test_a_worker_that_died_while_nobody_could_beat_is_found_dead_a_lease_later(world: World):
    job = await world.create("job", MINUTELY, Rules(overlap="queue"), body=takes(10))
    first, second = await world.start(), await world.start()
    await world.sleep(63)
    (begun,) = world.launches(job)
    dying, living = (first, second) if begun.worker == first.worker else (second, first)
    for replica in (dying, living):
        replica.store.silence(50)
    await world.sleep(20)
    dying.crash()
    await world.sleep(30 + 25)
    assert world.recorded(job)[0].state == "running", "for a lease it may still say that it lives"
    await world.sleep(15 + 12)
    assert (world.recorded(job)[0].state, world.recorded(job)[0].attempt) == ("succeeded", 2)


@simulated()
async def test_a_worker_that_was_dead_before_nobody_could_beat_is_found_dead_at_once(world: World):
    job = await world.create("job", MINUTELY, Rules(overlap="queue"), body=takes(10))
    first, second = await world.start(), await world.start()
    await world.sleep(63)
    (begun,) = world.launches(job)
    dying, living = (first, second) if begun.worker == first.worker else (second, first)
    dying.crash()
    await world.sleep(29)
    living.store.silence(60)
    await world.sleep(60 + 35 + 12)
    assert (world.recorded(job)[0].state, world.recorded(job)[0].attempt) == ("succeeded", 2)


@pytest.mark.parametrize("reported", [True, False])
@pytest.mark.parametrize("silent", [True, False])
@simulated()
async def test_a_run_whose_callback_was_due_during_an_outage_can_be_completed_for_a_lease(
    world: World, silent: bool, reported: bool
):
    async def accept(run: Launch) -> AwaitingCallback:
        return AwaitingCallback(timeout_ms=MINUTE)

    job = await world.create("job", Plain(every_ms=1000 * HOUR), body=accept)
    replica = await world.start()
    await world.trigger(job)
    await world.sleep(10)
    if silent:
        replica.store.silence(80)
    else:
        replica.crash()
    await world.sleep(80)
    if not silent:
        await world.start()
    await world.sleep(25)
    (run,) = world.recorded(job)
    if reported:
        await world.run_service().complete(LOCAL, "default", run.id, "succeeded")
    await world.sleep(15)
    (run,) = world.recorded(job)
    assert (run.state == "succeeded", run.attempt) == (reported, 1 if reported else 2)
