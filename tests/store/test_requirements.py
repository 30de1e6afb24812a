"""A worker takes only runs whose requirement its process meets, and reads no others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.factories import DAY, MINUTE, NOW, SECOND, FalseClock, asked, asleep, held, look
from tests.support.query_plans import visited
from wakeful.job.start_rules import Requirement
from wakeful.run.run import NewRun
from wakeful.store.port import Store
from wakeful.store.rows import JobChange, JobRow, Move
from wakeful.store.sql import running
from wakeful.store.sqlite import SqliteStore
from wakeful.store.stats import DueRequirement

if TYPE_CHECKING:
    from wakeful.store.postgres import PostgresStore

DIGEST, REPORT = "function:digest", "agent:default/report"
EVERY = {"": 0, DIGEST: 0, "function:other": 0, REPORT: 3}
RUNS = 100_000


async def _job(store: Store) -> JobRow:
    row = asleep()
    await store.create_jobs([row])
    return row


def _needs(of: JobRow, requires: str = "", due: int = NOW, **fields: object) -> NewRun:
    return asked(of, due, serial=False, requires=requires, **fields)


async def test_only_runs_whose_requirement_is_met_are_taken(store: Store) -> None:
    job = await _job(store)
    runs = [
        _needs(job),
        _needs(job, DIGEST),
        _needs(job, "function:other"),
        _needs(job, REPORT, requires_version=2),
        _needs(job, REPORT, requires_version=3),
    ]
    await store.add_runs(runs)
    taken = await store.take(NOW, "w1", {"cron": 9}, {"": 0, DIGEST: 0, REPORT: 2})
    assert {run.id for run in taken} == {runs[n].id for n in (0, 1, 3)}
    assert await store.take(NOW, "w2", {"cron": 9}) == []
    assert {run.id for run in await store.take(NOW, "w2", {"cron": 9}, EVERY)} == {runs[2].id, runs[4].id}
    seen = await look(store, runs[4])
    assert (seen.requires, seen.requires_version) == (REPORT, 3)


async def test_the_longest_due_are_taken_first_over_all_requirements(store: Store) -> None:
    job = await _job(store)
    requires = [DIGEST, "", "function:other", REPORT]
    runs = [_needs(job, requires[n % 4], NOW - n * SECOND) for n in range(1, 21)]
    await store.add_runs(runs)
    order = [run.id for run in runs[::-1]]
    taken = [[run.id for run in await store.take(NOW, "w1", {"cron": n}, EVERY)] for n in (1, 2, 5, 50)]
    assert taken == [order[:1], order[1:3], order[3:8], order[8:]]


async def test_a_run_that_waits_for_its_turn_is_no_reason_to_take_another_of_its_requirement(
    store: Store,
) -> None:
    job = await _job(store)
    blocked = _needs(job, "", NOW - MINUTE)._replace(serial=True)
    first, second = _needs(job, DIGEST, NOW - 2 * SECOND), _needs(job, "", NOW - SECOND)
    await store.add_runs([held(asked(job, NOW - DAY)), blocked, first, second])
    taken = [await store.take(NOW, "w1", {"cron": 1}, EVERY) for _ in range(3)]
    assert [[run.id for run in each] for each in taken] == [[first.id], [second.id], []]
    few = [_needs(job, name, NOW - 9 * SECOND) for name in EVERY if name]
    await store.add_runs([*(_needs(job) for _ in range(10)), *few])
    assert {run.id for run in few} < {run.id for run in await store.take(NOW, "w1", {"cron": 9}, EVERY)}


async def test_a_lane_is_never_overfilled_by_several_requirements(store: Store) -> None:
    job = await _job(store)
    await store.add_runs([_needs(job, name) for name in EVERY for _ in range(10)])
    assert len(await store.take(NOW, "w1", {"cron": 7}, EVERY)) == 7


async def test_the_next_due_time_is_that_of_runs_that_can_be_taken(store: Store) -> None:
    job = await _job(store)
    await store.add_runs(
        [
            _needs(job, DIGEST, NOW + 1),
            _needs(job, "", NOW + 5),
            _needs(job, REPORT, NOW + 2, requires_version=3),
        ]
    )
    assert await store.next_due_ms(NOW, ["cron"]) == NOW + 5
    assert await store.next_due_ms(NOW, ["cron"], {"": 0, DIGEST: 0}) == NOW + 1
    assert await store.next_due_ms(NOW, ["cron"], {"": 0, REPORT: 2}) == NOW + 5
    assert await store.next_due_ms(NOW, ["cron"], {REPORT: 3}) == NOW + 2


async def test_unfinished_runs_follow_their_job_to_another_target(store: Store) -> None:
    job = await _job(store)
    waiting, running = _needs(job, DIGEST), held(_needs(job, DIGEST), "w1")
    await store.add_runs([waiting, running])
    move = Move("cron", None, "function:other")
    await store.change_job(job.id, lambda row: JobChange(row._replace(updated_ms=NOW), move=move))
    assert [(await look(store, run)).requires for run in (waiting, running)] == ["function:other"] * 2
    assert [run.id for run in await store.take(NOW, "w2", {"cron": 9}, {"function:other": 0})] == [waiting.id]
    assert await store.release("w1", NOW) == 1
    (again,) = await store.take(NOW + MINUTE, "w3", {"cron": 9}, {"function:other": 0})
    assert again.id == running.id


async def test_a_heartbeat_publishes_the_capabilities_of_its_process(store: Store) -> None:
    await store.beat("w1", NOW, [], {"": 0, DIGEST: 0})
    await store.beat("w2", NOW - MINUTE, [], {"": 0, REPORT: 2})
    assert await store.capabilities(NOW) == [{"": 0, DIGEST: 0}]
    await store.beat("w1", NOW + 1, [])
    assert await store.capabilities(NOW) == [{"": 0, DIGEST: 0}], "a heartbeat without them leaves them"
    await store.beat("w1", NOW + 2, [], {"": 0})
    assert sorted(map(len, await store.capabilities(NOW - MINUTE))) == [1, 2]


async def test_due_runs_are_counted_by_requirement(store: Store) -> None:
    job = await _job(store)
    await store.add_runs(
        [
            _needs(job),
            _needs(job, DIGEST, NOW - 1),
            _needs(job, DIGEST, NOW - 5),
            _needs(job, DIGEST, NOW + 1),
            _needs(job, REPORT, NOW - 9, requires_version=3),
        ]
    )
    assert await store.due_requirements(NOW) == [
        DueRequirement(Requirement(REPORT, 3), 1, NOW - 9),
        DueRequirement(Requirement(DIGEST), 2, NOW - 5),
    ]


# --- 100,000 due runs that this process cannot take -------------------------------------------------------

_LITE = f"""
    WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n LIMIT {RUNS})
    INSERT INTO runs (id, workspace, agent, scheduled_at, fire_at, trigger, state, covers, attempt, lane,
        serial, due_at, idempotency_key, created_at, requires)
    SELECT printf('r%07d', i), 'ws', 'a', {NOW}, {NOW}, 'user', 'pending', 1, 1, 'cron', 0, {NOW} - i, 'key',
        {NOW}, iif(i % 1000 = 0, 'function:mine-' || (i / 1000 % 5), 'function:theirs-' || (i % 7)) FROM n"""
_GREAT = f"""
    INSERT INTO runs (id, workspace, agent, scheduled_at, fire_at, trigger, state, covers, attempt, lane,
        serial, due_at, idempotency_key, created_at, requires)
    SELECT ('01910000-0000-7000-8000-' || lpad(to_hex(i), 12, '0'))::uuid, 'ws', 'a', t.now, t.now, 'user',
        'pending', 1, 1, 'cron', false, t.now - i * interval '1 ms', 'key', t.now,
        CASE WHEN i % 1000 = 0 THEN 'function:mine-' || (i / 1000 % 5) ELSE 'function:theirs-' || (i % 7) END
    FROM generate_series(0, {RUNS - 1}) i, (SELECT to_timestamp({NOW // 1000}) AS now) t;
    INSERT INTO live_runs (run_id, state, lane, serial, tick, scheduled_at, due_at, requires)
    SELECT id, state, lane, serial, false, scheduled_at, due_at, requires FROM runs"""
MINE = {"": 0, **{f"function:mine-{n}": 0 for n in range(200)}}


async def test_sqlite_does_not_read_runs_that_it_cannot_take(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "big.db", clock=FalseClock(), inline=True)
    await store.open()
    db = store._connection._write_connection()
    db.execute("PRAGMA synchronous = OFF")
    db.execute(_LITE)
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 100
        return 0

    db.set_progress_handler(count, 100)
    assert len(await store.take(NOW, "w1", {"cron": 20, "main": 30}, MINE)) == 20
    taken, steps = steps, 0
    assert await store.next_due_ms(NOW - RUNS, ["cron", "main"], MINE) == NOW - 79_000
    db.set_progress_handler(None, 0)
    await store.close()
    assert taken < 40_000, "a few steps for each of 400 ranges, and some dozens for each run"
    assert steps < 20_000


@pytest.fixture(params=["of yesterday", "of now"])
async def big_postgres(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    """Yield a PostgreSQL store with many due runs, with statistics of an empty table or current ones."""
    server = pytest.importorskip("tests.support.postgres_server")
    from wakeful.store.postgres import PostgresStore

    store = PostgresStore(server.fresh_database(), clock=FalseClock())
    await store.open()
    async with store._pool._acquire() as db:
        for table in ("runs", "live_runs"):
            await db.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
        await db.execute("VACUUM ANALYZE")
        await db.execute(_GREAT, timeout=120)
        if request.param == "of now":
            await db.execute("VACUUM ANALYZE")
    yield store
    await store.close()


async def test_postgres_reads_and_locks_only_what_it_takes(big_postgres: Store) -> None:
    from wakeful.store.postgres import PostgresStore

    assert isinstance(big_postgres, PostgresStore)
    await _reads_few_runs(big_postgres)
    await _locks_what_it_takes(big_postgres)


async def _reads_few_runs(store: PostgresStore) -> None:
    from wakeful.store.postgres import statements

    names, versions = list(MINE), list(MINE.values())
    async with store._pool._acquire() as db:
        pick = [NOW, ["cron", "main"], [20, 30], names, versions]
        assert len(await db.fetch(statements.PICK, *pick)) == 20
        rows, scanned = await visited(db, statements.PICK, *pick)
        assert (rows < 2_000, scanned) == (True, []), rows
        rows, scanned = await visited(db, running.NEXT_DUE, NOW - RUNS, ["cron", "main"], names, versions)
        assert (rows < 2_000, scanned) == (True, []), rows


async def _locks_what_it_takes(store: PostgresStore) -> None:
    from wakeful.store.postgres import statements

    names, versions = list(MINE), list(MINE.values())
    pool = store._pool
    async with pool._acquire() as first, first.transaction():
        picked = {row[0] for row in await first.fetch(statements.PICK, NOW, ["cron"], [20], names, versions)}
        async with pool._acquire() as second, second.transaction():
            others = await second.fetch(statements.PICK, NOW, ["cron"], [200], names, versions)
            assert len(others) == RUNS // 1000 - len(picked), "the rest is free, and the locked are skipped"
            assert not picked & {row[0] for row in others}
