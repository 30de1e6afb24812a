"""With 100,000 runs waiting to be claimed, claims and expiry visit few rows.

Measured by the counts of the databases, not by time.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.factories import NOW, FalseClock, alone
from tests.support.pull_runs import claim_pairs
from tests.support.query_plans import visited, visited_with_kept_plan
from wakeful.run.outcome import Finished
from wakeful.store.claim_requests import ClaimScope
from wakeful.store.plans import TURN_MS
from wakeful.store.postgres import executors, waiting_runs
from wakeful.store.rows import Renewal, UnfinishedRun
from wakeful.store.sql.executors import CLAIMABLE
from wakeful.store.sqlite import SqliteStore

RUNS = 100_000
HOUR = 3_600_000
STEP = 1_000
#: The agent of one executor: a few of the waiting runs are its own.
MINE = "agent-mine"
SCOPES = [
    ClaimScope("ws-0"),
    *(ClaimScope.of("ws-0", [MINE, f"agent-{number}"], ["cron"]) for number in range(100)),
    *(ClaimScope.of("ws-1", ["nobody"], [f"lane-{number}"]) for number in range(100)),
]
_LITE = f"""
    WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n LIMIT {RUNS})
    INSERT INTO runs (id, job_id, workspace, agent, scheduled_at, fire_at, trigger, state, covers,
        claim_deadline, attempt, lane, serial, due_at, idempotency_key, created_at, is_pull, claim_timeout_ms)
    SELECT printf('01910000-0000-7000-8000-%012d', i),
        printf('01900000-0000-7000-8000-%012d', i % 10000), 'ws-' || (i % 3),
        iif(i % 10000 = 0, '{MINE}', 'agent-' || (i % 500)), {NOW} + i, {NOW}, 'user', 'pending', 1,
        {NOW} + {HOUR} + i, 1, 'cron', i % 2, {NOW}, 'key', {NOW}, 1, {HOUR} FROM n"""
_GREAT = f"""
    INSERT INTO runs (id, job_id, workspace, agent, scheduled_at, fire_at, trigger, state, covers,
        claim_deadline, attempt, lane, serial, due_at, idempotency_key, created_at, is_pull, claim_timeout_ms)
    SELECT ('01910000-0000-7000-8000-' || lpad(to_hex(i), 12, '0'))::uuid,
        ('01900000-0000-7000-8000-' || lpad(to_hex(i % 10000), 12, '0'))::uuid, 'ws-' || (i % 3),
        CASE WHEN i % 10000 = 0 THEN '{MINE}' ELSE 'agent-' || (i % 500) END, t.now + i * interval '1 ms',
        t.now, 'user', 'pending', 1, t.now + interval '1 hour' + i * interval '1 ms', 1, 'cron',
        i % 2 = 1, t.now, 'key', t.now, true, {HOUR}
    FROM generate_series(0, {RUNS - 1}) i, (SELECT to_timestamp({NOW // 1000}) AS now) t;
    INSERT INTO live_runs (run_id, job_id, state, lane, serial, tick, scheduled_at, due_at,
        claim_deadline, workspace, agent, is_pull)
    SELECT id, job_id, state, lane, serial, false, scheduled_at, due_at, claim_deadline, workspace, agent,
        true FROM runs;
    ANALYZE"""


def _fail(lost: UnfinishedRun) -> Finished:
    return Finished(lost.id, lost.job_id, lost.attempt, "failed", NOW, NOW)


async def test_sqlite_takes_few_steps(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "big.db", clock=FalseClock(), inline=True)
    await store.open()
    db = store._connection._write_connection()
    db.execute("PRAGMA synchronous = OFF")
    db.execute(_LITE)
    db.execute("ANALYZE")
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += STEP
        return 0

    db.set_progress_handler(count, STEP)
    taken: dict[str, int] = {}
    worker = "w"
    for name, call in (
        ("claim", lambda: claim_pairs(store, NOW, worker, "ws-0", None, None, 20)),
        ("claim of an agent", lambda: claim_pairs(store, NOW, worker, "ws-0", [MINE], ["cron"], 20)),
        ("claimable", lambda: store.claimable_ms(NOW, SCOPES)),
        (
            "renew",
            lambda: store.renew(NOW, "ws-1", [Renewal("01910000-0000-7000-8000-000000000001", 1)] * 20),
        ),
        ("workflows", lambda: store.workflows("ws-0", [("flow", n) for n in range(20)])),
        ("nothing expired", lambda: store.expire(NOW + HOUR - TURN_MS - 1, 100, _fail, alone)),
        ("some expired", lambda: store.expire(NOW + HOUR + 200, 20, _fail, alone)),
    ):
        steps = 0
        await call()
        taken[name] = steps
    db.set_progress_handler(None, 0)
    await store.close()
    assert {name: count for name, count in taken.items() if count > 200_000} == {}
    assert taken["nothing expired"] <= 5_000


async def test_postgres_visits_few_rows() -> None:
    server = pytest.importorskip("tests.support.postgres_server")
    from wakeful.store.postgres import PostgresStore

    store = PostgresStore(server.fresh_database(), clock=FalseClock())
    await store.open()
    run_id = "01910000-0000-7000-8000-000000000007"
    cases: dict[str, list[object]] = {
        "CLAIMABLE": [NOW, "ws-0", [None, "\x1ecron\x1e"], [20, 20]],
        "CLAIMABLE_OF_AGENTS": [NOW, "ws-0", ["\x1ecron\x1e", None], [20, 20], [MINE, "agent-7"]],
        "CLAIM_AT_ONCE": [NOW, "ws-0", ["\x1ecron\x1e"], [20], "w1", "a"],
        "CLAIM_AT_ONCE_OF_AGENTS": [NOW, "ws-0", [None], [20], [MINE], "w1", "a"],
        "START_CLAIMED": [NOW, [run_id], [], ["w1"], ["a"]],
        "RENEW": [NOW, "ws-1", [run_id], [1], [None], [None], ["a node"]],
        "RETURNABLE": ["w1", "ws-1", None, [run_id], [1]],
        "RETURNABLE_OF_CLAIM": ["w1", "ws-1", None, "a"],
        "TAKEN_RUNS": [[run_id]],
        "RESTART_WAIT": [NOW + HOUR, NOW + HOUR + 500, 100],
        "EXPIRED": [NOW + HOUR + 200, 100],
        "MOVE": [["01900000-0000-7000-8000-000000000007"], ["cron"], [None], NOW, [""]],
        "FOLLOW": [["01900000-0000-7000-8000-000000000007"], ["function:digest"], ["cron"], [None]],
        "MARK_EXPIRED": [[run_id]],
        "CLEAR_START": [[run_id]],
    }
    statements = vars(executors) | vars(waiting_runs)
    beyond = {}
    async with store._pool._acquire() as db:
        await db.execute(_GREAT, timeout=120)
        ranges = [part for scope in SCOPES for part in scope.ranges()]
        columns = zip(*((part.workspace, part.agent, part.lanes_text) for part in ranges), strict=True)
        given = [NOW, list(range(len(ranges))), *map(list, columns)]
        rows, _ = await visited(db, CLAIMABLE.postgresql, *given)
        if rows > 5_000:
            beyond["claimable"] = rows
        for name, given in cases.items():
            counts = visited_with_kept_plan if "AT_ONCE" in name else visited
            rows, _ = await counts(db, statements[name], *given)
            if rows > 5_000:
                beyond[name] = rows
    await store.close()
    assert beyond == {}
    named = {
        name for name, text in statements.items() if name.isupper() and re.search("SELECT|UPDATE", str(text))
    }
    assert {name for name in named if not name.startswith("_")} == set(cases)
