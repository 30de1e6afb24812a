"""A tick has one run however many planners run concurrently; a unique index enforces it."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from tests.support.databases import Database
from tests.support.factories import (
    NOW,
    fire,
    given_job,
    job,
    look_at_job,
    plan_of,
    start,
    tick,
    ticks_of,
)
from wakeful.store.plans import DueJob, JobPlan
from wakeful.store.port import Store
from wakeful.store.rows import JobChange, JobFilter, JobRow


@pytest.mark.parametrize("planners", [2, 10])
async def test_many_planners_of_one_due_job_create_one_run(database: Database, planners: int) -> None:
    stores = [await database.connect() for _ in range(planners)]
    digest = job()
    await stores[0].create_jobs([digest])
    passes = await asyncio.gather(*(s.plan(NOW, 10, start(f"w{n}")) for n, s in enumerate(stores)))
    created = [run for planned in passes for run in planned.runs]
    assert len(created) == 1
    (run,) = await ticks_of(stores[0], digest)
    assert (run.id, run.worker) == (created[0].id, created[0].worker)
    assert (await look_at_job(stores[0], digest)).run_count == 1


async def test_concurrent_planners_plan_each_due_job_once(database: Database) -> None:
    stores = [await database.connect() for _ in range(4)]
    jobs = [job(f"job-{n}") for n in range(300)]
    await stores[0].create_jobs(jobs)

    async def plan_until_nothing_is_due(store: Store) -> list[str]:
        mine: list[str] = []
        # A pass may find nothing because the others have all due jobs locked: check the next wake instead.
        while (wake := await store.next_wake_ms()) is not None and wake <= NOW:
            mine += [run.job_id or "" for run in (await store.plan(NOW, 20, fire)).runs]
        return mine

    shares = await asyncio.gather(*(plan_until_nothing_is_due(store) for store in stores))
    assert Counter(job_id for share in shares for job_id in share) == Counter(row.id for row in jobs)
    for row in jobs:
        assert len(await ticks_of(stores[0], row)) == 1


async def _put_back(store: Store, row: JobRow) -> None:
    """Make a tick that already has a run due again, as a replica with stale data would."""
    await store.change_job(row.id, lambda old: JobChange(old._replace(next_ms=NOW, wake_ms=NOW)))


async def test_a_tick_that_has_a_run_does_not_get_another(store: Store) -> None:
    digest = await given_job(store, "digest", tick)
    before = await ticks_of(store, digest)
    await _put_back(store, digest)
    planned = await store.plan(NOW, 10, fire)
    assert planned == (1, [], True)
    assert await ticks_of(store, digest) == before
    stale = await look_at_job(store, digest)
    assert (stale.next_ms, stale.run_count, stale.decided_ticks) == (NOW, digest.run_count, str(NOW))


async def test_only_ticks_without_a_run_get_one(store: Store) -> None:
    digest = await given_job(store, "digest", tick)
    other = job("other")
    await store.create_jobs([other])
    await _put_back(store, digest)

    def decide(due: DueJob) -> JobPlan:
        free = {NOW, NOW + 1} - {int(due.decided_ticks or 0)}
        return plan_of(due, *(tick(due, at) for at in sorted(free)))

    assert (await store.plan(NOW, 10, decide)).repeat, "the job did not know that the tick has a run"
    planned = await store.plan(NOW, 10, decide)
    assert sorted((run.job_name, run.scheduled_ms) for run in planned.runs) == [
        ("digest", NOW + 1),
        ("other", NOW),
        ("other", NOW + 1),
    ]
    assert [run.scheduled_ms for run in await ticks_of(store, digest)] == [NOW, NOW + 1]


async def test_without_the_unique_index_a_tick_runs_twice(database: Database) -> None:
    store = await database.connect()
    digest = await given_job(store, "digest", tick)
    await _put_back(store, digest)
    await database.drop_index("scheduled_at, job_id")
    planned = await store.plan(NOW, 10, fire)
    assert len(planned.runs) == 1
    assert [run.scheduled_ms for run in await ticks_of(store, digest)] == [NOW, NOW]


async def test_a_run_with_another_trigger_does_not_block_a_tick(store: Store) -> None:
    digest = job()
    await store.create_jobs([digest])
    by_hand = [
        tick(digest, trigger=trigger, state="succeeded", due_ms=None, finished_ms=NOW)
        for trigger in ("user", "user", "agent", "backfill", "replay", "chain", "heartbeat")
    ]
    await store.add_runs(by_hand)
    assert len((await store.plan(NOW, 10, fire)).runs) == 1
    assert len(await ticks_of(store, digest)) == len(by_hand) + 1


async def test_two_workers_never_take_the_same_run(database: Database) -> None:
    stores = [await database.connect() for _ in range(4)]
    await stores[0].create_jobs([job(f"job-{n}") for n in range(60)])
    created = (await stores[0].plan(NOW, 100, fire)).runs

    async def take_all(store: Store, worker: str) -> list[str]:
        mine: list[str] = []
        while taken := await store.take(NOW, worker, {"cron": 7}):
            mine += [run.id for run in taken]
        return mine

    shares = await asyncio.gather(*(take_all(store, f"w{n}") for n, store in enumerate(stores)))
    assert Counter(run_id for share in shares for run_id in share) == Counter(run.id for run in created)


async def test_concurrent_creates_of_one_name_create_one_job(database: Database) -> None:
    stores = [await database.connect() for _ in range(4)]
    outcomes = await asyncio.gather(*(store.create_jobs([job()]) for store in stores), return_exceptions=True)
    assert [type(outcome).__name__ for outcome in outcomes if outcome is not None] == ["AlreadyExists"] * 3
    assert len(await stores[0].jobs(JobFilter("default"))) == 1


async def test_without_the_unique_index_a_name_is_used_twice(database: Database) -> None:
    store = await database.connect()
    await store.create_jobs([job()])
    await database.drop_index("workspace, agent, name")
    await store.create_jobs([job()])
    assert len((await store.plan(NOW, 10, fire)).runs) == 2
