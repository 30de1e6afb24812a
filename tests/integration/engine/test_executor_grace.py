"""After an outage of all servers, the runs of executors have one more lease."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.integration.conftest import QUICK, SELDOM
from tests.support.movable_clock import MovableClock, store_with
from tests.support.waiting import eventually, in_state
from wakeful import Run, Wakeful


def app_at(database: str, clock: MovableClock) -> Wakeful:
    return Wakeful(store=store_with(database, clock), config=QUICK, secret_key="a key for tests")


async def claimed(app: Wakeful, name: str) -> Run:
    await app.jobs.create(name, schedule=SELDOM, target={"kind": "pull"})
    await app.jobs.run(name)
    (run,) = await app.runs.claim("laptop")
    return run


@pytest.mark.slow
async def test_work_that_ended_while_all_servers_were_down_is_accepted(database: str):
    clock = MovableClock()
    async with app_at(database, clock) as app:
        finished, silent = await claimed(app, "finished"), await claimed(app, "silent")
    clock.advance(timedelta(minutes=10))
    async with app_at(database, clock) as app:
        assert app._engine is not None
        rescuer = app._engine._rescuer
        await eventually(lambda: rescuer._last_heartbeat_ms is not None)
        await rescuer.step()
        done = await app.runs.complete(finished, "succeeded", output="done")
        assert (done.state, done.attempt) == ("succeeded", 1)
        assert (await app.runs.get(silent.id)).state == "running"

        clock.advance(timedelta(seconds=31))
        lost = await in_state(app, silent.id, "retrying")
        assert lost.error is not None
        assert "sent no heartbeat in time" in lost.error
