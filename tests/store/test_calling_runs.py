"""The run in which a call is made: reading it, and counting what is made in it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.factories import NOW, asked, asleep
from wakeful.agents.sessions import receive
from wakeful.errors import FailedPrecondition, ResourceExhausted, WakefulError
from wakeful.job.self_scheduling import RunCharge
from wakeful.run.run import NewRun, RunDetails
from wakeful.store.audit import AuditEntry
from wakeful.store.port import Store
from wakeful.store.rows import JobChange
from wakeful.store.sessions import SessionKey, SessionMessage, SessionUpdate

UNKNOWN = "0190a0b0-0000-7000-8000-000000000000"
ENTRY = AuditEntry("default", "key:1", "job.create", "x", "{}", None)


async def running(store: Store, **fields: Any) -> NewRun:
    """Return a run of a job that a worker has taken."""
    digest = asleep()
    await store.create_jobs([digest])
    run = asked(digest, serial=False, **fields)
    await store.add_runs([run])
    assert [each.id for each in await store.take(NOW, "w1", {"cron": 1})] == [run.id]
    return run


async def test_a_run_is_read_with_its_conversation_and_the_work_of_its_job(store: Store) -> None:
    key = SessionKey("default", "default", "telegram:1")
    message = SessionMessage(UNKNOWN, "hello", "key:1", "user", NOW)
    await store.update_session(key, NOW, lambda state: receive(state, message, NOW, ("telegram", "1")))
    run = await running(store, trigger="schedule", details=RunDetails("telegram:1", 2))
    found = await store.calling_run(run.id)
    assert found is not None
    assert found[:8] == (run.id, "default", "default", "running", "schedule", "telegram:1", "telegram", "1")
    assert (found.depth, found.work) == (2, asleep().work)
    assert await store.calling_run(UNKNOWN) is None
    assert await store.calling_run("nonsense") is None


async def test_what_is_made_in_a_run_counts_up_to_its_limit_whoever_makes_it(store: Store) -> None:
    run = await running(store)

    async def make(number: int) -> str:
        try:
            await store.create_jobs(
                [asleep(f"job-{number}")], [ENTRY], charge=lambda: RunCharge(run.id, 1, 5, "default")
            )
        except WakefulError as error:
            return error.code
        return "made"

    results = await asyncio.gather(*map(make, range(12)))
    assert sorted(results) == ["made"] * 5 + ["resource-exhausted"] * 7
    made = [await store.job("default", "default", f"job-{number}") for number in range(12)]
    assert sum(job is not None for job in made) == 5
    assert (await store.audit_head("default"))[0] == 5


async def test_a_charge_that_is_refused_writes_nothing(store: Store) -> None:
    run = await running(store)
    job = asleep("other")
    await store.create_jobs([job])
    full = RunCharge(run.id, 1, 0, "default")
    with pytest.raises(ResourceExhausted):
        await store.create_jobs([asleep("new")], charge=lambda: full)
    with pytest.raises(ResourceExhausted):
        await store.change_job(
            job.id, lambda row: JobChange(row._replace(description="x")), charge=lambda: full
        )
    with pytest.raises(ResourceExhausted):
        await store.add_runs([asked(job, serial=False)], charge=lambda: full)
    key = SessionKey("default", "default", "main")
    with pytest.raises(ResourceExhausted):
        await store.update_session(key, NOW, lambda state: SessionUpdate(), charge=lambda: full)
    assert await store.job("default", "default", "new") is None
    assert await store.job("default", "default", "other") == job
    assert await store.session(key) is None


async def test_a_change_that_changes_nothing_is_not_charged(store: Store) -> None:
    run = await running(store)
    job = asleep("other")
    await store.create_jobs([job])
    await store.change_job(job.id, lambda row: None, charge=lambda: RunCharge(run.id, 1, 0, "default"))
    changed = await store.change_job(
        job.id, lambda row: JobChange(row._replace(description="x")), charge=lambda: None
    )
    assert changed is not None


async def test_a_run_that_is_not_running_takes_no_charge(store: Store) -> None:
    run = await running(store)
    await store.cancel_run(run.id, NOW, "stopped", running=True)
    for run_id in (run.id, UNKNOWN):
        charge = RunCharge(run_id, 1, 5, "default")
        with pytest.raises(FailedPrecondition):
            await store.create_jobs([asleep("new")], charge=lambda charge=charge: charge)  # type: ignore[misc]
