"""With 20,000 verifications, no statement visits more rows than it needs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.factories import NOW, FalseClock
from tests.support.query_plans import visited
from wakeful.store.rows import RunFilter
from wakeful.store.sql import verifications
from wakeful.store.sql.runs import list_runs
from wakeful.store.sqlite import SqliteStore
from wakeful.store.sqlite.session import translate

COUNT = 20_000
ONE = "01910000-0000-7000-8000-000000000007"
OTHER = "01920000-0000-7000-8000-000000000007"
#: 100 runs of them, without that which CASES change
TO_CONFIRM = RunFilter("ws-8", to_confirm=True, limit=200)
CASES: dict[str, list[object]] = {
    "ADD": [OTHER, 1, "w1", NOW, "{}", "", NOW],
    "MARK": [ONE],
    "SET_EVIDENCE": [ONE, "{}"],
    "DUE": [NOW + 20, ["", "function:a"], 0, 20, []],
    "TAKE": [ONE, "w2", NOW],
    "VERIFIED": [[ONE]],
    "HELD": [ONE, 1],
    "LOCK": [ONE],
    "POSTPONE": [ONE, "w2", 1, NOW, 0],
    "RESTORE_WORKER": [ONE, None],
    "RESTORE_ATTEMPT": [ONE, 1, None],
    "READ": [ONE],
    "NEXT_DUE": [NOW],
    "DELETE": [ONE],
}
_LITE = f"""
    WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n LIMIT {COUNT})
    INSERT INTO verifications (run_id, attempt, reported_by, due_at, verify, requires, at, workspace)
    SELECT printf('01910000-0000-7000-8000-%012d', i), 1, 'w1', {NOW} + i, '{{"kind":"manual"}}', '', {NOW},
        'ws-' || (i % 200) FROM n;
    INSERT INTO runs (id, workspace, agent, scheduled_at, fire_at, trigger, state, covers, attempt, lane,
        serial, worker, awaiting_callback, idempotency_key, created_at)
    SELECT run_id, workspace, 'default', {NOW}, {NOW}, 'user', 'running', 1, 1, 'main', 0, 'verifying', 1,
        'key', {NOW} FROM verifications;
    ANALYZE"""
_GREAT = f"""
    INSERT INTO verifications (run_id, attempt, reported_by, due_at, verify, requires, at, workspace)
    SELECT ('01910000-0000-7000-8000-' || lpad(i::text, 12, '0'))::uuid, 1, 'w1',
        to_timestamp({NOW} / 1000.0) + i * interval '1 ms', '{{"kind":"manual"}}', '',
        to_timestamp({NOW} / 1000.0), 'ws-' || (i % 200)
    FROM generate_series(0, {COUNT - 1}) i;
    INSERT INTO runs (id, workspace, agent, scheduled_at, fire_at, trigger, state, covers, attempt, lane,
        serial, worker, awaiting_callback, idempotency_key, created_at)
    SELECT run_id, workspace, 'default', at, at, 'user', 'running', 1, 1, 'main', false, 'verifying', true,
        'key', at FROM verifications;
    ANALYZE verifications; ANALYZE runs"""


def test_every_statement_has_a_case() -> None:
    named = {
        name
        for name, text in vars(verifications).items()
        if name.isupper() and re.match(r"\s*(SELECT|INSERT|UPDATE|DELETE)\b", str(text))
    }
    assert named == set(CASES)


async def test_sqlite_scans_no_table(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "big.db", clock=FalseClock(), inline=True)
    await store.open()
    db = store._connection._write_connection()
    db.executescript(_LITE)
    scans = {}
    for name, given in CASES.items():
        values = [None if isinstance(each, list) else each for each in given]
        statement = translate(getattr(verifications, name))
        plan = [step[3] for step in db.execute(f"EXPLAIN QUERY PLAN {statement}", values)]
        if any(re.match(r"SCAN (TABLE )?(runs|verifications|attempts|[rv])\b", step) for step in plan):
            scans[name] = plan
    due = [
        step[3]
        for step in db.execute(f"EXPLAIN QUERY PLAN {translate(verifications.DUE)}", [NOW, "[]", 0, 5, "[]"])
    ]
    listing, args = list_runs(TO_CONFIRM)
    listed = [step[3] for step in db.execute(f"EXPLAIN QUERY PLAN {translate(listing)}", args)]
    found = len(await store.runs(TO_CONFIRM))
    await store.close()
    assert found == 100
    assert sum("verifications_of_workspace (workspace=?)" in step for step in listed) == 2, listed
    assert not any(re.match(r"SCAN (runs|verifications|w)\b", step) for step in listed), listed
    assert scans == {}
    assert any("verifications_due" in step for step in due)
    assert not any("TEMP B-TREE" in step for step in due)


async def test_postgres_visits_few_rows() -> None:
    server = pytest.importorskip("tests.support.postgres_server")
    from wakeful.store.postgres import PostgresStore

    store = PostgresStore(server.fresh_database(), clock=FalseClock())
    await store.open()
    beyond = {}
    async with store._pool._acquire() as db:
        await db.execute(_GREAT)
        for name, given in CASES.items():
            rows, scanned = await visited(db, getattr(verifications, name), *given)
            if rows > 100 or "verifications" in scanned or "runs" in scanned:
                beyond[name] = rows, scanned
        listing, values = list_runs(TO_CONFIRM)
        rows, scanned = await visited(db, listing, *values)
        if rows > 1_000 or "verifications" in scanned or "runs" in scanned:
            beyond["TO_CONFIRM"] = rows, scanned
    assert len(await store.runs(TO_CONFIRM)) == 100
    await store.close()
    assert beyond == {}
