"""Jobs on one replica without faults: overlaps, timeouts, edits and corrupt rows."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import replace

import pytest

from tests.simulation.faults import CALM
from tests.simulation.journal import Plain, Rules
from tests.simulation.stories import simulated
from tests.simulation.world import World, takes
from tests.support.effort import cases, part
from wakeful.engine.engine import EngineConfig
from wakeful.errors import InvalidArgument
from wakeful.launch.port import Launch
from wakeful.run.outcome import Succeeded
from wakeful.service.auth.access import LOCAL

MINUTE = 60_000
MINUTELY = Plain(cron="* * * * *")
#: for tests of weeks and months: polls less often, and still fires on time
LEISURELY = EngineConfig(
    tick_ms=30 * MINUTE, heartbeat_ms=30 * MINUTE, lease_ms=180 * MINUTE, retention_days=36_500
)


def hung(run: Launch) -> asyncio.Future[None]:
    """Return a future that never completes."""
    return asyncio.get_running_loop().create_future()


@simulated(config=LEISURELY)
async def test_a_five_second_job_every_minute_never_skips(world: World):
    job = await world.create("job", MINUTELY, body=takes(5))
    await world.start()
    hours = cases(24, 24)
    await world.sleep(hours * 3600 + 30)
    assert len(world.recorded(job)) == hours * 60
    assert world.recorded(job, "skipped") == []


@simulated()
async def test_a_queue_loses_no_tick_and_keeps_the_order(world: World):
    job = await world.create("job", MINUTELY, Rules(overlap="queue"), body=takes(90))
    await world.start()
    await world.sleep(60 * 60 + 30)
    await world.pause(job)
    waiting = world.recorded(job, "cancelled")
    await world.sleep(100)
    ran = world.recorded(job, "succeeded")
    assert len(ran) + len(waiting) == 60
    assert [launch.run_id for launch in world.launches(job)] == [run.id for run in ran]
    assert max(run.scheduled_ms for run in ran) < min(run.scheduled_ms for run in waiting)


@simulated()
async def test_a_queue_that_can_catch_up_runs_every_tick(world: World):
    lengths = iter([300, *[1] * 100])

    async def body(run: Launch) -> None:
        await asyncio.sleep(next(lengths))

    job = await world.create("job", MINUTELY, Rules(overlap="queue"), body=body)
    await world.start()
    await world.sleep(20 * 60 + 30)
    assert [run.state for run in world.recorded(job)] == ["succeeded"] * 20


@simulated()
async def test_with_queue_one_only_the_newest_tick_waits(world: World):
    job = await world.create("job", MINUTELY, Rules(overlap="queue_one"), body=takes(200))
    await world.start()
    await world.sleep(5 * 60 + 30)
    states = [(run.state, run.reason) for run in world.recorded(job)]
    assert states == [
        ("succeeded", None), ("cancelled", "superseded"), ("cancelled", "superseded"),
        ("running", None), ("pending", None),
    ]  # fmt: skip


@simulated(config=EngineConfig(lanes={"cron": 1}, retention_days=36_500))
async def test_with_replace_no_older_tick_starts_later_when_the_lane_was_full(world: World):
    job = await world.create("job", MINUTELY, Rules(overlap="replace"), body=takes(200))
    await world.create("other", Plain(cron="*/7 * * * *"), body=takes(330))
    await world.start()
    await world.sleep(60 * 60 + 30)
    assert {run.reason for run in world.recorded(job, "cancelled")} == {"replaced"}
    assert len({launch.run_id for launch in world.launches(job)}) < len(world.recorded(job))


@simulated(config=LEISURELY)
async def test_two_jobs_of_one_agent_at_the_same_minute_both_run(world: World):
    one = await world.create("one", Plain(cron="0 9 * * *"), body=takes(5))
    two = await world.create("two", Plain(cron="0 9 * * *"), body=takes(5))
    await world.start()
    await world.sleep(3 * 24 * 3600)
    assert [run.state for run in world.recorded(one) + world.recorded(two)] == ["succeeded"] * 6


@simulated()
async def test_a_hanging_job_delays_no_other_and_ends_at_its_timeout(world: World):
    hanging = await world.create("hanging", MINUTELY, Rules(max_attempts=1), body=hung, timeoutMs=30_000)
    other = await world.create("other", MINUTELY, body=takes(1))
    await world.start()
    await world.sleep(10 * 60 + 45)
    assert [(run.state, run.reason) for run in world.recorded(hanging)] == [("failed", "timeout")] * 10
    assert [run.state for run in world.recorded(other)] == ["succeeded"] * 10
    assert {launch.began_ms % MINUTE for launch in world.launches(other)} == {0}


async def stubborn(run: Launch) -> None:
    """Ignore cancellation for twenty minutes."""
    loop = asyncio.get_running_loop()
    until = loop.time() + 1200
    while loop.time() < until:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(until - loop.time())


@simulated()
async def test_a_job_that_ignores_cancellation_times_out_and_delays_no_other_run(world: World):
    rules = Rules(max_attempts=1)
    job = await world.create("stubborn", MINUTELY, rules, body=stubborn, timeoutMs=30_000)
    await world.start()
    await world.sleep(10 * 60 + 45)
    assert [(run.state, run.reason) for run in world.recorded(job)] == [("failed", "timeout")] * 10
    world.bodies["stubborn"] = takes(1)
    await world.sleep(60 * 60)
    assert len(world.recorded(job, "succeeded")) == 60


@pytest.mark.parametrize(("on_lost", "attempts"), part([("retry", 3), ("fail", 1)]))
@simulated()
async def test_a_run_that_ignores_cancellation_is_retried_only_if_it_may_start_twice(
    world: World, on_lost: str, attempts: int
):
    rules = Rules(max_attempts=3, on_lost=on_lost)
    job = await world.create("stubborn", Plain(cron="0 * * * *"), rules, body=stubborn, timeoutMs=30_000)
    await world.start()
    await world.sleep(90 * 60)
    assert [run.state for run in world.recorded(job)] == ["failed"]
    assert len(world.launches(job)) == attempts


@pytest.mark.parametrize("back_ms", part([-60 * MINUTE, 60 * MINUTE]))
@simulated()
async def test_a_timeout_is_not_affected_by_a_clock_jump(world: World, back_ms: int):
    job = await world.create(
        "hanging", Plain(cron="0 * * * *"), Rules(max_attempts=1), body=hung, timeoutMs=30_000
    )
    await world.start()
    await world.sleep(60 * 60 + 10)
    world.jump(back_ms)
    await world.sleep(25)
    (launch,) = world.launches(job)
    assert launch.end == "cut short"
    assert launch.ended_at == launch.began_at + 30


@pytest.mark.parametrize("column", part(["timing", "policy", "work"]))
@simulated()
async def test_a_job_with_a_corrupt_row_is_disabled_and_logged_and_other_jobs_run(
    world: World, column: str, caplog: pytest.LogCaptureFixture
):
    broken = await world.create("broken", MINUTELY)
    sibling = await world.create("sibling", MINUTELY)
    await world.start()
    await world.sleep(5 * 60 + 30)
    world.recorder.execute(f"UPDATE jobs SET {column} = '{{half a th' WHERE name = 'broken'")
    with caplog.at_level(logging.WARNING, logger="wakeful"):
        await world.sleep(5 * 60)
    assert len(world.recorded(sibling, "succeeded")) == 10
    assert len(world.recorded(broken, "succeeded")) == 5
    (row,) = world.recorder.execute("SELECT enabled, disabled_reason FROM jobs WHERE name = 'broken'")
    assert row[0] == 0
    assert "cannot be read" in str(row[1])
    assert "job.set_aside" in caplog.text
    assert "job=broken" in caplog.text
    broken.eras[-1].until_ms = broken.eras[-1].from_ms + 5 * MINUTE  # its ticks are unknown from here on


@pytest.mark.parametrize("column", part(["policy", "work"]))
@simulated()
async def test_a_lost_run_of_a_corrupt_job_fails_and_other_runs_are_rescued(world: World, column: str):
    broken = await world.create("broken", Plain(cron="0 * * * *"), body=hung)
    sibling = await world.create("sibling", Plain(cron="0 * * * *"), body=hung)
    first = await world.start()
    await world.sleep(3601)
    world.recorder.execute(f"UPDATE jobs SET {column} = '{{half a th' WHERE name = 'broken'")
    first.crash()
    world.bodies["sibling"] = takes(1)
    await world.start()
    await world.sleep(60)
    assert [(run.state, run.attempt) for run in world.recorded(sibling)] == [("succeeded", 2)]
    assert [(run.state, run.reason) for run in world.recorded(broken)] == [("failed", "unreadable")]


@simulated()
async def test_usage_that_cannot_be_encoded_is_left_out_and_delays_nothing(world: World):
    async def used_half_a_pair(run: Launch) -> Succeeded:
        return Succeeded("fine", usage="\ud83d")

    odd = await world.create("odd", MINUTELY, body=used_half_a_pair)
    others = [await world.create(f"other-{n}", MINUTELY) for n in range(9)]
    await world.start()
    await world.sleep(5 * 60 + 30)
    for other in others:
        assert [run.state for run in world.recorded(other)] == ["succeeded"] * 5
    assert [(run.state, run.reason) for run in world.recorded(odd)] == [("succeeded", None)] * 5


@pytest.mark.parametrize("deed", ["pause", "delete", "edit"])
@simulated(config=EngineConfig(lanes={"cron": 1}, retention_days=36_500))
async def test_planned_runs_that_have_not_started_are_withdrawn(world: World, deed: str):
    job = await world.create("job", MINUTELY, Rules(overlap="queue"), body=takes(500))
    replica = await world.start()
    await world.sleep(4 * 60 + 30)
    if deed == "pause":
        await world.pause(job, replica)
    elif deed == "delete":
        await world.delete(job, replica)
    else:
        await world.edit(job, schedule=Plain(cron="0 9 * * *"), through=replica)
    reason = {"pause": "paused", "delete": "deleted", "edit": "edited"}[deed]
    states = [(run.state, run.reason) for run in world.recorded(job)]
    assert states == [("running", None)] + [("cancelled", reason)] * 3
    await world.sleep(600)
    assert len(world.launches(job)) == 1
    assert world.recorded(job)[0].state == "succeeded", "what runs goes on"


@simulated()
async def test_a_rejected_edit_leaves_the_job_unchanged(world: World):
    job = await world.create("job", MINUTELY)
    await world.start()
    await world.sleep(2 * 60 + 30)
    patch = {"overlapPolicy": "queue", "schedule": "0 0 31 2 *"}
    with pytest.raises(InvalidArgument):
        await world.service().update(LOCAL, "default", "default", job.name, patch)
    await world.sleep(2 * 60)
    assert [run.state for run in world.recorded(job)] == ["succeeded"] * 4


@simulated()
async def test_deploying_the_same_definition_repeatedly_changes_nothing(world: World):
    every = await world.create("every", Plain(every_ms=7 * MINUTE))
    paused = await world.create("paused", MINUTELY)
    await world.start()
    await world.sleep(30)
    await world.pause(paused)
    for _ in range(100):
        await world.sleep(50)
        await world.upsert(every)
        await world.upsert(paused)
    assert len(world.recorded(every, "succeeded")) == (30 + 100 * 50) // (7 * 60)
    assert world.recorded(paused) == []


@simulated(odds=CALM)
async def test_a_tick_recorded_ahead_starts_exactly_at_its_time(world: World):
    job = await world.create("job", Plain(every_ms=10_000))
    await world.start()
    await world.sleep(3600)
    late = {launch.began_ms - run.scheduled_ms for launch, run in _with_runs(world, job)}
    assert late == {0}


@simulated(odds=CALM)
async def test_edits_after_a_tick_is_recorded_ahead_start_none_of_on_lost_fail_twice(world: World):
    """The replica learns of the edit of another process only after it has started the tick."""
    rules = Rules(on_lost="fail", overlap="allow")
    job = await world.create("job", Plain(every_ms=10_000), rules, body=takes(15))
    await world.start()
    first_ms, lead_ms = job.eras[0].anchor_ms, world.config.limits.lead_ms
    for tick in range(1, 7):
        await world.until(first_ms + tick * 10_000 - lead_ms // 2)
        await world.edit(job, rules=replace(rules, max_attempts=tick + 1))
    await world.sleep(5)
    await world.pause(job)
    await world.sleep(60)
    assert len({launch.run_id for launch in world.launches(job)}) == len(world.launches(job)) == 6


def _with_runs(world: World, job):
    runs = {run.id: run for run in world.recorded(job)}
    return [(launch, runs[launch.run_id]) for launch in world.launches(job)]


@pytest.mark.slow
@simulated(config=LEISURELY)
async def test_a_quarter_of_working_days_with_jitter(world: World):
    job = await world.create("daily", Plain(cron="0 9 * * 1-5"), Rules(jitter_ms=10 * MINUTE))
    await world.start()
    await world.sleep(13 * 7 * 24 * 3600)
    assert [run.state for run in world.recorded(job)] == ["succeeded"] * 13 * 5
    off = [launch.began_ms - run.scheduled_ms for launch, run in _with_runs(world, job)]
    assert all(abs(ms) <= 10 * MINUTE for ms in off)
    assert min(off) < -5 * MINUTE < 5 * MINUTE < max(off), "it does move them"
