"""Quotas: charged in the transaction of the create, never exceeded, and reset each day."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from tests.support.databases import Database
from tests.support.factories import DAY, NOW, FalseClock, asleep, given_held
from wakeful.errors import AlreadyExists, ResourceExhausted
from wakeful.store.port import Store
from wakeful.store.quotas import CREATE_JOB, INSTANCES, LIVE_JOBS, Allowance
from wakeful.store.rows import JobFilter, JobRow

ANY = Allowance()


def jobs(count: int, agent: str = "scribe", workspace: str = "acme", prefix: str = "job") -> list[JobRow]:
    return [asleep(f"{prefix}-{number}", agent=agent, workspace=workspace) for number in range(count)]


async def shown(
    store: Store, workspace: str = "acme", now_ms: int = NOW
) -> dict[tuple[str, str], tuple[int | None, int]]:
    rows = await store.quotas(workspace, now_ms)
    assert [row[:3] for row in rows] == sorted(row[:3] for row in rows)
    assert {row.workspace for row in rows} == {workspace}
    found = {(row.agent, row.bucket): (row.limit, row.used) for row in rows}
    assert found.pop(("", INSTANCES)) == (None, 0)  # tests/store/test_instances.py
    return found


async def test_an_empty_workspace_shows_all_of_its_buckets(store: Store) -> None:
    assert await shown(store, "nobody") == {("", CREATE_JOB): (None, 0), ("", LIVE_JOBS): (None, 0)}


async def test_every_job_is_charged_to_its_workspace_and_its_agent(store: Store) -> None:
    await store.create_jobs([*jobs(2), *jobs(3, "clerk"), *jobs(4, "scribe", "other")], allowance=ANY)
    await store.create_jobs(jobs(1, prefix="more"), allowance=ANY)
    assert await shown(store) == {
        ("", CREATE_JOB): (None, 6),
        ("", LIVE_JOBS): (None, 6),
        ("clerk", CREATE_JOB): (None, 3),
        ("clerk", LIVE_JOBS): (None, 3),
        ("scribe", CREATE_JOB): (None, 3),
        ("scribe", LIVE_JOBS): (None, 3),
    }
    assert (await shown(store, "other"))["", CREATE_JOB] == (None, 4)
    of_one = await store.quotas("acme", NOW, "clerk")
    assert of_one == [row for row in await store.quotas("acme", NOW) if row.agent == "clerk"] != []


async def test_without_an_allowance_nothing_is_charged_or_rejected(store: Store) -> None:
    await store.set_quota("acme", "", LIVE_JOBS, 0)
    await store.set_quota("acme", "", CREATE_JOB, 0)
    await store.create_jobs(jobs(2))
    assert await shown(store) == {
        ("", CREATE_JOB): (0, 0),
        ("", LIVE_JOBS): (0, 2),
        ("scribe", LIVE_JOBS): (None, 2),
    }


@pytest.mark.parametrize(
    ("allowance", "sentence"),
    [
        (
            Allowance(create_per_workspace=3),
            r"^workspace 'acme' may create 3 jobs a day \(scheduler.createJob\): it has created 2 today, "
            r"and 2 more would be too many; wait until midnight UTC, or ask the operator to raise the limit$",
        ),
        (Allowance(create_per_agent=3), r"^agent 'scribe' of workspace 'acme' may create 3 jobs a day"),
        (
            Allowance(live_per_workspace=3),
            r"^workspace 'acme' may have 3 jobs \(scheduler.liveJobs\), and would have more; "
            r"delete jobs that are not needed any more, or ask the operator to raise the limit$",
        ),
        (Allowance(live_per_agent=3), r"^agent 'scribe' of workspace 'acme' may have 3 jobs"),
    ],
)
async def test_a_create_beyond_a_limit_creates_and_charges_nothing(
    store: Store, allowance: Allowance, sentence: str
) -> None:
    await store.create_jobs(jobs(2), allowance=allowance)
    before = await shown(store)
    with pytest.raises(ResourceExhausted, match=sentence):
        await store.create_jobs([*jobs(2, prefix="more"), *jobs(1, "new", "other")], allowance=allowance)
    assert await shown(store) == before
    assert await store.jobs(JobFilter("other")) == []
    assert await store.agent("other", "new") is None
    await store.create_jobs(jobs(1, prefix="more"), allowance=allowance)  # the limit itself is allowed


async def test_a_name_that_is_taken_is_refused_as_such_at_the_limit_too(store: Store) -> None:
    strict = Allowance(create_per_workspace=1, create_per_agent=1, live_per_workspace=1, live_per_agent=1)
    await store.create_jobs(jobs(1), allowance=strict)
    before = await shown(store)
    with pytest.raises(AlreadyExists, match="already has a job 'job-0'"):
        await store.create_jobs(jobs(1), allowance=strict)
    assert await shown(store) == before


async def test_a_limit_applies_to_each_agent_separately(store: Store) -> None:
    await store.create_jobs(jobs(3), allowance=Allowance(create_per_agent=3, live_per_agent=3))
    await store.create_jobs(jobs(3, "clerk"), allowance=Allowance(create_per_agent=3, live_per_agent=3))
    assert len(await store.jobs(JobFilter("acme"))) == 6


async def test_a_limit_that_was_set_overrides_the_default(store: Store) -> None:
    await store.set_quota("acme", "scribe", LIVE_JOBS, 2)
    await store.set_quota("acme", "", CREATE_JOB, 5)
    strict = Allowance(create_per_workspace=1, live_per_agent=100)
    await store.create_jobs(jobs(2), allowance=strict)
    with pytest.raises(ResourceExhausted, match=r"agent 'scribe' .* may have 2 jobs"):
        await store.create_jobs(jobs(1, prefix="more"), allowance=strict)
    with pytest.raises(ResourceExhausted, match="workspace 'acme' may create 5 jobs"):
        await store.create_jobs(jobs(4, "clerk"), allowance=strict)
    await store.create_jobs(jobs(3, "clerk"), allowance=strict)
    assert (await shown(store))["", CREATE_JOB] == (5, 5)


async def test_removing_a_limit_keeps_the_usage(store: Store) -> None:
    await store.set_quota("acme", "", CREATE_JOB, 2)
    await store.create_jobs(jobs(2), allowance=ANY)
    with pytest.raises(ResourceExhausted):
        await store.create_jobs(jobs(1, prefix="more"), allowance=ANY)
    await store.set_quota("acme", "", CREATE_JOB, None)
    await store.create_jobs(jobs(1, prefix="more"), allowance=ANY)
    assert (await shown(store))["", CREATE_JOB] == (None, 3)


async def test_a_limit_of_zero_is_enforced(store: Store) -> None:
    with pytest.raises(ResourceExhausted, match="may create 0 jobs"):
        await store.create_jobs(jobs(1), allowance=Allowance(create_per_agent=0))
    with pytest.raises(ResourceExhausted, match="may have 0 jobs"):
        await store.create_jobs(jobs(1), allowance=Allowance(live_per_workspace=0))


async def test_the_count_of_created_jobs_resets_each_day(store: Store, database: Database) -> None:
    midnight = NOW - NOW % DAY + DAY
    one = Allowance(create_per_agent=1)
    database.clock.ms = midnight - 1
    await store.create_jobs(jobs(1), allowance=one)
    with pytest.raises(ResourceExhausted, match="may create 1 job a day"):
        await store.create_jobs(jobs(1, prefix="more"), allowance=one)
    assert (await shown(store, now_ms=midnight))["", CREATE_JOB] == (None, 0)
    database.clock.ms = midnight
    await store.create_jobs(jobs(1, prefix="more"), allowance=one)
    assert (await shown(store, now_ms=midnight))["scribe", CREATE_JOB] == (None, 1)


async def test_a_clock_set_back_over_midnight_does_not_reset_the_count(
    store: Store, database: Database
) -> None:
    one = Allowance(create_per_agent=1)
    database.clock.ms = NOW + DAY
    await store.create_jobs(jobs(1), allowance=one)
    database.clock.ms = NOW
    with pytest.raises(ResourceExhausted):
        await store.create_jobs(jobs(1, prefix="more"), allowance=one)


async def test_a_wrong_clock_does_not_keep_the_count_from_being_reset(
    store: Store, clock: FalseClock
) -> None:
    allowance = Allowance(create_per_workspace=2)
    clock.ms = NOW + 400 * DAY
    await store.create_jobs(jobs(2, prefix="ahead"), allowance=allowance)
    for day in range(2):
        clock.ms = NOW + day * DAY
        assert (await shown(store, now_ms=clock.ms))["", CREATE_JOB] == (None, 0)
        await store.create_jobs(jobs(2, prefix=f"day-{day}"), allowance=allowance)
        assert (await shown(store, now_ms=clock.ms))["", CREATE_JOB] == (None, 2)


async def test_a_deleted_job_frees_a_live_slot_but_still_counts_as_created(store: Store) -> None:
    one = Allowance(live_per_workspace=1)
    row, _ = await given_held(store)  # its row stays as long as its run
    with pytest.raises(ResourceExhausted):
        await store.create_jobs([asleep("more")], allowance=one)
    await store.delete_job(row.id, NOW, "gone")
    await store.create_jobs([asleep("more")], allowance=one)
    assert await shown(store, "default") == {
        ("", CREATE_JOB): (None, 1),
        ("", LIVE_JOBS): (None, 1),
        ("default", CREATE_JOB): (None, 1),
        ("default", LIVE_JOBS): (None, 1),
    }


async def test_a_create_with_a_taken_name_is_not_charged(store: Store) -> None:
    await store.create_jobs(jobs(1), allowance=ANY)
    with pytest.raises(AlreadyExists):
        await store.create_jobs([*jobs(1, prefix="new"), *jobs(1)], allowance=Allowance(create_per_agent=2))
    assert (await shown(store))["", CREATE_JOB] == (None, 1)


@pytest.mark.parametrize(
    "allowance",
    [Allowance(create_per_workspace=7), Allowance(create_per_agent=7), Allowance(live_per_workspace=7)],
)
async def test_concurrent_creates_do_not_exceed_a_limit(database: Database, allowance: Allowance) -> None:
    stores = [await database.connect() for _ in range(3)]

    async def create(number: int) -> None:
        with suppress(ResourceExhausted):
            row = asleep(f"job-{number}", agent="scribe", workspace="acme")
            await stores[number % 3].create_jobs([row], allowance=allowance)

    await asyncio.gather(*(create(number) for number in range(20)))
    assert len(await stores[0].jobs(JobFilter("acme"))) == 7
    assert (await shown(stores[0]))["", CREATE_JOB] == (None, 7)


async def test_the_limit_of_an_agent_without_usage_is_shown(store: Store) -> None:
    await store.set_quota("acme", "scribe", LIVE_JOBS, 3)
    await store.set_quota("acme", "clerk", LIVE_JOBS, 3)
    await store.set_quota("acme", "clerk", LIVE_JOBS, None)
    assert await shown(store) == {
        ("", CREATE_JOB): (None, 0),
        ("", LIVE_JOBS): (None, 0),
        ("scribe", LIVE_JOBS): (3, 0),
    }
