"""Jobs: creation, lookup by name and id, listing, changes and deletion."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.databases import Database
from tests.support.factories import (
    DAY,
    MINUTE,
    NOW,
    asked,
    asleep,
    fire,
    given_held,
    given_job,
    held,
    job,
    look,
    look_at_job,
    over,
    plan_of,
    tick,
    ticks_of,
)
from wakeful.errors import AlreadyExists, FailedPrecondition
from wakeful.run.run import NewRun
from wakeful.store.accounts import AgentChanged, Inherited
from wakeful.store.audit import AuditEntry
from wakeful.store.job_changes import missed_runs, overdue_runs
from wakeful.store.port import Store
from wakeful.store.rows import JobChange, JobFilter, JobRow
from wakeful.values.ids import new_id


async def test_a_job_keeps_every_column(store: Store) -> None:
    whole = job(
        "whole",
        workspace="acme",
        agent="scribe",
        timing='{"kind":"cron"}',
        policy='{"overlap":"skip"}',
        work='{"lane":"main"}',
        payload='{"häßlich":"🦉\\u0000 \' \\" ; --"}',
        after_job="other",
        after_on="failed",
        description="What it’s for",
        labels='{"team":"a"}',
        secret=b"\x00\x01secret\xff",
        old_secret=b"older",
        old_secret_until_ms=NOW + 5,
        enabled=False,
        disabled_reason="max_runs",
        anchor_ms=NOW + 1,
        next_ms=None,
        wake_ms=None,
        run_count=3,
        failures=2,
        version=9,
        created_ms=NOW + 3,
        updated_ms=NOW + 4,
    )
    plain = job("plain", timing=None)
    await store.create_jobs([whole, plain])
    assert await store.job_by_id(whole.id) == whole
    assert await store.job("acme", "scribe", "whole") == whole
    assert await store.job_by_id(plain.id) == plain


async def test_a_name_is_unique_within_its_agent_only(store: Store) -> None:
    await store.create_jobs([job(), job(agent="other"), job(workspace="acme")])
    with pytest.raises(AlreadyExists, match="digest"):
        await store.create_jobs([job()])


async def test_jobs_are_added_all_or_none(store: Store) -> None:
    await store.create_jobs([job("taken")])
    with pytest.raises(AlreadyExists, match="'taken'"):
        await store.create_jobs([job("one"), job("taken"), job("two")])
    assert [row.name for row in await store.jobs(JobFilter("default"))] == ["taken"]


async def test_two_jobs_of_one_name_in_one_call_are_rejected(store: Store) -> None:
    with pytest.raises(AlreadyExists, match="'twice'"):
        await store.create_jobs([job("once"), job("twice"), job("twice")])
    assert await store.jobs(JobFilter("default")) == []


async def test_the_name_of_a_deleted_job_can_be_reused(store: Store) -> None:
    old, _ = await given_held(store)
    await store.delete_job(old.id, NOW, "no longer wanted")
    new = job()
    await store.create_jobs([new])
    assert await store.job("default", "default", "digest") == new
    await store.delete_job(new.id, NOW, "nor this one")
    await store.create_jobs([job()])


async def test_a_missing_job_is_not_found(store: Store) -> None:
    await store.create_jobs([job()])
    assert await store.job("default", "default", "nope") is None
    assert await store.job("default", "nope", "digest") is None
    assert await store.job("nope", "default", "digest") is None
    assert await store.job_by_id(job().id) is None


async def _names(store: Store, only: JobFilter) -> list[tuple[str, str]]:
    return [(row.agent, row.name) for row in await store.jobs(only)]


async def test_jobs_are_listed_by_agent_and_name(store: Store) -> None:
    await store.create_jobs(
        [
            job("b", agent="y"),
            job("a-b", agent="x"),
            job("c", agent="y", enabled=False, wake_ms=None),
            job("ab", agent="x"),
            job("a", agent="y"),
            job("d", agent="x", workspace="acme"),
        ]
    )
    deleted = job("z", agent="x")
    await store.create_jobs([deleted])
    await store.delete_job(deleted.id, NOW, "no longer wanted")
    everything = [("x", "a-b"), ("x", "ab"), ("y", "a"), ("y", "b"), ("y", "c")]
    assert await _names(store, JobFilter("default")) == everything
    assert await _names(store, JobFilter("default", agent="y")) == everything[2:]
    assert await _names(store, JobFilter("default", include_disabled=False)) == everything[:4]
    assert await _names(store, JobFilter("acme")) == [("x", "d")]
    assert await _names(store, JobFilter("default", limit=2)) == everything[:2]
    assert await _names(store, JobFilter("default", after=("x", "ab"))) == everything[2:]
    assert await _names(store, JobFilter("default", agent="y", after=("y", "a"), limit=1)) == [("y", "b")]
    assert await _names(store, JobFilter("nowhere")) == []


async def test_a_change_writes_every_mutable_column_and_increments_the_version(store: Store) -> None:
    old = job(run_count=4)
    await store.create_jobs([old])
    seen: list[JobRow] = []

    def change(row: JobRow) -> JobChange:
        seen.append(row)
        return JobChange(
            row._replace(
                name="renamed",
                policy="{}",
                description="new",
                secret=b"new",
                enabled=False,
                next_ms=None,
                wake_ms=None,
                updated_ms=NOW + 5,
                version=77,
                id=job().id,
                workspace="elsewhere",
                created_ms=0,
            )
        )

    new = await store.change_job(old.id, change)
    assert set(seen) == {old}
    assert new == old._replace(
        name="renamed",
        policy="{}",
        description="new",
        secret=b"new",
        enabled=False,
        next_ms=None,
        wake_ms=None,
        updated_ms=NOW + 5,
        version=2,
    )
    assert await store.job_by_id(old.id) == new
    assert await store.job("default", "default", "digest") is None


async def test_a_change_that_returns_none_keeps_the_job(store: Store) -> None:
    old = job()
    await store.create_jobs([old])
    assert await store.change_job(old.id, lambda row: None) == old
    assert await store.job_by_id(old.id) == old


async def test_an_exception_in_change_leaves_everything_unchanged(store: Store) -> None:
    digest = await given_job(store, "digest", tick)
    before = [digest, *await ticks_of(store, digest)]

    def change(row: JobRow) -> JobChange:
        raise ValueError("not like this")

    with pytest.raises(ValueError, match="not like this"):
        await store.change_job(digest.id, change)
    assert [await look_at_job(store, digest), *await ticks_of(store, digest)] == before


async def test_renaming_to_a_taken_name_is_rejected_and_changes_nothing(store: Store) -> None:
    digest = await given_job(store, "digest", tick)
    await store.create_jobs([job("other")])
    with pytest.raises(AlreadyExists, match="'other'"):
        await store.change_job(digest.id, lambda row: JobChange(row._replace(name="other"), "edited"))
    assert await look_at_job(store, digest) == digest
    assert [run.state for run in await ticks_of(store, digest)] == ["pending"]


async def test_a_missing_or_deleted_job_cannot_be_changed(store: Store) -> None:
    def change(row: JobRow) -> JobChange:
        raise AssertionError("there is nothing to change")

    assert await store.change_job(job().id, change) is None
    digest, _ = await given_held(store)
    await store.delete_job(digest.id, NOW, "no longer wanted")
    assert await store.change_job(digest.id, change) is None


async def test_concurrent_changes_of_one_job_are_all_applied(database: Database) -> None:
    stores = [await database.connect() for _ in range(4)]
    digest = asleep()
    await stores[0].create_jobs([digest])

    def add_one(row: JobRow) -> JobChange:
        return JobChange(row._replace(run_count=row.run_count + 1))

    await asyncio.gather(*(store.change_job(digest.id, add_one) for store in stores for _ in range(5)))
    seen = await look_at_job(stores[0], digest)
    assert (seen.run_count, seen.version) == (20, 21)


async def test_a_change_that_withdraws_cancels_only_the_pending_ticks(store: Store) -> None:
    digest = await given_job(
        store,
        "digest",
        lambda due: tick(due, NOW + 1),
        lambda due: tick(due, NOW + 2)._replace(state="retrying", started_ms=NOW),
        lambda due: held(tick(due, NOW + 3, fire_ms=NOW)),
        lambda due: over(tick(due, NOW + 4)),
    )
    other = await given_job(store, "other", tick)
    by_hand = asked(digest)
    await store.add_runs([by_hand])
    await store.change_job(
        digest.id, lambda row: JobChange(row._replace(updated_ms=NOW + MINUTE), withdraw="edited")
    )
    states = [run.state for run in await ticks_of(store, digest)]
    assert states == ["cancelled", "retrying", "running", "succeeded", "pending"]
    withdrawn = (await ticks_of(store, digest))[0]
    assert (withdrawn.reason, withdrawn.finished_ms, withdrawn.due_ms) == ("edited", NOW + MINUTE, None)
    assert [run.state for run in await ticks_of(store, other)] == ["pending"]


async def test_a_change_that_withdraws_nothing_keeps_the_pending_ticks(store: Store) -> None:
    digest = await given_job(store, "digest", tick)
    await store.change_job(digest.id, lambda row: JobChange(row._replace(description="better said")))
    assert [run.state for run in await ticks_of(store, digest)] == ["pending"]


@pytest.mark.parametrize("how", ["change", "several", "delete"])
async def test_a_change_records_the_ticks_that_were_due_before_it(store: Store, how: str) -> None:
    """Also if the first of them has a run, of which the job does not know."""
    digest = job(timing='{"schedule":{"everyMs":60000,"kind":"every"}}', policy="{}", work="{}")
    await store.create_jobs([digest])
    await store.plan(NOW, 10, lambda due: plan_of(due, tick(due))._replace(next_ms=NOW, wake_ms=NOW))
    now_ms = NOW + 2 * MINUTE

    def pause(row: JobRow) -> JobChange:
        return JobChange(row._replace(enabled=False), runs=missed_runs(row, now_ms, "paused"))

    if how == "change":
        await store.change_job(digest.id, pause)
    elif how == "several":
        await store.change_jobs(
            [digest.id], pause, lambda row: AuditEntry("default", "key:1", "job.pause", row.name, "{}", None)
        )
    else:
        await store.delete_job(digest.id, now_ms, "deleted", [], lambda row: overdue_runs(row, now_ms))
    first, missed = await ticks_of(store, digest)
    assert (first.scheduled_ms, missed.scheduled_ms, missed.state, missed.covers) == (
        NOW,
        NOW + MINUTE,
        "missed",
        2,
    )


async def test_a_withdrawn_tick_is_not_planned_again(store: Store) -> None:
    digest = await given_job(store, "digest", tick)
    await store.change_job(digest.id, lambda row: JobChange(row._replace(next_ms=NOW, wake_ms=NOW), "edited"))
    assert (await store.plan(NOW, 10, fire)).runs == []


async def test_deleting_a_job_cancels_its_pending_runs(store: Store) -> None:
    digest = await given_job(
        store,
        "digest",
        lambda due: tick(due, NOW + 1),
        lambda due: tick(due, NOW + 2)._replace(state="retrying"),
        lambda due: held(tick(due, NOW + 3)),
        lambda due: over(tick(due, NOW + 4), "failed"),
    )
    by_hand = asked(digest)
    await store.add_runs([by_hand])
    assert await store.delete_job(digest.id, NOW + 5, "no longer wanted")
    runs = await ticks_of(store, digest)
    assert [run.state for run in runs] == ["cancelled", "retrying", "running", "failed", "cancelled"]
    for run in (runs[0], runs[4]):
        assert (run.reason, run.finished_ms, run.due_ms) == ("no longer wanted", NOW + 5, None)


async def test_a_deletion_can_be_rejected_after_looking_at_the_job(database: Database) -> None:
    """Of a concurrent edit and a deletion of the version before it, one takes effect."""
    one, other = await database.connect(), await database.connect()
    jobs = [asleep(f"job-{number}") for number in range(20)]
    await one.create_jobs(jobs)

    def only_the_first(row: JobRow) -> tuple[NewRun, ...]:
        if row.version != 1:
            raise FailedPrecondition("it has changed")
        return ()

    for row in jobs:
        edited, deleted = await asyncio.gather(
            one.change_job(row.id, lambda now: JobChange(now._replace(description="mine"))),
            other.delete_job(row.id, NOW, "gone", due_runs=only_the_first),
            return_exceptions=True,
        )
        found = await one.job_by_id(row.id)
        if isinstance(deleted, FailedPrecondition):
            assert isinstance(edited, JobRow)
            assert found == edited
        else:
            assert (deleted, edited, found) == (True, None, None)


async def test_a_deleted_job_is_not_found_and_never_due(store: Store) -> None:
    digest, run = await given_held(store)
    assert await store.delete_job(digest.id, NOW, "no longer wanted")
    assert await store.job_by_id(digest.id) is None
    assert await store.job("default", "default", "digest") is None
    assert await store.jobs(JobFilter("default")) == []
    assert await store.next_wake_ms() is None
    assert (await store.plan(NOW + 10 * DAY, 10, fire)).claimed == 0
    assert (await look(store, run)).job_name == "digest"
    assert not await store.delete_job(digest.id, NOW, "again")


async def test_a_deleted_job_can_be_read_with_deleted_true(store: Store) -> None:
    digest, _ = await given_held(store)
    assert await store.job_by_id(digest.id, deleted=True) == await store.job_by_id(digest.id)
    assert await store.delete_job(digest.id, NOW, "no longer wanted")
    found = await store.job_by_id(digest.id, deleted=True)
    assert found is not None
    assert (found.id, found.policy, found.secret, found.next_ms) == (
        digest.id, digest.policy, digest.secret, None,
    )  # fmt: skip


async def test_a_missing_or_deleted_job_cannot_be_deleted(store: Store) -> None:
    assert not await store.delete_job(job().id, NOW, "no longer wanted")
    fresh = job()
    await store.create_jobs([fresh])
    assert await store.delete_job(fresh.id, NOW, "no longer wanted")
    assert not await store.delete_job(fresh.id, NOW, "again")


async def test_several_jobs_change_in_one_transaction(store: Store) -> None:
    jobs = [await given_job(store, name) for name in ("a", "b", "c")]

    def disable(row: JobRow) -> JobChange | None:
        return None if row.name == "b" else JobChange(row._replace(enabled=False))

    ids = [each.id for each in jobs]
    changed = await store.change_jobs([*ids, new_id(NOW), "not-an-id"], disable, _entry)

    assert sorted((row.name, row.enabled, row.version) for row in changed) == [
        ("a", False, 2),
        ("c", False, 2),
    ]
    assert [row.subject for row in await store.audit("default")] == [row.name for row in changed]
    rows = await store.jobs(JobFilter("default"))
    assert [(row.name, row.enabled) for row in rows] == [("a", False), ("b", True), ("c", False)]


async def test_an_error_in_one_of_several_changes_rolls_all_back(store: Store) -> None:
    jobs = [await given_job(store, name) for name in ("a", "b")]

    def fail(row: JobRow) -> JobChange | None:
        if row.name == "b":
            raise FailedPrecondition("no")
        return JobChange(row._replace(enabled=False))

    with pytest.raises(FailedPrecondition):
        await store.change_jobs([each.id for each in jobs], fail, _entry)
    assert all(row.enabled for row in await store.jobs(JobFilter("default")))
    assert await store.audit("default") == []


async def test_several_jobs_do_not_change_if_their_agent_has_changed(store: Store) -> None:
    one = await given_job(store, "a")
    expected = {("default", one.agent): Inherited(active=False)}

    with pytest.raises(AgentChanged):
        await store.change_jobs(
            [one.id], lambda row: JobChange(row._replace(enabled=False)), _entry, expected
        )
    assert (await look_at_job(store, one)).enabled


async def test_jobs_of_one_name_are_listed_over_all_agents(store: Store) -> None:
    for agent in ("ops", "writer", "default"):
        await store.create_jobs([job("digest", agent=agent)])
    await store.create_jobs([job("other")])
    assert [row.agent for row in await store.jobs(JobFilter("default", name="digest"))] == [
        "default",
        "ops",
        "writer",
    ]


def _entry(row: JobRow) -> AuditEntry:
    return AuditEntry(row.workspace, "test", "job.pause", row.name, "{}", None)
