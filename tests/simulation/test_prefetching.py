"""Runs that are claimed before a slot is free: crashes, stops and lost responses meanwhile."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from tests.simulation.faults import CrashingStore
from tests.simulation.journal import Life, Plain, Rules
from tests.simulation.records import Run
from tests.simulation.stories import simulated
from tests.simulation.virtual_loop import run_virtually
from tests.simulation.world import Body, Replica, World
from wakeful.engine import rescuer
from wakeful.engine.engine import EngineConfig
from wakeful.errors import Unavailable
from wakeful.launch.port import Launch
from wakeful.service.auth.access import LOCAL
from wakeful.store.rows import UnfinishedRun

MINUTE = 60
LEASE = 30
NARROW = EngineConfig(lanes={"cron": 2}, retention_days=36_500)
MINUTELY = Plain(cron="* * * * *")
ONCE = Rules(max_attempts=1)
JOBS = 12


class Blocking:
    """A body of which the first few launches take a tenth of a second, and later ones wait until `open`."""

    def __init__(self, quick: int = 6) -> None:
        self.quick = quick
        self.open = False
        self._blocked = asyncio.Event()
        self._opened = asyncio.Event()

    async def __call__(self, run: Launch) -> None:
        self.quick -= 1
        if self.quick >= 0 or self.open:
            await asyncio.sleep(0.1)
            return
        if self.quick <= -2:
            self._blocked.set()
        await self._opened.wait()

    async def blocked(self) -> None:
        """Wait until two launches wait, and the worker has claimed further runs."""
        await self._blocked.wait()
        await asyncio.sleep(0.05)

    def release(self) -> None:
        """Let all launches end, and later ones be quick."""
        self.open = True
        self._opened.set()


async def full_lane(world: World, body: Body, rules: Rules = ONCE) -> list[Life]:
    """Create more jobs that are due together than a lane has slots, and wait until shortly before."""
    jobs = [await world.create(f"job-{number}", MINUTELY, rules, body=body) for number in range(JOBS)]
    await world.sleep(MINUTE - 1)
    return jobs


def runs_of(world: World, jobs: list[Life]) -> list[Run]:
    """Return the first run of each job."""
    return [world.recorded(job)[0] for job in jobs]


def prefetched(world: World) -> list[Run]:
    """Return the runs that are claimed and have not started."""
    launched = {(launch.run_id, launch.attempt) for launch in world.journal.launches}
    return [
        run
        for run in world.records().runs
        if run.state == "running" and run.started_ms is None and (run.id, run.attempt) not in launched
    ]


@simulated(config=NARROW)
async def test_runs_wait_for_slots_in_the_worker_and_start_without_another_claim(world: World):
    jobs = await full_lane(world, Blocking(quick=JOBS))
    replica = await world.start()
    calls: list[str] = []
    real = CrashingStore._call

    async def call(name: str, *rest: object) -> object:
        calls.append(name)
        return await real(replica.store, name, *rest)

    replica.store._call = call  # type: ignore[method-assign, assignment]
    await world.sleep(5)
    runs = runs_of(world, jobs)
    assert [(run.state, run.attempt) for run in runs] == [("succeeded", 1)] * JOBS
    assert calls.count("finish_and_take") >= 3
    assert calls.count("take") < JOBS / 2
    began = sorted(launch.began_ms for launch in world.journal.launches)
    assert began[-1] - began[0] < JOBS / 2 * 100 + 100, "the lane did not idle"
    launches = {launch.run_id: launch.began_ms for launch in world.journal.launches}
    assert {run.id: run.started_ms for run in runs} == launches


@simulated(config=NARROW)
async def test_a_crash_while_runs_are_prefetched_does_not_count_as_an_attempt(world: World):
    body = Blocking()
    jobs = await full_lane(world, body)
    replica = await world.start()
    await body.blocked()
    waiting = {run.id for run in prefetched(world)}
    assert waiting
    replica.crash()
    body.release()
    await world.start()
    await world.sleep(LEASE + 15)
    for run in runs_of(world, jobs):
        if run.id in waiting:
            assert (run.state, run.attempt) == ("succeeded", 2)


def test_an_engine_that_counts_a_prefetched_run_as_an_attempt_is_detected(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    real = rescuer.Rescuer._judge

    def counting(self: rescuer.Rescuer, run: UnfinishedRun):
        # As often lost with others as counts, too.
        return real(self, run._replace(started_ms=run.started_ms or 1, losses=100))

    async def story(name: str) -> None:
        async with World(tmp_path / name, name, config=NARROW) as world:
            body = Blocking()
            await full_lane(world, body)
            replica = await world.start()
            await body.blocked()
            replica.crash()
            body.release()
            await world.start()
            await world.sleep(LEASE + 15)
            world.check()

    for name in ("unbroken", "broken"):
        (tmp_path / name).mkdir()
    run_virtually(story("unbroken"))
    monkeypatch.setattr(rescuer.Rescuer, "_judge", counting)
    with pytest.raises(AssertionError, match="failed after 0 attempts that started"):
        run_virtually(story("broken"))


@simulated(config=NARROW)
async def test_a_run_that_kills_its_process_ends_although_its_first_start_is_not_recorded(world: World):
    replicas: list[Replica] = []

    async def body(run: Launch) -> None:
        await asyncio.sleep(0.1)
        if run.job == "job-9":
            replicas[-1].crash("in a handler")
            await asyncio.sleep(1)

    jobs = await full_lane(world, body, Rules(max_attempts=2, lost_limit=1))
    for _ in range(5):
        replicas.append(await world.start())
        await world.sleep(LEASE + 10)
        replicas[-1].crash()
        if len(replicas) == 1:
            for job in jobs:
                await world.pause(job)
    killer = next(job for job in jobs if job.name == "job-9")
    run = world.recorded(killer)[0]
    assert run.state == "failed"
    assert 2 <= len([launch for launch in world.launches(killer) if launch.run_id == run.id]) <= 4


@simulated(config=NARROW)
async def test_a_stop_gives_prefetched_runs_back_before_the_grace_period_ends(world: World):
    body = Blocking()
    jobs = await full_lane(world, body)
    first = await world.start()
    await body.blocked()
    waiting = {run.id for run in prefetched(world)}
    assert waiting
    stopping = asyncio.ensure_future(first.stop(grace_ms=20_000))
    await world.sleep(0.01)
    for run in runs_of(world, jobs):
        if run.id in waiting:
            assert (run.state, run.started_ms) == ("retrying", None)
    body.open = True
    second = await world.start()
    await world.sleep(3)
    assert not stopping.done()
    for launch in world.journal.launches:
        assert launch.run_id not in waiting or launch.worker == second.worker
    done = {run.id for run in runs_of(world, jobs) if run.state == "succeeded"}
    assert waiting <= done
    body.release()
    await stopping


@simulated(config=NARROW)
async def test_a_run_held_behind_a_blocked_lane_is_given_back_and_starts_elsewhere(world: World):
    body = Blocking()
    jobs = await full_lane(world, body)
    first = await world.start()
    await body.blocked()
    waiting = {run.id for run in prefetched(world)}
    assert waiting
    await world.sleep(1.01)
    assert not prefetched(world)
    for run in runs_of(world, jobs):
        if run.id in waiting:
            assert (run.state, run.attempt, run.started_ms) == ("retrying", 1, None)
    await world.sleep(3)
    assert not prefetched(world), "what was given back is not claimed again before a slot is free"
    body.open = True
    second = await world.start()
    await world.sleep(5)
    launches = [launch for launch in world.journal.launches if launch.run_id in waiting]
    assert {launch.worker for launch in launches} == {second.worker}
    for run in runs_of(world, jobs):
        if run.id in waiting:
            assert (run.state, run.attempt) == ("succeeded", 2)
    body.release()
    await first.stop()


@pytest.mark.parametrize("faults", [1, 3])
@simulated(config=NARROW)
async def test_a_lost_response_to_outcomes_with_a_claim_loses_nothing(world: World, faults: int):
    jobs = await full_lane(world, Blocking(quick=99), Rules())
    replica = await world.start()
    real, lost = CrashingStore._call, 0

    async def call(name: str, *rest: object) -> object:
        nonlocal lost
        answer = await real(replica.store, name, *rest)
        if name == "finish_and_take" and lost < faults:
            lost += 1
            raise Unavailable("no answer")
        return answer

    replica.store._call = call  # type: ignore[method-assign, assignment]
    await world.sleep(30)
    assert lost == faults
    runs = runs_of(world, jobs)
    assert [run.state for run in runs] == ["succeeded"] * JOBS
    assert max(run.attempt for run in runs) > 1, "what was claimed was released"
    world.journal.slow = True


@simulated(config=NARROW)
async def test_a_prefetched_run_that_is_stopped_is_not_launched(world: World):
    body = Blocking()
    jobs = await full_lane(world, body)
    replica = await world.start()
    await body.blocked()
    waiting = {run.id for run in prefetched(world)}
    assert waiting
    for run_id in waiting:
        await world.run_service(replica).stop(LOCAL, "default", run_id)
    body.release()
    await world.sleep(10)
    for run in runs_of(world, jobs):
        assert run.state == ("cancelled" if run.id in waiting else "succeeded")
    assert not waiting & {launch.run_id for launch in world.journal.launches}


@simulated(config=NARROW)
async def test_a_prefetched_run_counts_as_started_when_its_job_changes(world: World):
    body = Blocking()
    jobs = await full_lane(world, body)
    replica = await world.start()
    await body.blocked()
    waiting = {run.id for run in prefetched(world)}
    assert waiting
    changed = [job for job in jobs if world.recorded(job)[0].id in waiting]
    await world.delete(changed[0], replica)
    for job in changed[1:]:
        await world.edit(job, rules=replace(ONCE, max_attempts=2), through=replica)
    body.release()
    await world.sleep(10)
    for run in runs_of(world, changed):
        assert (run.state, run.attempt) == ("succeeded", 1)


@simulated(config=NARROW)
async def test_slow_runs_are_not_prefetched(world: World):
    async def body(run: Launch) -> None:
        await asyncio.sleep(3)

    jobs = await full_lane(world, body)
    await world.start()
    for _ in range(25):
        await world.sleep(1)
        assert not prefetched(world)
    assert [(run.state, run.attempt) for run in runs_of(world, jobs)] == [("succeeded", 1)] * JOBS
