"""The changelog: a reader that continues from its last number misses nothing and repeats nothing."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.databases import Database, PostgresDatabase
from tests.support.factories import (
    DAY,
    MINUTE,
    NOW,
    SECOND,
    FalseClock,
    alone,
    asked,
    asleep,
    ended,
    fire,
    given_held,
    given_job,
    held,
    job,
    jobless,
    over,
    plan_of,
    start,
    tick,
)
from wakeful.run.consequences import consequences
from wakeful.store.changelog import PAGE, ChangedJob, ChangeRow
from wakeful.store.plans import DueJob, JobPlan
from wakeful.store.port import Store
from wakeful.store.rows import JobChange
from wakeful.values.ids import new_id


async def read_on(store: Store, after: int, limit: int = 3) -> list[ChangeRow]:
    """Return all rows after that number, read in small pages."""
    rows: list[ChangeRow] = []
    while page := await store.changes(after, limit):
        rows += page
        after = page[-1].last
    return rows


async def told(store: Store, after: int) -> list[tuple[str, str]]:
    """Return the changes since that number: kind, and the id of the run or the name of the job."""
    return [
        (row.kind, item)
        for row in await read_on(store, after)
        for item in (row.items if row.kind != "job.changed" else [job.name for job in row.jobs()])
    ]


async def test_a_new_database_has_no_changes(store: Store) -> None:
    assert await store.last_change() == 0
    assert await store.changes(0) == []


async def test_numbers_start_at_one_without_gaps(store: Store) -> None:
    await store.create_jobs([job("one"), job("two")])
    await store.plan(NOW, 10, start("w1"))
    await store.create_jobs([job("three")])
    rows = await read_on(store, 0, limit=1)
    assert [(row.first, row.last, row.kind) for row in rows] == [
        (1, 2, "job.changed"),
        (3, 4, "run.started"),
        (5, 5, "job.changed"),
    ]
    assert await store.last_change() == 5
    assert await store.changes(5) == []


async def test_reading_from_the_middle_of_a_row_returns_that_row(store: Store) -> None:
    await store.create_jobs([job("one"), job("two")])
    (row,) = await store.changes(1)
    assert (row.first, row.last) == (1, 2)


async def test_a_change_has_a_timestamp(store: Store, clock: FalseClock) -> None:
    clock.ms = NOW + 5
    await store.create_jobs([job()])
    (row,) = await store.changes(0)
    assert row.at_ms == NOW + 5


async def test_created_changed_and_deleted_jobs_are_recorded(store: Store) -> None:
    digest = job()
    await store.create_jobs([digest])
    await store.change_job(digest.id, lambda row: JobChange(row._replace(description="new")))
    await store.change_job(digest.id, lambda row: None)  # changes nothing
    await store.delete_job(digest.id, NOW, "gone")
    assert await store.delete_job(digest.id, NOW, "gone") is False
    rows = await read_on(store, 0)
    assert [row.jobs() for row in rows] == [[ChangedJob(digest.id, "default", "default", "digest")]] * 3


async def test_a_run_created_running_is_recorded_as_started(store: Store) -> None:
    await store.create_jobs([job()])
    (run,) = (await store.plan(NOW, 10, start("w1"))).runs
    assert await told(store, 1) == [("run.started", run.id)]


async def test_a_pending_run_is_recorded_as_started_when_taken(store: Store) -> None:
    await store.create_jobs([job()])
    (run,) = (await store.plan(NOW, 10, fire)).runs
    assert await told(store, 1) == []
    await store.take(NOW, "w1", {"cron": 1})
    assert await told(store, 1) == [("run.started", run.id)]


async def test_a_tick_that_already_has_a_run_records_no_start(store: Store) -> None:
    row, run = await given_held(store)
    seen = await store.last_change()
    with_the_same_tick = JobChange(await _due_again(store, row.id))
    await store.change_job(row.id, lambda _: with_the_same_tick)
    await store.plan(NOW, 10, lambda due: plan_of(due, held(tick(due, run.scheduled_ms))))
    assert await told(store, seen) == [("job.changed", "digest")]


async def _due_again(store: Store, job_id: str):
    row = await store.job_by_id(job_id)
    assert row is not None
    return row._replace(next_ms=NOW, wake_ms=NOW)


@pytest.mark.parametrize("state", ["succeeded", "failed", "cancelled", "retrying"])
async def test_the_end_of_an_attempt_is_recorded_as_finished(store: Store, state: str) -> None:
    _, run = await given_held(store)
    seen = await store.last_change()
    due_ms = NOW + SECOND if state == "retrying" else None
    await store.finish("w1", [ended(run, state, due_ms=due_ms)], alone)
    opened = [kind for kind, _ in await told(store, seen) if kind != "run.finished"]
    assert [each for each in await told(store, seen) if each[0] not in opened] == [("run.finished", run.id)]
    assert opened == (["incident.opened", "inbox.incident"] if state == "failed" else [])


async def test_a_fenced_outcome_records_nothing(store: Store) -> None:
    _, run = await given_held(store)
    seen = await store.last_change()
    await store.finish("another", [ended(run)], alone)
    assert await told(store, seen) == []


async def test_a_parked_run_is_recorded_as_finished_when_completed(store: Store) -> None:
    _, run = await given_held(store)
    seen = await store.last_change()
    await store.finish("w1", [ended(run, "running", due_ms=NOW + MINUTE)], alone)
    assert await told(store, seen) == []
    await store.complete_run(ended(run), alone)
    assert await told(store, seen) == [("run.finished", run.id)]


async def test_skipped_and_missed_ticks_are_recorded_as_finished(store: Store) -> None:
    await store.create_jobs([job()])

    def skip(due: DueJob) -> JobPlan:
        return plan_of(due, over(tick(due, NOW - 1), "missed"), over(tick(due, NOW), "skipped"))

    created = (await store.plan(NOW, 10, skip)).runs
    assert await told(store, 1) == [("run.finished", run.id) for run in created]


async def test_cancelled_and_withdrawn_runs_are_recorded_as_finished(store: Store) -> None:
    digest = await given_job(store, "digest", tick)
    by_hand, stopped = asked(digest), held(asked(digest), "w1")
    await store.add_runs([by_hand, stopped])
    seen = await store.last_change()
    await store.cancel_run(by_hand.id, NOW, "not wanted", running=False)
    await store.cancel_run(stopped.id, NOW, "stop", running=True)
    assert await told(store, seen) == [("run.finished", by_hand.id), ("run.finished", stopped.id)]
    seen = await store.last_change()
    await store.change_job(digest.id, lambda row: JobChange(row, withdraw="edited"))
    (finished, changed) = await told(store, seen)
    assert (finished[0], changed) == ("run.finished", ("job.changed", "digest"))
    last = asked(digest)
    await store.add_runs([last])
    seen = await store.last_change()
    await store.delete_job(digest.id, NOW, "gone")
    assert set(await told(store, seen)) == {("job.changed", "digest"), ("run.finished", last.id)}


async def test_a_job_disabled_or_deleted_by_its_run_is_recorded_as_changed(store: Store) -> None:
    _, run = await given_held(store)
    seen = await store.last_change()
    await store.finish("w1", [ended(run, "failed", disable_job="failed")], alone)
    opened = ("incident.opened", "inbox.incident")
    told_of = {each for each in await told(store, seen) if each[0] not in opened}
    assert told_of == {("run.finished", run.id), ("job.changed", "digest")}
    _, run = await given_held(store, name="once")
    seen = await store.last_change()
    await store.finish("w1", [ended(run, delete_job=True)], alone)
    assert set(await told(store, seen)) == {("run.finished", run.id), ("job.changed", "once")}


async def test_a_job_whose_last_tick_was_planned_is_recorded_as_changed(store: Store) -> None:
    await store.create_jobs([job()])
    end = {"next_ms": None, "wake_ms": None, "enabled": False, "disabled_reason": "no_more_ticks"}
    await store.plan(NOW, 10, lambda due: plan_of(due, **end))
    assert await told(store, 1) == [("job.changed", "digest")]


async def test_released_and_rescued_runs_are_recorded_as_finished(store: Store) -> None:
    _, run = await given_held(store)
    lost = held(jobless(), "dead")
    await store.add_runs([lost])
    seen = await store.last_change()
    await store.release("w1", NOW)
    await store.rescue(NOW + MINUTE, NOW + 1, 5, lambda _: ended(lost, "retrying", due_ms=NOW), alone)
    assert await told(store, seen) == [("run.finished", run.id), ("run.finished", lost.id)]


async def test_a_follow_up_run_starts_after_its_predecessor_finished(store: Store) -> None:
    _, run = await given_held(store)
    await store.create_jobs([asleep("then", after_job="digest", after_on="succeeded")])
    seen = await store.last_change()
    await store.finish("w1", [ended(run)], consequences)
    (then,) = await store.take(NOW + MINUTE, "w1", {"cron": 1})
    assert await told(store, seen) == [("run.finished", run.id), ("run.started", then.id)]


async def test_a_rolled_back_transaction_records_nothing(store: Store) -> None:
    await store.create_jobs([job("one"), job("two")])
    seen = await store.last_change()

    def decide(due: DueJob) -> JobPlan:
        if due.name == "two":
            raise ValueError("broken")
        return start("w1")(due)

    with pytest.raises(ValueError, match="broken"):
        await store.plan(NOW, 10, decide)
    assert await store.last_change() == seen


async def test_a_large_batch_is_split_into_rows_of_one_page(store: Store) -> None:
    runs = [held(jobless()) for _ in range(PAGE + 5)]
    await store.add_runs(runs)
    rows = await store.changes(0)
    assert [(row.first, row.last) for row in rows] == [(1, PAGE), (PAGE + 1, PAGE + 5)]
    assert [run_id for row in rows for run_id in row.items] == [run.id for run in runs]


async def test_all_stores_read_the_same_numbers(database: Database) -> None:
    one, two = await database.connect(), await database.connect()
    await one.create_jobs([job("one")])
    before = await two.changes(0)
    await two.create_jobs([job("two")])
    assert (await one.changes(0))[:1] == before
    assert await one.changes(0) == await (await database.connect()).changes(0)


async def test_pruning_keeps_the_newest_row_and_the_numbering(store: Store, clock: FalseClock) -> None:
    for name in ("one", "two", "three"):
        await store.create_jobs([job(name)])
        clock.ms += MINUTE
    assert await store.prune_changes(NOW + MINUTE, 100) == 1
    assert [row.first for row in await store.changes(0)] == [2, 3]  # the gap shows that number 1 was pruned
    assert await store.prune_changes(NOW + DAY, 1) == 1
    assert await store.prune_changes(NOW + DAY, 100) == 0  # the newest row is kept
    await store.create_jobs([job("four")])
    assert await store.last_change() == 4
    assert [(row.first, row.last) for row in await store.changes(0)] == [(3, 3), (4, 4)]


async def test_concurrent_readers_see_every_change_once_and_in_order(database: Database) -> None:
    """Each reader continues from its last number while the writers are still writing."""
    writers = [await database.connect() for _ in range(4)]
    readers = [await database.connect() for _ in range(2)]
    written: list[str] = []
    writing = True

    async def write(store: Store) -> None:
        for _ in range(15):
            run = held(jobless())
            await store.add_runs([run])
            await store.finish("w1", [ended(run)], alone)
            written.append(run.id)

    async def read(store: Store) -> list[tuple[int, str, str]]:
        seen: list[tuple[int, str, str]] = []
        while True:
            at_the_end = not writing
            after = seen[-1][0] if seen else 0
            for row in await store.changes(after, 2):
                assert row.first == (seen[-1][0] if seen else 0) + 1
                seen += [(row.first + place, row.kind, item) for place, item in enumerate(row.items)]
            if at_the_end and await store.last_change() == (seen[-1][0] if seen else 0):
                return seen
            await asyncio.sleep(0)

    reading = [asyncio.create_task(read(store)) for store in readers]
    await asyncio.gather(*[write(store) for store in writers])
    writing = False
    first, second = await asyncio.gather(*reading)
    assert first == second
    assert [number for number, _, _ in first] == list(range(1, 2 * len(written) + 1))
    for run_id in written:  # each once, start before finish
        assert [kind for _, kind, item in first if item == run_id] == ["run.started", "run.finished"]


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
async def test_a_transaction_that_commits_late_is_not_skipped(database: PostgresDatabase) -> None:
    """It inserts its row before others that are read meanwhile; its changes are numbered at commit."""
    store, slow = await database.connect(), await database.connect()
    written, go_on = asyncio.Event(), asyncio.Event()
    late, quick = held(jobless()), held(jobless())

    async def write_and_wait(db, events):
        from wakeful.store.postgres.insert_runs import insert_runs

        await insert_runs(db, events, NOW, [late])
        await db.execute(
            "INSERT INTO changes (at, kind, count, items) VALUES (now(), 'run.started', 1, $1)", late.id
        )
        events._changes.clear()  # already inserted above, well before the commit
        written.set()
        await go_on.wait()

    waiting = asyncio.create_task(slow._pool.write(write_and_wait))  # type: ignore[attr-defined]
    await written.wait()
    await store.add_runs([quick])
    assert await told(store, 0) == [("run.started", quick.id)]
    go_on.set()
    await waiting
    assert await told(store, 1) == [("run.started", late.id)]


async def test_runs_and_jobs_are_found_by_their_ids(store: Store) -> None:
    digest, run = await given_held(store)
    gone = await given_job(store, "gone", tick)
    await store.delete_job(gone.id, NOW, "gone")
    assert await store.runs_by_ids([run.id, new_id(NOW), "nonsense"]) == [run]
    assert await store.jobs_by_ids([digest.id, gone.id, new_id(NOW), "nonsense"]) == [digest]
    assert await store.runs_by_ids([]) == []
    assert await store.jobs_by_ids([]) == []
