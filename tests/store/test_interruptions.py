"""An operation that is cancelled at any of its awaits is done or not done, and holds nothing afterwards."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.databases import Database
from tests.support.factories import NOW, alone, asked, ended, fire, held, job, look
from tests.support.interruptions import cancel_at_each_await
from tests.support.pull_runs import ME, YOU, new_job, pulled
from tests.support.waiting import PATIENCE
from wakeful.run import NewRun
from wakeful.store.port import TakeNext

FREE = {"cron": 100}


@pytest.mark.parametrize("operation", ["plan", "take", "claim", "finish_and_take", "release"])
async def test_a_cancelled_operation_is_done_or_not_and_holds_nothing(database: Database, operation: str):
    store, other = await database.connect(), await database.connect()
    digest = await new_job(other)
    runs: list[NewRun] = []

    async def prepare() -> None:
        waits, pull, mine = asked(digest, serial=False), pulled(digest), held(asked(digest, serial=False), ME)
        runs[:] = waits, pull, mine
        await other.create_jobs([job(f"due-{waits.id}")])
        await other.add_runs(runs)

    async def operate() -> None:
        if operation == "plan":
            await store.plan(NOW, 10, fire)
        elif operation == "take":
            await store.take(NOW, ME, FREE)
        elif operation == "claim":
            await store.claim(NOW, ME, "default", None, None, 10)
        elif operation == "release":
            await store.release(ME, NOW)
        else:
            await store.finish_and_take(ME, [ended(runs[2])], alone, TakeNext({}, {}, FREE, {}))

    async def check() -> None:
        # No connection of this store is in use, and no lock of the database is held.
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*(store.ping() for _ in range(12)))
            await other.plan(NOW, 10, fire)
            await other.finish(ME, [ended(run) for run in runs[1:]], alone)
            await other.release(ME, NOW)
            claimed = await other.claim(NOW, YOU, "default", None, None, 10)
            taken = await other.take(NOW, YOU, FREE)
            await other.finish(YOU, [ended(run) for run in [*taken, *(run for run, _ in claimed)]], alone)
        assert [(await look(other, run)).state for run in runs] == ["succeeded"] * 3
        assert await other.next_wake_ms() != NOW, "the due job was planned"
        assert await other.take(NOW, YOU, FREE) == []

    assert await cancel_at_each_await(operate, check, prepare=prepare) >= 2
