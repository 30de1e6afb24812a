"""Conversations in PostgreSQL: what waits in them, and their turns. See `store/talking.py`.

The row of a conversation is locked before any run is, and nobody who has locked a run waits for one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from wakeful.store.postgres.cancellation import cancel
from wakeful.store.postgres.insert_runs import insert_runs
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

if TYPE_CHECKING:
    from wakeful.store.postgres.connection import Db, TransactionEvents

_GIVEN: Final = "unnest($1::text[], $2::text[], $3::text[]) k (workspace, agent, name)"
#: turns_live: a range of it; the primary key of live, once for each
_LIVE: Final = """
    FROM turns t JOIN live_runs l ON l.run_id = t.run_id
    WHERE t.live AND t.workspace = s.workspace AND t.agent = s.agent AND t.session = s.name"""
#: the primary key
MAKE: Final = """
    INSERT INTO sessions (workspace, agent, name, places, created_at, updated_at)
    VALUES ($1, $2, $3, 1, $4, $4)
    ON CONFLICT (workspace, agent, name) DO UPDATE SET updated_at = EXCLUDED.updated_at"""
#: sessions_due, in its order; `_LIVE` for each
DUE: Final = f"""
    SELECT s.workspace, s.agent, s.name FROM sessions s
    WHERE s.due_at <= $1 AND s.places > (SELECT count(*) {_LIVE})
    ORDER BY s.due_at LIMIT $2 FOR UPDATE OF s SKIP LOCKED"""
#: the primary keys of sessions and agents, and jobs_name, once for each
TALKS: Final = f"""
    SELECT s.workspace, s.agent, s.name, s.context, a.queue, j.id::text, j.work, j.policy FROM {_GIVEN}
    JOIN sessions s ON s.workspace = k.workspace AND s.agent = k.agent AND s.name = k.name
    LEFT JOIN agents a ON a.workspace = s.workspace AND a.name = s.agent
    LEFT JOIN jobs j ON j.workspace = s.workspace AND j.agent = s.agent AND j.name = '{WAKE_JOB}'
        AND j.deleted_at IS NULL"""
#: messages_of_session: a range of it for each
MESSAGES: Final = f"""
    SELECT m.workspace, m.agent, m.session, m.id::text, m.body, m.sent_by, m.trigger, m.at FROM {_GIVEN}
    JOIN messages m ON m.workspace = k.workspace AND m.agent = k.agent AND m.session = k.name
    ORDER BY m.at, m.id"""
#: turns_live: a range of it for each; the primary key of runs, once for each of those
TURNS: Final = f"""
    SELECT k.workspace, k.agent, k.name, t.run_id::text, r.state, r.usage FROM {_GIVEN}
    CROSS JOIN LATERAL (
        SELECT run_id FROM turns
        WHERE live AND workspace = k.workspace AND agent = k.agent AND session = k.name OFFSET 0) t
    LEFT JOIN runs r ON r.id = t.run_id ORDER BY t.run_id"""
#: the primary keys
ADD_MESSAGE: Final = """
    INSERT INTO messages (workspace, agent, session, id, body, sent_by, trigger, at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)"""
DROP_MESSAGES: Final = "DELETE FROM messages WHERE id = ANY($1::uuid[])"
ADD_TURNS: Final = """
    INSERT INTO turns (workspace, agent, session, run_id, live)
    SELECT k.*, true FROM unnest($1::text[], $2::text[], $3::text[], $4::uuid[]) k"""
END_TURNS: Final = "UPDATE turns SET live = false WHERE run_id = ANY($1::uuid[])"
SETTLE: Final = """
    UPDATE sessions s SET due_at = k.due_at, places = k.places, context = k.context
    FROM unnest($1::text[], $2::text[], $3::text[], $4::timestamptz[], $5::integer[], $6::float8[])
        k (workspace, agent, name, due_at, places, context)
    WHERE s.workspace = k.workspace AND s.agent = k.agent AND s.name = k.name"""
#: the primary key: a range of it, in its order; for each, messages_of_session and `_LIVE`
SESSIONS: Final = f"""
    SELECT s.name,
        (SELECT count(*) FROM messages m
            WHERE m.workspace = s.workspace AND m.agent = s.agent AND m.session = s.name),
        (SELECT string_agg(l.run_id::text, ',' ORDER BY l.run_id) {_LIVE}),
        s.context, s.due_at, s.created_at, s.updated_at
    FROM sessions s WHERE s.workspace = $1 AND s.agent = $2 AND s.name > $3 ORDER BY s.name LIMIT $4"""


async def update_session(
    db: Db, events: TransactionEvents, key: SessionKey, now_ms: int, judge: SessionRule
) -> SessionUpdate:
    """Write what `judge` makes of a conversation, which may be new."""
    await db.execute(MAKE, *key, now_ms)
    (settled,) = await _settle(db, events, [key], now_ms, judge)
    if settled.due_ms is not None:
        events.publish("sessions")
    return settled


async def take_turns(db: Db, events: TransactionEvents, now_ms: int, limit: int, judge: SessionRule) -> int:
    """The same for those that are due."""
    due = [SessionKey(*row) for row in await db.fetch(DUE, now_ms, limit)]
    if due:
        await _settle(db, events, due, now_ms, judge)
    return len(due)


async def _settle(
    db: Db, events: TransactionEvents, keys: Sequence[SessionKey], now_ms: int, judge: SessionRule
) -> list[SessionUpdate]:
    """Write what `judge` makes of these, which are locked."""
    given = _columns(keys)
    messages: dict[SessionKey, list[SessionMessage]] = defaultdict(list)
    for row in await db.fetch(MESSAGES, *given):
        messages[SessionKey(*row[:3])].append(SessionMessage(*row[3:]))
    turns: dict[SessionKey, list[Turn]] = defaultdict(list)
    for row in await db.fetch(TURNS, *given):
        turns[SessionKey(*row[:3])].append(Turn(*row[3:]))
    verdicts: dict[SessionKey, SessionUpdate] = {}
    for row in await db.fetch(TALKS, *given):
        key = SessionKey(*row[:3])
        verdicts[key] = judge(SessionState(key, messages[key], turns[key], *row[3:]))
    await _write(db, events, now_ms, verdicts)
    return list(verdicts.values())


async def _write(
    db: Db, events: TransactionEvents, now_ms: int, verdicts: dict[SessionKey, SessionUpdate]
) -> None:
    for key, settled in verdicts.items():
        if settled.arrived is not None:
            await db.execute(ADD_MESSAGE, *key, *settled.arrived)
    every = verdicts.values()
    gone = [each for settled in every for each in (*settled.dropped, *settled.taken)]
    if gone:
        await db.execute(DROP_MESSAGES, gone)
    stopped = [each for settled in every for each in settled.stopped]
    if stopped:
        await cancel(db, events, now_ms, stopped)
    begun = [(key, run) for key, settled in verdicts.items() for run in settled.begun]
    if begun:
        await insert_runs(db, events, now_ms, [run for _, run in begun])
        await db.execute(ADD_TURNS, *_columns([key for key, _ in begun]), [run.id for _, run in begun])
    over = [run_id for settled in every for run_id in settled.over]
    if over:
        await db.execute(END_TURNS, over)
    due, places, context = zip(*((each.due_ms, each.places, each.context) for each in every), strict=True)
    await db.execute(SETTLE, *_columns(list(verdicts)), list(due), list(places), list(context))


def _columns(keys: Sequence[SessionKey]) -> tuple[list[str], list[str], list[str]]:
    return [key.workspace for key in keys], [key.agent for key in keys], [key.name for key in keys]


async def sessions(db: Db, workspace: str, agent: str, after: str | None, limit: int) -> list[SessionView]:
    """Return the sessions of an agent. See `Store.sessions`."""
    return [
        SessionView(name, waiting, tuple(turns.split(",")) if turns else (), *rest)
        for name, waiting, turns, *rest in await db.fetch(SESSIONS, workspace, agent, after or "", limit)
    ]
