"""Sessions in PostgreSQL. See `store/sessions.py`.

A transaction locks the rows of sessions before those of runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from wakeful.store.accounts import no_agent
from wakeful.store.postgres.insert_runs import insert_runs
from wakeful.store.postgres.session import PostgresSession
from wakeful.store.postgres.waiting_runs import cancel
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

if TYPE_CHECKING:
    from asyncpg import Record

    from wakeful.store.postgres.connection import Db, TransactionEvents

_GIVEN: Final = "unnest($1::text[], $2::text[], $3::text[]) k (workspace, agent, name)"
#: turns_live: a range of it; the primary key of live, once for each
_LIVE: Final = """
    FROM turns t JOIN live_runs l ON l.run_id = t.run_id
    WHERE t.live AND t.workspace = s.workspace AND t.agent = s.agent AND t.session = s.name"""
#: the primary keys of agents and sessions. Waits for a transaction that deletes the agent
TOUCH: Final = """
    INSERT INTO sessions (workspace, agent, name, places, created_at, updated_at)
    SELECT a.workspace, a.name, $3::text, 1, $4::timestamptz, $4::timestamptz FROM agents a
    WHERE a.workspace = $1 AND a.name = $2 FOR KEY SHARE
    ON CONFLICT (workspace, agent, name) DO UPDATE SET updated_at = EXCLUDED.updated_at"""
#: sessions_due, in its order; `_LIVE` for each
DUE: Final = f"""
    SELECT s.workspace, s.agent, s.name FROM sessions s
    WHERE s.due_at <= $1 AND s.places > (SELECT count(*) {_LIVE})
    ORDER BY s.due_at LIMIT $2 FOR UPDATE OF s SKIP LOCKED"""
_WAKE_JOB: Final = f"j.name = '{WAKE_JOB}' AND j.deleted_at IS NULL"
#: jobs_name. A turn that begins has the target of the job: a transaction that changes it waits, and moves
#: the turn; or this one waits for it
HOLD_WAKE_JOB: Final = f"""
    SELECT FROM jobs j WHERE j.workspace = $1 AND j.agent = $2 AND {_WAKE_JOB} FOR SHARE"""
#: jobs_name, twice for each. The same for several tenants, none of which waits: those that would have to
CHANGING: Final = f"""
    SELECT k.workspace, k.agent, k.name FROM {_GIVEN}
    JOIN jobs j ON j.workspace = k.workspace AND j.agent = k.agent AND {_WAKE_JOB}
    LEFT JOIN LATERAL (
        SELECT true AS held FROM jobs j WHERE j.workspace = k.workspace AND j.agent = k.agent AND {_WAKE_JOB}
        FOR SHARE SKIP LOCKED) h ON true
    WHERE h.held IS NULL"""
#: the primary keys of sessions and agents, and jobs_name, once for each
STATES: Final = f"""
    SELECT s.workspace, s.agent, s.name, s.context, a.queue, j.id::text, j.work, j.policy FROM {_GIVEN}
    JOIN sessions s ON s.workspace = k.workspace AND s.agent = k.agent AND s.name = k.name
    LEFT JOIN agents a ON a.workspace = s.workspace AND a.name = s.agent
    LEFT JOIN jobs j ON j.workspace = s.workspace AND j.agent = s.agent AND {_WAKE_JOB}"""
#: messages_of_session: a range of it for each
MESSAGES: Final = f"""
    SELECT m.workspace, m.agent, m.session, m.id::text, m.body, m.sent_by, m.trigger, m.at, m.depth
    FROM {_GIVEN}
    JOIN messages m ON m.workspace = k.workspace AND m.agent = k.agent AND m.session = k.name
    ORDER BY m.at, m.id"""
#: turns_live: a range of it for each; the primary key of runs, once for each of those
TURNS: Final = f"""
    SELECT k.workspace, k.agent, k.name, t.run_id::text, r.state, r.usage, r.payload FROM {_GIVEN}
    CROSS JOIN LATERAL (
        SELECT run_id FROM turns
        WHERE live AND workspace = k.workspace AND agent = k.agent AND session = k.name OFFSET 0) t
    LEFT JOIN runs r ON r.id = t.run_id ORDER BY t.run_id"""
#: the primary keys
ADD_MESSAGE: Final = """
    INSERT INTO messages (workspace, agent, session, id, body, sent_by, trigger, at, depth)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)"""
DROP_MESSAGES: Final = "DELETE FROM messages WHERE id = ANY($1::uuid[])"
ADD_TURNS: Final = """
    INSERT INTO turns (workspace, agent, session, run_id, live)
    SELECT k.*, true FROM unnest($1::text[], $2::text[], $3::text[], $4::uuid[]) k"""
END_TURNS: Final = "UPDATE turns SET live = false WHERE run_id = ANY($1::uuid[])"
UPDATE_SESSIONS: Final = """
    UPDATE sessions s SET due_at = k.due_at, places = k.places, context = k.context
    FROM unnest($1::text[], $2::text[], $3::text[], $4::timestamptz[], $5::integer[], $6::float8[])
        k (workspace, agent, name, due_at, places, context)
    WHERE s.workspace = k.workspace AND s.agent = k.agent AND s.name = k.name"""
#: the primary key
SET_ADDRESS: Final = """
    UPDATE sessions SET channel = $4, send_to = $5 WHERE workspace = $1 AND agent = $2 AND name = $3"""
_VIEW: Final = f"""
    SELECT s.name,
        (SELECT count(*) FROM messages m
            WHERE m.workspace = s.workspace AND m.agent = s.agent AND m.session = s.name),
        (SELECT string_agg(l.run_id::text, ',' ORDER BY l.run_id) {_LIVE}),
        s.context, s.due_at, s.created_at, s.updated_at, s.channel, s.send_to
    FROM sessions s WHERE s.workspace = $1 AND s.agent = $2"""
#: the primary key: a range of it, in its order; for each, messages_of_session and `_LIVE`
SESSIONS: Final = f"{_VIEW} AND s.name > $3 ORDER BY s.name LIMIT $4"
#: the primary key; messages_of_session and `_LIVE`
SESSION: Final = f"{_VIEW} AND s.name = $3"


async def update_session(
    db: Db, events: TransactionEvents, key: SessionKey, now_ms: int, judge: SessionRule
) -> SessionUpdate:
    if await PostgresSession(db).execute(TOUCH, *key, now_ms) == 0:
        raise no_agent(key.agent)
    await db.execute(HOLD_WAKE_JOB, key.workspace, key.agent)
    (update,) = await _update(db, events, [key], now_ms, judge)
    if update.due_ms is not None:
        events.publish("sessions")
    return update


async def delete_session(
    db: Db, events: TransactionEvents, key: SessionKey, now_ms: int, judge: SessionRule
) -> SessionUpdate | None:
    if await db.fetchrow(history.LOCK_SESSION, *key) is None:
        return None
    (update,) = await _update(db, events, [key], now_ms, judge)
    await history.delete(PostgresSession(db), key)
    return update


async def take_turns(db: Db, events: TransactionEvents, now_ms: int, limit: int, judge: SessionRule) -> int:
    due = [SessionKey(*row) for row in await db.fetch(DUE, now_ms, limit)]
    if due:
        changing = {SessionKey(*row) for row in await db.fetch(CHANGING, *_columns(due))}
        due = [key for key in due if key not in changing]
    if due:
        await _update(db, events, due, now_ms, judge)
    return len(due)


async def _update(
    db: Db, events: TransactionEvents, keys: Sequence[SessionKey], now_ms: int, judge: SessionRule
) -> list[SessionUpdate]:
    """Write the updates that `judge` returns for these locked sessions."""
    columns = _columns(keys)
    messages: dict[SessionKey, list[SessionMessage]] = defaultdict(list)
    for row in await db.fetch(MESSAGES, *columns):
        messages[SessionKey(*row[:3])].append(SessionMessage(*row[3:]))
    turns: dict[SessionKey, list[Turn]] = defaultdict(list)
    for row in await db.fetch(TURNS, *columns):
        turns[SessionKey(*row[:3])].append(Turn(*row[3:]))
    updates: dict[SessionKey, SessionUpdate] = {}
    for row in await db.fetch(STATES, *columns):
        key = SessionKey(*row[:3])
        updates[key] = judge(SessionState(key, messages[key], turns[key], *row[3:]))
    await _write(db, events, now_ms, updates)
    return list(updates.values())


async def _write(
    db: Db, events: TransactionEvents, now_ms: int, updates: dict[SessionKey, SessionUpdate]
) -> None:
    for key, update in updates.items():
        if update.arrived is not None:
            await db.execute(ADD_MESSAGE, *key, *update.arrived)
        if update.address is not None:
            await db.execute(SET_ADDRESS, *key, *update.address)
    changes = updates.values()
    removed = [each for update in changes for each in (*update.dropped, *update.taken)]
    if removed:
        await db.execute(DROP_MESSAGES, removed)
    stopped = [each for update in changes for each in update.stopped]
    if stopped:
        await cancel(db, events, now_ms, stopped)
    begun = [(key, run) for key, update in updates.items() for run in update.begun]
    if begun:
        await insert_runs(db, events, now_ms, [run for _, run in begun])
        await db.execute(ADD_TURNS, *_columns([key for key, _ in begun]), [run.id for _, run in begun])
    over = [run_id for update in changes for run_id in update.over]
    if over:
        await db.execute(END_TURNS, over)
    due, places, context = zip(*((each.due_ms, each.places, each.context) for each in changes), strict=True)
    await db.execute(UPDATE_SESSIONS, *_columns(list(updates)), list(due), list(places), list(context))


def _columns(keys: Sequence[SessionKey]) -> tuple[list[str], list[str], list[str]]:
    return [key.workspace for key in keys], [key.agent for key in keys], [key.name for key in keys]


async def sessions(db: Db, workspace: str, agent: str, after: str | None, limit: int) -> list[SessionView]:
    return [_view(row) for row in await db.fetch(SESSIONS, workspace, agent, after or "", limit)]


async def session(db: Db, key: SessionKey) -> SessionView | None:
    row = await db.fetchrow(SESSION, *key)
    return None if row is None else _view(row)


def _view(row: Record) -> SessionView:
    name, waiting, turns, *rest = row
    return SessionView(name, waiting, tuple(turns.split(",")) if turns else (), *rest)
