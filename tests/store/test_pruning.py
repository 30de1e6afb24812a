"""Pruning: old runs are deleted, dead letters and live runs stay, a deleted job goes with its last run."""

from __future__ import annotations

import pytest

from tests.support.factories import (
    DAY,
    NOW,
    alone,
    asked,
    ended,
    given_held,
    given_job,
    held,
    job,
    look,
    over,
    ticks_of,
)
from wakeful.engine.history import Pruner
from wakeful.store.port import Store


async def test_old_runs_are_deleted_oldest_first_up_to_the_limit(store: Store) -> None:
    digest = await given_job(store)
    states = ("succeeded", "cancelled", "skipped", "missed", "succeeded")
    runs = [over(asked(digest), state, NOW - n) for n, state in enumerate(states)]
    await store.add_runs(runs)
    assert await store.prune(NOW - 1, 2) == 2
    assert [run.id for run in await ticks_of(store, digest)] == [run.id for run in runs[:3]]
    assert await store.prune(NOW - 1, 2) == 1
    assert await store.prune(NOW - 1, 2) == 0
    assert [run.id for run in await ticks_of(store, digest)] == [run.id for run in runs[:2]]


@pytest.mark.parametrize("years", [57, 100, 10**6])
async def test_a_retention_that_began_before_1970_keeps_all_runs_and_stops_nothing(
    store: Store, years: int
) -> None:
    digest = await given_job(store)
    old = over(asked(digest), "succeeded", NOW - 9_000 * DAY)
    await store.add_runs([old])
    await Pruner(store, store.clock, retention_days=years * 365, log_every_ms=60_000).step()
    assert [run.id for run in await ticks_of(store, digest)] == [old.id]


async def test_live_runs_are_kept_regardless_of_age(store: Store) -> None:
    digest = await given_job(store)
    parked = held(asked(digest, NOW - 90 * DAY), "w1", NOW - 90 * DAY)
    runs = [
        asked(digest, NOW - 90 * DAY),
        asked(digest, NOW - 90 * DAY, state="retrying"),
        held(asked(digest, NOW - 90 * DAY), "w1", NOW - 90 * DAY),
        parked,
    ]
    await store.add_runs(runs)
    await store.finish("w1", [ended(parked, "running", due_ms=NOW - 80 * DAY)], alone)
    assert await store.prune(NOW, 100) == 0
    assert len(await ticks_of(store, digest)) == 4


async def test_a_dead_letter_is_kept_until_it_is_replayed_or_discarded(store: Store) -> None:
    _, run = await given_held(store)
    await store.finish("w1", [ended(run, "failed")], alone)
    assert await store.prune(NOW + 90 * DAY, 100) == 0
    assert (await look(store, run)).dead
    await store.discard_runs("default", [run.id])
    assert await store.prune(NOW + 90 * DAY, 100) == 1
    assert await store.run(run.id) is None


async def test_attempts_are_deleted_with_their_run(store: Store) -> None:
    _, run = await given_held(store)
    await store.finish("w1", [ended(run, "retrying", due_ms=NOW)], alone)
    (again,) = await store.take(NOW, "w1", {"cron": 1})
    await store.finish("w1", [ended(again)], alone)
    assert len(await store.attempts(run.id)) == 1
    await store.prune(NOW + DAY, 100)
    assert await store.attempts(run.id) == []


@pytest.mark.parametrize("has_another", [True, False])
async def test_a_deleted_job_is_kept_as_long_as_it_has_a_run(store: Store, has_another: bool) -> None:
    digest, run = await given_held(store)
    await store.finish("w1", [ended(run)], alone)
    later = held(asked(digest))
    if has_another:
        await store.add_runs([later])
    await store.delete_job(digest.id, NOW, "no longer wanted")
    assert await store.prune(NOW + DAY, 100) == 1
    if has_another:  # the work of its job is still available for the retry
        await store.release("w1", NOW)
        (taken,) = await store.take(NOW, "w2", {"cron": 1})
        assert (taken.id, taken.work) == (later.id, digest.work)
    else:
        await store.create_jobs([job(id=digest.id)])


async def test_a_job_is_kept_when_its_runs_are_pruned(store: Store) -> None:
    digest, run = await given_held(store)
    await store.finish("w1", [ended(run)], alone)
    assert await store.prune(NOW + DAY, 100) == 1
    assert await store.job_by_id(digest.id) == digest
