"""Adds past runs by plain SQL: a million in a few seconds. Indexes are created again afterwards."""

from __future__ import annotations

import sqlite3
from typing import Final

from wakeful.store.connect import sqlite_path

HOUR_MS: Final = 3_600_000
_INDEXES: Final = {
    "sqlite": "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL "
    "AND tbl_name = 'runs'",
    "postgres": "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'wakeful' "
    "AND tablename = 'runs' AND indexname NOT LIKE '%_pkey'",
}
#: One run in fifty failed. `x` has the number of the run, its tick and its job.
_INSERT: Final = """
    INSERT INTO runs (id, job_id, workspace, agent, job_name, scheduled_at, fire_at, trigger, state, reason,
        covers, attempt, worker, lane, serial, started_at, finished_at, idempotency_key, created_at, error)
    SELECT {id}, x.job_id, 'default', 'default', x.name, {at}, {at}, 'schedule',
        CASE WHEN x.i % 50 = 0 THEN 'failed' ELSE 'succeeded' END, NULL, 1, 1, 'floor', 'cron', {true},
        {at}, {at}, 'key-' || x.i, {at}, CASE WHEN x.i % 50 = 0 THEN 'timed out after 30 s' END
    FROM (
        SELECT s.i, {last_ms} - ({runs} - 1 - s.i) / {jobs} * {hour} AS ms, j.id AS job_id, j.name
        FROM {series} JOIN bench_jobs j ON j.n = s.i % {jobs}) x"""
_JOBS: Final = (
    "CREATE TABLE bench_jobs AS SELECT row_number() OVER (ORDER BY id) - 1 AS n, id, name FROM jobs"
)
_KEY: Final = "CREATE UNIQUE INDEX bench_jobs_n ON bench_jobs (n)"
_SQLITE: Final = {
    "id": "printf('%08x-%04x-7000-8000-%012x', x.ms >> 16, x.ms & 65535, x.i)",
    "at": "x.ms",
    "true": "1",
    "series": "(WITH RECURSIVE c(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM c LIMIT {runs}) "
    "SELECT i FROM c) s",
}
_POSTGRES: Final = {
    "id": "(lpad(to_hex(x.ms >> 16), 8, '0') || '-' || lpad(to_hex(x.ms & 65535), 4, '0') "
    "|| '-7000-8000-' || lpad(to_hex(x.i), 12, '0'))::uuid",
    "at": "to_timestamp(x.ms / 1000.0)",
    "true": "true",
    "series": "generate_series(0::bigint, {runs} - 1) s(i)",
}


async def add_past_runs(url: str, runs: int, jobs: int, last_ms: int) -> None:
    """Add so many finished runs to the jobs of a database, in turn; each ran once an hour until `last_ms`."""
    path = sqlite_path(url)
    words = _SQLITE if path is not None else _POSTGRES
    series = words["series"].format(runs=runs)
    insert = _INSERT.format(
        **(words | {"series": series}), runs=runs, jobs=jobs, last_ms=last_ms, hour=HOUR_MS
    )
    if path is None:
        await _add_to_postgres(url, insert)
    else:
        _add_to_sqlite(str(path), insert)


def _add_to_sqlite(path: str, insert: str) -> None:
    db = sqlite3.connect(path, isolation_level=None)
    for pragma in ("synchronous = OFF", "cache_size = -262144", "temp_store = MEMORY"):
        db.execute(f"PRAGMA {pragma}")
    indexes = db.execute(_INDEXES["sqlite"]).fetchall()
    drops = [f'DROP INDEX "{name}"' for name, _ in indexes]
    creates = [statement for _, statement in indexes]
    for statement in ("BEGIN", _JOBS, _KEY, *drops, insert, "DROP TABLE bench_jobs", *creates, "COMMIT"):
        db.execute(statement)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()


async def _add_to_postgres(url: str, insert: str) -> None:
    import asyncpg

    db = await asyncpg.connect(url, command_timeout=3_600)
    try:
        await db.execute("SET search_path TO wakeful; SET synchronous_commit TO off")
        await db.execute("SET maintenance_work_mem TO '512MB'")
        indexes = await db.fetch(_INDEXES["postgres"])
        drops = [f'DROP INDEX "{name}"' for name, _ in indexes]
        creates = [statement for _, statement in indexes]
        for statement in (_JOBS, _KEY, *drops, insert, "DROP TABLE bench_jobs", *creates, "VACUUM ANALYZE"):
            await db.execute(statement)
    finally:
        await db.close()
