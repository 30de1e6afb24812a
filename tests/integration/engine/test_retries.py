"""Retries of failed attempts, with a backoff that is stored in the database."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.support.waiting import epoch_ms, eventually, in_state, over, runs_of, soon
from wakeful import Function, Launch, Permanent, Wakeful
from wakeful.engine.in_flight import InFlight
from wakeful.store.rows import TakenRun

QUICKLY = {"base": "20ms", "max": "20ms"}


def failing(app: Wakeful, times: int) -> list[Launch]:
    """Register `work`, which fails `times` times and then succeeds; return its calls."""
    calls: list[Launch] = []

    @app.function()
    async def work(run: Launch) -> str:
        calls.append(run)
        if len(calls) <= times:
            raise RuntimeError(f"failure {len(calls)}")
        return "at last"

    return calls


async def test_a_run_is_retried_with_the_same_key_until_it_succeeds(new_app: NewApp):
    app = new_app()
    calls = failing(app, times=2)
    async with app:
        await app.jobs.create("job", schedule=SELDOM, target=Function("work"), backoff=QUICKLY)
        run = await over(app, (await app.jobs.run("job")).id)
        attempts = await app.runs.attempts(run.id)
    assert (run.state, run.output, run.attempt, run.error) == ("succeeded", "at last", 3, None)
    assert [call.attempt for call in calls] == [1, 2, 3]
    assert {call.idempotency_key for call in calls} == {run.idempotency_key}
    assert {call.id for call in calls} == {run.id}
    errors = ["RuntimeError: failure 1", "RuntimeError: failure 2", None]
    assert [(each.attempt, each.error) for each in attempts] == list(zip([1, 2, 3], errors, strict=True))


async def test_a_failed_tick_is_retried(new_app: NewApp):
    app = new_app()
    calls = failing(app, times=1)
    async with app:
        await app.jobs.create("job", schedule="in 100ms", target=Function("work"), backoff=QUICKLY)
        await eventually(lambda: len(calls) == 2)
        (run,) = await runs_of(app, "job")
        run = await over(app, run.id)
    assert (run.state, run.attempt, run.trigger) == ("succeeded", 2, "schedule")
    assert {call.scheduled_ms for call in calls} == {epoch_ms(run.scheduled_at)}


async def test_a_run_between_two_attempts_lists_each_attempt_once(new_app: NewApp):
    app = new_app()
    failing(app, times=1)
    async with app:
        await app.jobs.create(
            "job", schedule=SELDOM, target=Function("work"), backoff={"base": "1h", "max": "1h"}
        )
        run = await in_state(app, (await app.jobs.run("job")).id, "retrying")
        attempts = await app.runs.attempts(run.id)
    assert [(each.attempt, each.error) for each in attempts] == [(1, "RuntimeError: failure 1")]
    assert attempts[0].worker is not None
    assert run.worker is None


async def test_a_run_cancelled_between_two_attempts_lists_each_attempt_once(new_app: NewApp):
    app = new_app()
    failing(app, times=1)
    async with app:
        await app.jobs.create("job", schedule=SELDOM, target=Function("work"), backoff={"base": "1h"})
        run = await in_state(app, (await app.jobs.run("job")).id, "retrying")
        await app.runs.cancel(run.id)
        assert [each.attempt for each in await app.runs.attempts(run.id)] == [1]


@on_one_store
async def test_the_backoff_grows_from_base_to_max(new_app: NewApp):
    app = new_app()
    failing(app, times=4)
    async with app:
        await app.jobs.create(
            "job", schedule=SELDOM, target=Function("work"), backoff={"base": "100ms", "max": "200ms"}
        )
        run = await over(app, (await app.jobs.run("job")).id)
        attempts = await app.runs.attempts(run.id)
    waits = [
        epoch_ms(later.started_at) - epoch_ms(earlier.finished_at) for earlier, later in pairwise(attempts)
    ]
    assert len(waits) == 4
    for wait, least in zip(waits, [75, 150, 150, 150], strict=True):
        assert wait >= least


async def test_a_backoff_continues_after_a_restart(new_app: NewApp):
    for base_ms in (800, 3_200, 12_800, 51_200):
        first, second = new_app(), new_app()
        at_first, calls = failing(first, times=1), failing(second, times=0)
        async with first:
            await first.jobs.upsert(
                "job", schedule=SELDOM, target=Function("work"), backoff={"baseMs": base_ms}
            )
            run = await first.jobs.run("job")
            await eventually(partial(bool, at_first))
        if len(at_first) == 1:  # else the backoff ended before the first replica had stopped
            break
    async with second:
        run = await over(second, run.id)
    assert (run.state, run.attempt) == ("succeeded", 2)
    assert [(call.attempt, call.idempotency_key) for call in calls] == [(2, run.idempotency_key)]


@on_one_store
async def test_a_permanent_error_is_not_retried(new_app: NewApp):
    app = new_app()

    @app.function()
    async def work(run: Launch) -> None:
        raise Permanent("the customer has left")

    async with app:
        await app.jobs.create("job", schedule=SELDOM, target=Function("work"), backoff=QUICKLY)
        run = await over(app, (await app.jobs.run("job")).id)
        assert (await app.jobs.get("job")).enabled
    assert (run.state, run.attempt, run.reason) == ("failed", 1, "permanent")
    assert run.error == "the customer has left"


@on_one_store
@pytest.mark.parametrize("blocking", [False, True], ids=["a coroutine", "a thread"])
async def test_an_attempt_that_times_out_is_retried(new_app: NewApp, blocking: bool):
    app = new_app()
    calls: list[int] = []
    cancelled: list[int] = []

    async def wait(run: Launch) -> str:
        calls.append(run.attempt)
        try:
            await asyncio.sleep(0 if run.attempt == 2 else 3_600)
        except asyncio.CancelledError:
            cancelled.append(run.attempt)
            raise
        return "in time"

    def block(run: Launch) -> str:
        calls.append(run.attempt)
        if run.attempt == 1:
            time.sleep(3.0)  # a thread cannot be stopped, only abandoned
        return "in time"

    work: Callable[[Launch], object] = block if blocking else wait
    app.function("work")(work)
    async with app:
        await app.jobs.create("job", schedule=SELDOM, target=Function("work"), timeout="2s", backoff=QUICKLY)
        run = await over(app, (await app.jobs.run("job")).id)
        first, last = await app.runs.attempts(run.id)
    assert (run.state, run.output, calls) == ("succeeded", "in time", [1, 2])
    assert (first.error, last.error) == ("timed out after 2 s", None)
    assert cancelled == ([] if blocking else [1])


async def test_after_the_last_attempt_a_recurring_job_stays_enabled_and_fires_again(new_app: NewApp):
    app = new_app()
    calls = failing(app, times=2)
    async with app:
        await app.jobs.create(
            "job",
            schedule="every 1s",
            target=Function("work"),
            max_attempts=2,
            backoff=QUICKLY,
            start_at=soon(),
        )
        await eventually(lambda: len(calls) >= 3)
        job = await app.jobs.get("job")
        failed, fine = [run for run in await runs_of(app, "job") if run.state != "skipped"][:2]
        fine = await over(app, fine.id)
    assert job.enabled
    assert (failed.state, failed.attempt, failed.dead) == ("failed", 2, True)
    assert (fine.state, fine.attempt) == ("succeeded", 1)
    assert calls[1].idempotency_key != calls[2].idempotency_key


@on_one_store
async def test_failing_and_hung_jobs_do_not_delay_others(new_app: NewApp):
    app = new_app()
    failing(app, times=1_000_000)

    @app.function()
    async def hang() -> None:
        await asyncio.Event().wait()

    @app.function()
    async def fine() -> None: ...

    async with app:
        for name, function in (("failing", "work"), ("hung", "hang"), ("fine", "fine")):
            await app.jobs.create(name, schedule=SELDOM, target=Function(function))
        failing_run, hung_run = await app.jobs.run("failing"), await app.jobs.run("hung")
        await in_state(app, failing_run.id, "retrying")
        await in_state(app, hung_run.id, "running")
        assert (await over(app, (await app.jobs.run("fine")).id)).state == "succeeded"
        await app.stop(grace=0)


async def test_a_graceful_restart_does_not_count_as_a_failed_attempt(new_app: NewApp):
    started: list[int] = []

    def hanging(app: Wakeful) -> Wakeful:
        @app.function()
        async def work(run: Launch) -> None:
            started.append(run.attempt)
            if run.attempt < 4:
                await asyncio.Event().wait()
            raise RuntimeError("no")

        return app

    app = hanging(new_app())
    async with app:
        await app.jobs.create(
            "job", schedule=SELDOM, target=Function("work"), max_attempts=2, backoff=QUICKLY
        )
        run = await app.jobs.run("job")
        await eventually(lambda: started == [1])
        await app.stop(grace=0)
    for started_so_far in ([1, 2], [1, 2, 3]):
        async with hanging(new_app()) as app:
            await eventually(partial(started_so_far.__eq__, started))
            await app.stop(grace=0)
    async with hanging(new_app()) as app:
        run = await over(app, run.id)
        errors = [each.error for each in await app.runs.attempts(run.id)]
    assert (run.state, run.attempt, run.failed_attempts) == ("failed", 5, 2)
    assert errors == ["released", "released", "released", "RuntimeError: no", "RuntimeError: no"]


async def test_a_replay_has_the_full_number_of_attempts(new_app: NewApp):
    app = new_app()
    calls = failing(app, times=3)
    async with app:
        await app.jobs.create(
            "job", schedule=SELDOM, target=Function("work"), max_attempts=2, backoff=QUICKLY
        )
        dead = await over(app, (await app.jobs.run("job")).id)
        assert (dead.state, dead.attempt, dead.failed_attempts) == ("failed", 2, 2)
        replay = await over(app, (await app.runs.replay(dead.id)).id)
    assert (replay.state, replay.attempt, replay.failed_attempts) == ("succeeded", 4, 1)
    assert [call.attempt for call in calls] == [1, 2, 3, 4]


@on_one_store
async def test_a_late_stop_of_an_attempt_does_not_stop_the_next_one(
    new_app: NewApp, monkeypatch: pytest.MonkeyPatch
):
    """A heartbeat response for the first attempt arrives while the second is being claimed."""
    app = new_app()
    first: list[InFlight] = []
    stopped: list[bool] = []
    take = app.store.take

    @app.function()
    async def work(run: Launch) -> None:
        if run.attempt == 1:
            first.append(worker.in_flight[run.id])
            raise RuntimeError("no")

    async def take_slowly(*given: Any, **named: Any) -> list[TakenRun]:
        taken = await take(*given, **named)
        stopped.extend(worker.stop(run.id, "lost", first[0]) for run in taken if run.attempt == 2)
        return taken

    monkeypatch.setattr(app.store, "take", take_slowly)
    async with app:
        assert app._engine is not None
        worker = app._engine._worker
        await app.jobs.create("job", schedule=SELDOM, target=Function("work"), backoff=QUICKLY)
        run = await over(app, (await app.jobs.run("job")).id)
    assert stopped == [False]
    assert (run.state, run.attempt) == ("succeeded", 2)
