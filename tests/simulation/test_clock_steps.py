"""Leases and retention when the clock of the database is set: forward, back, or wrong for a while.

A lease and a timeout take the time that passes. A step of the clock neither ends nor extends them.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.simulation.journal import Plain, Rules
from tests.simulation.stories import simulated
from tests.simulation.virtual_loop import FalseClock, VirtualLoop, run_virtually
from tests.simulation.world import World, takes
from tests.support.effort import part
from tests.support.factories import asked, given_job, over
from tests.support.pull_runs import claim_pairs
from tests.support.sqlite_files import fresh_file
from wakeful.engine.history import Pruner
from wakeful.store.rows import Renewal
from wakeful.store.sqlite import SqliteStore

HOUR_S = 3_600
DAY_S = 24 * HOUR_S
LEASE_S = 30
HEARTBEAT_S = 5
#: Each pair: the clock is set by so many seconds, and a minute or a quarter of a second later again.
STEPS = [
    (40, 0),
    (-40, 0),
    (DAY_S, -DAY_S),
    (-DAY_S, DAY_S),
    (400 * DAY_S, -400 * DAY_S),
]
SELDOM = Plain(every_ms=1_000_000 * DAY_S)
AT_ONCE = Rules(overlap="allow", catchup="none")


async def set_twice(world: World, steps: tuple[int, int], pause_s: float) -> None:
    """Set the clock, and again after a pause."""
    world.jump(1000 * steps[0])
    await world.sleep(pause_s)
    if steps[1]:
        world.jump(1000 * steps[1])


@pytest.mark.parametrize("pause_s", [0.25, 60])
@pytest.mark.parametrize("steps", part(STEPS), ids=str)
@pytest.mark.parametrize("steered", [False, True])
def test_a_step_takes_no_run_from_a_live_worker_and_a_dead_one_loses_its_runs_in_time(
    tmp_path: Path, steps: tuple[int, int], pause_s: float, steered: bool
) -> None:
    @simulated(steered=steered)
    async def story(world: World) -> None:
        job = await world.create("job", SELDOM, AT_ONCE, body=takes(HOUR_S))
        first = await world.start(skew_ms=120_000 if steered else 0)
        await world.trigger(job, through=first)
        await world.sleep(20)
        other = await world.start(skew_ms=-90_000 if steered else 0)
        await world.sleep(11)
        (launch,) = world.launches(job)
        holder = first if launch.worker == first.worker else other
        await set_twice(world, steps, pause_s)
        await world.sleep(2 * LEASE_S)
        assert len(world.launches(job)) == 1, "a live worker has lost its run"
        holder.crash()
        await world.sleep(LEASE_S + 3 * HEARTBEAT_S)
        assert len(world.launches(job)) == 2, "the run of a dead worker is not tried again"

    story(tmp_path)


@pytest.mark.parametrize("pause_s", [0.25, 60])
@pytest.mark.parametrize("steps", part(STEPS), ids=str)
@simulated()
async def test_a_worker_that_died_before_a_step_loses_its_runs_in_time(
    world: World, steps: tuple[int, int], pause_s: float
):
    job = await world.create("job", SELDOM, AT_ONCE, body=takes(HOUR_S))
    first = await world.start()
    await world.trigger(job, through=first)
    await world.sleep(20)
    await world.start()
    await world.sleep(11)
    first.crash()
    await world.sleep(1)
    await set_twice(world, steps, pause_s)
    # A step forward looks like an outage: others have another lease.
    await world.sleep(2 * LEASE_S + 3 * HEARTBEAT_S)
    assert len(world.launches(job)) == 2


@pytest.mark.parametrize("pause_s", [0.25, 60])
@pytest.mark.parametrize("steps", part(STEPS), ids=str)
@simulated()
async def test_the_lease_of_an_executor_neither_ends_nor_lasts_longer_because_of_a_step(
    world: World, steps: tuple[int, int], pause_s: float
):
    job = await world.create("job", SELDOM, AT_ONCE, target={"kind": "pull"})
    await world.start()
    await world.sleep(2 * LEASE_S)  # runs that were claimed before a start are spared
    await world.trigger(job)
    store = world._client
    ((taken, _),) = await claim_pairs(store, world.clock.now_ms(), "executor", "default", None, None, 1)

    async def work(seconds: float) -> None:
        for _ in range(round(seconds / 10)):
            await world.sleep(10)
            kept = await store.renew(world.clock.now_ms(), "default", [Renewal(taken.id, taken.attempt)])
            assert kept, "an executor that sends heartbeats has lost its run"

    await work(20)
    await set_twice(world, steps, pause_s if pause_s < 1 else 9)
    await work(2 * LEASE_S)
    await world.sleep(2 * LEASE_S + 3 * HEARTBEAT_S)
    (run,) = world.recorded(job)
    assert run.state == "retrying", "a run whose executor is gone is not given to another"


@pytest.mark.parametrize("pause_s", part([60, 500]))
@pytest.mark.parametrize("steps", part([(0, 0), *STEPS]), ids=str)
@pytest.mark.parametrize(
    "start",
    part([datetime(2028, 2, 27, 23, 59, tzinfo=UTC), datetime(2027, 12, 29, 20, 30, tzinfo=UTC)]),
    ids=str,
)
def test_history_is_kept_for_its_retention_and_not_much_longer(
    tmp_path: Path, start: datetime, steps: tuple[int, int], pause_s: float
) -> None:
    """Runs end each half hour. Changes are kept for an hour, runs for two days of the time that passes."""
    kept_s = {"runs": 2 * DAY_S, "changes": HOUR_S}
    born: dict[tuple[str, Any], float] = {}
    gone: dict[tuple[str, Any], float] = {}

    async def story() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        clock = FalseClock(loop, round(1000 * start.timestamp()))
        store = SqliteStore(fresh_file(tmp_path / "wakeful.db"), clock=clock, inline=True)
        await store.open()
        db, digest = store._connection._write_connection(), await given_job(store)
        pruner = asyncio.create_task(Pruner(store, clock, retention_days=2, log_every_ms=60_000).run())

        async def go_on(hours: int) -> None:
            for half in range(4 * hours):
                if half % 2:
                    await store.add_runs([over(asked(digest, clock.now_ms()), "succeeded", clock.now_ms())])
                    await store.count_runs(clock.now_ms(), 100)
                await asyncio.sleep(900)
                for table, column in (("runs", "id"), ("changes", "seq")):
                    rows = {(table, row[0]) for row in db.execute(f"SELECT {column} FROM {table}")}
                    born.update(dict.fromkeys(rows - born.keys(), loop.time()))
                    missing = {key for key in born.keys() - rows - gone.keys() if key[0] == table}
                    gone.update(dict.fromkeys(missing, loop.time()))

        await go_on(51)
        clock.jump(1000 * steps[0])
        await asyncio.sleep(pause_s)
        # A run that ends at a wrong time is kept as if it were right.
        during = over(asked(digest, clock.now_ms()), "succeeded", clock.now_ms())
        await store.add_runs([during])
        clock.jump(1000 * steps[1])
        await go_on(54)
        born.pop(("runs", during.id), None)
        pruner.cancel()
        newest = max(seq for table, seq in born if table == "changes")
        for table, number in born.keys() - {("changes", newest)}:
            key = table, number
            age_s = gone.get(key, loop.time()) - born[key]
            stepped = abs(sum(steps))
            if key not in gone:
                assert age_s < kept_s[table] + stepped + 2 * HOUR_S, f"{key} is still there after {age_s} s"
            elif table == "runs":
                assert age_s > kept_s[table] - stepped - 900, f"{key} was deleted after {age_s} s"
        await store.close()

    run_virtually(story())
    assert gone
