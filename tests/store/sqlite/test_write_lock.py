"""While another process holds the write lock, reads are served and writes fail at their deadline."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.factories import job
from tests.support.lock_holder import lock_held
from wakeful.errors import Unavailable
from wakeful.store.rows import JobFilter
from wakeful.store.sqlite import SqliteStore

BUSY_MS = 300


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "wakeful.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path, busy_ms=BUSY_MS)
    await store.open()
    yield store
    await store.close()


async def names(store: SqliteStore) -> set[str]:
    return {row.name for row in await store.jobs(JobFilter("default"))}


async def test_reads_are_served_while_writes_wait_for_the_lock(path: Path) -> None:
    patient = SqliteStore(path, busy_ms=3_600_000)
    await patient.open()
    await patient.create_jobs([job("before")])
    with lock_held(path):
        writes = [asyncio.create_task(patient.create_jobs([job(f"job-{n}")])) for n in range(3)]
        for _ in range(100):
            assert await patient.next_wake_ms() is not None
            assert await names(patient) == {"before"}
        assert not any(write.done() for write in writes)
    await asyncio.gather(*writes)
    assert await names(patient) == {"before", "job-0", "job-1", "job-2"}
    await patient.close()


async def test_writes_fail_together_at_their_deadline_and_are_never_executed(
    store: SqliteStore, path: Path
) -> None:
    with lock_held(path):
        began = time.monotonic()
        results = await asyncio.gather(
            *(store.create_jobs([job(f"job-{n}")]) for n in range(200)), return_exceptions=True
        )
        took = time.monotonic() - began
    assert {type(result) for result in results} == {Unavailable}
    assert "held the write lock" in str(results[0])
    assert took < 200 * BUSY_MS / 1000 / 4  # in sequence they would take 200 deadlines
    await store.create_jobs([job("after")])
    assert await names(store) == {"after"}


async def test_a_write_whose_caller_gave_up_is_not_executed(path: Path) -> None:
    patient = SqliteStore(path, busy_ms=3_600_000)
    await patient.open()
    with lock_held(path):
        waiting = [asyncio.create_task(patient.create_jobs([job(f"gone-{n}")])) for n in range(3)]
        await asyncio.sleep(0)
        for write in waiting:
            write.cancel()
        await asyncio.wait(waiting)
        kept = asyncio.create_task(patient.create_jobs([job("kept")]))
        await asyncio.sleep(0)
    await kept
    assert await names(patient) == {"kept"}
    await patient.close()


async def test_a_store_closes_while_a_write_waits_for_the_lock(path: Path) -> None:
    patient = SqliteStore(path, busy_ms=3_600_000)
    await patient.open()
    with lock_held(path):
        write = asyncio.create_task(patient.create_jobs([job()]))
        await asyncio.sleep(0)
        async with asyncio.timeout(30):
            await patient.close()
            with pytest.raises(Unavailable, match="not open"):
                await write


async def test_a_write_that_waits_only_for_writes_of_its_own_process_does_not_fail(path: Path) -> None:
    store = SqliteStore(path, busy_ms=0)
    await store.open()
    await asyncio.gather(*(store.create_jobs([job(f"job-{n}")]) for n in range(50)))
    assert len(await names(store)) == 50
    await store.close()


async def test_a_read_sees_one_state_of_the_database(store: SqliteStore) -> None:
    """The statements of one read see no commit in between."""
    counted: list[int] = []
    loop = asyncio.get_running_loop()

    async def read(db: sqlite3.Connection) -> None:
        count = "SELECT count(*) FROM jobs"
        counted.append(db.execute(count).fetchone()[0])
        asyncio.run_coroutine_threadsafe(store.create_jobs([job()]), loop).result(30)
        counted.append(db.execute(count).fetchone()[0])

    await store._connection.read(read)
    assert counted == [0, 0]
    assert len(await names(store)) == 1
