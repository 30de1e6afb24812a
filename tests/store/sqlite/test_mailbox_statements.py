"""Runs without an instance cost no statement for instances."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.factories import DAY, NOW, FalseClock, alone, asked, asleep, ended, fire, job
from wakeful.store.sqlite import SqliteStore


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(tmp_path / "wakeful.db", clock=FalseClock(), inline=True)
    await store.open()
    yield store
    await store.close()


class _Trace:
    """The statements that a store executes, each once."""

    def __init__(self, store: SqliteStore) -> None:
        self._db = store._connection._write_connection()
        self.statements: set[str] = set()

    def __enter__(self) -> set[str]:
        self._db.set_trace_callback(lambda text: self.statements.add(text.split("VALUES")[0]))
        return self.statements

    def __exit__(self, *error: object) -> None:
        self._db.set_trace_callback(None)


async def test_runs_without_an_instance_execute_no_statement_for_instances(store: SqliteStore) -> None:
    of = asleep("digest")
    await store.create_jobs([of, job("due", policy='{"overlap":"allow"}')])
    with _Trace(store) as statements:
        await store.add_runs([asked(of, serial=False) for _ in range(3)])
        await store.plan(NOW, 10, fire)
        runs = await store.take(NOW, "w1", {"cron": 10})
        assert len(runs) == 4
        first, second, third, fourth = runs
        retried = ended(second, "retrying", due_ms=NOW + DAY, error="no")
        await store.finish("w1", [ended(first), retried], alone)
        await store.cancel_run(third.id, NOW, "no", running=True)
        assert await store.release("w1", NOW) == 1
        await store.delete_job(of.id, NOW, "job_deleted")
        assert fourth.instance_id is None
    named = [text for text in statements if "instances" in text or "signal_ids" in text]
    assert [text for text in named if "FROM runs r INDEXED BY runs_due" not in text] == []  # only `take`
