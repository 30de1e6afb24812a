"""Unexpected errors of the store end no loop of the engine: each one goes on, and the work is done."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import SELDOM, NewApp
from tests.simulation.virtual_loop import run_virtually
from tests.support.factories import DAY, NOW, FalseClock, asked, given_job
from tests.support.factories import over as ended_run
from tests.support.sqlite_files import fresh_file
from tests.support.waiting import eventually, over
from wakeful import Function, Unavailable, Wakeful
from wakeful.engine.history import Pruner
from wakeful.engine.loop import Loop
from wakeful.store.sqlite import SqliteStore
from wakeful.values.clock import SystemClock

#: What the loops call.
_CALLS = (
    "plan", "next_wake_ms", "take", "next_due_ms", "finish", "finish_and_take", "beat", "rescue", "expire",
    "find_lost", "prune", "prune_changes", "budget_blocks", "count_runs", "notify_incidents", "raise_alerts",
    "digest_owners",
    "take_verifications", "next_verification_ms", "take_deliveries", "next_delivery_ms", "take_turns",
    "next_turn",
)  # fmt: skip


#: Those of them that happen here on both databases.
_EACH = ("plan", "next_wake_ms", "take", "beat", "rescue")


def break_once(app: Wakeful, error: BaseException, *, after: bool) -> set[str]:
    """Let the first call of each method that the loops use fail. Returns the names of those that failed."""
    failed: set[str] = set()
    store: Any = app.store

    def broken(name: str, call: Any) -> Any:
        async def fail(*args: Any, **kwargs: Any) -> Any:
            if name in failed:
                return await call(*args, **kwargs)
            failed.add(name)
            if after:
                await call(*args, **kwargs)
            raise error

        return fail

    for name in _CALLS:
        store.__dict__[name] = broken(name, getattr(store, name))
    return failed


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    "error", [RuntimeError("a bug"), asyncio.CancelledError()], ids=["error", "cancelled"]
)
async def test_an_unexpected_error_of_each_call_ends_no_loop(
    new_app: NewApp, error: BaseException, after: bool
):
    app = new_app()
    ran: list[int] = []
    app.function("digest")(lambda: ran.append(1))
    async with app:
        failed = break_once(app, error, after=after)
        await app.jobs.upsert("digest", schedule="every 1s", target={"kind": "function", "name": "digest"})
        await app.jobs.upsert("asked", schedule=SELDOM, target={"kind": "function", "name": "digest"})
        run = await over(app, (await app.jobs.run("asked")).id)
        assert run.state == "succeeded"
        await eventually(lambda: len(ran) >= 3)
        await eventually(lambda: set(_EACH) <= failed)
        assert app.alive


async def test_outcomes_of_two_attempts_that_wait_together_are_both_reported(new_app: NewApp):
    """The first is written, but its response is lost; the second attempt ends before the next write."""
    app = new_app()
    calls: list[int] = []

    @app.function("flaky")
    def flaky() -> None:
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("not yet")

    left = 2  # writes that fail once the second attempt has started

    async with app:
        store: Any = app.store

        def in_doubt(call: Any) -> Any:
            async def write(worker: str, finished: Any, *args: Any) -> Any:
                nonlocal left
                left -= len(calls) > 1
                if left < 0 or len(calls) == 1:
                    result = await call(worker, finished, *args)
                if left < 0:
                    return result
                raise Unavailable("no answer")

            return write

        for name in ("finish", "finish_and_take"):
            store.__dict__[name] = in_doubt(getattr(store, name))
        await app.jobs.upsert(
            "flaky", schedule=SELDOM, target=Function("flaky"), backoff={"base": "20ms", "max": "20ms"}
        )
        run = await over(app, (await app.jobs.run("flaky")).id)
        assert (run.state, run.attempt, len(calls)) == ("succeeded", 2, 2)


def test_a_cancelled_part_of_a_step_does_not_end_its_loop():
    class Parts(Loop):
        steps = 0

        async def step(self) -> int | None:
            self.steps += 1
            part: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            if self.steps == 1:
                part.cancel()
                await part
            return None

    async def story() -> None:
        loop = Parts(SystemClock(), 1_000)
        task = asyncio.create_task(loop.run())
        await asyncio.sleep(10)
        assert loop.steps > 5
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()

    run_virtually(story())


def test_an_erasure_that_always_fails_keeps_no_history(tmp_path: Path):
    async def fail(*_: object) -> bool:
        raise Unavailable("the statement took too long")

    async def deleting(limit: int) -> list[str]:
        return ["an instance"]

    async def story() -> None:
        store = SqliteStore(fresh_file(tmp_path / "wakeful.db"), clock=FalseClock(), inline=True)
        await store.open()
        old = ended_run(asked(await given_job(store), NOW - 3 * DAY), at=NOW - 3 * DAY)
        await store.add_runs([old])
        store.__dict__.update(deleting_instances=deleting, erase_instance=fail)
        pruner = asyncio.create_task(Pruner(store, store.clock, retention_days=2, log_every_ms=1_000).run())
        await asyncio.sleep(10)
        assert await store.run(old.id) is None
        pruner.cancel()
        await asyncio.wait({pruner})
        await store.close()

    run_virtually(story())
