"""Two connections to one SQLite file: one signal at a time, in order, and nothing is lost."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from tests.support.databases import SqliteDatabase
from tests.support.factories import NOW, alone
from tests.support.instances import agent_class, done, given_sent, taken, view
from wakeful.store.port import Store

EACH = 25


async def test_two_senders_and_two_workers_handle_one_signal_at_a_time_in_order(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path / "wakeful.db")
    first, second = await database.connect(), await database.connect()
    await first.put_class(agent_class(), NOW)
    handled: list[str] = []
    running = 0

    async def send(by: Store) -> list[str]:
        return [run_id for _ in range(EACH) for run_id in await given_sent(by, "eu")]

    async def work(by: Store, name: str) -> None:
        nonlocal running
        while len(handled) < 2 * EACH:
            for run in await taken(by, name):
                running += 1
                assert running == 1
                await asyncio.sleep(0)
                running -= 1  # before the commit, after which the other worker may take the next one
                handled.append(run.id)
                outcome = done(run, data=json.dumps(json.loads(run.data or "0") + 1))
                assert await by.finish(name, [outcome], alone) == {run.id}

    one, two, _, _ = await asyncio.gather(send(first), send(second), work(first, "w1"), work(second, "w2"))
    assert [run for run in handled if run in one] == one
    assert [run for run in handled if run in two] == two
    row = (await view(first)).row
    assert (row.data, row.revision, row.sequence) == (str(2 * EACH), 2 * EACH, 2 * EACH)
    await database.close()
