"""Migrations: numbered, forward only, each applied once; a newer schema is rejected."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from pathlib import Path

import pytest

from tests.support.databases import Database, SqliteDatabase
from tests.support.factories import DAY, NOW, alone, ended, given_held, job, look, look_at_job, ticks_of
from wakeful.errors import IncompatibleSchema
from wakeful.store.accounts import AgentRow
from wakeful.store.migrations import Migration, load, pending
from wakeful.store.sqlite import SqliteStore
from wakeful.store.sqlite.schema import migrate

NEXT = len(load("sqlite")) + 1
NEXT_STEP = Migration(
    NEXT,
    "colours",
    """
    -- A comment; with a semicolon.
    ALTER TABLE jobs ADD COLUMN colour TEXT NOT NULL DEFAULT 'blue; or green';
    CREATE TABLE palette (colour TEXT);
    CREATE TRIGGER painted AFTER INSERT ON palette BEGIN
        UPDATE jobs SET colour = new.colour;
        DELETE FROM palette;
    END;
    INSERT INTO palette VALUES ('red')""",
)
FAULTY_STEP = Migration(NEXT + 1, "faulty", "CREATE TABLE half (n INTEGER); INSERT INTO nowhere VALUES (1);")


async def test_data_is_kept_when_the_database_is_opened_again(database: Database) -> None:
    row, run = await given_held(await database.connect())
    again = await database.connect()
    assert await look_at_job(again, row) == row
    assert await look(again, run) == run


async def test_many_stores_can_open_an_empty_database_concurrently(database: Database) -> None:
    await database.remove_schema()
    stores = await asyncio.gather(*(database.connect() for _ in range(5)))
    await stores[0].create_jobs([job()])
    assert await stores[4].job("default", "default", "digest") is not None


async def test_a_newer_schema_is_rejected_with_a_clear_error(database: Database) -> None:
    await database.connect()
    await database.execute("UPDATE schema_version SET version = 999 WHERE version = 1")
    with pytest.raises(IncompatibleSchema, match=r"schema 999, .* supports schemas up to \d+: upgrade"):
        await database.connect()


async def test_a_newer_schema_that_is_compatible_is_used(database: Database) -> None:
    await database.connect()
    await database.execute(
        "INSERT INTO schema_version (version, name, applied_at, breaking) "
        f"SELECT {NEXT}, 'colours', applied_at, false FROM schema_version WHERE version = 1"
    )
    store = await database.connect()
    assert (await store.beat("w1", NOW, [])).incompatible is None
    await store.check_schema()


async def test_a_heartbeat_reports_a_breaking_migration_of_a_newer_version(database: Database) -> None:
    store = await database.connect()
    assert (await store.beat("w1", NOW, [])).incompatible is None
    await database.execute(
        "INSERT INTO schema_version (version, name, applied_at) "
        f"SELECT {NEXT}, 'colours', applied_at FROM schema_version WHERE version = 1"
    )
    error = (await store.beat("w1", NOW, [])).incompatible
    assert error is not None
    assert f"schema {NEXT}, " in error.message
    with pytest.raises(IncompatibleSchema, match=f"schema {NEXT}, "):
        await store.check_schema()


def test_a_migration_is_breaking_unless_its_first_line_marks_it_compatible() -> None:
    assert Migration(10, "colours", "ALTER TABLE jobs ...; -- compatible: no").breaking
    assert not Migration(10, "colours", "-- compatible: adds a column.\nALTER TABLE ...").breaking
    assert [step.number for step in load("sqlite") if not step.breaking] == [
        10,
        14,
        15,
        16,
        17,
        18,
        19,
        20,
        21,
    ]


def test_a_compatible_migration_is_recorded_as_such(tmp_path: Path) -> None:
    db = _connect(tmp_path / "new.db")
    added = NEXT_STEP._replace(sql=f"-- compatible: adds a column.\n{NEXT_STEP.sql}")
    migrate(db, [*load("sqlite"), added], NOW)
    found = db.execute("SELECT version FROM schema_version WHERE NOT breaking").fetchall()
    assert found == [(10,), (14,), (15,), (16,), (17,), (18,), (19,), (20,), (21,), (NEXT,)]
    db.close()


def test_migrations_are_numbered_without_gaps() -> None:
    steps = load("sqlite")
    assert [step.number for step in steps] == list(range(1, len(steps) + 1))
    assert pending(steps, 0) == steps
    assert pending(steps, len(steps)) == []


def test_the_migrations_folder_contains_only_sql_files() -> None:
    import wakeful.store.migrations as migrations

    folder = Path(migrations.__file__).parent / "sqlite"
    assert {path.suffix for path in folder.iterdir()} == {".sql"}


_OLD_JOBS = (  # workspace, agent, day of creation, deleted
    ("acme", "scribe", 2, False),
    ("acme", "scribe", 1, False),
    ("acme", "clerk", 3, False),
    ("default", "default", 4, False),
    ("gone", "gone", 5, True),
)


def _old_job(number: int, database: Database) -> str:
    """Return the statement that inserts one of these into a database of schema 1."""
    workspace, agent, day, deleted = _OLD_JOBS[number]
    lite = isinstance(database, SqliteDatabase)
    at = str(day * DAY) if lite else f"to_timestamp({day * DAY // 1000})"
    job_id = f"'00000000-0000-7000-8000-00000000000{number}'"
    made = f"""
        INSERT INTO jobs (id, workspace, agent, name, policy, work, description, labels, enabled, anchor_at,
            failures, version, created_at, updated_at, deleted_at{", run_count" * lite})
        VALUES ({job_id}, '{workspace}', '{agent}', 'job-{number}', '{{}}', '{{}}', '', '{{}}', true, {at},
            0, 1, {at}, {at}, {at if deleted else "NULL"}{", 7" * lite})"""
    return made if lite else f"{made}; INSERT INTO cursors (job_id, run_count) VALUES ({job_id}, 7)"


async def test_workspaces_and_agents_are_created_for_the_jobs_of_an_old_database(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "sqlite" if isinstance(database, SqliteDatabase) else "postgres"
    await database.remove_schema()
    with monkeypatch.context() as before:
        before.setattr(f"wakeful.store.{module}.connection.load", lambda name: load(name)[:1])
        await database.connect()
    for number in range(len(_OLD_JOBS)):
        await database.execute(_old_job(number, database))
    store = await database.connect()
    assert [(row.name, row.created_ms) for row in await store.workspaces()] == [
        ("acme", DAY),
        ("default", 4 * DAY),
    ]
    assert await store.agents("acme") == [
        AgentRow("acme", name, None, None, True, None, None, "", 1, day * DAY, day * DAY)
        for name, day in (("clerk", 3), ("scribe", 1))
    ]
    assert [row.name for row in await store.agents("default")] == ["default"]
    assert await store.agents("gone") == []
    kept = await store.job("acme", "scribe", "job-1")
    assert kept is not None
    assert (kept.run_count, kept.created_ms) == (7, DAY)


_LIVE = "00000000-0000-7000-8000-00000000000{}"


async def test_the_migration_counts_the_failed_attempts_of_live_runs(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    lite = isinstance(database, SqliteDatabase)
    module = "sqlite" if lite else "postgres"
    await database.remove_schema()
    with monkeypatch.context() as before:
        before.setattr(f"wakeful.store.{module}.connection.load", lambda name: load(name)[:7])
        await database.connect()
    at = "0" if lite else "to_timestamp(0)"
    for number, (state, attempt) in enumerate([("running", 3), ("retrying", 2), ("failed", 3)]):
        run = f"'{_LIVE.format(number)}'"
        await database.execute(f"""
            INSERT INTO runs (id, workspace, agent, scheduled_at, fire_at, trigger, state, covers, attempt,
                lane, serial, idempotency_key, created_at)
            VALUES ({run}, 'default', 'default', {at}, {at}, 'user', '{state}', 1, {attempt}, 'cron', false,
                'key', {at})""")
        if not lite and state != "failed":
            await database.execute(f"""
                INSERT INTO live (run_id, state, lane, serial, tick, scheduled_at)
                VALUES ({run}, '{state}', 'cron', false, false, {at})""")
        for error, tried in (("refused", 1), ("released", 2)):
            await database.execute(f"""
                INSERT INTO attempts (run_id, attempt, error) VALUES ({run}, {tried}, '{error}')""")
    store = await database.connect()
    runs = [await store.run(_LIVE.format(number)) for number in range(3)]
    assert [(run.attempt, run.failed_attempts) for run in runs if run is not None] == [(3, 1), (2, 1), (3, 0)]


@pytest.fixture
async def old(tmp_path: Path) -> Path:
    """Return a database of the current schema with data in it."""
    path = tmp_path / "old.db"
    store = SqliteStore(path)
    await store.open()
    row, run = await given_held(store)
    await store.finish("w1", [ended(run, "retrying", due_ms=NOW)], alone)
    await store.close()
    copy = tmp_path / "copy.db"
    shutil.copy(path, copy)
    assert row.name == "digest"
    return copy


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None)


def _versions(db: sqlite3.Connection) -> list[tuple[int, str, int]]:
    return db.execute("SELECT version, name, applied_at FROM schema_version ORDER BY version").fetchall()


def test_every_migration_is_applied_to_an_empty_database(tmp_path: Path) -> None:
    db = _connect(tmp_path / "new.db")
    migrate(db, [*load("sqlite"), NEXT_STEP], NOW)
    known = [(step.number, step.name, NOW) for step in load("sqlite")]
    assert _versions(db) == [*known, (NEXT, "colours", NOW)]
    assert db.execute("SELECT colour FROM jobs").fetchall() == []
    db.close()


async def test_the_next_migration_keeps_the_data_of_the_database(old: Path) -> None:
    db = _connect(old)
    migrate(db, [*load("sqlite"), NEXT_STEP], NOW + 5)
    assert _versions(db)[NEXT - 1 :] == [(NEXT, "colours", NOW + 5)]
    assert db.execute("SELECT name, colour FROM jobs").fetchall() == [("digest", "red")]
    db.execute(f"DELETE FROM schema_version WHERE version = {NEXT}")  # the code under test does not know it
    db.close()
    store = SqliteStore(old)
    await store.open()
    row = await store.job("default", "default", "digest")
    assert row is not None
    (run,) = await ticks_of(store, row)
    assert (run.state, len(await store.attempts(run.id))) == ("retrying", 1)
    await store.close()


def test_a_migration_is_applied_once(old: Path) -> None:
    db = _connect(old)
    steps = [*load("sqlite"), NEXT_STEP]
    migrate(db, steps, NOW)
    migrate(db, steps, NOW + 1)
    assert _versions(db)[NEXT - 1 :] == [(NEXT, "colours", NOW)]
    db.close()


def test_a_failed_migration_is_rolled_back(old: Path) -> None:
    db = _connect(old)
    before = _versions(db), db.execute("SELECT sql FROM sqlite_master").fetchall()
    with pytest.raises(sqlite3.OperationalError, match="nowhere"):
        migrate(db, [*load("sqlite"), NEXT_STEP, FAULTY_STEP], NOW)
    assert (_versions(db), db.execute("SELECT sql FROM sqlite_master").fetchall()) == before
    db.close()


def test_a_gap_in_the_migrations_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "sqlite"
    folder.mkdir()
    for name in ("0001_begin.sql", "0003_later.sql", "notes.txt"):
        (folder / name).write_text("")
    monkeypatch.setattr("wakeful.store.migrations.files", lambda package: tmp_path)
    with pytest.raises(RuntimeError, match=r"\[1, 3\]"):
        load("sqlite")
