"""Runs: lookup, listing newest first, filters, cancelling and stopping."""

from __future__ import annotations

import asyncio
from itertools import product

import pytest

from tests.support.databases import Database
from tests.support.factories import (
    NOW,
    SECOND,
    FalseClock,
    alone,
    asked,
    asleep,
    ended,
    given_held,
    given_job,
    held,
    job,
    jobless,
    look,
    look_at_job,
    over,
)
from wakeful.errors import AlreadyExists, FailedPrecondition, NotFound
from wakeful.job.job import StaleJob
from wakeful.run.run import NewRun
from wakeful.store.plans import ManualRunPlan
from wakeful.store.port import Store
from wakeful.store.rows import JobRow, RunFilter, RunView

STATES = ("pending", "running", "retrying", "succeeded", "failed", "cancelled", "skipped", "missed")


def _in(state: str, run: NewRun) -> NewRun:
    if state == "running":
        return held(run)
    if state in ("pending", "retrying"):
        return run._replace(state=state)
    return over(run, state)._replace(reason=None if state == "succeeded" else "because")


async def _ids(store: Store, only: RunFilter) -> list[str]:
    return [run.id for run in await store.runs(only)]


async def test_a_missing_run_is_not_found(store: Store) -> None:
    assert await store.run(jobless().id) is None
    assert await store.attempts(jobless().id) == []


async def test_an_added_run_has_every_field(store: Store, clock: FalseClock) -> None:
    run = jobless(triggered_by="ada", fire_ms=NOW + 1, due_ms=NOW + 2, replay_of=jobless().id)
    clock.ms = NOW + 3
    await store.add_runs([run])
    assert await look(store, run) == RunView(
        run.id, None, "default", "default", None, NOW, NOW + 1, "user", "ada", "pending", None, 1, None, 1,
        None, "cron", NOW + 2, None, None, run.idempotency_key, run.replay_of, '{"message":"hello"}', None,
        None, None, False, NOW + 3, serial=True,
    )  # fmt: skip


async def test_a_run_of_a_deleted_job_is_not_added(store: Store) -> None:
    digest = await given_job(store)
    await store.delete_job(digest.id, NOW, "deleted")
    with pytest.raises(NotFound, match="no job 'digest'"):
        await store.add_runs([asked(digest)])
    with pytest.raises(NotFound, match="no job 'digest'"):
        await store.add_manual_run(asked(digest), lambda run, live: ManualRunPlan(run))
    assert await store.runs(RunFilter("default")) == []


async def test_a_run_is_only_added_at_the_version_that_is_expected(store: Store) -> None:
    digest = await given_job(store)
    version = (await look_at_job(store, digest)).version
    await store.add_runs([asked(digest)], versions=[version])
    with pytest.raises(StaleJob, match=f"is at version {version}, not 7"):
        await store.add_runs([asked(digest)], versions=[7])
    with pytest.raises(StaleJob, match=f"is at version {version}, not 7"):
        await store.add_manual_run(asked(digest), lambda run, live: ManualRunPlan(run), version=7)


async def test_a_run_that_is_added_beside_a_deletion_is_cancelled_or_refused(database: Database) -> None:
    stores = [await database.connect(), await database.connect()]
    for number in range(10):
        digest = job(f"digest-{number}")
        await stores[0].create_jobs([digest])
        run = asked(digest)
        added, _ = await asyncio.gather(
            stores[0].add_runs([run]),
            stores[1].delete_job(digest.id, NOW, "deleted"),
            return_exceptions=True,
        )
        if isinstance(added, NotFound):
            assert await stores[0].run(run.id) is None
        else:
            assert (await look(stores[0], run)).state == "cancelled"


async def test_runs_are_listed_newest_first_and_page_by_page(store: Store) -> None:
    digest = await given_job(store)
    runs = [asked(digest) for _ in range(10)]
    await store.add_runs(runs)
    newest_first = [run.id for run in runs][::-1]
    assert await _ids(store, RunFilter("default")) == newest_first
    assert await _ids(store, RunFilter("default", limit=4)) == newest_first[:4]
    assert await _ids(store, RunFilter("default", limit=4, before=newest_first[3])) == newest_first[4:8]
    assert await _ids(store, RunFilter("default", limit=4, before=newest_first[7])) == newest_first[8:]
    assert await _ids(store, RunFilter("default", before=newest_first[9])) == []


async def test_a_page_can_start_after_a_pruned_run(store: Store) -> None:
    digest = await given_job(store)
    runs = [over(asked(digest), at=NOW - n) for n in range(5)]
    await store.add_runs(runs)
    await store.prune(NOW - 3, 10)
    assert await _ids(store, RunFilter("default", before=runs[4].id)) == [run.id for run in runs[3::-1]]


@pytest.mark.parametrize("narrow", [{}, {"agent": "x"}, {"job": True}, {"agent": "x", "job": True}])
async def test_filters_combine(store: Store, narrow: dict[str, object]) -> None:
    jobs = [asleep(name, agent=agent) for agent in "xy" for name in ("a", "b")]
    await store.create_jobs(jobs)
    runs = []
    for row in jobs:
        for state in STATES:
            runs += [_in(state, asked(row, trigger=trigger)) for trigger in ("user", "backfill")]
    runs += [jobless(agent="x"), jobless(workspace="acme", agent="x")]
    await store.add_runs(runs)
    dead = await _fail_some(store, jobs[0])
    everything = [await look(store, run) for run in runs] + dead
    asked_for = RunFilter(
        "default",
        agent="x" if narrow.get("agent") else None,
        job_id=jobs[0].id if narrow.get("job") else None,
        limit=1_000,
    )
    middle = sorted(run.id for run in everything)[len(everything) // 2]
    some_states = ((), ("running",), ("pending", "retrying"), ("failed",), ("succeeded", "running"), STATES)
    for states, trigger, only_dead, before in product(
        some_states, (None, "user", "replay"), (False, True), (None, middle)
    ):
        only = asked_for._replace(states=states, trigger=trigger, dead=only_dead, before=before)
        assert await _ids(store, only) == _expected(everything, only), only


async def _fail_some(store: Store, row: JobRow) -> list[RunView]:
    runs = [held(asked(row)) for _ in range(3)]
    await store.add_runs(runs)
    await store.finish("w1", [ended(run, "failed", error="no") for run in runs], alone)
    return [await look(store, run) for run in runs]


def _expected(runs: list[RunView], only: RunFilter) -> list[str]:
    return sorted(
        [
            run.id
            for run in runs
            if run.workspace == only.workspace
            and only.agent in (None, run.agent)
            and only.job_id in (None, run.job_id)
            and (not only.states or run.state in only.states)
            and only.trigger in (None, run.trigger)
            and (run.dead or not only.dead)
            and (only.before is None or run.id < only.before)
        ],
        reverse=True,
    )


async def test_runs_of_another_workspace_are_not_listed(store: Store) -> None:
    digest, run = await given_held(store)
    for only in (RunFilter("acme"), RunFilter("acme", agent="default"), RunFilter("acme", job_id=digest.id)):
        assert await store.runs(only) == []
    assert await store.runs(RunFilter("acme", states=("running",))) == []
    assert await _ids(store, RunFilter("default", states=("running",))) == [run.id]


async def test_runs_are_added_all_or_none(store: Store) -> None:
    first, second = jobless(), jobless()
    await store.add_runs([first])
    with pytest.raises(AlreadyExists, match=first.id):
        await store.add_runs([second, first])
    assert await store.run(second.id) is None


@pytest.mark.parametrize("state", ["pending", "retrying"])
async def test_a_run_that_has_not_started_is_cancelled(store: Store, state: str) -> None:
    digest = await given_job(store)
    run = asked(digest, state=state)
    await store.add_runs([run])
    seen = await store.cancel_run(run.id, NOW + 5, "not wanted", running=False)
    assert seen is not None
    assert (seen.state, seen.reason, seen.finished_ms, seen.due_ms) == (
        "cancelled",
        "not wanted",
        NOW + 5,
        None,
    )
    assert seen == await look(store, run)
    assert await store.take(NOW + 5, "w1", {"cron": 5}) == []


async def test_a_running_run_is_stopped_only_with_running_true(store: Store) -> None:
    _, run = await given_held(store)
    with pytest.raises(FailedPrecondition, match="running"):
        await store.cancel_run(run.id, NOW, "not wanted", running=False)
    assert await look(store, run) == run
    seen = await store.cancel_run(run.id, NOW + 5, "not wanted", running=True)
    assert seen is not None
    assert (seen.state, seen.reason, seen.finished_ms, seen.worker) == (
        "cancelled",
        "not wanted",
        NOW + 5,
        "w1",
    )


async def test_the_outcome_of_a_stopped_run_is_ignored(store: Store) -> None:
    _, run = await given_held(store)
    stopped = await store.cancel_run(run.id, NOW, "not wanted", running=True)
    assert await store.finish("w1", [ended(run)], alone) == set()
    assert await look(store, run) == stopped


async def test_a_stopped_parked_run_cannot_be_completed(store: Store) -> None:
    _, run = await given_held(store)
    await store.finish("w1", [ended(run, "running", due_ms=NOW + SECOND)], alone)
    stopped = await store.cancel_run(run.id, NOW, "not wanted", running=True)
    assert stopped is not None
    assert (stopped.state, stopped.due_ms) == ("cancelled", None)
    assert not await store.complete_run(ended(run), alone)
    assert await store.rescue(NOW + SECOND, NOW, 5, lambda lost: ended(run, "failed"), alone) == []


@pytest.mark.parametrize("state", ["pending", "retrying"])
async def test_only_a_running_run_can_be_stopped(store: Store, state: str) -> None:
    run = asked(await given_job(store), state=state)
    await store.add_runs([run])
    with pytest.raises(FailedPrecondition, match=f"{state}: cancel it"):
        await store.cancel_run(run.id, NOW, "not wanted", running=True)
    assert (await look(store, run)).state == state


@pytest.mark.parametrize("state", ["succeeded", "failed", "cancelled", "skipped", "missed"])
async def test_a_terminal_run_cannot_be_cancelled(store: Store, state: str) -> None:
    digest = await given_job(store)
    run = over(asked(digest), state)
    await store.add_runs([run])
    before = await look(store, run)
    for running in (False, True):
        with pytest.raises(FailedPrecondition, match=state):
            await store.cancel_run(run.id, NOW, "not wanted", running=running)
    assert await look(store, run) == before


async def test_a_missing_run_cannot_be_cancelled(store: Store) -> None:
    assert await store.cancel_run(jobless().id, NOW, "not wanted", running=True) is None
