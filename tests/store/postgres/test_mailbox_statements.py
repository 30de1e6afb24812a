"""Runs without an instance cost no statement for instances, and signals cost a fixed number of statements."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg
import pytest

from tests.support.factories import NOW, alone, asked, asleep, ended, fire, job
from tests.support.instances import MAILBOX, agent_class, arrival, done, taken
from wakeful.run.instances import Send
from wakeful.store.postgres import PostgresStore


@contextmanager
def _traced(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Yield the statements that the store executes in the block, without those of its listener."""
    found: list[str] = []
    execute = vars(asyncpg.Connection)["_execute"]

    def traced(self: asyncpg.Connection, query: str, *args: object, **kwargs: object) -> object:
        if store._pool.is_ours(self.get_server_pid()):
            found.append(query)
        return execute(self, query, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(asyncpg.Connection, "_execute", traced)
        yield found


async def test_runs_without_an_instance_execute_no_statement_for_instances(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = asleep("digest")
    await store.create_jobs([of, job("due", policy='{"overlap":"allow"}')])
    with _traced(store, monkeypatch) as statements:
        await store.add_runs([asked(of, serial=False) for _ in range(3)])
        await store.plan(NOW, 10, fire)
        runs = await store.take(NOW, "w1", {"cron": 10})
        assert len(runs) == 4
        retried = ended(runs[0], "retrying", due_ms=NOW, error="no")
        await store.finish("w1", [retried, *map(ended, runs[1:])], alone)
    assert statements
    words = ("instances", "signal_ids", "agent_classes")
    assert [text for text in statements if any(word in text for word in words)] == []


@pytest.mark.parametrize("count", [2, 100])
async def test_signals_cost_a_fixed_number_of_statements(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    await store.put_class(agent_class(), NOW)
    names = [f"i{number}" for number in range(count)]
    with _traced(store, monkeypatch) as sent:
        await store.send([arrival(name, signal_id="1") for name in names], MAILBOX)
    with _traced(store, monkeypatch) as took:
        runs = await taken(store)
    with _traced(store, monkeypatch) as changed:
        await store.finish("w1", [done(run, data="{}") for run in runs], alone)
    await store.send([arrival(name) for name in names], MAILBOX)
    runs = await taken(store)
    sends = (Send("report", "us", "report.ready", "{}"),)
    with _traced(store, monkeypatch) as sending:
        await store.finish("w1", [done(run, data="{}", sends=sends) for run in runs], alone)
    # With the notification of other processes and the changelog; the last one adds an instance, so it reads
    # its quota.
    assert [len(each) for each in (sent, took, changed, sending)] == [7, 3, 5, 12]
