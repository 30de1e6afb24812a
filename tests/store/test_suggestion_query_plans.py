"""With 10,000 suggestions and 24,000 runs of 40 jobs, no statement visits more rows than it needs.

Measured by the counts of the databases, not by time.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.factories import MINUTE, NOW, FalseClock, asleep, tick
from tests.support.query_plans import visited
from wakeful.evolution.suggestion import Suggestion
from wakeful.run.run import NewRun
from wakeful.store.port import Store
from wakeful.store.rows import JobRow
from wakeful.store.sql import suggestions
from wakeful.store.sql.driver import Statement, Texts
from wakeful.store.sql.suggestions import SuggestionFilter
from wakeful.store.sqlite import SqliteStore
from wakeful.store.sqlite.session import translate
from wakeful.values.ids import first_id

COUNT = 10_000
JOBS, RUNS = 40, 600
BEGAN = NOW - RUNS * MINUTE


def _uuid(group: int, number: int) -> str:
    return f"0190000{group}-0000-7000-8000-{number:012x}"


def _suggestion(number: int) -> Suggestion:
    """One in a hundred is open."""
    is_open = number % 100 == 0
    return Suggestion(
        _uuid(1, number), f"ws-{number % 200}", f"agent-{number % 50}", _uuid(2, number % 1_000), "digest",
        "pause_failing" if is_open and number // 1_000 % 2 else "raise_timeout",
        "open" if is_open and number < 2_000 else "dismissed", "{}", "{}", "{}", 1, NOW, NOW,
        None if is_open else NOW - number * MINUTE,
    )  # fmt: skip


def _jobs() -> list[JobRow]:
    return [
        asleep(f"job-{number}", id=_uuid(2, number), created_ms=BEGAN, updated_ms=BEGAN)
        for number in range(JOBS)
    ]


def _runs(jobs: list[JobRow]) -> list[NewRun]:
    return [
        tick(
            job, BEGAN + minute * MINUTE, id=f"{first_id(BEGAN + minute * MINUTE)[:-12]}{number:012x}",
            state="skipped" if minute % 2 else "succeeded", reason="overlap" if minute % 2 else None,
            due_ms=None, started_ms=None if minute % 2 else BEGAN + minute * MINUTE + number,
            finished_ms=BEGAN + minute * MINUTE + 90_000,
        )
        for number, job in enumerate(jobs)
        for minute in range(RUNS)
    ]  # fmt: skip


def _cases() -> list[tuple[str, Statement, list[object], int]]:
    """Return statements with arguments, and the most rows that each may visit."""
    since = first_id(NOW - 100 * MINUTE)
    two: list[object] = [[_uuid(2, 0), _uuid(2, 1)], since, first_id(NOW)]
    lists = [
        SuggestionFilter("ws-0", agent, job, statuses, before)
        for agent in (None, "agent-10")
        for job in (None, _uuid(2, 10))
        for statuses in ((), ("open",), ("open", "applied"))
        for before in (None, _uuid(1, COUNT // 2))
    ]
    row = _suggestion(COUNT + 1)
    changed: list[object] = [row.id, *row[6:]]
    return [
        ("ADD", suggestions.ADD, list(row), 5),
        ("CHANGE", suggestions.CHANGE, changed, 5),
        ("REFRESH", suggestions.REFRESH, changed, 5),
        ("SUGGESTION", suggestions.SUGGESTION, [_uuid(1, 5), "ws-5"], 5),
        ("BY_IDS", suggestions.BY_IDS, [[_uuid(1, 5), _uuid(1, 6)]], 5),
        ("LOCK_SUGGESTION", suggestions.LOCK_SUGGESTION, [_uuid(1, 5)], 5),
        *[(str(only), *suggestions.list_statement(only), 2_500) for only in lists],
        # 100 runs each of two jobs
        ("COUNTS", suggestions.COUNTS, two, 500),
        ("DURATIONS", suggestions.DURATIONS, two, 500),
        ("DELAYS", suggestions.DELAYS, [*two, 5], 500),
    ]


def test_every_statement_has_a_case() -> None:
    named = {
        name
        for name, text in vars(suggestions).items()
        if name.isupper() and name[0] != "_"
        if isinstance(text, Texts) or re.match(r"\s*(SELECT|INSERT|UPDATE|DELETE)\b", str(text))
    }
    # PRUNE reads the whole table, once an hour.
    assert named - {"PRUNE"} == {name for name, *_ in _cases() if name.isupper()}


async def _fill(store: Store) -> None:
    jobs = _jobs()
    await store.create_jobs(jobs)
    runs = _runs(jobs)
    for first in range(0, len(runs), 10_000):
        await store.add_runs(runs[first : first + 10_000])


async def test_sqlite_scans_no_table(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "big.db", clock=FalseClock(), inline=True)
    await store.open()
    db = store._connection._write_connection()
    db.execute("PRAGMA synchronous = OFF")
    await _fill(store)
    db.execute("BEGIN")
    db.executemany(translate(suggestions.ADD), map(_suggestion, range(COUNT)))
    db.execute("COMMIT")
    db.execute("ANALYZE")
    scans = {}
    for name, statement, given, _ in _cases():
        values = [None if isinstance(each, list) else each for each in given]
        plan = [step[3] for step in db.execute(f"EXPLAIN QUERY PLAN {translate(statement)}", values)]
        scanned = [step for step in plan if re.match(r"SCAN (TABLE )?(runs|jobs|suggestions|[rjs])\b", step)]
        if scanned:
            scans[name] = plan
        sorts = any("TEMP B-TREE" in step for step in plan)
        if sorts and name.startswith("SuggestionFilter") and "job=None" in name:
            scans[name] = plan
    await store.close()
    assert scans == {}


async def test_postgres_visits_few_rows() -> None:
    server = pytest.importorskip("tests.support.postgres_server")
    from wakeful.store.postgres import PostgresStore

    store = PostgresStore(server.fresh_database(), clock=FalseClock())
    await store.open()
    await _fill(store)
    beyond = {}
    async with store._pool._acquire() as db:
        await db.executemany(suggestions.ADD, map(_suggestion, range(COUNT)), timeout=120)
        await db.execute("ANALYZE")
        for name, statement, given, most in _cases():
            rows, scanned = await visited(db, statement, *given)
            if rows > most or {"runs", "suggestions", "jobs"} & set(scanned):
                beyond[name] = rows, scanned
    await store.close()
    assert beyond == {}
