"""Servers, Celery workers and Redis that are restarted under load: no run is lost or executed twice.

Redis restarts while no worker is connected: a message that a worker takes from a Redis that ends is lost, and
then only the timeout of the run helps. It is killed: nobody knows whether it has kept a task that it did not
confirm. Such an attempt counts, so with one attempt its run fails and is not sent again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

from tests.integration.celery.conftest import celery_app, lines
from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.support.celery_worker import CeleryWorker
from tests.support.effort import cases
from tests.support.redis_server import RedisServer
from tests.support.waiting import PATIENCE, eventually
from wakeful import CeleryTask, EngineConfig, Wakeful
from wakeful.store.rows import RunFilter

ROUNDS = cases(1, 10)
#: Seconds between two runs.
EVERY_S = 0.1


async def _add_runs(app: Wakeful) -> None:
    while True:
        await app.jobs.run("digest")
        await asyncio.sleep(EVERY_S)


async def _none_waits(app: Wakeful) -> bool:
    return not await app.store.runs(RunFilter("default", states=("pending", "retrying", "running")))


@on_one_store
async def test_no_run_is_lost_or_executed_twice_while_all_parts_restart(
    new_app: NewApp, redis: RedisServer, tmp_path: Path
):
    journal = tmp_path / "journal"
    (tmp_path / "journal.go").touch()
    worker = CeleryWorker(redis, tmp_path / "worker-0.log")
    idle = new_app(celery=celery_app(redis), config=EngineConfig(lanes={}))
    try:
        async with idle, asyncio.timeout(4 * PATIENCE):
            await idle.jobs.create(
                "digest",
                schedule=SELDOM,
                target=CeleryTask("tests.hold", args=[str(journal)]),
                max_attempts=1,
                overlap_policy="allow",
            )
            await worker.ready()
            adding = asyncio.create_task(_add_runs(idle))
            for number in range(ROUNDS):
                async with new_app(celery=celery_app(redis)):
                    executed = len(lines(journal))
                    await eventually(lambda done=executed: len(lines(journal)) > done + 5)  # type: ignore[misc]
                    await worker.stop()
                    redis.kill()
                    await asyncio.sleep(0.2)
                    redis.start()
                    worker = CeleryWorker(redis, tmp_path / f"worker-{number + 1}.log")
            adding.cancel()
            await asyncio.wait({adding})
            async with new_app(celery=celery_app(redis)):
                await eventually(lambda: _none_waits(idle))
            runs = await idle.store.runs(RunFilter("default", limit=100_000))
    finally:
        worker.kill()
    unconfirmed = {run.id for run in runs if run.reason == "broker_unavailable" and run.failed_attempts == 1}
    assert all(run.state == ("failed" if run.id in unconfirmed else "succeeded") for run in runs)
    started = Counter(line.split()[0].rpartition("-")[0] for line in lines(journal))  # without the attempt
    assert set(started.values()) == {1}
    assert len(runs) - len(unconfirmed) <= len(started) <= len(runs)
