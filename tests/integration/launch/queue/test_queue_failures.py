"""Queue targets when NATS, a worker or a replica fails: nothing is lost, and outcomes are stored once."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import SELDOM, on_one_store
from tests.integration.launch.queue.conftest import NewQueueApp, working
from tests.support import prefork
from tests.support.factories import asked, held
from tests.support.nats_server import NatsServer
from tests.support.paths import ROOT
from tests.support.waiting import eventually, in_state, over
from wakeful import Attempt, Launch, Queue, Wakeful
from wakeful.errors import Unavailable
from wakeful.launch.broker import Report, ReportResult
from wakeful.launch.queue import messages
from wakeful.launch.queue.connection import NatsConnection, NatsOptions
from wakeful.launch.queue.messages import report_body, result_subject

#: Retries follow at once, and there are enough of them while NATS is down.
AGAIN: dict[str, Any] = {"max_attempts": 50, "backoff": {"base": "50ms", "max": "50ms"}}


def _functions(calls: list[Launch]) -> Wakeful:
    """Return an app whose function `work` records its calls."""
    app = Wakeful("sqlite:///:memory:")

    @app.function()
    async def work(run: Launch) -> str:
        calls.append(run)
        return f"call {len(calls)}"

    return app


@on_one_store
async def test_a_run_is_retried_until_nats_is_back_and_is_published_once(
    queue_app: NewQueueApp, broker: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wakeful.launch.queue.launcher._CONNECT_S", 0.1)
    calls: list[Launch] = []
    app = queue_app()
    async with app:
        await app.jobs.create("work", schedule=SELDOM, target=Queue(), **AGAIN)
        await broker.kill()
        run = await app.jobs.run("work")
        waiting = await eventually(lambda: _retried(app, run.id))
        assert waiting is not None
        assert "NATS is not reachable" in (waiting.error or "")
        await broker.start()
        await eventually(lambda: _awaiting(app, run.id))
        assert await broker.messages("WAKEFUL_WORK") == 1
        async with working(broker, _functions(calls)):
            done = await over(app, run.id)
    assert (done.state, done.output, len(calls)) == ("succeeded", "call 1", 1)
    assert calls[0].attempt == done.attempt > 1


async def _retried(app: Wakeful, run_id: str) -> Attempt | None:
    attempts = await app.runs.attempts(run_id)
    return next((each for each in attempts if each.error), None)


async def _awaiting(app: Wakeful, run_id: str) -> bool:
    found = await app.store.run(run_id)
    return found is not None and found.awaiting_callback


@on_one_store
async def test_messages_survive_a_crash_of_nats(queue_app: NewQueueApp, broker: NatsServer) -> None:
    calls: list[Launch] = []
    app = queue_app()
    async with app:
        await app.jobs.create("work", schedule=SELDOM, target=Queue())
        run = await app.jobs.run("work")
        await eventually(lambda: _awaiting(app, run.id))
        await broker.kill()
        await broker.start()
        async with working(broker, _functions(calls)):
            done = await over(app, run.id)
    assert (done.state, done.attempt, len(calls)) == ("succeeded", 1, 1)


@pytest.mark.slow
@on_one_store
async def test_the_message_of_a_killed_worker_goes_to_another_one(
    queue_app: NewQueueApp, broker: NatsServer, tmp_path: Path
) -> None:
    app = queue_app()
    (tmp_path / "hold").touch()
    command = prefork.command(str(ROOT / "tests/support/queue_worker.py"), broker.url, str(tmp_path))
    async with app:
        await app.jobs.create("work", schedule=SELDOM, target=Queue())
        # Not forked from another process: the kill must have ended the worker when it returns.
        script = str(ROOT / "tests/support/queue_worker.py")
        first = await asyncio.create_subprocess_exec(
            sys.executable, script, broker.url, str(tmp_path), "first"
        )
        run = await app.jobs.run("work")
        await eventually(lambda: (tmp_path / "started-first").exists())
        first.kill()
        await first.wait()
        second = await asyncio.create_subprocess_exec(*command, "second")
        try:
            (tmp_path / "hold").unlink()
            done = await over(app, run.id)
        finally:
            second.kill()
            await second.wait()
    assert (done.state, done.attempt, done.output) == ("succeeded", 1, "by second")


async def test_two_replicas_store_each_outcome_once(queue_app: NewQueueApp, broker: NatsServer) -> None:
    calls: list[Launch] = []
    one, two = queue_app(), queue_app()
    async with one, two, working(broker, _functions(calls)):
        await one.jobs.create("work", schedule=SELDOM, target=Queue(), overlap_policy="allow")
        runs = [(await (one, two)[number % 2].jobs.run("work")).id for number in range(20)]
        done = [await over(one, run_id) for run_id in runs]
    assert {run.state for run in done} == {"succeeded"}
    assert {run.attempt for run in done} == {1}
    assert sorted(call.id for call in calls) == sorted(runs)
    assert await broker.messages("WAKEFUL_RESULTS") == 0


async def test_a_launch_of_a_dead_replica_adopts_its_message(
    queue_app: NewQueueApp, broker: NatsServer
) -> None:
    calls: list[Launch] = []
    first = queue_app()
    async with first:
        await first.jobs.create("work", schedule=SELDOM, target=Queue())
        (job,) = [each for each in await first.jobs.list() if each.name == "work"]
        row = await first.store.job_by_id(job.id)
        assert row is not None
        # A replica that died after it had published, and before it had recorded that.
        dead = held(asked(row, at=first.store.clock.now_ms()), "dead-worker", since=1)
        await first.store.add_runs([dead])
        launch = Launch(
            dead.id, "work", job.id, "default", "default", None, dead.scheduled_ms, dead.fire_ms, 1, "user",
            dead.idempotency_key, {"kind": "queue"},
        )  # fmt: skip
        launcher = first._parts.launchers.launcher("queue")
        assert launcher is not None
        await launcher.start(launch)
        await eventually(lambda: _awaiting(first, dead.id))
        assert await broker.messages("WAKEFUL_WORK") == 1
        async with working(broker, _functions(calls)):
            done = await over(first, dead.id)
    assert (done.state, done.attempt, len(calls)) == ("succeeded", 1, 1)


@on_one_store
async def test_the_message_of_a_stopped_run_is_deleted(queue_app: NewQueueApp, broker: NatsServer) -> None:
    app = queue_app()
    async with app:
        await app.jobs.create("work", schedule=SELDOM, target=Queue())
        run = await app.jobs.run("work")
        await eventually(lambda: _awaiting(app, run.id))
        await app.runs.stop(run.id)
        await eventually(lambda: _empty(broker))


async def _empty(broker: NatsServer) -> bool:
    return await broker.messages("WAKEFUL_WORK") == 0


@on_one_store
async def test_the_function_of_a_stopped_run_is_cancelled(queue_app: NewQueueApp, broker: NatsServer) -> None:
    app, functions = queue_app(), Wakeful("sqlite:///:memory:")
    started, cancelled = asyncio.Event(), asyncio.Event()

    @functions.function()
    async def work() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with app, working(broker, functions, ack_wait_s=1.5):
        await app.jobs.create("work", schedule=SELDOM, target=Queue())
        run = await app.jobs.run("work")
        await started.wait()
        await in_state(app, run.id, "running")
        await app.runs.stop(run.id)
        await cancelled.wait()
        assert (await app.runs.get(run.id)).state == "cancelled"


@on_one_store
async def test_a_draining_worker_puts_its_messages_back(queue_app: NewQueueApp, broker: NatsServer) -> None:
    app, slow, calls = queue_app(), Wakeful("sqlite:///:memory:"), list[Launch]()
    started = asyncio.Event()

    @slow.function("work")
    async def hangs() -> None:
        started.set()
        await asyncio.Event().wait()

    async with app:
        await app.jobs.create("work", schedule=SELDOM, target=Queue())
        async with working(broker, slow, grace_s=0):
            run = await app.jobs.run("work")
            await started.wait()
        async with working(broker, _functions(calls)):
            done = await over(app, run.id)
    assert (done.state, done.attempt, len(calls)) == ("succeeded", 1, 1)


@on_one_store
async def test_a_run_without_a_report_times_out_and_is_retried(
    queue_app: NewQueueApp, broker: NatsServer
) -> None:
    app = queue_app()
    async with app:
        await app.jobs.create("work", schedule=SELDOM, target=Queue(), timeout="1s", max_attempts=1)
        done = await over(app, (await app.jobs.run("work")).id)
    assert (done.state, done.reason) == ("failed", "timeout")


async def test_a_run_whose_function_no_worker_has_says_so_until_one_has_it(
    queue_app: NewQueueApp, broker: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wakeful.launch.queue.worker._UNKNOWN_S", 0.2)
    calls: list[Launch] = []
    other = Wakeful("sqlite:///:memory:")
    other.function("other")(lambda: "no")
    app = queue_app()
    async with app:
        await app.jobs.create("work", schedule=SELDOM, target=Queue())
        run = await app.jobs.run("work")
        async with working(broker, other):

            async def says() -> bool:
                return "does not have the function 'work'" in ((await app.runs.get(run.id)).waiting_for or "")

            await eventually(says)
            waiting = await app.runs.get(run.id)
            assert (waiting.state, "awaiting callback" in (waiting.waiting_for or "")) == ("running", True)
        async with working(broker, _functions(calls)):
            done = await over(app, run.id)
    assert (done.state, done.error, done.attempt, len(calls)) == ("succeeded", None, 1, 1)


async def test_a_report_that_cannot_be_applied_is_delivered_again_and_a_bad_one_is_dropped(
    broker: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "_RETRY_S", 0.05)
    applied: list[Report] = []
    tries = 0

    async def apply(report: Report) -> ReportResult:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise Unavailable("the database does not respond")
        applied.append(report)
        return ReportResult(True)

    connection = NatsConnection(NatsOptions((broker.url,)))
    consumer = messages.ResultConsumer(connection, apply, create_streams=True, replicas=1)
    await connection.open()
    consumer.start()
    try:
        await eventually(lambda: consumer.error is None)
        client = await broker.connect()
        report = Report("0199c1de-7a4f-7000-8000-000000000001", 1, "succeeded", output="done")
        await client.jetstream().publish(result_subject("default"), b"not JSON")
        await client.jetstream().publish(result_subject("default"), report_body(report))
        await eventually(lambda: applied)
        await client.close()
        await eventually(lambda: _no_results(broker))
    finally:
        await consumer.stop()
        await connection.close()
    assert applied == [report._replace(workspace="default")]


async def _no_results(broker: NatsServer) -> bool:
    return await broker.messages("WAKEFUL_RESULTS") == 0
