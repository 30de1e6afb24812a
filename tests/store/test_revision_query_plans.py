"""With 20,000 revisions of 400 jobs, no statement visits more rows than it needs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.factories import NOW, FalseClock
from tests.support.query_plans import visited
from wakeful.store.sql import revisions
from wakeful.store.sqlite import SqliteStore
from wakeful.store.sqlite.session import translate

JOBS, EACH = 400, 50


def _job(number: int) -> str:
    return f"01900002-0000-7000-8000-{number:012x}"


def _rows() -> list[tuple[object, ...]]:
    document = '{"name":"digest","payload":"' + "x" * 500 + '"}'
    return [
        (_job(job), version, document, '["payload"]', NOW, "admin:key:1")
        for job in range(JOBS)
        for version in range(1, EACH + 1)
    ]


#: Statements with arguments, and the most rows that each may visit.
CASES: list[tuple[str, str, list[object], int]] = [
    ("ADD", revisions.ADD, [_job(3), EACH + 1, "{}", "[]", NOW, "admin:key:1"], 5),
    ("OLDEST_KEPT", revisions.OLDEST_KEPT, [_job(3), EACH - 1], EACH + 5),
    ("TRIM", revisions.TRIM, [_job(3), 2], 5),
    ("REVISIONS", revisions.REVISIONS, [_job(3), EACH], EACH + 5),
]


def test_every_statement_has_a_case() -> None:
    named = {name for name, text in vars(revisions).items() if name.isupper() and isinstance(text, str)}
    assert named == {name for name, *_ in CASES}


async def test_sqlite_scans_no_table(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "big.db", clock=FalseClock(), inline=True)
    await store.open()
    db = store._connection._write_connection()
    db.execute("BEGIN")
    db.executemany(translate(revisions.ADD), _rows())
    db.execute("COMMIT")
    db.execute("ANALYZE")
    scans = {}
    for name, statement, given, _ in CASES:
        plan = [step[3] for step in db.execute(f"EXPLAIN QUERY PLAN {translate(statement)}", given)]
        if any(re.match(r"SCAN", step) or "TEMP B-TREE" in step for step in plan):
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
        await db.executemany(revisions.ADD, _rows(), timeout=120)
        await db.execute("ANALYZE")
        for name, statement, given, most in CASES:
            rows, scanned = await visited(db, statement, *given)
            if rows > most or scanned:
                beyond[name] = rows, scanned
    await store.close()
    assert beyond == {}
