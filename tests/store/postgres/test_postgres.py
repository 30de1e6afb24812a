"""Behavior specific to PostgreSQL: many processes on one database, server restarts and its clock."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterator
from urllib.parse import urlsplit

import asyncpg
import pytest

from tests.store.postgres.saying import say, throw_out
from tests.support import postgres_server
from tests.support.effort import cases
from tests.support.factories import (
    DAY,
    NOW,
    FalseClock,
    alone,
    asked,
    asleep,
    ended,
    fire,
    held,
    job,
    jobless,
    plan_of,
    rules,
    start,
    tick,
)
from tests.support.notifications import NotificationRecorder
from wakeful.errors import FailedPrecondition, InvalidArgument, Unavailable
from wakeful.run.outcome import Finished
from wakeful.run.run import Follower, NewRun
from wakeful.store.migrations import Migration, load
from wakeful.store.plans import DECISIONS_AT_ONCE, DueJob, JobPlan
from wakeful.store.postgres import PostgresStore
from wakeful.store.postgres.address import parse_address
from wakeful.store.postgres.listener import TOPICS
from wakeful.store.postgres.schema import migrate
from wakeful.store.rows import JobChange, JobFilter, RunFilter, RunView, TakenRun, UnfinishedRun

# --- stored values --------------------------------------------------------------------------------------


async def test_columns_are_readable_in_sql(store: PostgresStore, url: str) -> None:
    digest = job(payload='{"b":1,"a":[2,  3]}')
    await store.create_jobs([digest])
    (created,) = (await store.plan(NOW, 10, fire)).runs
    assert await say(url, "SELECT scheduled_at::text FROM runs") == "2027-01-15 08:00:00+00"
    assert str(await say(url, "SELECT id FROM runs")) == created.id
    assert await say(url, "SELECT payload FROM jobs") == digest.payload


async def test_a_job_deleted_with_sql_does_not_stop_the_others(store: PostgresStore, url: str) -> None:
    await store.create_jobs([job("gone"), job("stays")])
    await say(url, "DELETE FROM jobs WHERE name = 'gone'")
    assert [run.job_name for run in (await store.plan(NOW, 10, fire)).runs] == ["stays"]
    assert await store.next_wake_ms() == NOW + DAY


async def test_other_tasks_continue_between_the_decisions_of_a_pass(store: PostgresStore) -> None:
    await store.create_jobs([job(f"job-{number}") for number in range(4 * DECISIONS_AT_ONCE)])
    turns = 0
    seen: list[int] = []

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def decide(due: DueJob) -> JobPlan:
        seen.append(turns)
        return fire(due)

    task = asyncio.create_task(take_turns())
    planned = await store.plan(NOW, 1_000, decide)
    task.cancel()
    assert len(planned.runs) == len(seen) == 4 * DECISIONS_AT_ONCE
    assert len(set(seen)) >= 4


@pytest.mark.parametrize("unknown", ["", "digest", "01", "0190a0b0-0000-7000-8000-00000000000g"])
async def test_an_id_that_is_not_a_uuid_is_not_found(store: PostgresStore, unknown: str) -> None:
    assert await store.job_by_id(unknown) is None
    assert await store.change_job(unknown, lambda row: pytest.fail("there is none")) is None
    assert not await store.delete_job(unknown, NOW, "gone")
    assert await store.run(unknown) is None
    assert await store.attempts(unknown) == []
    assert await store.cancel_run(unknown, NOW, "stop", running=True) is None
    assert await store.replay_runs("default", [unknown], lambda letter: jobless()) == []
    assert await store.discard_runs("default", [unknown]) == []
    assert not await store.complete_run(ended(jobless(id=unknown)), alone)
    assert await store.runs(RunFilter("default", job_id=unknown)) == []
    assert await store.runs(RunFilter("default", before=unknown)) == []


# --- several stores on one database ---------------------------------------------------------------------


async def test_changes_are_notified_to_other_processes(store: PostgresStore, other: PostgresStore) -> None:
    recorder = NotificationRecorder()
    other.listen(recorder)
    digest = asleep()
    await store.create_jobs([digest])
    await recorder.next_event("jobs")
    run = asked(digest)
    await store.add_runs([run])
    await recorder.next_event("runs")
    await store.take(NOW, "w1", {"cron": 1})
    await store.cancel_run(run.id, NOW, "enough", running=True)
    await recorder.next_event(f"stop:{run.id}")


async def test_a_process_is_notified_of_its_own_changes_once(
    store: PostgresStore, other: PostgresStore
) -> None:
    recorder, others = NotificationRecorder(), NotificationRecorder()
    store.listen(recorder)
    other.listen(others)
    await store.create_jobs([job()])
    await others.next_event("jobs")  # by then the sender has received its notification too
    await asyncio.sleep(0)
    assert recorder.topics == ["jobs"]


async def test_two_schemas_in_one_database_are_isolated(url: str) -> None:
    stores = []
    recorder = []
    for schema in ("day", "night"):
        store = PostgresStore(f"{url}&schema={schema}", clock=FalseClock())
        await store.open()
        stores.append(store)
        recorder.append(NotificationRecorder())
        store.listen(recorder[-1])
    day, night = stores
    await day.create_jobs([job()])
    assert await night.jobs(JobFilter("default")) == []
    assert (await night.plan(NOW, 10, fire)).claimed == 0
    await night.create_jobs([job()])
    await recorder[1].next_event("jobs")
    assert recorder[0].topics == ["jobs"]
    for store in stores:
        await store.close()


@pytest.mark.parametrize("schema", ["Night", "a b", 'x"; DROP TABLE jobs; --', "", "9"])
def test_a_schema_that_needs_quoting_is_refused(schema: str) -> None:
    with pytest.raises(InvalidArgument, match="lower-case letters"):
        parse_address(f"postgresql://localhost/main?schema={schema}")


async def test_many_stores_can_open_a_database_without_a_schema_concurrently() -> None:
    url = postgres_server.empty_database()
    stores = [PostgresStore(url, clock=FalseClock()) for _ in range(5)]
    await asyncio.gather(*(store.open() for store in stores))
    await stores[0].create_jobs([job()])
    assert await stores[4].job("default", "default", "digest") is not None
    for store in stores:
        await store.close()


async def test_a_migration_is_applied_once_and_a_failed_one_is_rolled_back(url: str) -> None:
    connection = await asyncpg.connect(url)
    known = load("postgres")
    second = Migration(len(known) + 1, "colours", "ALTER TABLE jobs ADD COLUMN colour text DEFAULT 'red'")
    faulty = Migration(len(known) + 2, "faulty", "CREATE TABLE half (n int); INSERT INTO nowhere VALUES (1)")
    for _ in range(2):
        await migrate(connection, "wakeful", [*known, second])
    with pytest.raises(asyncpg.UndefinedTableError):
        await migrate(connection, "wakeful", [*known, second, faulty])
    assert await connection.fetchval("SELECT max(version) FROM schema_version") == second.number
    assert await connection.fetchval("SELECT to_regclass('half')") is None
    await connection.close()


@pytest.fixture
async def guest(url: str) -> AsyncIterator[str]:
    """Yield a role without the CREATE privilege."""
    name = f"guest_{urlsplit(url).path[1:]}"  # roles are global to the server, which tests share
    await say(url, f"CREATE ROLE {name} LOGIN")
    yield name
    await say(url, f"DROP OWNED BY {name}")
    await say(url, f"DROP ROLE {name}")


async def test_a_role_that_cannot_create_uses_an_existing_schema(
    store: PostgresStore, url: str, guest: str
) -> None:
    await say(url, f"GRANT USAGE ON SCHEMA wakeful TO {guest}")
    await say(url, f"GRANT ALL ON ALL TABLES IN SCHEMA wakeful TO {guest}")
    theirs = PostgresStore(url.replace("postgres:@", f"{guest}:@"), clock=FalseClock())
    await theirs.open()
    await theirs.create_jobs([job()])
    await theirs.close()
    assert await store.job("default", "default", "digest") is not None


async def test_a_role_that_cannot_create_gets_a_clear_error_without_a_schema(url: str, guest: str) -> None:
    theirs = PostgresStore(f"{url.replace('postgres:@', f'{guest}:@')}&schema=theirs")
    with pytest.raises(FailedPrecondition, match=r"schema 'theirs'.*permission denied.*grant"):
        await theirs.open()
    await theirs.close()


# --- runs and live runs --------------------------------------------------------------------------------

#: counts the unfinished runs in which `runs` and `live_runs` differ
DIFFERING = """
    WITH ours AS (
        SELECT id, job_id, state, worker, lane, serial, trigger = 'schedule', scheduled_at,
            CASE WHEN state <> 'running' THEN due_at END, is_pull, claim_deadline
        FROM runs WHERE state IN ('pending', 'retrying', 'running')),
    theirs AS (
        SELECT run_id, job_id, state, worker, lane, serial, tick, scheduled_at, due_at, is_pull,
            claim_deadline
        FROM live_runs)
    SELECT count(*) FROM (
        (SELECT * FROM ours EXCEPT ALL SELECT * FROM theirs)
        UNION ALL (SELECT * FROM theirs EXCEPT ALL SELECT * FROM ours)) differing"""


@pytest.mark.parametrize("seed", range(cases(4, 40)))
async def test_live_runs_matches_runs_after_random_operations(
    store: PostgresStore, url: str, seed: int
) -> None:
    dice = random.Random(seed)
    jobs = [job(f"job-{n}", wake_ms=NOW + n) for n in range(4)]
    then = asleep("then", after_job="job-1", after_on="finished")
    await store.create_jobs([*jobs, then])
    states = ["succeeded", "failed", "retrying", "running", "cancelled"]

    def end(run: NewRun | RunView | TakenRun | UnfinishedRun) -> Finished:
        doomed = dice.random() < 0.05
        outcome = Finished(run.id, run.job_id, run.attempt, dice.choice(states), NOW, NOW, NOW + 1)
        return outcome._replace(delete_job=doomed, disable_job="tired" if dice.random() < 0.05 else None)

    def follow(follower: Follower) -> NewRun:
        return asked(then, follower.after_finished_ms)

    def decide(due: DueJob) -> JobPlan:
        run = tick(due, due.next_ms, serial=dice.random() < 0.7)
        created = held(run, "w1") if dice.random() < 0.5 else run
        gone = tuple((run_id, "replaced") for run_id in (*due.running, *due.waiting) if dice.random() < 0.3)
        return plan_of(due, created, wake_ms=NOW, cancelled=gone)

    for _ in range(60):
        runs = await store.runs(RunFilter("default", limit=200))
        live = [run for run in runs if run.state in ("pending", "retrying", "running")]
        match dice.randrange(9):
            case 0 | 1:
                await store.plan(NOW + 5 * DAY, 2, decide)
            case 2 | 3:
                await store.take(NOW + 10, dice.choice(["w1", "w2"]), {"cron": 3})
            case 4:
                await store.finish("w1", [end(run) for run in live if dice.random() < 0.7], rules(follow))
            case 5 if live:
                run = dice.choice(live)
                await store.cancel_run(run.id, NOW, "enough", running=run.state == "running")
            case 6:
                await store.release("w2", NOW, keep=[(run.id, run.attempt) for run in live[:2]])
            case 7:
                await store.rescue(NOW + DAY, NOW + 1, 3, end, rules(follow))
            case 8:
                await store.change_job(dice.choice(jobs).id, lambda row: JobChange(row, withdraw="edited"))
        assert await say(url, DIFFERING) == 0
    assert await say(url, "SELECT count(*) FROM runs") != 0


# --- lost connections -----------------------------------------------------------------------------------


async def test_a_broken_connection_raises_unavailable_and_the_next_call_reconnects(
    store: PostgresStore, url: str
) -> None:
    recorder = NotificationRecorder()
    store.listen(recorder)
    digest = job()
    await store.create_jobs([digest])
    recorder.topics.clear()

    async def hold(db: object, tell: object) -> None:
        await throw_out(url)
        await db.fetch("SELECT 1")  # type: ignore[attr-defined]

    with pytest.raises(Unavailable, match="cannot use the database"):
        await store._pool.write(hold)
    assert await store.job_by_id(digest.id) == digest
    assert await recorder.next_event("jobs", "runs") >= {"jobs", "runs"}  # notifications may have been missed


async def test_a_driver_protocol_error_raises_unavailable(
    store: PostgresStore,
) -> None:
    async def confused(db: object) -> None:
        raise asyncpg.InternalClientError("got result for unknown protocol state 3")

    with pytest.raises(Unavailable, match="unknown protocol state"):
        await store._pool.read(confused)


async def test_notifications_resume_after_the_connection_broke(
    store: PostgresStore, other: PostgresStore, url: str
) -> None:
    recorder = NotificationRecorder()
    store.listen(recorder)
    await throw_out(url)
    await recorder.next_event(*TOPICS)
    await other.create_jobs([job()])
    await recorder.next_event("jobs")


async def test_the_error_for_an_unreachable_server_names_it_without_the_password(url: str) -> None:
    store = PostgresStore("postgresql://postgres:secret@localhost:1/main")
    with pytest.raises(Unavailable, match="localhost/main") as caught:
        await store.open()
    assert "secret" not in str(caught.value)
    await store.close()


async def test_the_error_for_a_missing_database_names_it(url: str) -> None:
    store = PostgresStore(url.replace("wakeful_test", "nowhere"))
    with pytest.raises(Unavailable, match=r"nowhere.* does not exist"):
        await store.open()
    await store.close()


async def test_a_store_that_is_not_open_raises_unavailable(url: str) -> None:
    store = PostgresStore(url)
    with pytest.raises(Unavailable, match="not open"):
        await store.next_wake_ms()
    await store.close()


@pytest.fixture
def server() -> Iterator[postgres_server.PrivateServer]:
    server = postgres_server.PrivateServer()
    yield server
    server.close()


async def test_a_store_survives_a_restart_of_the_server(server: postgres_server.PrivateServer) -> None:
    store = PostgresStore(server.url, clock=FalseClock())
    await store.open()
    recorder = NotificationRecorder()
    store.listen(recorder)
    digest = job()
    await store.create_jobs([digest])
    (created,) = (await store.plan(NOW, 10, start("w1"))).runs
    await asyncio.to_thread(server.stop)
    for _ in range(3):
        with pytest.raises(Unavailable):
            await store.beat("w1", NOW, [created.id])
    await asyncio.to_thread(server.start)
    assert (await store.beat("w1", NOW, [created.id])).lost == set()
    await recorder.next_event("jobs", "runs")
    assert await store.finish("w1", [ended(created)], alone) == {created.id}
    await store.close()


# --- the clock ------------------------------------------------------------------------------------------


async def test_a_process_with_a_wrong_clock_uses_the_database_clock(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: really() + 300 * 10**9)
    store = PostgresStore(url)
    assert store.clock.now_ms() - really() // 10**6 > 290_000
    await store.open()
    assert abs(store.clock.now_ms() - really() // 10**6) < 2_000
    await store.close()


async def test_a_clock_that_is_passed_in_is_not_adjusted(store: PostgresStore) -> None:
    assert store.clock.now_ms() == NOW
    assert tick(job()).scheduled_ms == NOW
