"""A job change before the fire time of a tick applies to that tick, even if it is already recorded."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import pytest

from tests.integration.conftest import SELDOM, NewApp
from tests.support.effort import part
from tests.support.waiting import epoch_ms, eventually, in_state, over, the_run_of
from wakeful import EngineConfig, Function, Launch, Wakeful
from wakeful.model import Run
from wakeful.run.planning import Limits

#: A longer lead than usual: time to change a job between the recording and the fire time of its tick.
LEAD_MS = 8_000
AHEAD = EngineConfig(tick_ms=100, heartbeat_ms=200, limits=Limits(lead_ms=LEAD_MS))

Change = Callable[[Wakeful], Awaitable[object]]


async def pause(app: Wakeful) -> object:
    return await app.jobs.pause("job")


async def delete(app: Wakeful) -> None:
    await app.jobs.delete("job")


async def move(app: Wakeful) -> object:
    return await app.jobs.update("job", schedule=SELDOM)


def noting(app: Wakeful, calls: list[Launch]) -> Wakeful:
    @app.function()
    async def work(run: Launch) -> None:
        calls.append(run)

    return app


async def recorded(app: Wakeful) -> Run:
    """Return the run of `job`, recorded and not started; that of `later` fires after it."""
    at_ms = time.time_ns() // 1_000_000 + LEAD_MS
    for name, start_ms in (("job", at_ms), ("later", at_ms + 100)):
        await app.jobs.create(
            name, schedule="every 1h", start_at=start_ms, target=Function("work"), payload={"n": 1}
        )
    run = await in_state(app, (await the_run_of(app, "job")).id, "running")
    assert time.time_ns() // 1_000_000 < at_ms, "this machine is too slow for this test"
    return run


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("change", part([pause, delete, move]))
async def test_a_recorded_tick_is_cancelled_if_its_job_changes_before_the_fire_time(
    new_app: NewApp, change: Change, elsewhere: bool
):
    calls: list[Launch] = []
    app, other = (
        noting(new_app(config=AHEAD), calls),
        new_app(config=EngineConfig(tick_ms=100, heartbeat_ms=200, lanes={})),
    )
    async with app, other:
        run = await recorded(app)
        await change(other if elsewhere else app)
        seen = await app.runs.get(run.id)
        assert (seen.state, seen.started_at, seen.worker) == ("cancelled", None, None)
        if not elsewhere:
            assert run.id not in app._engine._worker.in_flight  # type: ignore[union-attr]
        await eventually(lambda: [call.job for call in calls])
        assert [call.job for call in calls] == ["later"]
        assert await app.runs.get(run.id) == seen
        assert await app.runs.attempts(run.id) == []


@pytest.mark.parametrize("schedule", ["every 1h", "every 5h"])
async def test_a_recorded_tick_that_is_still_scheduled_fires_once_with_the_changed_job(
    new_app: NewApp, schedule: str
):
    calls: list[Launch] = []
    app = noting(new_app(config=AHEAD), calls)
    async with app:
        run = await recorded(app)
        await app.jobs.update("job", payload={"n": 2}, schedule=schedule)
        seen = await over(app, run.id)
        assert (seen.state, seen.failed_attempts) == ("succeeded", 0)
        (call,) = [call for call in calls if call.job == "job"]
    assert call.payload == {"n": 2}
    assert seen.started_at is not None
    assert epoch_ms(seen.started_at) >= epoch_ms(run.fire_at), "a tick never starts early"
