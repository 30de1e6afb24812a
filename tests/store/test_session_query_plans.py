"""With 20,000 sessions, many of them waiting for a turn, no statement visits more rows than it needs.

Measured by the counts of the databases, not by time.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.factories import DAY, NOW, FalseClock
from tests.support.query_plans import visited
from wakeful.agents.sessions import receive, start_turns
from wakeful.store.sessions import SessionKey, SessionMessage
from wakeful.store.sql import history, sessions
from wakeful.store.sqlite import SqliteStore
from wakeful.store.sqlite.session import translate

SESSIONS = 20_000
TABLES = ("sessions", "session_history", "turns", "runs", "messages")
STEP = 1_000


def statements_of(module: object) -> dict[str, str]:
    return {
        name: text
        for name, text in vars(module).items()
        if name.isupper() and name[0] != "_" and re.match(r"\s*(SELECT|INSERT|UPDATE|DELETE)\b", str(text))
    }


#: reads a whole table by design
WHOLE = "PRUNE_SESSIONS"
SHARED = {
    **statements_of(history),
    **statements_of(sessions),
}
# One session in a hundred is due and has waiting messages; half of those have a live turn. Each session has
# ten turns and ten entries in its history.
_LITE = f"""
    INSERT INTO agents (workspace, name, active, description, version, created_at, updated_at)
    VALUES ('default', 'agent-0', 1, '', 1, {NOW}, {NOW});
    WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n LIMIT {SESSIONS})
    INSERT INTO sessions (workspace, agent, name, due_at, places, context, created_at, updated_at)
    SELECT 'default', 'agent-' || (i % 50), 's' || i,
        iif(i % 100 = 0, {NOW}, NULL), 1, NULL, {NOW}, {NOW} FROM n;
    INSERT INTO session_history SELECT workspace, agent, name, k.value, 'user', 'hello', 2, 'r', NULL, {NOW}
        FROM sessions, json_each('[1,2,3,4,5,6,7,8,9,10]') k;
    INSERT INTO messages (id, workspace, agent, session, body, sent_by, trigger, at)
    SELECT 'm' || name || '-' || k.value, workspace, agent, name, 'hello', 'key:1',
        'user', {NOW} - 1000 FROM sessions, json_each('[1,2,3]') k WHERE due_at IS NOT NULL;
    WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n LIMIT {SESSIONS * 10})
    INSERT INTO turns SELECT printf('r%07d', i), 'default', 'agent-' || (i % {SESSIONS} % 50),
        's' || (i % {SESSIONS}), i % 200 = 0 AND i < {SESSIONS} FROM n;
    INSERT INTO runs (id, workspace, agent, scheduled_at, fire_at, trigger, state, covers, attempt, lane,
        serial, due_at, idempotency_key, created_at)
    SELECT run_id, workspace, agent, {NOW}, {NOW}, 'user', iif(live, 'running', 'succeeded'), 1, 1, 'main', 0,
        NULL, 'key', {NOW} FROM turns;
    ANALYZE"""
_GREAT = f"""
    INSERT INTO sessions (workspace, agent, name, due_at, places, context, created_at, updated_at)
    SELECT 'default', 'agent-' || (i % 50), 's' || i,
        CASE WHEN i % 100 = 0 THEN to_timestamp({NOW // 1000}) END, 1, NULL, now(), now()
    FROM generate_series(0, {SESSIONS - 1}) i;
    INSERT INTO session_history SELECT workspace, agent, name, n, 'user', 'hello', 2, gen_random_uuid(), NULL,
        to_timestamp({NOW // 1000}) FROM sessions, generate_series(1, 10) n;
    INSERT INTO messages (id, workspace, agent, session, body, sent_by, trigger, at)
    SELECT gen_random_uuid(), workspace, agent, name, 'hello', 'key:1', 'user',
        to_timestamp({NOW // 1000 - 1}) FROM sessions, generate_series(1, 3) WHERE due_at IS NOT NULL;
    INSERT INTO turns SELECT ('01910000-0000-7000-8000-' || lpad(to_hex(i), 12, '0'))::uuid, 'default',
        'agent-' || (i % {SESSIONS} % 50), 's' || (i % {SESSIONS}), i % 200 = 0 AND i < {SESSIONS}
    FROM generate_series(0, {SESSIONS * 10 - 1}) i;
    INSERT INTO runs (id, workspace, agent, scheduled_at, fire_at, trigger, state, covers, attempt, lane,
        serial, idempotency_key, created_at)
    SELECT run_id, workspace, agent, now(), now(), 'user', CASE WHEN live THEN 'running' ELSE 'succeeded' END,
        1, 1, 'main', false, 'key', now() FROM turns;
    INSERT INTO live_runs (run_id, state, lane, serial, tick, scheduled_at)
    SELECT id, state, lane, serial, false, scheduled_at FROM runs WHERE state = 'running';
    ANALYZE"""
DUE = SESSIONS // 100


async def test_sqlite_scans_no_table_and_takes_few_steps(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "big.db", clock=FalseClock(), inline=True)
    await store.open()
    db = store._connection._write_connection()
    db.execute("PRAGMA synchronous = OFF")
    db.executescript(_LITE)
    scans = {}
    for name, text in {name: translate(text) for name, text in SHARED.items()}.items():
        numbered = [int(number) for number in re.findall(r"\?(\d+)", text)]
        given = [None] * (max(numbered) if numbered else text.count("?"))
        plan = [step[3] for step in db.execute(f"EXPLAIN QUERY PLAN {text}", given)]
        if found := [step for step in plan if re.match(r"SCAN (?!.*(CONSTANT ROW|VIRTUAL TABLE))", step)]:
            scans[name] = found
    few = {"TURNS", "DROP_OLDEST", "EXISTING"}
    assert scans.keys() - few == {WHOLE}
    scanned = [step for name in few for step in scans.get(name, []) if step.endswith(TABLES)]
    assert scanned == [], "they scan the few rows that they have just found"

    taken, steps = {}, 0

    def count() -> int:
        nonlocal steps
        steps += STEP
        return 0

    db.set_progress_handler(count, STEP)
    key = SessionKey("default", "agent-0", "s0")
    for name, call, most in (
        ("talk", lambda: store.update_session(key, NOW, lambda talk: receive(talk, _message(), NOW)), 2),
        ("next turn", lambda: store.next_turn(NOW), 1),
        ("turns", lambda: store.take_turns(NOW, 10, lambda talk: start_turns(talk, NOW)), 20),
        ("no turns", lambda: store.take_turns(NOW - DAY, 10, lambda talk: start_turns(talk, NOW)), 1),
        ("sessions", lambda: store.sessions("default", "agent-1", None, 50), 5),
        ("session", lambda: store.session(key), 1),
        ("history", lambda: store.history(key, 5, 50), 1),
        ("prune", lambda: store._driver.write(store._shared(history.prune), NOW - DAY, 50), 1),
    ):
        steps = 0
        await call()
        taken[name] = steps // STEP, most
    db.set_progress_handler(None, 0)
    await store.close()
    assert {name: spent for name, (spent, most) in taken.items() if spent > most} == {}


async def test_postgres_visits_few_rows() -> None:
    server = pytest.importorskip("tests.support.postgres_server")
    from wakeful.store.postgres import PostgresStore

    store = PostgresStore(server.fresh_database(), clock=FalseClock())
    await store.open()
    names = [f"s{number * 100}" for number in range(50)]
    keys: list[object] = [["default"] * 50, [f"agent-{number * 100 % 50}" for number in range(50)], names]
    key: list[object] = ["default", "agent-0", "s0"]
    runs = [f"01910000-0000-7000-8000-{number * 200:012x}" for number in range(50)]
    new = [f"01920000-0000-7000-8000-{number:012x}" for number in range(50)]
    cases: dict[str, list[object]] = {
        "TOUCH": ["default", "agent-0", "s0", NOW],
        "DUE": [NOW, 50],
        "HOLD_WAKE_JOB": ["default", "agent-0"],
        "HOLD_WAKE_JOBS": keys[:2],
        "STATES": keys,
        "MESSAGES": keys,
        "TURNS": keys,
        "ADD_MESSAGE": ["default", "agent-0", "s0", new[0], "hello", "key:1", "user", NOW, 0],
        "DROP_MESSAGES": [[new[0]]],
        "ADD_TURN": [*key, new[0]],
        "END_TURNS": [runs],
        "UPDATE_SESSION": [*key, None, 1, None],
        "NEXT_TURN": [NOW],
        "SESSIONS": ["default", "agent-1", "s2", 50],
        "SESSION": key,
        "SET_ADDRESS": [*key, "telegram", "123"],
        "LOCK_SESSION": key,
        "ADD_SESSION": [*key, NOW],
        "DELETE_SESSION": key,
        "EXISTING": ["default", "agent-0", ["s0", "s50"]],
        "ADD_ENTRY": [*key, 11, "user", "hello", 2, new[0], None, NOW],
        "SET_SEQUENCE": [*key, 11, NOW],
        "DROP_OLDEST": [*key, 5, 1_000],
        "HISTORY": [*key, 8, 5],
        "DELETE_HISTORY": key,
        "PRUNE_HISTORY": [NOW - DAY, 50],
        "PRUNE_TURNS": ["01910000-0000-7000-8000-000000000100"],
        WHOLE: [NOW - DAY],
    }
    assert cases.keys() == SHARED.keys()
    beyond = {}
    async with store._pool._acquire() as db:
        await db.execute(_GREAT, timeout=120)
        for name, given in cases.items():
            rows, scanned = await visited(db, SHARED[name], *given)
            if name != WHOLE and (
                rows > 2_000 or {"sessions", "session_history", "turns", "runs"} & set(scanned)
            ):
                beyond[name] = rows, scanned
    await store.close()
    assert beyond == {}


def _message() -> SessionMessage:
    return SessionMessage("m1", "hello", "key:1", "user", NOW)
