"""Runs that are added on request, by several processes: each once, with its audit entry, or not at all.

PostgreSQL adds most of them with one statement, which relies on what the process wrote last.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from tests.support.databases import Database
from tests.support.effort import part
from tests.support.factories import NOW, asked, job
from tests.support.notifications import NotificationRecorder
from tests.support.one_statement import try_one_statement
from wakeful.errors import NotFound
from wakeful.job.job import StaleJob
from wakeful.store.audit import AuditEntry, flaw
from wakeful.store.port import Store
from wakeful.store.rows import JobChange, JobRow, RunFilter, RunView
from wakeful.store.sql.usage import CapReached

DAY = 20_000


def entry(run_id: str, workspace: str) -> AuditEntry:
    return AuditEntry(workspace, "key:1", "job.run", "default/digest", f'{{"run":"{run_id}"}}', None)


async def add(store: Store, rows: list[JobRow], *, day: int | None = None) -> list[str] | Exception:
    """Add a run of each job, as they are known; return the ids, or the error of all."""
    runs = [asked(row, workspace=row.workspace) for row in rows]
    entries = [entry(run.id, run.workspace) for run in runs]
    try:
        added = await store.add_runs(runs, entries, versions=[row.version for row in rows], day=day)
    except (StaleJob, NotFound, CapReached) as error:
        return error
    assert [run.id for run in added] == [run.id for run in runs]
    return [run.id for run in added]


async def reach_cap(store: Store, workspace: str) -> None:
    async def write(db: Any, _: object) -> None:
        await store._driver.session(db).execute(
            "INSERT INTO budget_blocks (day, workspace, agent, job, cap, most) "
            "VALUES ($1, $2, '', '', 'x', 1)",
            DAY,
            workspace,
        )

    await store._driver.write(write)


async def check(store: Store, workspace: str, expected: set[str]) -> list[RunView]:
    """Check that exactly these runs were added, each with one entry in a valid chain."""
    entries = await store.audit(workspace, limit=10_000)
    assert flaw(entries, 0, "") is None
    assert sorted(row.details for row in entries) == sorted(f'{{"run":"{each}"}}' for each in expected)
    runs = await store.runs(RunFilter(workspace, limit=1_000))
    assert {run.id for run in runs} == expected
    return runs


@pytest.mark.parametrize("seed", part(range(8)))
async def test_each_is_written_once_with_its_entry_or_refused(
    database: Database, seed: int, monkeypatch: pytest.MonkeyPatch
):
    try_one_statement(monkeypatch)
    chance = random.Random(seed)
    stores = [await database.connect() for _ in range(2)]
    current: dict[str, JobRow] = {}
    for number in range(4):
        row = job(f"job-{number}", workspace=f"ws-{number % 2}", next_ms=None, wake_ms=None)
        await stores[0].create_jobs([row])
        current[row.id] = row
    deleted: set[str] = set()
    capped: set[str] = set()
    expected: dict[str, set[str]] = {"ws-0": set(), "ws-1": set()}
    for _ in range(40):
        store, step = chance.choice(stores), chance.random()
        chosen = chance.choice(list(current.values()))
        if step < 0.1 and chosen.id not in deleted:
            changed = await store.change_job(chosen.id, lambda row: JobChange(row._replace(description="x")))
            assert changed is not None
            if chance.random() < 0.5:  # else the next one to add a run knows an earlier version
                current[chosen.id] = changed
        elif step < 0.12:
            await store.delete_job(chosen.id, NOW, "deleted")
            deleted.add(chosen.id)
        elif step < 0.14:
            if chosen.workspace not in capped:
                await reach_cap(store, chosen.workspace)
            capped.add(chosen.workspace)
        else:
            day = chance.choice([None, DAY, DAY - 1])
            alike = [row for row in current.values() if row.workspace == chosen.workspace]
            batches = [chance.sample(alike, chance.randint(1, len(alike))) for _ in range(3)]
            results = await asyncio.gather(*(add(chance.choice(stores), batch, day=day) for batch in batches))
            for batch, result in zip(batches, results, strict=True):
                found = [await store.job_by_id(row.id) for row in batch]
                stale = any(
                    now is not None and now.version != row.version
                    for now, row in zip(found, batch, strict=True)
                )
                gone = any(row.id in deleted for row in batch)
                if not isinstance(result, Exception):
                    assert not stale
                    assert not gone
                    assert day != DAY or chosen.workspace not in capped
                    expected[chosen.workspace].update(result)
                else:
                    assert stale or gone or (day == DAY and chosen.workspace in capped), result
    for workspace, ids in expected.items():
        await check(stores[1], workspace, ids)


async def test_executors_and_workers_are_told_of_different_runs(store: Store, recorder: NotificationRecorder):
    row = job(next_ms=None, wake_ms=None)
    await store.create_jobs([row])
    for claim_ms, topic, other in ((None, "runs", "pull_runs"), (60_000, "pull_runs", "runs")):
        for _ in range(3):  # the first reads what the others know
            recorder.topics.clear()
            run = asked(row, claim_timeout_ms=claim_ms)
            await store.add_runs([run], [entry(run.id, run.workspace)], versions=[row.version])
            assert other not in await recorder.next_event(topic)


async def test_runs_of_two_versions_of_a_job_are_refused_together(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    try_one_statement(monkeypatch)
    row = job(next_ms=None, wake_ms=None)
    await store.create_jobs([row])
    assert not isinstance(await add(store, [row]), Exception)
    changed = await store.change_job(row.id, lambda old: JobChange(old._replace(description="x")))
    assert changed is not None
    for rows in ([row, changed], [changed, row]):
        added = await add(store, [changed])
        assert not isinstance(added, Exception)
        assert isinstance(await add(store, rows), StaleJob)
