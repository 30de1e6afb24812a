"""Sessions and their turns. See `store/sessions.py`.

A transaction locks the rows of sessions before those of runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from wakeful.job.self_scheduling import ChargeRule
from wakeful.store.accounts import no_agent
from wakeful.store.audit import AuditEntry, always
from wakeful.store.changelog import TransactionEvents
from wakeful.store.idempotency import Keyed
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
from wakeful.store.sql.base import Recorded, SqlBase, reads
from wakeful.store.sql.driver import Row, SqlSession
from wakeful.values.ids import first_id

_GIVEN: Final = "unnest($1::text[], $2::text[], $3::text[]) k (workspace, agent, name)"
#: turns_live: a range of it; the primary key of runs, once for each
_LIVE: Final = """
    FROM turns t /*+ INDEXED BY turns_live */ /*+ CROSS */ JOIN runs r ON r.id = t.run_id
    WHERE t.live AND t.workspace = s.workspace AND t.agent = s.agent AND t.session = s.name
        AND r.state IN ('pending', 'retrying', 'running')"""
#: the primary keys of agents and sessions. Waits for a transaction that deletes the agent
TOUCH: Final = """
    INSERT INTO sessions (workspace, agent, name, places, created_at, updated_at)
    SELECT a.workspace, a.name, $3::text, 1, $4::timestamptz, $4::timestamptz FROM agents a
    WHERE a.workspace = $1 AND a.name = $2 FOR KEY SHARE
    ON CONFLICT (workspace, agent, name) DO UPDATE SET updated_at = EXCLUDED.updated_at"""
#: sessions_due, in its order; `_LIVE` for each
DUE: Final = f"""
    SELECT s.workspace, s.agent, s.name FROM sessions s /*+ INDEXED BY sessions_due */
    WHERE s.due_at <= $1 AND s.places > (SELECT count(*) {_LIVE})
    ORDER BY s.due_at LIMIT $2 FOR UPDATE OF s SKIP LOCKED"""
_WAKE_JOB: Final = f"j.name = '{WAKE_JOB}' AND j.deleted_at IS NULL"
#: jobs_name. A turn that begins has the target of the job: a transaction that changes it waits, and moves
#: the turn; or this one waits for it
HOLD_WAKE_JOB: Final = f"""
    SELECT 1 FROM jobs j /*+ INDEXED BY jobs_name */
    WHERE j.workspace = $1 AND j.agent = $2 AND {_WAKE_JOB} FOR SHARE"""
#: jobs_name, once for each. The same for several tenants, none of which waits: without jobs that change
HOLD_WAKE_JOBS: Final = f"""
    SELECT k.workspace, k.agent FROM unnest($1::text[], $2::text[]) k (workspace, agent)
    /*+ CROSS */ JOIN jobs j /*+ INDEXED BY jobs_name */
        ON j.workspace = k.workspace AND j.agent = k.agent AND {_WAKE_JOB}
    FOR SHARE OF j SKIP LOCKED"""
#: the primary keys of sessions and agents, and jobs_name, once for each
STATES: Final = f"""
    SELECT s.workspace, s.agent, s.name, s.context, a.queue, j.id::text, j.work, j.policy FROM {_GIVEN}
    /*+ CROSS */ JOIN sessions s ON s.workspace = k.workspace AND s.agent = k.agent AND s.name = k.name
    LEFT JOIN agents a ON a.workspace = s.workspace AND a.name = s.agent
    LEFT JOIN jobs j /*+ INDEXED BY jobs_name */
        ON j.workspace = s.workspace AND j.agent = s.agent AND {_WAKE_JOB}"""
#: messages_of_session: a range of it for each
MESSAGES: Final = f"""
    SELECT m.workspace, m.agent, m.session, m.id::text, m.body, m.sent_by, m.trigger, m.at, m.depth
    FROM {_GIVEN}
    /*+ CROSS */ JOIN messages m /*+ INDEXED BY messages_of_session */
        ON m.workspace = k.workspace AND m.agent = k.agent AND m.session = k.name
    ORDER BY m.at, m.id"""
#: turns_live: a range of it for each; the primary key of runs, once for each of those
TURNS: Final = f"""
    SELECT k.workspace, k.agent, k.name, t.run_id::text, r.state, r.usage, r.payload FROM {_GIVEN}
    /*+ CROSS */ JOIN turns t /*+ INDEXED BY turns_live */
        ON t.live AND t.workspace = k.workspace AND t.agent = k.agent AND t.session = k.name
    LEFT JOIN runs r ON r.id = t.run_id ORDER BY t.run_id"""
#: the primary keys
ADD_MESSAGE: Final = """
    INSERT INTO messages (workspace, agent, session, id, body, sent_by, trigger, at, depth)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)"""
DROP_MESSAGES: Final = "DELETE FROM messages WHERE id = ANY($1::uuid[])"
ADD_TURN: Final = "INSERT INTO turns (workspace, agent, session, run_id, live) VALUES ($1, $2, $3, $4, true)"
END_TURNS: Final = "UPDATE turns SET live = false WHERE run_id = ANY($1::uuid[])"
UPDATE_SESSION: Final = """
    UPDATE sessions SET due_at = $4, places = $5, context = $6
    WHERE workspace = $1 AND agent = $2 AND name = $3"""
SET_ADDRESS: Final = """
    UPDATE sessions SET channel = $4, send_to = $5 WHERE workspace = $1 AND agent = $2 AND name = $3"""
_VIEW: Final = f"""
    SELECT s.name,
        (SELECT count(*) FROM messages m /*+ INDEXED BY messages_of_session */
            WHERE m.workspace = s.workspace AND m.agent = s.agent AND m.session = s.name),
        (SELECT string_agg(t.run_id::text, ',') {_LIVE}),
        s.context, s.due_at, s.created_at, s.updated_at, s.channel, s.send_to
    FROM sessions s WHERE s.workspace = $1 AND s.agent = $2"""
#: the primary key: a range of it, in its order; for each, messages_of_session and `_LIVE`
SESSIONS: Final = f"{_VIEW} AND s.name > $3 ORDER BY s.name LIMIT $4"
#: the primary key; messages_of_session and `_LIVE`
SESSION: Final = f"{_VIEW} AND s.name = $3"
#: sessions_due: its first entry, and its first after that instant
NEXT_TURN: Final = """
    SELECT EXISTS (SELECT 1 FROM sessions WHERE due_at <= $1),
        (SELECT min(due_at) FROM sessions WHERE due_at > $1)"""
#: the primary key: its beginning; that of runs for each that is live. The last turn of a session stays live:
#: no update follows that would see its end
PRUNE_TURNS: Final = """
    DELETE FROM turns WHERE run_id < $1 AND (NOT live OR NOT EXISTS (
        SELECT 1 FROM runs r WHERE r.id = turns.run_id AND r.state IN ('pending', 'retrying', 'running')))"""
#: the table, all of it; for each, turns_live and the primary key of session_history. An entry may be later
#: than its session, if the clock was set back
PRUNE_SESSIONS: Final = """
    DELETE FROM sessions WHERE updated_at < $1 AND due_at IS NULL AND NOT EXISTS (
        SELECT 1 FROM turns t WHERE t.live AND t.workspace = sessions.workspace
        AND t.agent = sessions.agent AND t.session = sessions.name) AND NOT EXISTS (
        SELECT 1 FROM session_history h WHERE h.workspace = sessions.workspace
        AND h.agent = sessions.agent AND h.session = sessions.name)"""


async def session_states(session: SqlSession, keys: Sequence[SessionKey]) -> list[SessionState]:
    """Return these sessions with their waiting messages and live turns."""
    columns = [key.workspace for key in keys], [key.agent for key in keys], [key.name for key in keys]
    messages: dict[SessionKey, list[SessionMessage]] = defaultdict(list)
    for workspace, agent, name, *message in await session.rows(MESSAGES, *columns):
        messages[SessionKey(workspace, agent, name)].append(SessionMessage(*message))
    turns: dict[SessionKey, list[Turn]] = defaultdict(list)
    for workspace, agent, name, *turn in await session.rows(TURNS, *columns):
        turns[SessionKey(workspace, agent, name)].append(Turn(*turn))
    states = []
    for workspace, agent, name, *rest in await session.rows(STATES, *columns):
        key = SessionKey(workspace, agent, name)
        states.append(SessionState(key, messages[key], turns[key], *rest))
    return states


async def write_updates(session: SqlSession, updates: Mapping[SessionKey, SessionUpdate]) -> None:
    """Write these updates, without the turns that begin or are stopped."""
    for key, update in updates.items():
        if update.arrived is not None:
            await session.execute(ADD_MESSAGE, *key, *update.arrived)
        if update.address is not None:
            await session.execute(SET_ADDRESS, *key, *update.address)
    removed = [each for update in updates.values() for each in (*update.dropped, *update.taken)]
    if removed:
        await session.execute(DROP_MESSAGES, removed)
    over = [run_id for update in updates.values() for run_id in update.over]
    if over:
        await session.execute(END_TURNS, over)
    await session.execute_many(
        UPDATE_SESSION,
        [(*key, update.due_ms, update.places, update.context) for key, update in updates.items()],
    )


async def sessions(
    session: SqlSession, workspace: str, agent: str, after: str | None, limit: int
) -> list[SessionView]:
    """Return the sessions of an agent, by name, after `after`."""
    return [_view(row) for row in await session.rows(SESSIONS, workspace, agent, after or "", limit)]


async def read_session(session: SqlSession, key: SessionKey) -> SessionView | None:
    """Return a session."""
    row = await session.row(SESSION, *key)
    return None if row is None else _view(row)


def _view(row: Row) -> SessionView:
    name, waiting, turns, *rest = row
    return SessionView(name, waiting, tuple(sorted(turns.split(","))) if turns else (), *rest)


async def next_turn(session: SqlSession, now_ms: int) -> tuple[bool, int | None]:
    """Return whether any session is due, full or not, and when the next one will be."""
    is_due, next_ms = await session.row(NEXT_TURN, now_ms) or (False, None)
    return bool(is_due), next_ms


async def prune_sessions(session: SqlSession, before_ms: int) -> None:
    """Delete turns that ended and began before then, and sessions without messages since."""
    await session.execute(PRUNE_TURNS, first_id(before_ms))
    await session.execute(PRUNE_SESSIONS, before_ms)


class SqlSessions(SqlBase):
    """Sessions with their history."""

    async def update_session(
        self,
        key: SessionKey,
        now_ms: int,
        judge: SessionRule,
        entries: Sequence[AuditEntry] = (),
        keyed: Keyed[SessionUpdate] | None = None,
        charge: ChargeRule | None = None,
    ) -> SessionUpdate:
        """Lock a session, which is added if there is none, and write the update that `judge` returns.

        Topic: `sessions`, if anything waits in it. `charge` is as in `create_jobs`.
        """

        async def update(db: Any, events: TransactionEvents) -> SessionUpdate:
            session = self._driver.session(db)
            if await session.execute(TOUCH, *key, now_ms) == 0:
                raise no_agent(key.agent)
            await session.row(HOLD_WAKE_JOB, key.workspace, key.agent)
            (updated,) = await self._update(db, events, [key], now_ms, judge)
            if updated.due_ms is not None:
                events.publish("sessions")
            return updated

        return await self._record(Recorded(entries, always, keyed, charge), update)

    async def take_turns(self, now_ms: int, limit: int, judge: SessionRule) -> int:
        """Update up to `limit` sessions that are due and may have another turn, longest due first.

        Sessions that another transaction holds are skipped. Returns how many were updated.
        """

        async def take(db: Any, events: TransactionEvents) -> int:
            session = self._driver.session(db)
            due = [SessionKey(*row) for row in await session.rows(DUE, now_ms, limit)]
            if not due:
                return 0
            owners = [key.workspace for key in due], [key.agent for key in due]
            held = {(workspace, agent) for workspace, agent in await session.rows(HOLD_WAKE_JOBS, *owners)}
            return len(await self._update(db, events, due, now_ms, judge, held))

        return await self._driver.write(take)

    next_turn = reads(next_turn)
    sessions = reads(sessions)
    session = reads(read_session)
    history = reads(history.history)

    async def delete_session(
        self, key: SessionKey, now_ms: int, judge: SessionRule, entries: Sequence[AuditEntry] = ()
    ) -> SessionUpdate | None:
        """Lock a session, write the update that `judge` returns, and delete it with its history.

        The update drops all messages and stops all live turns. Returns None if there is no such session.
        """

        async def delete(db: Any, events: TransactionEvents) -> SessionUpdate | None:
            session = self._driver.session(db)
            if await session.row(history.LOCK_SESSION, *key) is None:
                return None
            (updated,) = await self._update(db, events, [key], now_ms, judge)
            await history.delete(session, key)
            return updated

        return await self._record(Recorded(entries), delete)

    async def prune_sessions(self, before_ms: int, limit: int) -> int:
        """Delete up to `limit` entries of histories from before then. Returns how many.

        If there are no others, delete ended turns that began before then, and sessions without a message or
        an answer since.
        """

        async def prune_all(session: SqlSession) -> int:
            pruned = await history.prune(session, before_ms, limit)
            if pruned < limit:  # nothing of them is left: a session that is added again starts with number 1
                await prune_sessions(session, before_ms)
            return pruned

        return await self._driver.write(self._shared(prune_all))

    async def _update(
        self,
        db: Any,
        events: TransactionEvents,
        keys: Sequence[SessionKey],
        now_ms: int,
        judge: SessionRule,
        held: Collection[tuple[str, str]] | None = None,
    ) -> list[SessionUpdate]:
        """Write the updates that `judge` returns for these sessions, which are locked.

        With `held`, only sessions of these agents are updated, and of agents without a job `WAKE_JOB`.
        """
        session = self._driver.session(db)
        states = [
            state
            for state in await session_states(session, keys)
            if held is None or state.job_id is None or state.key[:2] in held
        ]
        updates = {state.key: judge(state) for state in states}
        await write_updates(session, updates)
        stopped = [each for update in updates.values() for each in update.stopped]
        if stopped:
            await self._operations.runs.cancel_runs(db, events, now_ms, stopped)
        begun = [(key, run) for key, update in updates.items() for run in update.begun]
        if begun:
            runs = [run for _, run in begun]
            await self._operations.insert_runs.insert_runs(db, events, now_ms, runs)
            await session.execute_many(ADD_TURN, [(*key, run.id) for key, run in begun])
        return list(updates.values())
