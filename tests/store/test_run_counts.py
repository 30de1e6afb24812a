"""Counts of finished runs: each run once, whatever stops or counts at the same time."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

import pytest

from tests.support.databases import Database
from tests.support.factories import (
    DAY,
    NOW,
    SECOND,
    FalseClock,
    alone,
    asked,
    ended,
    given_held,
    given_job,
    jobless,
    look,
    over,
)
from wakeful.run.run import NewRun
from wakeful.store.port import Store
from wakeful.store.sql import run_counts
from wakeful.store.sql.run_counts import DayCount, HourCount
from wakeful.values.ids import new_id

BATCH = 2_000
HOUR = 3_600_000


@pytest.fixture(autouse=True)
def _only_counted_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out runs that are not counted yet, unless a test wants them."""
    monkeypatch.setattr(run_counts, "_TAIL_RUNS", 0)


async def count(store: Store, now_ms: int = NOW, batch: int = BATCH) -> int:
    """Count until there is nothing more. Returns how many passes it took."""
    for passes in range(1, 1_000):
        if not (await store.count_runs(now_ms, batch)).more:
            return passes
    raise AssertionError("it never ends")


async def totals(store: Store, agent: str | None = None, workspace: str = "default") -> dict[str, int]:
    counted: Counter[str] = Counter()
    for _, state, runs in await store.run_counts(workspace, agent, 0, NOW + 400 * DAY):
        counted[state] += runs
    return dict(counted)


async def test_a_run_of_each_state_is_counted_and_a_missed_one_as_its_ticks(store: Store) -> None:
    await count(store)
    digest, run = await given_held(store)
    await store.finish("w1", [ended(run, started_ms=NOW - 5_000, finished_ms=NOW)], alone)
    await store.add_runs(
        [
            over(asked(digest, reason="overlap"), "skipped"),
            over(asked(digest, reason="downtime", covers=7, until_ms=NOW), "missed", NOW + 2 * HOUR),
            over(jobless(agent="other"), "failed", NOW + DAY),
        ]
    )
    cancelled = asked(digest)
    await store.add_runs([cancelled, asked(digest)])
    await store.cancel_run(cancelled.id, NOW, "asked", running=False)
    await count(store)
    hour = NOW // HOUR
    assert await store.run_counts("default", None, NOW - DAY, NOW + 2 * DAY) == [
        HourCount(hour, "cancelled", 1),
        HourCount(hour, "skipped", 1),
        HourCount(hour, "succeeded", 1),
        HourCount(hour + 2, "missed", 7),
        HourCount(hour + 24, "failed", 1),
    ]
    assert await store.job_run_counts(digest.id, NOW) == [
        DayCount(NOW // DAY, "cancelled", 1, 0),
        DayCount(NOW // DAY, "missed", 7, 0),
        DayCount(NOW // DAY, "skipped", 1, 0),
        DayCount(NOW // DAY, "succeeded", 1, 5_000),
    ]
    assert await totals(store, "other") == {"failed": 1}
    assert await totals(store, workspace="acme") == {}


async def test_nothing_is_counted_twice(store: Store) -> None:
    await count(store)
    digest = await given_job(store)
    await store.add_runs([over(asked(digest)) for _ in range(3)])
    for _ in range(3):
        await count(store)
    assert await totals(store) == {"succeeded": 3}


@pytest.mark.parametrize("between", [True, False])
async def test_a_run_that_was_retried_is_counted_once_when_it_is_over(store: Store, between: bool) -> None:
    """Also if nothing is counted between its attempts."""
    await count(store)
    _, run = await given_held(store)
    await store.finish("w1", [ended(run, "retrying", due_ms=NOW)], alone)
    if between:
        await count(store)
        assert await totals(store) == {}
    (taken,) = await store.take(NOW, "w1", {"cron": 1})
    await store.release("w1", NOW)
    (taken,) = await store.take(NOW, "w1", {"cron": 1})
    await store.finish("w1", [ended(taken, "failed", error="no")], alone)
    assert (await look(store, run)).attempt == 3
    await count(store)
    assert await totals(store) == {"failed": 1}


async def test_replicas_that_count_at_the_same_time_count_each_run_once(database: Database) -> None:
    stores = [await database.connect() for _ in range(3)]
    await count(stores[0])
    digest = await given_job(stores[0])
    for _ in range(20):
        await stores[0].add_runs([over(asked(digest)) for _ in range(10)])
        await asyncio.gather(*(store.count_runs(NOW, 7) for store in stores))
    for store in stores:
        await count(store, batch=7)
    assert await totals(stores[0]) == {"succeeded": 200}
    (day,) = await stores[0].job_run_counts(digest.id, 0)
    assert day.runs == 200


async def test_a_pass_that_fails_counts_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    await count(store)
    digest = await given_job(store)
    await store.add_runs([over(asked(digest))])
    with monkeypatch.context() as patch:
        patch.setattr(run_counts, "ADD_DAYS", "INSERT INTO nowhere VALUES ($1, $2, $3)")
        with pytest.raises(Exception, match="nowhere"):
            await store.count_runs(NOW, BATCH)
    assert await totals(store) == {}
    await count(store)
    assert await totals(store) == {"succeeded": 1}


async def test_runs_from_before_the_first_pass_are_counted_in_steps(store: Store, clock: FalseClock) -> None:
    digest = await given_job(store)
    old = [over(asked(digest, id=new_id(NOW - n * DAY)), "succeeded", NOW - n * DAY) for n in range(1, 26)]
    await store.add_runs([*old, asked(digest)])
    assert await count(store) == 1
    assert await totals(store) == {}
    since = NOW + run_counts.OVERLAP_MS

    def at(finished_ms: int) -> NewRun:
        return over(asked(digest, id=new_id(NOW)), "failed", finished_ms)

    await store.add_runs([at(since - 1), at(since), at(since + SECOND)])
    await count(store, since)
    assert await totals(store) == {"failed": 2}, "the scan has not begun"
    assert await count(store, since + run_counts.SETTLED_MS, batch=10) == 3
    assert await totals(store) == {"succeeded": 25, "failed": 3}
    assert await count(store, NOW + DAY, batch=10) == 1
    assert await totals(store) == {"succeeded": 25, "failed": 3}
    assert len(await store.job_run_counts(digest.id, 0)) == 26


async def test_runs_that_finish_while_the_first_pass_waits_for_the_database_are_counted(
    store: Store, clock: FalseClock
) -> None:
    began_ms = clock.now_ms()
    _, run = await given_held(store)
    clock.ms += 60 * SECOND
    await store.finish("w1", [ended(run, finished_ms=clock.now_ms())], alone)
    await count(store, began_ms)
    clock.ms += 120 * SECOND
    await count(store, clock.now_ms())
    assert await totals(store) == {"succeeded": 1}


async def test_a_run_with_an_earlier_time_is_counted_after_the_scan(store: Store, clock: FalseClock) -> None:
    _, run = await given_held(store)
    await count(store)
    await count(store, NOW + DAY)
    await store.finish("w1", [ended(run, finished_ms=NOW - 5_000)], alone)
    await count(store, NOW + DAY)
    assert await totals(store) == {"succeeded": 1}


async def test_changes_are_pruned_only_when_their_runs_are_counted(store: Store) -> None:
    await count(store)
    digest = await given_job(store)
    await store.add_runs([over(asked(digest))])
    await store.add_runs([over(asked(digest))])
    assert await store.prune_changes(NOW + DAY, 100) == 0
    await count(store)
    assert await store.prune_changes(NOW + DAY, 100) > 0
    assert await totals(store) == {"succeeded": 2}


async def test_old_counts_are_pruned_in_steps(store: Store) -> None:
    await count(store)
    jobs = [await given_job(store, name=f"job-{number}") for number in range(3)]
    old = NOW - NOW % (28 * DAY)  # the first day of a period
    await store.add_runs([over(asked(job), "succeeded", old - n * DAY) for job in jobs for n in range(10)])
    await count(store)
    assert await store.prune_run_counts(old - DAY, 100) == 8, "hours, and no part of a period"
    assert await store.prune_run_counts(old, 2) == 3
    assert [len(await store.job_run_counts(job.id, 0)) for job in jobs].count(1) == 2
    assert await store.prune_run_counts(old, 100) == 1
    assert await store.prune_run_counts(old, 100) == 0
    assert await totals(store) == {"succeeded": 3}
    assert [await store.job_run_counts(job.id, 0) for job in jobs] == [
        [DayCount(old // DAY, "succeeded", 1, 0)] for job in jobs
    ]


async def test_counts_that_replicas_of_schema_17_write_are_added(database: Database) -> None:
    store = await database.connect()
    await count(store)
    digest = await given_job(store)
    day = NOW // DAY
    for state, of_day in (("succeeded", day), ("failed", day - 30)):
        await database.execute(
            f"INSERT INTO job_run_counts VALUES ('{digest.id}', {of_day}, '{state}', 4, 1000)"
        )
    await store.add_runs([over(asked(digest))._replace(started_ms=NOW - 5), over(asked(digest), "failed")])
    await count(store)
    assert await store.job_run_counts(digest.id, NOW - DAY) == [
        DayCount(day, "failed", 1, 0),
        DayCount(day, "succeeded", 5, 1_005),
    ]
    assert DayCount(day - 30, "failed", 4, 1_000) in await store.job_run_counts(digest.id, 0)
    await store.prune_run_counts(NOW, 100)
    assert await store.job_run_counts(digest.id, 0) == [
        DayCount(day, "failed", 1, 0),
        DayCount(day, "succeeded", 5, 1_005),
    ]


@pytest.mark.parametrize("long", [0, 60, 10_000])
async def test_counts_of_many_jobs_days_and_passes_are_those_of_their_runs(
    store: Store, monkeypatch: pytest.MonkeyPatch, long: int
) -> None:
    monkeypatch.setattr(run_counts, "_LONG_DAYS", long)
    monkeypatch.setattr(run_counts, "_COMPACTING", 1.0)
    await count(store)
    jobs = [await given_job(store, name=f"job-{number}") for number in range(4)]
    random = Random(7)
    states = ("succeeded", "failed", "cancelled", "skipped", "missed")
    expected: Counter[tuple[str, int, str]] = Counter()
    took: Counter[tuple[str, int, str]] = Counter()
    for _ in range(4):
        runs = []
        for _ in range(40):
            owner, state, at = random.choice(jobs), random.choice(states), NOW - random.randrange(90) * DAY
            covers = random.randrange(1, 4) if state == "missed" else 1
            duration = random.randrange(10_000)
            run = over(asked(owner, covers=covers), state, at)._replace(started_ms=at - duration)
            runs.append(run)
            expected[owner.id, at // DAY, state] += covers
            took[owner.id, at // DAY, state] += duration
        await store.add_runs(runs)
        await count(store, batch=random.randrange(1, 100))
    for owner in jobs:
        assert await store.job_run_counts(owner.id, 0) == sorted(
            DayCount(day, state, number, took[job_id, day, state])
            for (job_id, day, state), number in expected.items()
            if job_id == owner.id
        )


async def test_a_job_without_a_valid_id_has_no_counts(store: Store) -> None:
    assert await store.job_run_counts("nothing", 0) == []


async def test_runs_that_are_not_counted_yet_are_added_when_counts_are_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await count(store)
    digest = await given_job(store)
    await store.add_runs([over(asked(digest), at=NOW - HOUR), over(asked(digest, covers=3), "missed")])
    await count(store)
    late = over(asked(digest), at=NOW)._replace(started_ms=NOW - 5)
    await store.add_runs([late, over(jobless(agent="other"), "failed"), over(jobless(workspace="acme"))])
    monkeypatch.setattr(run_counts, "_TAIL_RUNS", 100)
    hour = NOW // HOUR
    assert await store.run_counts("default", None, NOW - DAY, NOW + 1) == [
        HourCount(hour - 1, "succeeded", 1),
        HourCount(hour, "failed", 1),
        HourCount(hour, "missed", 3),
        HourCount(hour, "succeeded", 1),
    ]
    assert await totals(store, "other") == {"failed": 1}
    assert await store.run_counts("default", None, NOW - DAY, hour * HOUR) == [
        HourCount(hour - 1, "succeeded", 1)
    ]
    before = await store.job_run_counts(digest.id, NOW - DAY)
    assert sum(day.runs for day in before) == 5
    assert sum(day.duration_ms for day in before) == 5
    await count(store)
    assert await store.job_run_counts(digest.id, NOW - DAY) == before
