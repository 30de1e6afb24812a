"""With 20,000 incidents, most of them closed, no statement visits more rows than it needs.

Measured by the counts of the databases, not by time.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.factories import MINUTE, NOW, FalseClock
from tests.support.query_plans import visited
from wakeful.run.incidents import Incident
from wakeful.store.sql import incidents
from wakeful.store.sql.incidents import IncidentFilter
from wakeful.store.sqlite import SqliteStore
from wakeful.store.sqlite.session import translate

COUNT = 20_000
JOBS = 1_000


def _uuid(group: int, number: int) -> str:
    return f"0190000{group}-0000-7000-8000-{number:012x}"


def _incident(number: int) -> Incident:
    """One in a hundred is open, and one in a thousand is due."""
    is_open = number % 100 == 0
    job = number // 100 % JOBS if is_open else number % JOBS
    return Incident(
        _uuid(1, number), f"ws-{number % 10}", f"agent-{number % 50}", _uuid(2, job), f"job-{job}", "lost",
        None, NOW, NOW, 1, 1, _uuid(3, number), _uuid(3, number),
        notify_ms=NOW if number % 1_000 == 0 else None,
        closed_ms=None if is_open else NOW - number * MINUTE, closed_reason=None if is_open else "succeeded",
    )  # fmt: skip


def _cases() -> list[tuple[str, str, list[object], int]]:
    """Return statements with arguments, and the most rows that each may visit."""
    jobs: list[object] = [_uuid(2, number) for number in range(50)]
    lists = [
        IncidentFilter("ws-1", agent, job, states, before)
        for agent in (None, "agent-1")
        for job in (None, _uuid(2, 7))
        for states in ((), ("open",), ("open", "acknowledged"), ("recovered",))
        for before in (None, _uuid(1, COUNT // 2))
    ]
    return [
        ("WRITE", incidents.WRITE, list(_incident(COUNT + 1)), 5),
        ("JOBS", incidents.JOBS, [jobs], 100),
        ("OF_JOBS", incidents.OF_JOBS, [jobs, NOW - 120 * MINUTE], 3_000),
        ("OPEN_OF_JOBS", incidents.OPEN_OF_JOBS, [jobs], 500),
        ("FAILED_RUNS", incidents.FAILED_RUNS, [jobs], 100),
        ("INCIDENT", incidents.INCIDENT, [_uuid(1, 5), "ws-1"], 5),
        ("BY_IDS", incidents.BY_IDS, [[_uuid(1, 5), _uuid(1, 6)]], 10),
        ("LOCK_INCIDENT", incidents.LOCK_INCIDENT, [_uuid(1, 5), "ws-1"], 5),
        ("DUE", incidents.DUE, [NOW, 10, NOW], 1_000),
        ("NEXT", incidents.NEXT, [], 5),
        ("PRUNE", incidents.PRUNE, [NOW - (COUNT - 100) * MINUTE], 500),
        *[(str(only), *incidents.list_statement(only), 4_000) for only in lists],
    ]


def test_every_statement_has_a_case() -> None:
    named = {
        name
        for name, text in vars(incidents).items()
        if name.isupper() and name[0] != "_" and re.match(r"\s*(SELECT|INSERT|UPDATE|DELETE)\b", str(text))
    }
    assert named == {name for name, *_ in _cases() if name.isupper()}


async def test_sqlite_scans_no_table(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "big.db", clock=FalseClock(), inline=True)
    await store.open()
    db = store._connection._write_connection()
    db.execute("PRAGMA synchronous = OFF")
    db.execute("BEGIN")
    db.executemany(translate(incidents.WRITE), map(_incident, range(COUNT)))
    db.execute("COMMIT")
    db.execute("ANALYZE")
    scans = {}
    for name, statement, given, _ in _cases():
        values = [None if isinstance(each, list) else each for each in given]
        plan = [step[3] for step in db.execute(f"EXPLAIN QUERY PLAN {translate(statement)}", values)]
        if found := [step for step in plan if step.startswith("SCAN") and "VIRTUAL" not in step]:
            scans[name] = found
        sorts = any("TEMP B-TREE" in step for step in plan)
        if sorts and name.startswith("IncidentFilter") and "job=None" in name:  # a job has few
            scans[name] = plan
    await store.close()
    assert scans == {}


async def test_postgres_visits_few_rows() -> None:
    server = pytest.importorskip("tests.support.postgres_server")
    from wakeful.store.postgres import PostgresStore

    store = PostgresStore(server.fresh_database(), clock=FalseClock())
    await store.open()
    beyond = {}
    async with store._pool._acquire() as db:
        await db.executemany(incidents.WRITE, [_incident(number) for number in range(COUNT)], timeout=120)
        await db.execute("ANALYZE")
        for name, statement, given, most in _cases():
            rows, scanned = await visited(db, statement, *given)
            if rows > most or "job_incidents" in scanned:
                beyond[name] = rows, scanned
    await store.close()
    assert beyond == {}
