"""What becomes of ticks while nobody is awake: of an hour, of a year, of a pause, under every policy."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.simulation.journal import Plain, Rules
from tests.simulation.stories import simulated
from tests.simulation.world import World, takes
from wakeful.engine.engine import EngineConfig
from wakeful.planning import Limits

MINUTE = 60_000
HOUR = 3600
MINUTELY = Plain(cron="* * * * *")
CAPPED = EngineConfig(lanes={"cron": 100}, limits=Limits(max_catchup=7, lead_ms=50), retention_days=36_500)


async def down_for(world: World, seconds: float) -> None:
    """Twenty minutes of a replica that works, an outage, and ten minutes of another one."""
    replica = await world.start()
    await world.sleep(20 * 60 + 30)
    replica.crash()
    await world.sleep(seconds)
    await world.start()
    await world.sleep(10 * 60)


@simulated()
async def test_without_catching_up_an_hour_leaves_one_row_that_says_how_many(world: World):
    job = await world.create("job", MINUTELY)
    await down_for(world, HOUR)
    (missed,) = world.recorded(job, "missed")
    assert missed.reason == "downtime"
    assert missed.covers == 59, "the sixtieth was within the grace"
    assert len(world.recorded(job, "succeeded")) == 20 + 1 + 10


@simulated()
async def test_the_latest_of_an_hour_runs_once_and_the_others_are_accounted_for(world: World):
    job = await world.create("job", MINUTELY, Rules(catchup="latest", overlap="queue"))
    await down_for(world, HOUR)
    (missed,) = world.recorded(job, "missed")
    assert (missed.reason, missed.covers) == ("newer_tick_runs", 58)
    assert len(world.recorded(job, "succeeded")) == 20 + 2 + 10


@pytest.mark.parametrize("overlap", ["skip", "queue", "queue_one", "replace"])
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


@pytest.mark.parametrize("overlap", ["allow", "skip", "queue", "queue_one", "replace"])
@simulated(config=CAPPED)
async def test_every_tick_of_an_hour_runs_oldest_first_in_passes_that_lose_none(world: World, overlap: str):
    rules = Rules(catchup="fire_immediately", overlap=overlap)
    job = await world.create("job", MINUTELY, rules, body=takes(0.2))
    await down_for(world, HOUR)
    assert world.recorded(job, "missed") == []
    ran = world.recorded(job, "succeeded")
    assert len(ran) == 20 + 60 + 10
    begun = [launch.run_id for launch in world.launches(job)]
    assert begun == [run.id for run in ran], "oldest first"


@simulated()
async def test_spread_ticks_keep_their_own_time_and_fire_one_after_the_other(world: World):
    job = await world.create("job", MINUTELY, Rules(catchup="spread", overlap="queue"), body=takes(0.1))
    await down_for(world, HOUR)
    caught_up = world.recorded(job, "succeeded")[20:80]
    assert [run.scheduled_ms % MINUTE for run in caught_up] == [0] * 60
    apart = {
        late.fire_ms - early.fire_ms for early, late in zip(caught_up[:-2], caught_up[1:-1], strict=True)
    }
    assert apart <= {1016, 1017, 1018}, "59 missed ones over a minute"
    assert world.recorded(job, "missed", "skipped") == []


@pytest.mark.parametrize("overlap", ["allow", "queue"])
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
@pytest.mark.parametrize("days", [1.5, 400])
@simulated()
async def test_the_job_fires_again_afterwards_however_long_it_was(world: World, catchup: str, days: float):
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
async def test_a_pause_of_an_hour_is_no_outage(world: World):
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
async def test_a_pause_in_the_middle_of_an_outage_owns_up_to_what_was_missed_before_it(world: World):
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
async def test_an_edit_in_the_middle_of_an_outage_owns_up_to_what_was_missed_before_it(world: World):
    job = await world.create("job", MINUTELY)
    await world.sleep(10 * 60 + 30)
    await world.edit(job, schedule=Plain(cron="*/5 * * * *"))
    await world.start()
    await world.sleep(10 * 60)
    (missed,) = world.recorded(job, "missed")
    assert (missed.reason, missed.covers) == ("edited", 10)
    assert len(world.recorded(job, "succeeded")) == 2


@simulated()
async def test_a_one_time_job_catches_up_whatever_its_policy_says(world: World):
    job = await world.create("once", Plain(at_ms=world.clock.now_ms() + 60 * MINUTE))
    await world.sleep(40 * 24 * HOUR)
    await world.start()
    await world.sleep(60)
    assert [run.state for run in world.recorded(job)] == ["succeeded"]


@simulated()
async def test_a_clock_that_is_set_forward_by_an_hour_is_an_outage_like_any_other(world: World):
    job = await world.create("job", MINUTELY)
    await world.start()
    await world.sleep(10 * 60 + 30)
    world.jump(60 * MINUTE)
    await world.sleep(10 * 60)
    (missed,) = world.recorded(job, "missed")
    assert (missed.reason, missed.covers) == ("downtime", 59)
    assert len(world.recorded(job, "succeeded")) == 10 + 1 + 10


@simulated()
async def test_a_clock_that_is_set_back_by_an_hour_repeats_nothing(world: World):
    job = await world.create("job", MINUTELY)
    await world.start()
    await world.sleep(10 * 60 + 30)
    world.jump(-60 * MINUTE)
    await world.sleep(HOUR)
    assert len(world.recorded(job)) == 10
    await world.sleep(10 * 60)
    assert len(world.recorded(job, "succeeded")) == 20


# --- nobody can reach the database, and all are alive -------------------------------------------------


@pytest.mark.parametrize("silence", [31, 45, 300])
@simulated()
async def test_who_could_not_beat_does_not_rob_those_who_could_not_either(world: World, silence: int):
    job = await world.create("job", MINUTELY, Rules(on_lost="fail"), body=takes(10))
    replicas = [await world.start() for _ in range(3)]
    await world.sleep(63)
    (begun,) = world.launches(job)
    for replica in replicas:
        # The one that holds the run is the last to be heard again.
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
