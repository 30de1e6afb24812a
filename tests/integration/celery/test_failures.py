"""Celery targets when Redis, a worker or a replica is killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from tests.integration.celery.conftest import celery_app, celery_check, lines
from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.support.celery_commands import replica_command
from tests.support.celery_worker import CeleryWorker
from tests.support.paths import ROOT
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually, in_state, over
from wakeful import CeleryTask, EngineConfig, FailedPrecondition, Wakeful
from wakeful.launch.celery import client, launcher

#: How many times the task of a test was sent, as Redis counts the messages of its queue.
ONE = b":1\r\n"


@on_one_store
async def test_a_run_waits_for_a_broker_that_is_down_and_is_then_sent_once(
    new_app: NewApp, redis: RedisServer
):
    async with new_app(celery=celery_app(redis, results=False)) as app:
        await app.jobs.create(
            "sent", schedule=SELDOM, target=CeleryTask("tests.record", args=["x"]), max_attempts=1
        )
        redis.kill()
        run = await app.jobs.run("sent")
        waiting = await in_state(app, run.id, "retrying")
        assert waiting.reason == "broker_unavailable"
        assert (waiting.error or "").startswith("the Celery broker is unavailable: ")
        check = await celery_check(app)
        assert check["state"] == "error"
        assert check["message"].startswith("the broker or the result backend is not reachable: ")
        redis.start()
        assert (await over(app, run.id)).state == "succeeded"
        assert redis.call("LLEN", "celery") == ONE
        assert app.services.metrics.messages["celery", "sent"] == 1
        assert app.services.metrics.messages["celery", "failed"] >= 1


async def _cancel(app: Wakeful, run_id: str) -> None:
    """Cancel a run that waits for the broker; it may be trying again."""
    while True:
        try:
            await app.runs.cancel(run_id)
        except FailedPrecondition:
            await in_state(app, run_id, "retrying")
        else:
            return


@pytest.mark.parametrize("used_before", [False, True], ids=["new connections", "open connections"])
@on_one_store
async def test_a_broker_that_hangs_gets_no_task_of_an_attempt_that_has_failed(
    new_app: NewApp, redis: RedisServer, monkeypatch: pytest.MonkeyPatch, used_before: bool
):
    monkeypatch.setattr(launcher, "SEND_S", 0.3)
    monkeypatch.setattr(client, "BROKER_S", 0.5)
    async with new_app(celery=celery_app(redis)) as app:
        target = CeleryTask("tests.record", args=["x"])
        for name, backoff in (("hang", "100ms"), ("cancelled", "1h")):
            await app.jobs.create(
                name,
                schedule=SELDOM,
                target=target,
                backoff={"base": backoff, "max": backoff},
                overlap_policy="allow",
            )
        before = [await app.jobs.run("hang") for _ in range(20 * used_before)]
        await eventually(lambda: redis.call("LLEN", "celery") == f":{len(before)}\r\n".encode())
        redis.suspend()
        runs = [await app.jobs.run("hang") for _ in range(10)]
        cancelled = [await app.jobs.run("cancelled") for _ in range(10)]
        for run in [*runs, *cancelled]:
            waiting = await in_state(app, run.id, "retrying")
            assert waiting.reason == "broker_unavailable"
        for run in cancelled:
            await _cancel(app, run.id)
        redis.resume()

        async def awaited() -> bool:
            states = [await app.runs.get(run.id) for run in runs]
            return all(run.waiting_for and "awaiting callback" in run.waiting_for for run in states)

        await eventually(awaited)
    messages = [json.loads(each) for each in Redis.from_url(redis.client_url).lrange("celery", 0, -1)]
    sent = Counter(message["headers"]["wakeful-run-id"] for message in messages)
    assert sent == Counter(run.id for run in [*before, *runs])


@on_one_store
async def test_a_result_survives_a_restart_of_redis_and_a_lost_task_is_sent_again(
    new_app: NewApp, redis: RedisServer, tmp_path: Path
):
    workers = [CeleryWorker(redis, tmp_path / "first.log")]
    try:
        await workers[0].ready()
        async with new_app(celery=celery_app(redis)) as app:
            journal = tmp_path / "journal"
            target = CeleryTask("tests.hold", args=[str(journal)])
            await app.jobs.create("long", schedule=SELDOM, target=target)
            run = await app.jobs.run("long")
            await eventually(lambda: lines(journal))
            await eventually(lambda: app.store.awaiting_runs("", 1))
            redis.kill()
            redis.start()
            # The task ends afterwards: Celery does not keep a result that its backend refuses.
            (tmp_path / "journal.go").touch()
            ended = await over(app, run.id)
            assert (ended.state, ended.output, ended.attempt) == ("succeeded", "held", 1)
            assert len(lines(journal)) == 1

            lost = tmp_path / "lost"
            target = CeleryTask("tests.hold", args=[str(lost)])
            again: dict[str, Any] = {"max_attempts": 100, "backoff": {"base": "50ms", "max": "50ms"}}
            await app.jobs.create("lost", schedule=SELDOM, target=target, timeout="1s", **again)
            run = await app.jobs.run("lost")
            await eventually(lambda: lines(lost))
            workers[0].kill()
            workers.append(CeleryWorker(redis, tmp_path / "second.log"))
            (tmp_path / "lost.go").touch()
            ended = await over(app, run.id)
            assert (ended.state, ended.output) == ("succeeded", "held")
            assert ended.attempt > 1
            assert (await app.runs.get(run.id)).attempts[0].error == "not completed in time"
    finally:
        for worker in workers:
            worker.kill()


@on_one_store
async def test_a_task_whose_process_is_killed_is_retried(
    new_app: NewApp, shared_redis: RedisServer, worker: CeleryWorker, tmp_path: Path
):
    journal = tmp_path / "journal"
    async with new_app(celery=celery_app(shared_redis)) as app:
        target = CeleryTask("tests.hold", args=[str(journal)])
        backoff = {"baseMs": 1, "maxMs": 1}
        await app.jobs.create("long", schedule=SELDOM, target=target, max_attempts=2, backoff=backoff)
        run = await app.jobs.run("long")
        (first,) = await eventually(lambda: lines(journal))
        os.kill(int(first.split()[1]), signal.SIGKILL)
        await eventually(lambda: len(lines(journal)) == 2)
        (tmp_path / "journal.go").touch()
        ended = await over(app, run.id)
        assert (ended.state, ended.attempt) == ("succeeded", 2)
        (lost, _) = (await app.runs.get(run.id)).attempts
        assert (lost.error or "").startswith("WorkerLostError: ")


@on_one_store
async def test_a_replica_that_takes_over_from_a_dead_one_adopts_its_task(
    new_app: NewApp, database: str, shared_redis: RedisServer, worker: CeleryWorker, tmp_path: Path
):
    journal = tmp_path / "journal"
    # The lease is long enough for a busy machine: a lost lease only delays the test.
    async with new_app(config=EngineConfig(tick_ms=100, heartbeat_ms=200, lease_ms=2_000)) as idle:
        target = CeleryTask("tests.hold", args=[str(journal)])
        await idle.jobs.create("long", schedule=SELDOM, target=target)
        run = await idle.jobs.run("long")
        dying = await asyncio.create_subprocess_exec(*replica_command(database, shared_redis.url), cwd=ROOT)
        assert await dying.wait() == -signal.SIGKILL
        await eventually(lambda: lines(journal))
        assert (await idle.runs.get(run.id)).state == "running", "the acceptance was not recorded"
        quick = EngineConfig(tick_ms=100, heartbeat_ms=200, lease_ms=2_000)
        async with new_app(celery=celery_app(shared_redis), config=quick):
            (tmp_path / "journal.go").touch()
            ended = await over(idle, run.id)
        assert (ended.state, ended.output, ended.attempt) == ("succeeded", "held", 1)
    assert len(lines(journal)) == 1


async def test_two_replicas_send_each_tick_once(
    new_app: NewApp, shared_redis: RedisServer, worker: CeleryWorker, tmp_path: Path
):
    journal = tmp_path / "journal"
    async with (
        new_app(celery=celery_app(shared_redis)) as app,
        new_app(celery=celery_app(shared_redis)),
    ):
        target = CeleryTask("tests.record", args=[str(journal)], options={"ignore_result": True})
        for number in range(20):
            await app.jobs.create(f"tick-{number}", schedule="in 1s", target=target)

        async def states() -> bool:
            return [run.state for run in await app.runs.list(limit=100)] == ["succeeded"] * 20

        await eventually(states)
        await eventually(lambda: len(lines(journal)) >= 20)
    assert len(lines(journal)) == 20
