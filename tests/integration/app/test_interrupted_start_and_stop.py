"""A start or a stop that is cancelled at any await leaves nothing that runs, and nothing open."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.support.interruptions import cancel_at_each_await
from tests.support.waiting import PATIENCE, eventually, in_state
from wakeful import Function

Check = Callable[[], Awaitable[object]]


@pytest.fixture
def check_ended() -> Check:
    """Return a check that nothing has been left that the test has started."""
    before = set(threading.enumerate())

    def has_ended() -> bool:
        tasks = [task.get_name() for task in asyncio.all_tasks()]
        threads = [thread.name for thread in set(threading.enumerate()) - before]
        return not any("wakeful" in name for name in [*tasks, *threads])

    return lambda: eventually(has_ended)


@on_one_store
async def test_a_start_that_is_cancelled_at_any_await_leaves_nothing(new_app: NewApp, check_ended: Check):
    async def start() -> None:
        app = new_app()
        app.every("1h")(_nothing)
        async with app:
            pass

    assert await cancel_at_each_await(start, check_ended) >= 10


def _nothing() -> None: ...


class _Hanging:
    """An app with a run that does not end."""

    def __init__(self, new_app: NewApp) -> None:
        self._new_app = new_app
        self.app = new_app()
        self.run_id = ""
        #: how many runs are running, released ones of earlier apps too
        self.running = 0

    async def start(self) -> None:
        self.app = app = self._new_app()
        app.function("hang")(self._hang)
        await app.__aenter__()
        await app.jobs.upsert("job", schedule=SELDOM, target=Function("hang"), overlap_policy="allow")
        self.run_id = (await app.jobs.run("job")).id
        await in_state(app, self.run_id, "running")

    async def _hang(self) -> None:
        self.running += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.running -= 1


@on_one_store
async def test_a_stop_that_is_cancelled_at_any_await_leaves_nothing(new_app: NewApp, check_ended: Check):
    hanging = _Hanging(new_app)

    async def check() -> None:
        await check_ended()
        assert hanging.running == 0

    stopped = await cancel_at_each_await(lambda: hanging.app.stop(0.01), check, prepare=hanging.start)
    assert stopped >= 5


async def test_a_stop_that_is_cancelled_in_its_grace_period_releases_its_runs(
    new_app: NewApp, check_ended: Check
):
    hanging = _Hanging(new_app)
    await hanging.start()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await hanging.app.stop(60)
    await check_ended()
    async with new_app() as app:
        run = await app.runs.get(hanging.run_id)
        assert run.state != "running"


@on_one_store
async def test_a_stop_during_a_start_takes_effect_when_it_has_started(new_app: NewApp, check_ended: Check):
    for awaits in (1, 2, 5, 20):
        app = new_app()
        serving = asyncio.create_task(app.serve_forever())
        for _ in range(awaits):
            await asyncio.sleep(0)
        await app.stop()
        async with asyncio.timeout(PATIENCE):
            await serving
    await check_ended()


@on_one_store
async def test_another_thread_stops_an_app_that_starts(new_app: NewApp, check_ended: Check):
    app = new_app()
    starting = asyncio.create_task(app.start())
    await asyncio.sleep(0)
    await asyncio.to_thread(app.stop)
    await starting
    assert not app.alive
    await check_ended()


@on_one_store
async def test_an_app_that_was_stopped_does_not_serve_until_it_is_started_again(new_app: NewApp):
    async with new_app() as app, asyncio.timeout(PATIENCE):
        await app.stop()
        await app.serve_forever()
        assert not app.alive
        await app.start()
        assert app.alive
