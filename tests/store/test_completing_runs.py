"""Outcomes that executors report, to several processes: each run ends once, with all that belongs to it.

PostgreSQL writes a few plain successes with one statement.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.support.databases import Database
from tests.support.effort import part
from tests.support.factories import asked, asleep, ended, held
from tests.support.one_statement import try_one_statement
from wakeful.run.consequences import consequences
from wakeful.run.outcome import Finished
from wakeful.store.audit import AuditEntry, flaw
from wakeful.store.port import Store
from wakeful.store.rows import ANY_EXECUTOR, RunFilter


def entry(run_id: str) -> AuditEntry:
    return AuditEntry("default", "key:1", "run.complete", run_id, "{}", None)


async def complete(store: Store, outcomes: list[Finished]) -> set[str]:
    return await store.complete_runs(ANY_EXECUTOR, outcomes, consequences, entry)


@pytest.mark.parametrize("seed", part(range(8)))
async def test_each_run_ends_once(database: Database, seed: int, monkeypatch: pytest.MonkeyPatch):
    try_one_statement(monkeypatch)
    chance = random.Random(seed)
    stores = [await database.connect() for _ in range(2)]
    store = stores[0]
    jobs = [asleep(f"job-{number}") for number in range(3)]
    follower = asleep("then", after_job="job-0", after_on="succeeded", next_ms=None, wake_ms=None)
    await store.create_jobs(jobs)
    runs = [held(asked(chance.choice(jobs), claim_timeout_ms=60_000)) for _ in range(160)]
    await store.add_runs(runs)
    before = await store.last_change()
    written: dict[str, str] = {}
    left = list(runs)
    follows = 0
    for number in range(40):
        if number == 25:
            await store.create_jobs([follower])
        batches = []
        for _ in range(2):
            chosen = chance.sample(left, min(len(left), chance.randint(1, 3)))
            # From then on, more follows from an outcome.
            state = "succeeded" if number < 15 else chance.choice(["succeeded", "succeeded", "failed"])
            late = chance.random() < 0.2  # a report of an attempt before
            batches.append(
                [ended(run, state, output=f"{number}", attempt=run.attempt - late) for run in chosen]
            )
        results = await asyncio.gather(
            *(complete(chance.choice(stores), batch) for batch in batches if batch)
        )
        for batch, done in zip([each for each in batches if each], results, strict=True):
            for outcome in batch:
                if outcome.run_id in done:
                    assert outcome.run_id not in written
                    assert outcome.attempt == 1
                    written[outcome.run_id] = outcome.state
                    follows += number >= 25 and outcome.state == "succeeded" and outcome.job_id == jobs[0].id
        left = [run for run in left if run.id not in written] or left
    entries = await store.audit("default", limit=1_000)
    assert flaw(entries, 0, "") is None
    assert sorted(each.subject for each in entries) == sorted(written)
    found = await store.runs(RunFilter("default", limit=1_000))
    assert {run.id: run.state for run in found if run.finished_ms and run.trigger == "user"} == written
    assert sum(run.trigger == "chain" for run in found) == follows
    changes = [row for row in await store.changes(before, 1_000) if row.kind == "run.finished"]
    assert sorted(item for row in changes for item in row.items) == sorted(written)
