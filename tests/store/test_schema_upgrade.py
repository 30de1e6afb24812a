"""A database written by the code of schema 8: the migration loses nothing, and its jobs fire.

`fixtures/schema_8_*.sql` holds rows that the stores of that version wrote.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.support.databases import Database, SqliteDatabase
from tests.support.earlier_schemas import Rows, at_schema, tables_of
from tests.support.factories import DAY, MINUTE, NOW, alone, asleep, ended, look, plan_of, tick
from tests.support.pull_runs import claim_pairs
from wakeful.store.idempotency import AlreadyPerformed, InProgress, Keyed
from wakeful.store.port import Store
from wakeful.store.rows import Renewal, RunFilter

RENAMED = {
    "answers": "idempotency_keys",
    "holds": "budget_blocks",
    "alerted": "alert_cooldowns",
    "live": "live_runs",
}
#: Columns that migrations fill, or whose encoding they replace (`test_encodings_become_columns`), by table.
REPLACED = {
    "runs": {"lane", "worker", "until_at"},
    "live_runs": {"lane", "worker", "workspace", "agent"},
    "attempts": {"worker"},
    "idempotency_keys": {"status"},
}
DAY_NUMBER = NOW // 86_400_000


async def at_schema_8(database: Database) -> dict[str, Rows]:
    """Bring the database to schema 8 with the rows of the fixture. Returns every table as it is then."""
    return await at_schema(database, 8)


def named(tables: Mapping[str, Rows]) -> dict[str, Rows]:
    """Return the tables of schema 8 under their current names."""
    return {
        RENAMED.get(name, name): rows
        for name, rows in tables.items()
        if name not in ("schema_version", "sqlite_sequence")
    }


async def test_the_migration_keeps_every_row(database: Database) -> None:
    before = named(await at_schema_8(database))
    await database.connect()
    after = await tables_of(database)
    assert all(before[name] for name in RENAMED.values() if name in before), "the fixture fills each of them"
    assert all(before[name] for name in ("jobs", "runs", "attempts", "sessions", "messages", "turns"))
    assert not RENAMED.keys() & after.keys()
    for name, rows in before.items():
        shared = (rows[0].keys() & after[name][0].keys()) - REPLACED.get(name, set()) if rows else set()
        assert _sorted(rows, shared) == _sorted(after[name], shared), name


def _sorted(rows: Rows, columns: set[str]) -> list[str]:
    return sorted(repr([row[column] for column in sorted(columns)]) for row in rows)


async def test_encodings_become_columns(database: Database) -> None:
    await at_schema_8(database)
    store = await database.connect()
    runs = await store.runs(RunFilter("default", limit=100))
    seen = {
        (run.job_name, run.state, run.reason): (
            run.lane, run.worker, run.is_pull, run.awaiting_callback, run.claim_deadline_ms, run.until_ms,
        )
        for run in runs
    }  # fmt: skip
    hour = 3_600_000
    missed_until = NOW - DAY + hour
    assert seen == {
        ("digest", "running", None): ("cron", "w1", False, False, None, None),
        ("hook", "running", None): ("cron", None, False, True, None, None),
        ("hook", "succeeded", None): ("cron", None, False, False, None, None),
        ("hook", "retrying", "lost"): ("cron", None, False, False, None, None),
        ("pull", "running", None): ("cron", "gpu", True, False, NOW + hour, None),
        ("pull", "retrying", None): ("cron", None, True, False, NOW + MINUTE + hour, None),
        ("pull", "succeeded", None): ("cron", "gpu", True, False, NOW + hour, None),
        ("pull", "missed", "downtime"): ("cron", None, True, False, None, missed_until),
        ("next-pull", "pending", None): ("cron", None, True, False, NOW + hour, None),
        ("lost", "failed", "expired"): ("cron", None, True, False, NOW - hour, None),
        (None, "pending", None): ("main", None, True, False, NOW + 1_000 + hour, None),
        ("flaky", "failed", None): ("cron", "w1", False, False, None, None),
        ("flaky", "retrying", None): ("cron", None, False, False, None, None),
        ("quiet", "pending", None): ("cron", None, False, False, None, None),
        ("quiet", "succeeded", None): ("cron", "w1", False, False, None, None),
        ("quiet", "missed", "downtime"): ("cron", None, False, False, None, missed_until),
    }
    attempts = [each for run in runs for each in await store.attempts(run.id)]
    assert sorted((str(each.error), each.worker) for each in attempts) == [
        ("503", "w1"), ("503", "w1"), ("no callback", None), ("out of memory", "gpu"),
    ]  # fmt: skip


async def test_a_run_awaiting_its_callback_can_be_completed(database: Database) -> None:
    await at_schema_8(database)
    store = await database.connect()
    (run,) = [run for run in await store.runs(RunFilter("default", limit=100)) if run.awaiting_callback]
    assert await store.complete_run(ended(run, output="called back"), alone)
    assert (await look(store, run)).state == "succeeded"


async def test_a_run_held_by_an_executor_has_its_full_claim_timeout_when_retried(database: Database) -> None:
    await at_schema_8(database)
    store = await database.connect()
    run_id, attempt = await _claimed_before(store)
    run = await look(store, run_id)
    assert run.attempt == attempt
    await store.finish("gpu", [ended(run, "retrying", due_ms=NOW + MINUTE)], alone)
    assert (await look(store, run)).claim_deadline_ms == NOW + MINUTE + 3_600_000


@pytest.mark.parametrize("table", ["idempotency_keys", "budget_blocks", "alert_cooldowns"])
async def test_a_renamed_table_keeps_its_unique_key(database: Database, table: str) -> None:
    await at_schema_8(database)
    await database.connect()
    with pytest.raises(Exception, match=r"(?i)unique"):
        await database.execute(f"INSERT INTO {table} SELECT * FROM {table} LIMIT 1")


async def test_indexes_are_named_after_their_tables(database: Database) -> None:
    await at_schema_8(database)
    await database.connect()
    if isinstance(database, SqliteDatabase):
        found = database.rows("SELECT name, tbl_name FROM sqlite_master WHERE type = 'index'")
        indexes = [(name, table) for name, table in found if not name.startswith("sqlite_autoindex")]
    else:
        indexes = await _postgres_indexes(database.url)  # type: ignore[attr-defined]
    assert [name for name, table in indexes if not name.startswith(table)] == []


async def _postgres_indexes(url: str) -> list[tuple[str, str]]:
    import asyncpg

    connection = await asyncpg.connect(url)
    rows = await connection.fetch("SELECT indexname, tablename FROM pg_indexes WHERE schemaname = 'wakeful'")
    await connection.close()
    return [(row[0], row[1]) for row in rows]


async def test_stored_responses_and_budget_blocks_are_kept(database: Database) -> None:
    await at_schema_8(database)
    store = await database.connect()
    again: Keyed[None] = Keyed("default", "key:1 create", "f1", lambda _: (500, ""))
    with pytest.raises(AlreadyPerformed) as performed:
        await store.create_jobs([asleep("another")], keyed=again)
    assert (performed.value.response.status, performed.value.response.body) == (201, '{"name":"keyed"}')
    with pytest.raises(InProgress):
        await store.create_jobs(
            [asleep("another")], keyed=replace(again, key="key:1 unfinished", fingerprint="f2")
        )
    assert [(block.cap, block.most) for block in await store.budget_blocks(DAY_NUMBER)] == [
        ("tokensPerDay", 5.0)
    ]


async def test_due_jobs_fire_and_waiting_runs_start(database: Database) -> None:
    await at_schema_8(database)
    store = await database.connect()
    planned = await store.plan(NOW, 100, lambda due: plan_of(due, tick(due, serial=False)))
    assert [run.job_name for run in planned.runs] == ["digest"]
    taken = await store.take(NOW, "w2", {"cron": 100}, {"": 0, "function:digest": 0})
    assert sorted(str(run.job_name) for run in taken) == ["digest", "quiet"]
    outcomes = [ended(run) for run in taken]
    assert await store.finish("w2", outcomes, alone) == {run.id for run in taken}
    assert [(await look(store, run)).state for run in taken] == ["succeeded"] * 2


async def test_executors_claim_waiting_runs_and_renew_held_ones(database: Database) -> None:
    await at_schema_8(database)
    store = await database.connect()
    claimed = await claim_pairs(store, NOW + 1_000, "gpu", "default", None, None, 100)
    assert sorted(str(run.job_name) for run, _ in claimed) == ["None", "next-pull"]
    held = await _claimed_before(store)
    renewed = await store.renew(NOW, "default", [Renewal(*held)])
    assert [run.id for run in renewed] == [held[0]]


async def _claimed_before(store: Store) -> tuple[str, int]:
    """Return the run that an executor had claimed before the migration, and its attempt."""
    found = [run for run in await store.runs(RunFilter("default")) if run.job_name == "pull"]
    (run,) = [run for run in found if run.state == "running"]
    return run.id, run.attempt
