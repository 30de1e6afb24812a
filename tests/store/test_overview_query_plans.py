"""With many agents, turns and dead letters, no statement of a page visits more rows than it needs.

Measured by the counts of the databases, not by time.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.factories import NOW, FalseClock
from tests.support.query_plans import visited
from wakeful.store.rows import RunFilter
from wakeful.store.sql import instances, overviews
from wakeful.store.sql.driver import Statement
from wakeful.store.sql.runs import list_dead_letters, list_runs
from wakeful.store.sqlite import SqliteStore
from wakeful.store.sqlite.session import translate
from wakeful.store.stats import DeadLetterFilter

RUNS = 40_000
AGENTS = 40
JOBS = 2_000
BATCH = 40


def _uuid(group: int, number: int) -> str:
    return f"0190000{group}-0000-7000-8000-{number:012x}"


MIDDLE = _uuid(3, RUNS // 2)
NAMES: list[object] = [f"agent-{number}" for number in range(BATCH)]
#: One statement of each kind, with its arguments and the most rows that it may visit.
CASES: dict[str, tuple[list[object], int]] = {
    "AGENTS_PAGE": (["ws", "agent-1", "%%", BATCH], 2 * AGENTS),
    "AGENT_OVERVIEWS": (["ws", NAMES, 10], 100 * BATCH),
    "WAITING_MESSAGES": (["ws", "agent-1", "main", BATCH], BATCH),
    "RECENT_TURNS": (["ws", "agent-1", "main", BATCH], BATCH),
}
DEAD = [
    DeadLetterFilter("ws", agent, after, through, before, oldest_first, BATCH)
    for agent in (None, "agent-1")
    for after, through, before, oldest_first in (
        (None, None, None, False),
        (None, None, MIDDLE, False),
        (MIDDLE, None, None, True),
        (MIDDLE, _uuid(3, RUNS), None, True),
    )
]
# One run in ten is a dead letter. All are turns; half of those of an agent are of one session.
_NUMBERS = {
    "sqlite": f"WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n LIMIT {RUNS})",
    "postgres": f"WITH n(i) AS (SELECT i FROM generate_series(0, {RUNS - 1}) i)",
}
_HEX = {"sqlite": "printf('%012x', {})", "postgres": "lpad(to_hex({}), 12, '0')"}
_AT = {"sqlite": str(NOW), "postgres": f"to_timestamp({NOW // 1000})"}


def _rows(kind: str) -> str:
    """Return the statements that fill the tables."""
    numbers, at = _NUMBERS[kind], _AT[kind]
    cast = "::uuid" if kind == "postgres" else ""
    yes = "{}" if kind == "postgres" else "({})"

    def key(group: int, number: str) -> str:
        return f"('0190000{group}-0000-7000-8000-' || {_HEX[kind].format(number)}){cast}"

    # fmt: off
    return f"""
    INSERT INTO agents (workspace, name, active, description, version, created_at, updated_at)
    {numbers} SELECT 'ws', 'agent-' || i, {"true" if kind == "postgres" else 1}, '', 1, {at}, {at}
        FROM n WHERE i < {AGENTS};
    INSERT INTO jobs (id, workspace, agent, name, policy, work, enabled, version, anchor_at, failures,
        {"" if kind == "postgres" else "run_count, "}description, labels, created_at, updated_at)
    {numbers} SELECT {key(2, "i")}, 'ws', 'agent-' || (i % {AGENTS}),
        CASE WHEN i < {AGENTS} THEN 'heartbeat' ELSE 'job-' || i END, '{{}}', '{{}}',
        {"true" if kind == "postgres" else 1}, 1, {at}, 0,
        {"" if kind == "postgres" else "0, "}'', '{{}}', {at}, {at} FROM n WHERE i < {JOBS};
    INSERT INTO sessions (workspace, agent, name, places, created_at, updated_at)
    {numbers} SELECT 'ws', 'agent-' || (i % {AGENTS}), 's' || i, 1, {at}, {at} FROM n WHERE i < {JOBS};
    INSERT INTO messages (id, workspace, agent, session, body, sent_by, trigger, at)
    {numbers} SELECT {key(4, "i")}, 'ws', 'agent-' || (i % {AGENTS}), 'main', 'hello', 'key:1', 'user', {at}
        FROM n;
    INSERT INTO runs (id, job_id, workspace, agent, scheduled_at, fire_at, trigger, state, covers, attempt,
        lane, serial, idempotency_key, created_at, finished_at, dead, error)
    {numbers} SELECT {key(3, "i")}, {key(2, f"i % {JOBS}")}, 'ws', 'agent-' || (i % {AGENTS}), {at}, {at},
        'user', 'failed', 1, 1, 'main', {"false" if kind == "postgres" else 0}, 'key', {at}, {at},
        {yes.format(f"i / {AGENTS} % 10 = 0")}, 'refused' FROM n;
    INSERT INTO turns (run_id, workspace, agent, session, live)
    {numbers} SELECT {key(3, "i")}, 'ws', 'agent-' || (i % {AGENTS}),
        CASE WHEN i / {AGENTS} % 2 = 0 THEN 'main' ELSE 's' || i END,
        {"false" if kind == "postgres" else 0} FROM n;
    ANALYZE"""
    # fmt: on


def test_every_statement_has_a_case() -> None:
    named = {
        name
        for name, text in vars(overviews).items()
        if name.isupper() and name[0] != "_" and re.match(r"\s*(SELECT|INSERT|UPDATE|DELETE)\b", str(text))
    }
    assert named - {"COSTS", "INCIDENTS"} == CASES.keys()  # those are in test_query_plans.py


async def test_sqlite_scans_no_table_and_takes_few_steps(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "big.db", clock=FalseClock(), inline=True)
    await store.open()
    db = store._connection._write_connection()
    db.execute("PRAGMA synchronous = OFF")
    db.executescript(_rows("sqlite"))
    statements: dict[str, tuple[str, list[Any]]] = {
        name: (
            translate(getattr(overviews, name)),
            [None if isinstance(each, list) else each for each in given],
        )
        for name, (given, _) in CASES.items()
    }
    statements["PENDING"] = translate(instances.PENDING), ["x", BATCH]
    for only in DEAD:
        text, args = list_dead_letters(only)
        statements[str(only)] = translate(text), list(args)
    bad = {}
    for name, (statement, given) in statements.items():
        plan = [step[3] for step in db.execute(f"EXPLAIN QUERY PLAN {statement}", given)]
        if [s for s in plan if (s.startswith("SCAN") and not s.startswith("SCAN few")) or "TEMP" in s]:
            bad[name] = plan
    bad.pop("AGENT_OVERVIEWS", None)  # it scans the list of names
    assert bad == {}

    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1_000
        return 0

    db.set_progress_handler(count, 1_000)
    await store.agent_overviews("ws", [str(name) for name in NAMES], 10)
    assert steps <= 60_000
    for only in DEAD:
        steps = 0
        found = await store.dead_letters(only)
        assert (len(found), steps <= 3_000) == (BATCH, True), (only, steps)
    await store.close()


async def test_postgres_visits_few_rows() -> None:
    server = pytest.importorskip("tests.support.postgres_server")
    from wakeful.store.postgres import PostgresStore

    store = PostgresStore(server.fresh_database(), clock=FalseClock())
    await store.open()
    statements: dict[str, tuple[Statement, list[Any], int]] = {
        name: (getattr(overviews, name), given, most) for name, (given, most) in CASES.items()
    }
    statements["PENDING"] = instances.PENDING, [_uuid(9, 1), BATCH], 5
    for only in DEAD:
        text, args = list_dead_letters(only)
        statements[str(only)] = text, list(args), BATCH
    for listed in (
        RunFilter("ws", dead=True, limit=BATCH),
        RunFilter("ws", "agent-1", dead=True, limit=BATCH),
        RunFilter("ws", dead=True, before=MIDDLE, states=("failed",), limit=BATCH),
    ):
        query, given_args = list_runs(listed)
        statements[str(listed)] = query, list(given_args), BATCH
    beyond = {}
    async with store._pool._acquire() as db:
        await db.execute(_rows("postgres"), timeout=120)
        for name, (statement, given, most) in statements.items():
            rows, scanned = await visited(db, statement, *given)
            if rows > most or {"runs", "turns", "messages", "jobs"} & set(scanned):
                beyond[name] = rows, scanned
    await store.close()
    assert beyond == {}, "\n".join(f"{k}: {v}" for k, v in beyond.items())
