"""Workers: a heartbeat renews the lease on all runs of a worker; without it the runs are rescued."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.databases import Database
from tests.support.factories import (
    MINUTE,
    NOW,
    SECOND,
    alone,
    asked,
    ended,
    given_held,
    given_job,
    held,
    jobless,
    look,
    look_at_job,
    over,
)
from wakeful.run.outcome import Finished
from wakeful.store.port import Store
from wakeful.store.rows import AttemptView, UnfinishedRun

DEAD = NOW + 31 * SECOND
SINCE = NOW + SECOND


def _retry(lost: UnfinishedRun) -> Finished:
    return Finished(
        lost.id, lost.job_id, lost.attempt, "retrying", lost.started_ms or 0, DEAD, DEAD, error="worker lost"
    )


def _fail(lost: UnfinishedRun) -> Finished:
    return _retry(lost)._replace(state="failed", due_ms=None)


def _nobody(lost: UnfinishedRun) -> Finished:
    raise AssertionError(f"nothing was lost, but {lost} is")


async def test_a_heartbeat_returns_the_runs_that_the_worker_no_longer_holds(store: Store) -> None:
    digest = await given_job(store)
    mine, too, stopped = (held(asked(digest), "w1") for _ in range(3))
    finished = over(asked(digest))._replace(worker="w1")
    others = held(asked(digest), "w2")
    await store.add_runs([mine, too, stopped, finished, others])
    await store.cancel_run(stopped.id, NOW, "stop", running=True)
    gone = {stopped.id, finished.id, others.id, jobless().id}
    assert (await store.beat("w1", NOW, [mine.id, too.id, *gone])).lost == gone
    assert (await store.beat("w1", NOW, [])).lost == set()


async def test_a_worker_with_heartbeats_keeps_its_runs(store: Store) -> None:
    _, run = await given_held(store, "w1")
    await store.beat("w1", NOW, [run.id])
    await store.beat("w1", NOW + 30 * SECOND, [run.id])
    assert await store.rescue(DEAD, SINCE, 10, _nobody, alone) == []
    assert await look(store, run) == run


async def test_the_runs_of_a_worker_without_heartbeats_are_rescued(store: Store) -> None:
    digest, run = await given_held(store, "w1")
    await store.beat("w1", NOW, [run.id])
    seen: list[UnfinishedRun] = []

    def judge(lost: UnfinishedRun) -> Finished:
        seen.append(lost)
        return _retry(lost)

    assert await store.rescue(DEAD, SINCE, 10, judge, alone) == [run.id]
    assert seen == [UnfinishedRun(run.id, digest.id, 1, digest.policy, NOW, "w1", work=digest.work)]
    found = await look(store, run)
    assert (found.state, found.worker, found.due_ms, found.error) == ("retrying", None, DEAD, "worker lost")
    assert await store.attempts(run.id) == [AttemptView(1, "w1", NOW, DEAD, "worker lost")]
    assert (await store.beat("w1", DEAD, [run.id])).lost == {run.id}
    (again,) = await store.take(DEAD, "w2", {"cron": 1})
    assert (again.id, again.attempt) == (run.id, 2)


async def test_a_lost_run_that_must_not_start_twice_fails(store: Store) -> None:
    digest, run = await given_held(store, "w1")
    await store.beat("w1", NOW, [])
    assert await store.rescue(DEAD, SINCE, 10, _fail, alone) == [run.id]
    found = await look(store, run)
    assert (found.state, found.dead, found.worker) == ("failed", True, "w1")
    assert (await look_at_job(store, digest)).failures == 1


async def test_only_running_runs_of_dead_workers_are_rescued(store: Store) -> None:
    digest = await given_job(store)
    alive, dead = held(asked(digest), "alive"), held(asked(digest), "dead")
    waiting, retrying = asked(digest), asked(digest, state="retrying")
    await store.add_runs([alive, dead, waiting, retrying, over(asked(digest))._replace(worker="dead")])
    await store.beat("dead", NOW, [])
    await store.beat("alive", SINCE, [])
    assert await store.rescue(DEAD, SINCE, 10, _retry, alone) == [dead.id]
    assert (await look(store, alive)).state == "running"


async def test_without_any_heartbeat_the_start_of_the_run_counts(store: Store) -> None:
    digest = await given_job(store)
    old, new = held(asked(digest), "ghost", NOW), held(asked(digest), "ghost", SINCE)
    await store.add_runs([old, new])
    assert await store.rescue(DEAD, SINCE, 10, _retry, alone) == [old.id]


async def test_a_run_without_a_job_is_rescued_like_any_other(store: Store) -> None:
    run = held(jobless(), "w1")
    await store.add_runs([run])
    seen: list[UnfinishedRun] = []

    def judge(lost: UnfinishedRun) -> Finished:
        seen.append(lost)
        return _retry(lost)

    assert await store.rescue(DEAD, SINCE, 10, judge, alone) == [run.id]
    assert (seen[0].job_id, seen[0].policy) == (None, "{}")


async def test_runs_are_rescued_oldest_start_first_up_to_the_limit(store: Store) -> None:
    digest = await given_job(store)
    runs = [held(asked(digest), f"w{n % 3}", NOW - n * MINUTE) for n in (2, 5, 1, 4, 3)]
    await store.add_runs(runs)
    assert await store.rescue(DEAD, SINCE, 2, _retry, alone) == [runs[1].id, runs[3].id]
    assert await store.rescue(DEAD, SINCE, 9, _retry, alone) == [runs[4].id, runs[0].id, runs[2].id]
    assert await store.rescue(DEAD, SINCE, 9, _nobody, alone) == []


async def test_a_parked_run_is_lost_at_its_deadline(store: Store) -> None:
    digest, run = await given_held(store, "w1")
    await store.finish("w1", [ended(run, "running", due_ms=NOW + MINUTE)], alone)
    assert await store.rescue(NOW + MINUTE - 1, NOW + MINUTE, 10, _nobody, alone) == []
    seen: list[UnfinishedRun] = []

    def judge(lost: UnfinishedRun) -> Finished:
        seen.append(lost)
        return _fail(lost)

    assert await store.rescue(NOW + MINUTE, NOW, 10, judge, alone) == [run.id]
    assert seen == [
        UnfinishedRun(
            run.id, digest.id, 1, digest.policy, NOW, None, awaiting_callback=True, work=digest.work
        )
    ]
    found = await look(store, run)
    assert (found.state, found.due_ms, found.awaiting_callback) == ("failed", None, False)


async def test_two_rescuers_never_rescue_the_same_run(database: Database) -> None:
    stores = [await database.connect() for _ in range(4)]
    digest = await given_job(stores[0])
    runs = [held(asked(digest), f"w{n % 5}") for n in range(40)]
    await stores[0].add_runs(runs)
    judged: list[str] = []

    def judge(lost: UnfinishedRun) -> Finished:
        judged.append(lost.id)
        return _retry(lost)

    rescued = await asyncio.gather(*(store.rescue(DEAD, SINCE, 100, judge, alone) for store in stores))
    assert sorted(run_id for share in rescued for run_id in share) == sorted(run.id for run in runs)
    for run in runs:
        assert len(await stores[0].attempts(run.id)) == 1


async def test_an_outcome_for_another_attempt_is_ignored_and_the_other_runs_are_rescued(
    store: Store,
) -> None:
    digest = await given_job(store)
    runs = [held(asked(digest), f"w{n}", NOW - n) for n in range(3)]
    await store.add_runs(runs)

    def judge(lost: UnfinishedRun) -> Finished:
        return _retry(lost)._replace(attempt=7) if lost.worker == "w1" else _retry(lost)

    assert await store.rescue(DEAD, SINCE, 10, judge, alone) == [runs[2].id, runs[0].id]
    assert [(await look(store, run)).state for run in runs] == ["retrying", "running", "retrying"]


async def test_an_exception_in_judge_leaves_everything_unchanged(store: Store) -> None:
    _, run = await given_held(store, "w1")
    with pytest.raises(AssertionError):
        await store.rescue(DEAD, SINCE, 10, _nobody, alone)
    assert await look(store, run) == run


async def test_a_worker_that_stops_releases_its_runs(store: Store) -> None:
    digest = await given_job(store)
    mine = [held(asked(digest, lane=lane), "w1") for lane in ("cron", "main")]
    others = held(asked(digest), "w2")
    await store.add_runs([*mine, others])
    await store.beat("w1", NOW, [run.id for run in mine])
    assert await store.release("w1", NOW + SECOND) == 2
    for run in mine:
        seen = await look(store, run)
        assert (seen.state, seen.worker, seen.due_ms) == ("retrying", None, NOW + SECOND)
        assert await store.attempts(run.id) == [AttemptView(1, "w1", NOW, NOW + SECOND, "released")]
    assert (await look(store, others)).state == "running"
    assert await store.release("w1", NOW + SECOND) == 0


async def test_release_with_keep_releases_only_the_other_runs_of_the_worker(store: Store) -> None:
    _, told = await given_held(store, "w1")
    _, untold = await given_held(store, "w1", name="other")
    await store.beat("w1", NOW, [told.id])
    assert await store.release("w1", NOW + SECOND, [(told.id, 1)]) == 1
    assert (await look(store, told)).state == "running"
    assert ((seen := await look(store, untold)).state, seen.due_ms) == ("retrying", NOW + SECOND)
    assert await store.rescue(NOW, NOW, 10, _nobody, alone) == [], "it is still alive"
    assert await store.release("w1", NOW + SECOND, []) == 1


async def test_release_with_keep_releases_another_attempt_of_a_kept_run(store: Store) -> None:
    _, run = await given_held(store, "w1")
    await store.finish("w1", [ended(run, "retrying", due_ms=NOW)], alone)
    (again,) = await store.take(NOW, "w1", {"cron": 1})
    assert (again.id, again.attempt) == (run.id, 2)
    assert await store.release("w1", NOW, [(run.id, 2)]) == 0
    assert await store.release("w1", NOW, [(run.id, 1)]) == 1
    assert (await look(store, run)).state == "retrying"


async def test_a_released_run_is_taken_again_with_the_next_attempt(store: Store) -> None:
    _, run = await given_held(store, "w1")
    await store.release("w1", NOW)
    (again,) = await store.take(NOW, "w2", {"cron": 1})
    assert (again.id, again.attempt, again.idempotency_key) == (run.id, 2, run.idempotency_key)
    assert await store.finish("w1", [ended(run)], alone) == set()
    assert await store.finish("w2", [ended(again)], alone) == {run.id}
