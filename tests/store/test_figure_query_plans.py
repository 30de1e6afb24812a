"""With 20,000 jobs, 60,000 runs and their counts, no figure of the dashboard visits more rows than it needs.

Measured by the plans and counts of the databases, not by time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.factories import DAY, MINUTE, NOW, FalseClock, asleep, jobless, over
from tests.support.query_plans import visited
from wakeful.run.run import NewRun
from wakeful.store.port import Store
from wakeful.store.rows import JobRow
from wakeful.store.sql import figures, run_counts
from wakeful.store.sql.driver import Statement, Texts
from wakeful.store.sql.run_counts import DAY_MS, HOUR_MS, PERIOD_DAYS
from wakeful.store.sqlite import SqliteStore
from wakeful.store.sqlite.session import translate
from wakeful.values.ids import first_id, new_id

JOBS, RUNS, COUNTS = 20_000, 60_000, 50_000
LIMIT = 1_000
#: tables of which each statement may read a part only
BIG = {"jobs", "cursors", "runs", "live_runs", "run_counts", "job_run_counts", "job_run_periods", "changes"}
#: these read all runs that wait
ALL_WAITING = ("blocked",)


def _uuid(group: int, number: int) -> str:
    return f"0190000{group}-0000-7000-8000-{number:012x}"


def _job(number: int) -> JobRow:
    return asleep(
        f"job-{number}",
        id=_uuid(2, number),
        workspace=f"ws-{number % 10}",
        agent=f"agent-{number % 100}",
        failures=number % 500 == 0,
        next_ms=NOW + number * 100,
        wake_ms=NOW + number * 100,
    )


def _run(number: int) -> NewRun:
    """One in a hundred failed; a few wait."""
    at = NOW - (RUNS - number) * 1_000
    owner = {"workspace": f"ws-{number % 10}", "agent": f"agent-{number % 100}", "id": new_id(at)}
    if number % 1_000 == 1:
        return jobless(**owner, due_ms=NOW - DAY, claim_timeout_ms=MINUTE)
    if number % 1_000 == 2:
        return jobless(**owner, due_ms=NOW - DAY, requires="function:digest")
    run = over(jobless(**owner), "succeeded", at)
    return run if number % 100 else run._replace(state="failed", reason="timeout")


def _cases(run_ids: list[str]) -> Iterator[tuple[str, Statement, list[object], int]]:
    """Yield statements with arguments, and the most rows that each may visit."""
    hours, days = NOW // HOUR_MS, NOW // DAY_MS
    other: dict[str, list[object]] = {
        "blocks": [1],
        "unclaimed": [NOW],
        "blocked": [NOW, ["function:digest"]],
        "delays": [first_id(NOW - DAY)],
        "upcoming": [NOW + 60 * MINUTE, LIMIT],
    }
    for of_agent in (False, True):
        for name, text in figures.statements(of_agent=of_agent).items():
            given = ["ws-1", LIMIT, *other.get(name, []), *(["agent-1"] if of_agent else [])]
            # PostgreSQL may read the newest runs of all ten workspaces.
            most = (15 if name == "delays" else 5) * LIMIT
            yield f"{name} of {'an agent' if of_agent else 'a workspace'}", text, given, most
    yield "LIVE_WORKERS", figures.LIVE_WORKERS, [NOW], 10
    yield "POSITION", run_counts.POSITION, [], 5
    yield "LOCK_POSITION", run_counts.LOCK_POSITION, [], 5
    yield "ANY_RUN", run_counts.ANY_RUN, [], 5
    yield "BEGIN", run_counts.BEGIN, [1, NOW, None], 5
    yield "ADVANCE", run_counts.ADVANCE, [1, None, NOW], 5
    yield "NEW_CHANGES", run_counts.NEW_CHANGES, [COUNTS - 100, 200], 500
    yield "UNCOUNTED", run_counts.UNCOUNTED, [COUNTS - 100, 50], 500
    yield "OLDER_RUNS", run_counts.OLDER_RUNS, [first_id(NOW), 200], 500
    yield "HOURS", run_counts.HOURS, ["ws-1", hours - 10, hours], 500
    yield "HOURS_OF_AGENT", run_counts.HOURS_OF_AGENT, ["ws-1", hours - 10, hours, "agent-1"], 500
    yield "DAYS", run_counts.DAYS, [_uuid(2, 5), days - 30], 500
    job_ids = [_uuid(2, n) for n in range(500)]
    period = days // PERIOD_DAYS
    yield "ADD_HOURS", run_counts.ADD_HOURS, [run_ids, 0, NOW + DAY], 5 * len(run_ids)
    yield "ADD_DAYS", run_counts.ADD_DAYS, [run_ids, 0, NOW + DAY], 5 * len(run_ids)
    yield "LONG_PERIODS", run_counts.LONG_PERIODS, [run_ids, 5], 5 * len(run_ids)
    yield "PERIODS", run_counts.PERIODS, [job_ids, period, period], 5 * len(job_ids)
    written = [job_ids, [period] * len(job_ids), [" 3s1,512"] * len(job_ids)]
    yield "WRITE_PERIODS", run_counts.WRITE_PERIODS, written, 5 * len(job_ids)
    yield "RECENT_HOURS", run_counts.RECENT_HOURS, [run_ids, 0, "ws-1"], 5 * len(run_ids)
    yield "RECENT_DAYS", run_counts.RECENT_DAYS, [run_ids, 0, _uuid(2, 5)], 5 * len(run_ids)
    yield "PRUNE_HOURS", run_counts.PRUNE_HOURS, [hours - 4_000, 100], 1_000
    yield "PRUNE_DAYS", run_counts.PRUNE_DAYS, [days - 400, 100], 1_000
    yield "PRUNE_PERIODS", run_counts.PRUNE_PERIODS, [period - 20, 100], 1_000


def test_every_statement_has_a_case() -> None:
    named = {
        name
        for module in (figures, run_counts)
        for name, text in vars(module).items()
        if name.isupper() and name[0] != "_"
        if isinstance(text, Texts) or re.match(r"\s*(SELECT|INSERT|UPDATE|DELETE)\b", str(text))
    }
    named -= {
        *("RUN_CHANGES", "DEAD_LETTERS", "OPEN_INCIDENTS", "WORKERS"),
        *("LIVE_COUNTS", "LIVE_NEXT_TICK"),
    }  # in test_query_plans.py
    assert named <= {name for name, *_ in _cases([])}


async def _fill(store: Store) -> list[str]:
    """Add jobs and runs. Returns the ids of some runs."""
    for first in range(0, JOBS, 5_000):
        await store.create_jobs([_job(number) for number in range(first, first + 5_000)])
    runs = [_run(number) for number in range(RUNS)]
    for first in range(0, RUNS, 10_000):
        await store.add_runs(runs[first : first + 10_000])
    return [run.id for run in runs[-500:]]


def _counts() -> Iterator[tuple[str, list[tuple[object, ...]]]]:
    """Yield the statements that fill the tables of counts, with their rows."""
    hours, days = NOW // HOUR_MS, NOW // DAY_MS
    yield (
        "INSERT INTO run_counts (workspace, hour, agent, state, runs) VALUES ($1, $2, $3, $4, 5)",
        [(f"ws-{n % 10}", hours - n // 10, f"agent-{n % 10}", "succeeded") for n in range(COUNTS)],
    )
    yield (
        "INSERT INTO job_run_counts (job_id, day, state, runs, duration_ms) VALUES ($1, $2, $3, 5, 100)",
        [(_uuid(2, n % 1_000), days - n // 1_000, "succeeded") for n in range(COUNTS)],
    )
    yield (
        "INSERT INTO job_run_periods (job_id, period, days) VALUES ($1, $2, ' 3s1,512')",
        [(_uuid(2, n % 2_000), days // PERIOD_DAYS - n // 2_000) for n in range(COUNTS)],
    )


async def test_sqlite_scans_no_table(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "big.db", clock=FalseClock(), inline=True)
    await store.open()
    db = store._connection._write_connection()
    db.execute("PRAGMA synchronous = OFF")
    run_ids = await _fill(store)
    db.execute("BEGIN")
    for insert, rows in _counts():
        db.executemany(translate(insert), rows)
    db.execute("COMMIT")
    found = {}
    for statistics in (False, True):
        if statistics:
            db.execute("ANALYZE")
        for name, statement, given, _ in _cases(run_ids):
            values = ["[]" if isinstance(each, list) else each for each in given]
            text = translate(statement)
            values = values[: max(map(int, re.findall(r"\?(\d+)", text)), default=0)]  # lists become one
            plan = [step[3] for step in db.execute(f"EXPLAIN QUERY PLAN {text}", values)]
            scans = [
                step
                for step in plan
                if re.match(rf"SCAN (TABLE )?({'|'.join(BIG)})\b", step)
                and not (name.startswith(ALL_WAITING) and "runs_due" in step)
                and name != "ANY_RUN"
            ]
            sorts = [step for step in plan if "TEMP B-TREE FOR ORDER" in step and "upcoming" not in name]
            if scans or sorts:
                found[name, statistics] = plan
    await store.close()
    assert found == {}


async def test_postgres_visits_few_rows() -> None:
    server = pytest.importorskip("tests.support.postgres_server")
    from wakeful.store.postgres import PostgresStore

    store = PostgresStore(server.fresh_database(), clock=FalseClock())
    await store.open()
    run_ids = await _fill(store)
    beyond = {}
    async with store._pool._acquire() as db:
        for insert, rows in _counts():
            await db.executemany(insert, rows, timeout=120)
        await db.execute(
            f"""
            INSERT INTO changes (seq, at, kind, count, items)
            SELECT i, now(), CASE i % 2 WHEN 0 THEN 'run.finished' ELSE 'run.started' END, 1, '{run_ids[0]}'
            FROM generate_series(1000000, {1_000_000 + COUNTS}) i"""
        )
        await db.execute("VACUUM ANALYZE")
        for name, statement, given, most in _cases(run_ids):
            given = [1_000_000 + COUNTS - 100 if each == COUNTS - 100 else each for each in given]
            read, scanned = await visited(db, statement, *given)
            big = BIG - ({"live_runs"} if name.startswith((*ALL_WAITING, "unclaimed")) else set())
            if read > most or big & set(scanned):
                beyond[name] = read, scanned
    await store.close()
    assert beyond == {}
