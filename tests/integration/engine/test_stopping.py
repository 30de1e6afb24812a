"""Interrupted runs: cancelled, stopped, released by a process that exits, or lost with one that dies."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.support.leases import age_leases, beats
from tests.support.replica import another_process, entries
from tests.support.waiting import PATIENCE, epoch_ms, eventually, in_state, over, runs_of, soon
from wakeful import EngineConfig, FailedPrecondition, Function, Launch, Unavailable, Wakeful
from wakeful.launch.webhook import WebhookLauncher
from wakeful.model import Run
from wakeful.run.planning import Limits

#: A replica that plans and rescues but claims no runs.
IDLE = EngineConfig(tick_ms=100, heartbeat_ms=200, lanes={})


class Hanging:
    """A function that blocks until `let_go` is set and records its calls and cancellation."""

    def __init__(self, app: Wakeful) -> None:
        self.calls: list[Launch] = []
        self.cancelled = asyncio.Event()
        self.let_go = asyncio.Event()
        app.function("work")(self)

    async def __call__(self, run: Launch) -> str:
        self.calls.append(run)
        try:
            await self.let_go.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return "done"


async def running(app: Wakeful) -> Run:
    """Start a run of `work` and wait until it is running."""
    await app.jobs.create("job", schedule=SELDOM, target=Function("work"))
    return await in_state(app, (await app.jobs.run("job")).id, "running")


# --- cancelling --------------------------------------------------------------------------------------


async def test_a_cancelled_pending_run_never_starts(new_app: NewApp):
    async with new_app(config=IDLE) as idle:
        await idle.jobs.create("job", schedule=SELDOM, target=Function("work"))
        first, second = await idle.jobs.run("job"), await idle.jobs.run("job")
        run = await idle.runs.cancel(first.id)
        app = new_app()
        work = Hanging(app)
        work.let_go.set()
        async with app:
            await over(app, second.id)
    assert (run.state, run.reason, run.started_at) == ("cancelled", "cancelled", None)
    assert run.finished_at is not None
    assert [call.id for call in work.calls] == [second.id]


async def test_a_run_between_two_attempts_can_be_cancelled(new_app: NewApp):
    app = new_app()

    @app.function()
    async def work() -> None:
        raise RuntimeError("no")

    async with app:
        await app.jobs.create("job", schedule=SELDOM, target=Function("work"), backoff={"base": "1h"})
        run = await in_state(app, (await app.jobs.run("job")).id, "retrying")
        run = await app.runs.cancel(run.id)
        assert (run.state, run.due_at, run.dead) == ("cancelled", None, False)
        assert await app.runs.dead_letters() == []


async def test_a_finished_run_can_neither_be_cancelled_nor_stopped(new_app: NewApp):
    app = new_app()
    Hanging(app).let_go.set()
    async with app:
        await app.jobs.create("job", schedule=SELDOM, target=Function("work"))
        run = await over(app, (await app.jobs.run("job")).id)
        for end in (app.runs.cancel, app.runs.stop):
            with pytest.raises(FailedPrecondition, match="is succeeded: it has ended"):
                await end(run.id)
        assert await app.runs.get(run.id) == run


async def test_a_running_run_cannot_be_cancelled(new_app: NewApp):
    app = new_app()
    work = Hanging(app)
    async with app:
        run = await running(app)
        with pytest.raises(FailedPrecondition, match="running: stop it instead"):
            await app.runs.cancel(run.id)
        work.let_go.set()
        assert (await over(app, run.id)).state == "succeeded"


# --- stopping ----------------------------------------------------------------------------------------


async def test_a_stopped_run_is_cancelled_in_the_worker_and_the_store_and_not_retried(
    new_app: NewApp,
):
    app = new_app(config=EngineConfig(tick_ms=100, heartbeat_ms=200, lanes={"cron": 1}))
    work = Hanging(app)
    async with app:
        run = await running(app)
        after = await app.jobs.run("job")
        stopped = await app.runs.stop(run.id)
        async with asyncio.timeout(PATIENCE):
            await work.cancelled.wait()
        work.let_go.set()
        assert (await over(app, after.id)).state == "succeeded"  # its lane slot is free again
        assert await app.runs.get(run.id) == stopped
    assert (stopped.state, stopped.reason, stopped.dead) == ("cancelled", "stopped", False)
    assert [call.id for call in work.calls] == [run.id, after.id]


async def test_a_run_can_be_stopped_from_another_replica(new_app: NewApp):
    app = new_app()
    work = Hanging(app)
    async with app, new_app(config=IDLE) as other:
        run = await running(app)
        await other.runs.stop(run.id)
        async with asyncio.timeout(PATIENCE):
            await work.cancelled.wait()
        assert (await app.runs.get(run.id)).state == "cancelled"


@on_one_store
async def test_the_output_of_a_stopped_run_is_discarded(new_app: NewApp):
    app = new_app()
    let_go = threading.Event()
    returned = threading.Event()

    @app.function()
    def work() -> str:
        let_go.wait(PATIENCE)
        returned.set()
        return "done all the same"

    async with app:
        run = await running(app)
        stopped = await app.runs.stop(run.id)
        let_go.set()
        await eventually(returned.is_set)
        after = await over(app, (await app.jobs.run("job")).id)
        assert after.state == "succeeded"
        assert await app.runs.get(run.id) == stopped
    assert (stopped.state, stopped.output) == ("cancelled", None)


# --- a process that exits ----------------------------------------------------------------------------


@on_one_store
async def test_a_run_can_finish_within_the_grace_period(new_app: NewApp):
    app = new_app()
    work = Hanging(app)
    async with app:
        run = await running(app)
        stopping = asyncio.create_task(app.stop(grace=3_600))
        await asyncio.sleep(0)
        work.let_go.set()
        await stopping
    async with new_app(config=IDLE) as other:
        run = await other.runs.get(run.id)
    assert (run.state, run.output, run.attempt) == ("succeeded", "done", 1)


async def test_an_exiting_process_releases_its_runs_and_another_claims_them_immediately(new_app: NewApp):
    ending, staying = new_app(), new_app()
    cut_short, work = Hanging(ending), Hanging(staying)
    work.let_go.set()
    async with ending:
        run = await running(ending)
        async with staying:
            await ending.stop(grace=0.05)
            run = await over(staying, run.id)
            first, last = await staying.runs.attempts(run.id)
    assert cut_short.cancelled.is_set()
    assert (run.state, run.output, run.attempt) == ("succeeded", "done", 2)
    assert (first.error, last.error) == ("released", None)
    assert [call.idempotency_key for call in (*cut_short.calls, *work.calls)] == [run.idempotency_key] * 2


@on_one_store
async def test_an_exiting_process_renews_its_leases_during_the_grace_period(new_app: NewApp, database: str):
    app = new_app()
    work = Hanging(app)
    async with app, new_app(config=IDLE) as rescuer:
        run = await running(app)
        assert run.worker is not None
        stopping = asyncio.create_task(app.stop(grace=3_600))
        for _ in range(3):  # heartbeats continue: most of a lease passes before the next one
            aged = (await beats(database))[run.worker] - 20_000
            await age_leases(database, 20_000)
            await eventually(partial(_beats_after, database, run.worker, aged))
            assert not stopping.done()
        assert (await rescuer.runs.get(run.id)).state == "running"
        work.let_go.set()
        await stopping
        run = await rescuer.runs.get(run.id)
    assert (run.state, run.attempt) == ("succeeded", 1)


async def _beats_after(database: str, worker: str, ms: int) -> bool:
    return (await beats(database))[worker] > ms + 10_000


@on_one_store
async def test_a_run_with_on_lost_fail_fails_when_its_process_exits(new_app: NewApp):
    ending, staying = new_app(), new_app()
    cut_short, work = Hanging(ending), Hanging(staying)
    async with ending:
        await ending.jobs.create("job", schedule=SELDOM, target=Function("work"), on_lost="fail")
        run = await in_state(ending, (await ending.jobs.run("job")).id, "running")
        await ending.stop(grace=0.05)
    async with staying:
        run = await over(staying, run.id)
    assert (run.state, run.reason, run.dead, run.attempt) == ("failed", "lost", True, 1)
    assert (len(cut_short.calls), work.calls) == (1, [])


def _unstoppable(app: Wakeful) -> tuple[asyncio.Event, asyncio.Event]:
    """Register a function `work` that ignores cancellations. Returns that it got one, and what ends it."""
    cancelled, let_go = asyncio.Event(), asyncio.Event()

    @app.function()
    async def work() -> None:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                cancelled.set()

    return cancelled, let_go


@pytest.mark.parametrize("how", ["stopped", "cancelled"])
@on_one_store
async def test_a_run_with_on_lost_fail_fails_even_if_it_ignores_cancellation(new_app: NewApp, how: str):
    app = new_app()
    _, let_go = _unstoppable(app)
    async with app:
        await app.jobs.create("job", schedule=SELDOM, target=Function("work"), on_lost="fail")
        run = await in_state(app, (await app.jobs.run("job")).id, "running")
        if how == "stopped":
            await app.stop(grace=0.05)
        else:  # such as by a second SIGINT
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await app.stop(grace=3_600)
    let_go.set()
    async with new_app(config=IDLE) as other:
        run = await other.runs.get(run.id)
    assert (run.state, run.reason) == ("failed", "lost")


@on_one_store
async def test_a_run_with_on_lost_fail_that_has_timed_out_fails_when_its_process_exits(new_app: NewApp):
    app = new_app()
    cancelled, let_go = _unstoppable(app)
    async with app:
        target = Function("work")
        await app.jobs.create("job", schedule=SELDOM, target=target, on_lost="fail", timeout="100ms")
        run = await app.jobs.run("job")
        await eventually(cancelled.is_set)
        await app.stop(grace=0.05)
    let_go.set()
    async with new_app(config=IDLE) as other:
        run = await other.runs.get(run.id)
    assert (run.state, run.reason) == ("failed", "timeout")


@on_one_store
async def test_a_run_with_on_lost_fail_is_released_if_it_has_not_started(new_app: NewApp):
    app = new_app(config=EngineConfig(tick_ms=100, heartbeat_ms=200, limits=Limits(lead_ms=10_000)))
    work = Hanging(app)
    async with app:
        await app.jobs.create("job", schedule="in 5s", target=Function("work"), on_lost="fail")
        run = await eventually(lambda: runs_of(app, "job"))
        assert run[0].state == "running"  # recorded ahead of its fire time
    async with new_app(config=IDLE) as other:
        assert (await other.runs.get(run[0].id)).state == "retrying"
    assert work.calls == []


@on_one_store
async def test_an_exiting_process_starts_no_new_runs(new_app: NewApp):
    app = new_app(config=EngineConfig(tick_ms=100, heartbeat_ms=200, lanes={"cron": 1}))
    work = Hanging(app)
    async with app:
        run = await running(app)
        waiting, engine = await app.jobs.run("job"), app._engine
        assert engine is not None
        stopping = asyncio.create_task(app.stop(grace=3_600))
        await eventually(lambda: not engine.alive)
        work.let_go.set()
        await stopping
    async with new_app(config=IDLE) as other:
        assert (await other.runs.get(run.id)).state == "succeeded"
        assert (await other.runs.get(waiting.id)).state == "pending"
    assert [call.id for call in work.calls] == [run.id]


# --- a process that dies -----------------------------------------------------------------------------


@asynccontextmanager
async def killed_in_the_middle(
    new_app: NewApp, database: str, journal: Path, **fields: str
) -> AsyncIterator[tuple[Wakeful, Run]]:
    """Yield a run whose process was killed while running it."""
    async with new_app(config=IDLE) as idle:
        await idle.jobs.create("job", schedule=SELDOM, target=Function("work"), **fields)  # type: ignore[arg-type]
        run = await idle.jobs.run("job")
        with another_process(database, journal) as process:
            await eventually(lambda: entries(journal))
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        assert (await idle.runs.get(run.id)).state == "running"
        await age_leases(database)
        yield idle, run


async def test_a_run_whose_process_was_killed_is_retried_elsewhere_with_the_same_key(
    new_app: NewApp, database: str, tmp_path: Path
):
    journal = tmp_path / "journal"
    async with killed_in_the_middle(new_app, database, journal) as (_, run):
        app = new_app()
        work = Hanging(app)
        work.let_go.set()
        async with app:
            run = await over(app, run.id)
            first, last = await app.runs.attempts(run.id)
    assert (run.state, run.attempt) == ("succeeded", 2)
    assert [key for _, key, _ in entries(journal)] == [run.idempotency_key]
    assert [(call.idempotency_key, call.attempt) for call in work.calls] == [(run.idempotency_key, 2)]
    assert str(first.error).endswith("died")
    assert first.worker != last.worker


@pytest.mark.slow
async def test_a_run_with_on_lost_fail_fails_after_a_kill_and_blocks_no_later_tick(
    new_app: NewApp, database: str, tmp_path: Path
):
    journal = tmp_path / "journal"
    async with killed_in_the_middle(new_app, database, journal, on_lost="fail") as (idle, run):
        await idle.jobs.update("job", schedule="every 1s", start_at=soon())
        app = new_app()
        work = Hanging(app)
        work.let_go.set()
        async with app:
            failed = await over(app, run.id)
            assert [letter.id for letter in await app.runs.dead_letters()] == [run.id]
            await eventually(lambda: work.calls)
            ticks = [each for each in await runs_of(app, "job") if each.id != run.id]
    assert (failed.state, failed.reason, failed.attempt) == ("failed", "lost", 1)
    assert [key for _, key, _ in entries(journal)] == [run.idempotency_key]
    assert {call.trigger for call in work.calls} == {"schedule"}
    (started, *later) = [each for each in ticks if each.state != "skipped"]
    assert {each.state for each in (started, *later)} <= {"running", "succeeded"}
    assert started.id == work.calls[0].id
    skipped = [each for each in ticks if each.state == "skipped"]
    assert {each.reason for each in skipped} <= {"overlap"}
    # The ticks before it were skipped only while the run was held.
    free_ms = epoch_ms(failed.finished_at) + 1_000
    assert not [
        each for each in skipped if free_ms < epoch_ms(each.scheduled_at) < epoch_ms(started.scheduled_at)
    ]


async def _suspend(pid: int, app: Wakeful) -> None:
    """Suspend a process while it does not write: it would keep the lock of an SQLite database."""
    while True:
        os.kill(pid, signal.SIGSTOP)
        try:
            async with asyncio.timeout(2):
                await app.jobs.update("job", message="suspended")
            return
        except (TimeoutError, Unavailable):
            os.kill(pid, signal.SIGCONT)
            await asyncio.sleep(0.1)


@pytest.mark.slow
async def test_a_process_that_resumes_after_its_lease_expired_changes_nothing(
    new_app: NewApp, database: str, tmp_path: Path
):
    journal = tmp_path / "journal"
    async with new_app(config=IDLE) as idle:
        await idle.jobs.create("job", schedule=SELDOM, target=Function("work"))
        run = await idle.jobs.run("job")
        with another_process(database, journal) as process:
            await eventually(lambda: entries(journal))
            await _suspend(process.pid, idle)
            await age_leases(database)
            app = new_app()
            work = Hanging(app)
            work.let_go.set()
            async with app:
                done = await over(app, run.id)
            os.kill(process.pid, signal.SIGCONT)
            process.terminate()
            assert await asyncio.to_thread(process.wait, PATIENCE) == 0
        assert await idle.runs.get(run.id) == done
    assert (done.state, done.attempt) == ("succeeded", 2)
    assert len(entries(journal)) == 1


@on_one_store
async def test_a_process_that_exits_without_its_database_closes_its_connections(new_app: NewApp):
    app = new_app()
    await app.__aenter__()
    webhooks = app._parts.launchers.launcher("webhook")
    assert isinstance(webhooks, WebhookLauncher)
    client = webhooks._client
    assert client is not None
    await app.store.close()
    with contextlib.suppress(Exception):
        await app.stop()
    assert client.closed
