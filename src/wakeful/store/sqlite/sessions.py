"""Sessions in SQLite. See `store/sessions.py`."""

from __future__ import annotations

import sqlite3
from typing import Any, Final

from wakeful.store.accounts import no_agent
from wakeful.store.sessions import (
    WAKE_JOB,
    SessionKey,
    SessionMessage,
    SessionRule,
    SessionState,
    SessionUpdate,
    SessionView,
    Turn,
)
from wakeful.store.sql import history
from wakeful.store.sqlite.connection import TransactionEvents
from wakeful.store.sqlite.insert_runs import write_runs
from wakeful.store.sqlite.session import SqliteSession
from wakeful.store.sqlite.waiting_runs import cancel

_KEY: Final = "workspace = ?1 AND agent = ?2 AND session = ?3"
#: turns_live: a range of it; the primary key of runs, once for each
_LIVE: Final = """
    FROM turns t INDEXED BY turns_live CROSS JOIN runs r ON r.id = t.run_id
    WHERE t.live AND t.workspace = s.workspace AND t.agent = s.agent AND t.session = s.name
    AND r.state IN ('pending', 'retrying', 'running')"""
#: the primary keys of agents and sessions
TOUCH: Final = """
    INSERT INTO sessions (workspace, agent, name, places, created_at, updated_at)
    SELECT a.workspace, a.name, ?3, 1, ?4, ?4 FROM agents a WHERE a.workspace = ?1 AND a.name = ?2
    ON CONFLICT (workspace, agent, name) DO UPDATE SET updated_at = excluded.updated_at"""
#: sessions_due, in its order; `_LIVE` for each
DUE: Final = f"""
    SELECT s.workspace, s.agent, s.name FROM sessions s INDEXED BY sessions_due
    WHERE s.due_at <= ? AND s.places > (SELECT count(*) {_LIVE})
    ORDER BY s.due_at LIMIT ?"""
#: the primary keys of sessions and agents, and jobs_name
STATE: Final = f"""
    SELECT s.context, a.queue, j.id, j.work, j.policy FROM sessions s
    LEFT JOIN agents a ON a.workspace = s.workspace AND a.name = s.agent
    LEFT JOIN jobs j INDEXED BY jobs_name ON j.workspace = s.workspace AND j.agent = s.agent
        AND j.name = '{WAKE_JOB}' AND j.deleted_at IS NULL
    WHERE s.workspace = ?1 AND s.agent = ?2 AND s.name = ?3"""
#: messages_of_session: a range of it, in its order
MESSAGES: Final = f"""
    SELECT id, body, sent_by, trigger, at, depth FROM messages INDEXED BY messages_of_session
    WHERE {_KEY} ORDER BY at, id"""
#: turns_live: a range of it, in its order; the primary key of runs, once for each
TURNS: Final = f"""
    SELECT t.run_id, r.state, r.usage, r.payload FROM (
        SELECT run_id FROM turns INDEXED BY turns_live WHERE live AND {_KEY} ORDER BY run_id) t
    LEFT JOIN runs r ON r.id = t.run_id"""
#: the primary keys
ADD_MESSAGE: Final = """
    INSERT INTO messages (workspace, agent, session, id, body, sent_by, trigger, at, depth)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"""
DROP_MESSAGE: Final = "DELETE FROM messages WHERE id = ?"
ADD_TURN: Final = "INSERT INTO turns (workspace, agent, session, run_id, live) VALUES (?, ?, ?, ?, 1)"
END_TURN: Final = "UPDATE turns SET live = 0 WHERE run_id = ?"
UPDATE_SESSION: Final = """
    UPDATE sessions SET due_at = ?4, places = ?5, context = ?6
    WHERE workspace = ?1 AND agent = ?2 AND name = ?3"""
SET_ADDRESS: Final = """
    UPDATE sessions SET channel = ?4, send_to = ?5 WHERE workspace = ?1 AND agent = ?2 AND name = ?3"""
_VIEW: Final = f"""
    SELECT s.name,
        (SELECT count(*) FROM messages m INDEXED BY messages_of_session
            WHERE m.workspace = s.workspace AND m.agent = s.agent AND m.session = s.name),
        (SELECT group_concat(r.id, ',') {_LIVE}),
        s.context, s.due_at, s.created_at, s.updated_at, s.channel, s.send_to
    FROM sessions s WHERE s.workspace = ? AND s.agent = ?"""
#: the primary key: a range of it, in its order; for each, messages_of_session and `_LIVE`
SESSIONS: Final = f"{_VIEW} AND s.name > ? ORDER BY s.name LIMIT ?"
#: the primary key; messages_of_session and `_LIVE`
SESSION: Final = f"{_VIEW} AND s.name = ?"


async def update_session(
    db: sqlite3.Connection, events: TransactionEvents, key: SessionKey, now_ms: int, judge: SessionRule
) -> SessionUpdate:
    if db.execute(TOUCH, (*key, now_ms)).rowcount == 0:
        raise no_agent(key.agent)
    update = _update(db, events, key, now_ms, judge)
    if update.due_ms is not None:
        events.publish("sessions")
    return update


async def take_turns(
    db: sqlite3.Connection, events: TransactionEvents, now_ms: int, limit: int, judge: SessionRule
) -> int:
    due = [SessionKey(*row) for row in db.execute(DUE, (now_ms, limit))]
    for key in due:
        _update(db, events, key, now_ms, judge)
    return len(due)


def _update(
    db: sqlite3.Connection, events: TransactionEvents, key: SessionKey, now_ms: int, judge: SessionRule
) -> SessionUpdate:
    context, queue, job_id, work, policy = db.execute(STATE, key).fetchone()
    messages = [SessionMessage(*row) for row in db.execute(MESSAGES, key)]
    turns = [Turn(*row) for row in db.execute(TURNS, key)]
    update = judge(SessionState(key, messages, turns, context, queue, job_id, work, policy))
    if update.arrived is not None:
        db.execute(ADD_MESSAGE, (*key, *update.arrived))
    db.executemany(DROP_MESSAGE, [(each,) for each in (*update.dropped, *update.taken)])
    cancel(db, events, now_ms, update.stopped)
    if update.begun:
        write_runs(db, events, now_ms, update.begun)
        db.executemany(ADD_TURN, [(*key, run.id) for run in update.begun])
    db.executemany(END_TURN, [(run_id,) for run_id in update.over])
    db.execute(UPDATE_SESSION, (*key, update.due_ms, update.places, update.context))
    if update.address is not None:
        db.execute(SET_ADDRESS, (*key, *update.address))
    return update


async def delete_session(
    db: sqlite3.Connection, events: TransactionEvents, key: SessionKey, now_ms: int, judge: SessionRule
) -> SessionUpdate | None:
    if db.execute(SESSION, key).fetchone() is None:
        return None
    update = _update(db, events, key, now_ms, judge)
    await history.delete(SqliteSession(db), key)
    return update


async def sessions(
    db: sqlite3.Connection, workspace: str, agent: str, after: str | None, limit: int
) -> list[SessionView]:
    return [_view(row) for row in db.execute(SESSIONS, (workspace, agent, after or "", limit))]


async def session(db: sqlite3.Connection, key: SessionKey) -> SessionView | None:
    row = db.execute(SESSION, key).fetchone()
    return None if row is None else _view(row)


def _view(row: tuple[Any, ...]) -> SessionView:
    name, waiting, turns, *rest = row
    return SessionView(name, waiting, tuple(sorted(turns.split(","))) if turns else (), *rest)
