"""Fills a database with jobs and runs by plain SQL: 100,000 jobs and 1,000,000 runs in a minute or two.

Some jobs are created by the application. The others are copies of their rows with other names, owners and
states. Indexes are dropped before the rows are added and created again, which is several times faster.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, Protocol

from wakeful import Wakeful
from wakeful.service.auth.access import LOCAL
from wakeful.store.connect import sqlite_path
from wakeful.store.sql.run_counts import PERIOD_DAYS

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
AGENTS: Final = 50
#: distinct timings
TIMINGS: Final = 1_000
DAYS: Final = 10
WORDS: Final = (
    "nightly-report",
    "price-watch",
    "inbox-triage",
    "backup",
    "digest",
    "health-check",
    "sync-crm",
)


class Size(NamedTuple):
    """How much is added."""

    jobs: int
    runs: int

    @property
    def templates(self) -> int:
        """How many jobs the application creates."""
        return min(TIMINGS, self.jobs)


class Sql(Protocol):
    """Executes statements of both databases."""

    def execute(self, statement: str) -> Any:
        """Execute a statement."""
        ...


def documents(size: Size) -> Iterator[tuple[str, list[dict[str, object]]]]:
    """Yield the documents of the jobs that the application creates, by agent."""
    for agent in range(AGENTS):
        found: list[dict[str, object]] = []
        for number in range(agent, size.templates, AGENTS):
            word = WORDS[number % len(WORDS)]
            found.append(
                {
                    "name": f"{word}-{number:04}",
                    "schedule": _schedule(number),
                    "tz": ("UTC", "Europe/Berlin", "America/New_York", "Asia/Tokyo")[number % 4],
                    "target": _target(number),
                    "payload": {"message": f"work {number}"},
                    "description": f"Sample job {number} of the benchmark",
                    "labels": {"team": f"team-{number % 12}", "env": ("prod", "staging")[number % 2]},
                }
            )
        yield f"agent-{agent:02}", found


def _schedule(number: int) -> str:
    if number % 5 == 0:
        return f"every {10 + number}m"
    minute, hour = number * 7 % 60, number // 60 % 24
    return f"{minute} {hour} * * {('*', '1-5', '*', 'MON')[number % 4]}"


def _target(number: int) -> dict[str, object]:
    if number % 10 == 0:
        return {"kind": "pull"}
    return {"kind": "webhook", "url": f"https://example.com/hooks/{number}"}


async def fill(url: str, size: Size) -> None:
    """Fill an empty database."""
    async with Wakeful(url, secret_key="benchmark") as app:
        for agent, jobs in documents(size):
            if jobs:
                await app.services.jobs.create_many(LOCAL, "default", agent, jobs)
        now_ms = app.services.now_ms()
    path = sqlite_path(url)
    if path is None:
        await _fill_postgres(url, size, now_ms)
    else:
        _fill_sqlite(str(path), size, now_ms)


def _id(ms: str, number: str, hexadecimal: str) -> str:
    """Return an expression for an id, from expressions for its time and number."""
    return hexadecimal.format(ms=ms, number=number)


def _statements(size: Size, now_ms: int, kind: str, columns: list[str], cursors: list[str]) -> Iterator[str]:
    """Yield the statements. `columns` are those of jobs that are copied; `cursors` of the table cursors."""
    sqlite = kind == "sqlite"
    identity = (
        "printf('%08x-%04x-7000-8000-%012x', ({ms}) >> 16, ({ms}) & 65535, {number})"
        if sqlite
        else "(lpad(to_hex(({ms})::bigint >> 16), 8, '0') || '-' "
        "|| lpad(to_hex(({ms})::bigint & 65535), 4, '0') "
        "|| '-7000-8000-' || lpad(to_hex(({number})::bigint), 12, '0'))::uuid"
    )

    def at(expression: str) -> str:
        return expression if sqlite else f"to_timestamp(({expression}) / 1000.0)"

    def series(name: str, rows: int) -> str:
        if sqlite:
            return (
                f"(WITH RECURSIVE c(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM c LIMIT {rows}) "
                f"SELECT i FROM c) {name}"
            )
        return f"generate_series(0, {rows - 1}) {name}(i)"

    def padded(expression: str) -> str:
        return f"printf('%03d', {expression})" if sqlite else f"lpad(({expression})::text, 3, '0')"

    true, false = ("1", "0") if sqlite else ("true", "false")
    copies = size.jobs // size.templates
    yield (
        "CREATE TABLE bench_templates AS "
        "SELECT id AS template, row_number() OVER (ORDER BY agent, name) - 1 AS n FROM jobs"
    )
    # One row a job: its number and its id.
    number = f"t.n + s.i * {size.templates}"
    job_id = _id(f"{now_ms - 90 * DAY_MS} + {number}", number, identity)
    yield (
        f"CREATE TABLE bench_jobs AS SELECT t.template, {number} AS n, s.i AS copy, "
        f"CASE WHEN s.i = 0 THEN t.template ELSE {job_id} END AS id "
        f"FROM bench_templates t CROSS JOIN {series('s', copies)}"
    )
    changed = {
        "id": "b.id",
        "name": f"CASE WHEN b.copy = 0 THEN j.name ELSE j.name || '-' || {padded('b.copy')} END",
    }
    values = ", ".join(changed.get(column, f"j.{column}") for column in columns)
    yield (
        f"INSERT INTO jobs ({', '.join(columns)}) SELECT {values} FROM bench_jobs b "
        "JOIN jobs j ON j.id = b.template WHERE b.copy > 0"
    )
    if cursors:
        values = ", ".join("b.id" if column == "job_id" else f"c.{column}" for column in cursors)
        yield (
            f"INSERT INTO cursors ({', '.join(cursors)}) SELECT {values} FROM bench_jobs b "
            "JOIN cursors c ON c.job_id = b.template WHERE b.copy > 0"
        )
    yield "CREATE UNIQUE INDEX bench_jobs_id ON bench_jobs (id)"
    yield "CREATE UNIQUE INDEX bench_jobs_n ON bench_jobs (n)"

    def of(condition: str) -> str:
        return f"(SELECT b.id FROM bench_jobs b WHERE {condition})"

    # 2 % fail, 5 % are paused, and agents made 30 %. The first tick is after the measurement.
    wake = f"{now_ms + HOUR_MS // 2} + b.n * {DAY_MS // size.jobs}"
    table, key = ("jobs", "id") if sqlite else ("cursors", "job_id")
    ticks = at(f"(SELECT {wake} FROM bench_jobs b WHERE b.id = {table}.{key})")
    yield f"UPDATE {table} SET next_at = {ticks}, wake_at = {ticks}"
    yield f"UPDATE jobs SET failures = 3 WHERE id IN {of('b.n % 50 = 0')}"
    yield f"UPDATE jobs SET created_by = 'agent:key:bench' WHERE id IN {of('b.n % 10 < 3')}"
    yield f"UPDATE jobs SET enabled = {false}, disabled_reason = 'paused' WHERE id IN {of('b.n % 20 = 7')}"
    yield f"UPDATE {table} SET next_at = NULL, wake_at = NULL WHERE {key} IN {of('b.n % 20 = 7')}"

    ended = f"{now_ms - DAYS * DAY_MS} + r.i * {DAYS * DAY_MS // size.runs}"
    failed = f"b.n % 50 = 0 AND r.i / {size.jobs} % 2 = 0"
    state = (
        f"CASE WHEN {failed} THEN 'failed' WHEN r.i % 97 = 0 THEN 'skipped' WHEN r.i % 499 = 0 THEN 'missed' "
        "WHEN r.i % 997 = 0 THEN 'cancelled' ELSE 'succeeded' END"
    )
    started = f"{ended} - 1500 - r.i % 5000"
    run_id = _id(started, "r.i + 4096", identity)
    columns_of_runs = (
        "id, job_id, workspace, agent, job_name, scheduled_at, fire_at, trigger, state, reason, covers, "
        "attempt, worker, lane, serial, started_at, finished_at, idempotency_key, created_at, output, error, "
        "usage, dead"
    )
    yield f"""
        INSERT INTO runs ({columns_of_runs})
        SELECT id, job_id, 'default', agent, name, {at("started")}, {at("started - i % 40")},
            CASE WHEN i % 200 = 0 THEN 'user' ELSE 'schedule' END, state,
            CASE state WHEN 'succeeded' THEN NULL WHEN 'failed' THEN 'timeout' ELSE 'overlap' END, 1, 1,
            'host:1:bench', 'cron', {true},
            CASE WHEN state IN ('succeeded', 'failed') THEN {at("started")} END,
            {at("ended")}, 'key-' || i, {at("started")},
            CASE WHEN state = 'succeeded' THEN 'done: 42 rows, nothing unusual' END,
            CASE WHEN state = 'failed' THEN 'timed out after 30 s' END,
            CASE WHEN state = 'succeeded' AND i % 10 = 0 THEN '{{"tokens":1200,"cost":0.01}}' END,
            state = 'failed' AND i > {size.runs * 7 // 10}
        FROM (
            SELECT {run_id} AS id, b.id AS job_id, j.agent, j.name, {ended} AS ended, {started} AS started,
                {state} AS state, r.i
            FROM {series("r", size.runs)} JOIN bench_jobs b ON b.n = r.i % {size.jobs}
            JOIN jobs j ON j.id = b.id) x"""

    epoch = "finished_at / {}" if sqlite else "floor(extract(epoch FROM finished_at) * 1000 / {})::integer"
    took = (
        "coalesce(finished_at - started_at, 0)"
        if sqlite
        else "coalesce(extract(epoch FROM finished_at - started_at) * 1000, 0)::bigint"
    )
    yield "DELETE FROM run_counts"
    yield "DELETE FROM job_run_periods"
    yield f"""
        INSERT INTO run_counts SELECT workspace, {epoch.format(HOUR_MS)}, agent, state, sum(covers) FROM runs
        GROUP BY 1, 2, 3, 4"""
    yield f"""
        INSERT INTO job_run_periods
        SELECT job_id, day / {PERIOD_DAYS}, {"group_concat" if sqlite else "string_agg"}(
            ' ' || (day % {PERIOD_DAYS}) || CASE state WHEN 'skipped' THEN 'k' ELSE substr(state, 1, 1) END
            || runs || ',' || took, '')
        FROM (
            SELECT job_id, {epoch.format(DAY_MS)} AS day, state, sum(covers) AS runs, sum({took}) AS took
            FROM runs GROUP BY 1, 2, 3) d
        GROUP BY 1, 2"""
    today = now_ms // DAY_MS
    job_text = "b.id" if sqlite else "b.id::text"
    yield f"""
        INSERT INTO spending SELECT 'default', j.agent, {job_text}, {today} - s.i, 12000, 0.25
        FROM bench_jobs b JOIN jobs j ON j.id = b.id CROSS JOIN {series("s", DAYS)} WHERE b.n % 10 = 1"""
    yield """
        INSERT INTO spending SELECT workspace, agent, '', day, sum(tokens), sum(cost) FROM spending
        WHERE job <> '' GROUP BY 1, 2, 4"""
    yield """
        INSERT INTO spending SELECT workspace, '', '', day, sum(tokens), sum(cost) FROM spending
        WHERE job <> '' GROUP BY 1, 4"""
    incident = _id(f"{now_ms - DAY_MS} + b.n", "b.n", identity)
    yield f"""
        INSERT INTO job_incidents (id, workspace, agent, job_id, job_name, cause, error, opened_at, failed_at,
            failed_runs, in_a_row, first_run_id, last_run_id, reopened, notified)
        SELECT {incident}, 'default', j.agent, j.id, j.name, 'timeout', 'timed out after 30 s',
            {at(str(now_ms - DAY_MS))}, {at(str(now_ms - HOUR_MS))}, 5, 3, j.id, j.id, 0, {false}
        FROM bench_jobs b JOIN jobs j ON j.id = b.id WHERE b.n % 50 = 0"""
    yield f"""
        INSERT INTO audit (workspace, seq, at, actor, action, subject, details, before, hash)
        SELECT 'default', 1000000 + s.i, {at(f"{now_ms - DAY_MS} + s.i")}, 'key:bench', 'job.update',
            'agent-01/backup', '{{}}', '', 'hash' FROM {series("s", size.jobs // 2)}"""
    yield "UPDATE audit_heads SET seq = (SELECT max(seq) FROM audit) WHERE workspace = 'default'"
    yield "DROP TABLE bench_jobs"
    yield "DROP TABLE bench_templates"


#: Indexes that the statements need.
_NEEDED: Final = ("jobs_name",)


def _fill_sqlite(path: str, size: Size, now_ms: int) -> None:
    db = sqlite3.connect(path, isolation_level=None)
    for pragma in ("synchronous = OFF", "cache_size = -262144", "temp_store = MEMORY"):
        db.execute(f"PRAGMA {pragma}")
    found = db.execute(
        "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL "
        "AND tbl_name IN ('runs', 'job_run_periods', 'spending', 'jobs')"
    ).fetchall()
    columns = [row[1] for row in db.execute("PRAGMA table_info(jobs)")]
    db.execute("BEGIN")
    for name, _ in found:
        db.execute(f'DROP INDEX "{name}"')
    for statement in _statements(size, now_ms, "sqlite", columns, []):
        db.execute(statement)
    for _, statement in found:
        db.execute(statement)
    db.execute("COMMIT")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()


async def _fill_postgres(url: str, size: Size, now_ms: int) -> None:
    import asyncpg

    db = await asyncpg.connect(url, command_timeout=3_600)
    try:
        await db.execute("SET search_path TO wakeful; SET synchronous_commit TO off; SET work_mem TO '256MB'")
        await db.execute("SET maintenance_work_mem TO '512MB'")
        found = await db.fetch(
            "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'wakeful' "
            "AND tablename IN ('runs', 'job_run_periods', 'spending') AND indexname NOT LIKE '%_pkey'"
        )
        columns, cursors = [
            [
                row[0]
                for row in await db.fetch(
                    "SELECT column_name FROM information_schema.columns WHERE table_schema = 'wakeful' "
                    "AND table_name = $1 AND is_generated = 'NEVER' ORDER BY ordinal_position",
                    table,
                )
            ]
            for table in ("jobs", "cursors")
        ]
        for name, _ in found:
            await db.execute(f'DROP INDEX "{name}"')
        for statement in _statements(size, now_ms, "postgresql", columns, cursors):
            await db.execute(re.sub(r"\s+", " ", statement))
        for _, statement in found:
            await db.execute(statement)
        await db.execute("VACUUM ANALYZE")
    finally:
        await db.close()
