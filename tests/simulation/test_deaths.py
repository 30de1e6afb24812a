"""Runs of processes that crash, stall, stop and return, at every call of the store."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tests.simulation.faults import CALM, CrashingStore, Odds, fated
from tests.simulation.journal import Plain, Rules
from tests.simulation.stories import simulated
from tests.simulation.world import World, takes
from tests.support.effort import cases, part
from wakeful.engine.engine import EngineConfig
from wakeful.errors import Unavailable
from wakeful.launch.port import Launch
from wakeful.run.planning import Limits

LEASE = 30
MINUTELY = Plain(cron="* * * * *")
RETRY, FAIL = Rules(), Rules(on_lost="fail")


def hung(run: Launch) -> asyncio.Future[None]:
    """Return a future that never completes."""
    return asyncio.get_running_loop().create_future()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", part(range(1, 31)))
@simulated()
async def test_a_death_at_any_call_leaves_each_tick_one_run_and_one_outcome(
    world: World, number: int, after: bool
):
    jobs = [
        await world.create("quick", MINUTELY),
        await world.create("long", MINUTELY, Rules(overlap="queue"), body=takes(20)),
        await world.create("failing", MINUTELY, Rules(max_attempts=3), body=_fails_once(set())),
    ]
    await world.sleep(57)
    doomed = await world.start()
    fated(doomed.store, number, after)
    await world.sleep(20)
    doomed.crash("if nothing else came of it")
    await world.start()
    await world.sleep(5 * 60)
    for job in jobs:
        assert [run.state for run in world.recorded(job)[:5]] == ["succeeded"] * 5
    world.check()


def _fails_once(seen: set[str]):
    async def body(run: Launch) -> None:
        await asyncio.sleep(0.5)
        if run.id not in seen:
            seen.add(run.id)
            raise RuntimeError("not yet")

    return body


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", part(range(1, 21)))
@simulated()
async def test_a_failed_call_at_any_point_delays_runs_only_until_the_retry(
    world: World, number: int, after: bool
):
    job = await world.create("job", MINUTELY, body=takes(1))
    await world.sleep(57)
    replica = await world.start()
    fated(replica.store, number, after, Unavailable)
    await world.sleep(3 * 60)
    assert [run.state for run in world.recorded(job)[:3]] == ["succeeded"] * 3
    world.journal.slow = True  # it may launch a run of a call that had no response
    world.check()


@simulated()
async def test_a_dead_workers_run_blocks_no_longer_than_its_lease_and_is_tried_again_with_the_same_key(
    world: World,
):
    job = await world.create("job", MINUTELY, RETRY, body=hung)
    first = await world.start()
    await world.sleep(61)
    world.bodies["job"] = takes(1)
    first.crash()
    await world.start()
    await world.sleep(LEASE + 10)
    run = world.recorded(job)[0]
    assert (run.state, run.attempt) == ("succeeded", 2)
    lost, again = world.launches(job)
    assert (lost.end, again.end, again.key) == ("crashed", "succeeded", lost.key)
    assert again.began_at - lost.began_at <= LEASE + 10
    await world.sleep(60)
    assert world.recorded(job)[1].state == "succeeded"


@simulated()
async def test_work_that_must_not_start_twice_fails_when_its_worker_dies(world: World):
    job = await world.create("job", MINUTELY, FAIL, body=hung)
    first = await world.start()
    await world.sleep(61)
    first.crash()
    world.bodies["job"] = takes(1)
    await world.start()
    await world.sleep(LEASE + 40)
    lost, following = world.recorded(job)
    assert (lost.state, lost.reason, lost.dead) == ("failed", "lost", True)
    assert following.state == "succeeded"
    assert len(world.launches(job)) == 2


@pytest.mark.parametrize("rules", [RETRY, FAIL], ids=["retry", "fail"])
@simulated()
async def test_a_worker_that_was_thought_dead_and_comes_back_changes_nothing(world: World, rules: Rules):
    job = await world.create("job", MINUTELY, replace(rules, overlap="queue"), body=takes(20))
    stalled = await world.start()
    await world.sleep(62)
    stalled.store.silence(100)
    other = await world.start()
    await world.sleep(70)
    run = world.recorded(job)[0]
    await world.sleep(50)
    assert world.recorded(job)[0] == run, "whatever the one that came back had to say"
    assert run.state == ("succeeded" if rules is RETRY else "failed")
    workers = [launch.worker for launch in world.launches(job) if launch.run_id == run.id]
    assert workers == ([stalled.worker, other.worker] if rules is RETRY else [stalled.worker])


@simulated()
async def test_a_claim_whose_response_arrives_after_the_lease_is_not_launched(world: World):
    job = await world.create("job", MINUTELY, FAIL)
    cut_off = await world.start()
    await world.sleep(59)
    real = CrashingStore._call

    async def slowly(name: str, *rest: object) -> object:
        answer = await real(cut_off.store, name, *rest)
        if name == "plan" and world.recorded(job):
            cut_off.store.silence(3 * LEASE)
            await asyncio.sleep(3 * LEASE)
        return answer

    cut_off.store._call = slowly  # type: ignore[method-assign, assignment]
    await world.start(odds=CALM)
    await world.sleep(4 * LEASE)
    assert world.recorded(job)[0].reason == "lost"
    assert world.recorded(job)[0].id not in {launch.run_id for launch in world.launches(job)}


@simulated(odds=Odds(doubt=100))
async def test_a_claim_whose_answer_is_lost_is_given_back_and_not_held_for_ever(world: World):
    job = await world.create("job", MINUTELY)
    replica = await world.start()
    await world.sleep(61)
    assert world.recorded(job)[0].state != "succeeded"
    replica.store.odds = CALM
    await world.sleep(20)
    assert world.recorded(job)[0].state == "succeeded"


@simulated()
async def test_a_lost_claim_is_released_though_the_outcome_of_the_attempt_before_seems_unwritten(
    world: World,
):
    job = await world.create("job", MINUTELY, body=_fails_once(set()), backoff={"baseMs": 1, "maxMs": 1})
    replica = await world.start()
    real, seen = CrashingStore._call, set[str]()

    async def call(name: str, *rest: object) -> object:
        if name == "finish" and "finish" in seen and "release" not in seen:
            raise Unavailable("finish: no connection")
        answer = await real(replica.store, name, *rest)
        if name in ("finish", "take") and answer and name not in seen:
            seen.add(name)
            raise Unavailable(f"{name}: no answer")
        if name == "release":
            seen.add(name)
        return answer

    replica.store._call = call  # type: ignore[method-assign, assignment]
    await world.sleep(80)
    assert seen == {"finish", "take", "release"}
    (run,) = world.recorded(job)
    assert (run.state, run.attempt) == ("succeeded", 3)
    world.journal.slow = True


@simulated()
async def test_a_stopped_worker_releases_its_runs_immediately(world: World):
    job = await world.create("job", MINUTELY, RETRY, body=hung)
    first = await world.start()
    second = await world.start()
    await world.sleep(62)
    (begun,) = world.launches(job)
    holder, other = (first, second) if begun.worker == first.worker else (second, first)
    world.bodies["job"] = takes(0)
    await holder.stop(grace_ms=2_000)
    await world.sleep(1.1)
    (run,) = world.recorded(job)
    assert (run.state, run.attempt) == ("succeeded", 2)
    assert [launch.worker for launch in world.launches(job)] == [holder.worker, other.worker]
    assert world.launches(job)[1].began_at - world.launches(job)[0].began_at < 8


@simulated()
async def test_a_stopping_worker_keeps_its_runs_for_longer_than_a_lease(
    world: World,
):
    job = await world.create("job", MINUTELY, body=takes(3 * LEASE))
    first = await world.start()
    await world.sleep(61)
    await world.start()
    await first.stop(grace_ms=5 * LEASE * 1000)
    run = world.recorded(job)[0]
    assert (run.state, run.attempt) == ("succeeded", 1)
    assert [launch.run_id for launch in world.launches(job)].count(run.id) == 1


@pytest.mark.parametrize("replicas", part([3, 10]))
@pytest.mark.parametrize("overlap", ["allow", "skip"])
@simulated()
async def test_many_planners_of_one_due_job_create_one_run(world: World, replicas: int, overlap: str):
    job = await world.create("job", MINUTELY, Rules(overlap=overlap), body=takes(1))
    for _ in range(replicas):
        await world.start()
    await world.sleep(10 * 60 + 30)
    assert [run.state for run in world.recorded(job)] == ["succeeded"] * 10
    assert len(world.launches(job)) == 10


@pytest.mark.parametrize("skew_ms", part([-300_000, 300_000]))
@simulated(steered=True, odds=replace(CALM, way_s=0.2))
async def test_a_replica_whose_clock_is_five_minutes_wrong_is_neither_early_nor_fires_twice(
    world: World, skew_ms: int
):
    job = await world.create("job", MINUTELY, body=takes(1))
    await world.start(skew_ms=skew_ms)
    await world.start()
    await world.start(skew_ms=-skew_ms)
    minutes = cases(30, 30)
    await world.sleep(minutes * 60 + 30)
    assert [run.state for run in world.recorded(job)] == ["succeeded"] * minutes
    for launch, run in zip(world.launches(job), world.recorded(job), strict=True):
        assert 0 <= launch.began_ms - run.scheduled_ms < 1_500


@simulated(config=EngineConfig(batch=2, limits=Limits(lead_ms=5_000), retention_days=36_500))
async def test_a_full_batch_of_busy_jobs_does_not_block_the_planner(world: World):
    jobs = [await world.create(f"job-{n}", MINUTELY, body=takes(58)) for n in range(5)]
    await world.start()
    await world.sleep(10 * 60 + 59)
    for job in jobs:
        assert [run.state for run in world.recorded(job)] == ["succeeded"] * 10
