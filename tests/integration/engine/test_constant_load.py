"""A loop whose step does not end under constant load is neither stalled nor hanging."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.support.factories import alone, ended, held, jobless
from tests.support.waiting import PATIENCE
from wakeful.engine.completer import Completer
from wakeful.store.sqlite import SqliteStore


async def test_the_completer_makes_progress_with_each_batch(tmp_path: Path):
    store = SqliteStore(tmp_path / "a.db")
    await store.open()
    try:
        run = held(jobless())
        await store.add_runs([run])
        completer = Completer("w1", store, store.clock, 60_000, alone)
        steps: list[float] = []
        enough = asyncio.Event()

        def written(*_: object) -> None:
            steps.append(completer.last_step or 0)
            completer.add(ended(run))  # so the step always has one more to write
            if len(steps) == 3:
                enough.set()

        completer.on_written = written
        completer.add(ended(run))
        loop = asyncio.create_task(completer.run())
        async with asyncio.timeout(PATIENCE):
            await enough.wait()
        loop.cancel()
        await asyncio.gather(loop, return_exceptions=True)
    finally:
        await store.close()
    assert steps[0] < steps[1] < steps[2]
