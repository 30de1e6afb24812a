"""Workspaces, agents and keys.

In PostgreSQL locks are taken in this order: agents, quotas, and after everything else the heads of the audit
chains, on which all writers of a workspace meet; within a kind, by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from wakeful.errors import AlreadyExists, FailedPrecondition, PermissionDenied
from wakeful.store.accounts import AgentRow, KeyChange, KeyRow, WorkspaceRow
from wakeful.store.columns import column_list, insert
from wakeful.store.internal_jobs import IN_SQL, WORKSPACE_AGENT
from wakeful.store.sql.driver import Duplicate, Row, SqlSession
from wakeful.values.plural import plural

_WORKSPACE: Final = f"SELECT {column_list(WorkspaceRow._fields)} FROM workspaces"
#: the primary key
WORKSPACE: Final = f"{_WORKSPACE} WHERE name = $1"
#: the primary key
LOCK_WORKSPACE: Final = f"{WORKSPACE} FOR NO KEY UPDATE"
#: the primary key, all of it in its order
WORKSPACES: Final = f"{_WORKSPACE} ORDER BY name"
#: the primary key: a range of it, in its order
WORKSPACES_NAMED: Final = f"{_WORKSPACE} WHERE name >= $1 AND name < $2 ORDER BY name LIMIT $3"
#: the primary key; writes nothing if another transaction has added the workspace meanwhile
ADD_WORKSPACE: Final = f"""
    {insert("workspaces", WorkspaceRow._fields)}
    ON CONFLICT DO NOTHING"""
#: the primary key
CHANGE_WORKSPACE: Final = """
    UPDATE workspaces SET tz = $2, description = $3, updated_at = $4, budget = $5, alerts = $6,
        lane_weight = $7
    WHERE name = $1"""

AGENT_COLUMNS: Final = (
    "workspace, name, target, tz, active, channel, send_to, description, version, created_at, updated_at, "
    "budget, alerts, queue, heartbeat, secret, old_secret, old_secret_until_at, deliver_to, evolution, "
    "approval, self_scheduling"
)
#: A parameter for each of them.
AGENT_PARAMETERS: Final = ", ".join(f"${number}" for number in range(1, AGENT_COLUMNS.count(",") + 2))

#: the primary key
AGENT: Final = f"SELECT {AGENT_COLUMNS} FROM agents WHERE workspace = $1 AND name = $2"
#: the primary key. Waits for a transaction that deletes the agent, and that one for this one
HOLD_AGENT: Final = "SELECT 1 FROM agents WHERE workspace = $1 AND name = $2 FOR KEY SHARE"
#: the primary key. Waits for transactions that create or change jobs of the agent, and they for this one
LOCK_AGENT: Final = f"{AGENT} FOR NO KEY UPDATE"
#: the primary key: a range of it, in its order
AGENTS: Final = f"SELECT {AGENT_COLUMNS} FROM agents WHERE workspace = $1 ORDER BY name"
#: the primary key; writes nothing if another transaction has added the agent meanwhile
ADD_AGENT: Final = f"""
    INSERT INTO agents ({AGENT_COLUMNS}) VALUES ({AGENT_PARAMETERS})
    ON CONFLICT DO NOTHING"""
#: the primary key
CHANGE_AGENT: Final = """
    UPDATE agents SET target = $3, tz = $4, active = $5, channel = $6, send_to = $7, description = $8,
        version = $9, updated_at = $10, budget = $11, alerts = $12, queue = $13, heartbeat = $14,
        secret = $15, old_secret = $16, old_secret_until_at = $17, deliver_to = $18,
        evolution = $19, approval = $20, self_scheduling = $21
    WHERE workspace = $1 AND name = $2"""
#: jobs_name
COUNT_JOBS: Final = "SELECT count(*) FROM jobs WHERE workspace = $1 AND agent = $2 AND deleted_at IS NULL"
#: the primary key
DELETE_AGENT: Final = "DELETE FROM agents WHERE workspace = $1 AND name = $2"
#: agents_evolution, all of it in its order
EVOLVING_AGENTS: Final = """
    SELECT workspace, name, active FROM agents WHERE evolution = 'suggest' ORDER BY workspace, name"""
#: the tables, all of them: once at the start of a process
WITH_INTERNAL_JOBS: Final = f"""
    SELECT workspace, name FROM agents
    WHERE heartbeat IS NOT NULL OR alerts IS NOT NULL OR evolution IS NOT NULL
    UNION
    SELECT j.workspace, j.agent FROM jobs j WHERE j.deleted_at IS NULL AND j.name IN ({IN_SQL})
    UNION
    SELECT name, '{WORKSPACE_AGENT}' FROM workspaces WHERE alerts IS NOT NULL
    ORDER BY 1, 2"""
#: instances_name: a range of it
LIVE_INSTANCES: Final = """
    SELECT count(*) FROM instances WHERE workspace = $1 AND agent = $2 AND status <> 'stopped'"""
#: instances_name: a range of it
INSTANCE_IDS: Final = "SELECT id::text FROM instances WHERE workspace = $1 AND agent = $2"
#: instances_name: a range of it
DELETE_INSTANCES: Final = "DELETE FROM instances WHERE workspace = $1 AND agent = $2"
#: the primary key: a range of it for each. An instance of the same name has the same id, and begins anew
DELETE_SIGNAL_IDS: Final = "DELETE FROM signal_ids WHERE instance_id = ANY($1::uuid[])"
#: the primary key
DELETE_CLASS: Final = "DELETE FROM agent_classes WHERE workspace = $1 AND agent = $2"
#: suggestions_of_agent
DELETE_SUGGESTIONS: Final = "DELETE FROM suggestions WHERE workspace = $1 AND agent = $2"
#: the primary keys, messages_of_session and turns_live: a range of each
DELETE_SESSIONS: Final = "DELETE FROM sessions WHERE workspace = $1 AND agent = $2"
DELETE_MESSAGES: Final = "DELETE FROM messages WHERE workspace = $1 AND agent = $2"
DELETE_TURNS: Final = "DELETE FROM turns WHERE live AND workspace = $1 AND agent = $2"
DELETE_HISTORIES: Final = "DELETE FROM session_history WHERE workspace = $1 AND agent = $2"

_KEYS: Final = f"SELECT {column_list(KeyRow._fields)} FROM keys"
ADD_KEY: Final = insert("keys", KeyRow._fields)
#: the primary key of people. A transaction that removes the person waits, and then sees the key
HOLD_PERSON: Final = "SELECT removed_at FROM people WHERE id = $1 FOR SHARE"
#: keys_hash
KEY_BY_HASH: Final = f"{_KEYS} WHERE hash = $1"
#: the primary key, once for each
KEY_NAMES: Final = "SELECT id, name FROM keys WHERE id = ANY($1::text[])"
#: keys_of_workspace: a range of it, in its order
KEYS: Final = f"{_KEYS} WHERE workspace = $1 ORDER BY created_at, id"
#: keys_of_workspace: a range of it, in its order
GLOBAL_KEYS: Final = f"{_KEYS} WHERE workspace IS NULL ORDER BY created_at, id"
#: the table, all of it
ALL_KEYS: Final = f"{_KEYS} ORDER BY created_at, id"
#: the primary key
REVOKE_KEY: Final = "UPDATE keys SET revoked_at = $2 WHERE id = $1 AND revoked_at IS NULL"
#: subscriptions_of_principal: what a key subscribed to expires with it
EXPIRE_SUBSCRIPTIONS: Final = """
    UPDATE subscriptions SET expires_at = $2 WHERE principal = $1 AND ended_at IS NULL"""
#: keys_of_creator: a range of it
GRANTS_OF: Final = """
    SELECT id FROM keys WHERE created_by = $1 AND revoked_at IS NULL AND client IS NOT NULL ORDER BY id"""
#: keys_of_workspace: a range of it
KEYS_OF_AGENT: Final = "SELECT id FROM keys WHERE workspace = $1 AND agent = $2 AND revoked_at IS NULL"
#: the primary key
TOUCH_KEY: Final = """
    UPDATE keys SET last_used_at = $2 WHERE id = $1 AND (last_used_at IS NULL OR last_used_at < $2)"""


# --- workspaces and agents ------------------------------------------------------------------------------


async def workspace(session: SqlSession, name: str) -> WorkspaceRow | None:
    """Return the workspace of that name."""
    row = await session.row(WORKSPACE, name)
    return None if row is None else WorkspaceRow(*row)


async def lock_workspace(session: SqlSession, name: str) -> WorkspaceRow | None:
    """Return the workspace of that name, and keep other transactions from changing it."""
    row = await session.row(LOCK_WORKSPACE, name)
    return None if row is None else WorkspaceRow(*row)


async def workspaces(session: SqlSession) -> list[WorkspaceRow]:
    """Return all workspaces, by name."""
    return [WorkspaceRow(*row) for row in await session.rows(WORKSPACES)]


async def workspaces_named(session: SqlSession, prefix: str, limit: int) -> list[WorkspaceRow]:
    """Return the workspaces whose names begin like this, by name."""
    # `~` comes after all characters of a name.
    return [WorkspaceRow(*row) for row in await session.rows(WORKSPACES_NAMED, prefix, f"{prefix}~", limit)]


async def put_workspace(
    session: SqlSession, row: WorkspaceRow, check: Callable[[WorkspaceRow | None], None]
) -> WorkspaceRow:
    """Add the workspace, or replace it, unless `check` of the present one raises; return it."""
    while True:
        old = await lock_workspace(session, row.name)
        check(old)
        if old is None:
            if await session.execute(ADD_WORKSPACE, *row):
                return row
            continue
        new = row._replace(created_ms=old.created_ms, updated_ms=max(row.updated_ms, old.updated_ms + 1))
        await session.execute(CHANGE_WORKSPACE, *new[:3], *new[4:])
        return new


async def agent(session: SqlSession, workspace: str, name: str) -> AgentRow | None:
    """Return the agent of that name."""
    return _agent(await session.row(AGENT, workspace, name))


async def agents(session: SqlSession, workspace: str) -> list[AgentRow]:
    """Return the agents of a workspace, by name."""
    return [agent_row(row) for row in await session.rows(AGENTS, workspace)]


async def evolving_agents(session: SqlSession) -> list[tuple[str, str, bool]]:
    """Return the agents (workspace, name, active) whose `evolution` is on, in all workspaces."""
    return [
        (workspace, name, bool(active)) for workspace, name, active in await session.rows(EVOLVING_AGENTS)
    ]


async def agents_with_internal_jobs(session: SqlSession) -> list[tuple[str, str]]:
    """Return the agents (workspace, name) that have internal jobs, or whose documents require them."""
    return [(workspace, name) for workspace, name in await session.rows(WITH_INTERNAL_JOBS)]


async def lock_agent(session: SqlSession, workspace: str, name: str) -> None:
    """Keep other transactions from changing the agent, or creating jobs of it."""
    await session.row(LOCK_AGENT, workspace, name)


async def add_agent(session: SqlSession, workspace: str, name: str, now_ms: int) -> None:
    """Add an agent without settings if there is none, and keep it from being deleted."""
    new = AgentRow(workspace, name, None, None, True, None, None, "", 1, now_ms, now_ms)
    while await session.row(HOLD_AGENT, workspace, name) is None:
        await session.execute(ADD_AGENT, *new)


async def put_agent(
    session: SqlSession, workspace: str, name: str, change: Callable[[AgentRow | None], AgentRow | None]
) -> tuple[AgentRow | None, AgentRow | None, bool]:
    """Lock the agent and write what `change` returns.

    Returns the agent before and after, and whether it was written.
    """
    while True:
        old = _agent(await session.row(LOCK_AGENT, workspace, name))
        new = change(old)
        if new is None:
            return old, old, False
        new = new._replace(workspace=workspace, name=name, version=old.version + 1 if old else 1)
        if old is not None:
            new = new._replace(created_ms=old.created_ms)
            await session.execute(CHANGE_AGENT, *new[:9], *new[10:])
            return old, new, True
        if await session.execute(ADD_AGENT, *new):
            return None, new, True


async def delete_agent(
    session: SqlSession, workspace: str, name: str, now_ms: int
) -> tuple[bool, Sequence[str]]:
    """Delete the agent and revoke its keys, unless it has jobs, or instances that are not stopped.

    Returns whether there was one, and the ids of the keys.
    """
    # The rows first: transactions that create jobs or instances have ended then, or wait and add the agent
    # again, or find that it has no class.
    deleted = await session.execute(DELETE_AGENT, workspace, name)
    await session.execute(DELETE_CLASS, workspace, name)
    instances = int(await session.value(LIVE_INSTANCES, workspace, name) or 0)
    if instances:
        what = plural(instances, "instance")
        it = "it" if instances == 1 else "them"
        raise FailedPrecondition(
            f"agent '{name}' has {what} that {_is(instances)} not stopped: stop {it} first"
        )
    jobs = int(await session.value(COUNT_JOBS, workspace, name) or 0)
    if jobs:
        raise FailedPrecondition(
            f"agent '{name}' has {plural(jobs, 'job')}: delete {'it' if jobs == 1 else 'them'} first"
        )
    gone = await session.column(INSTANCE_IDS, workspace, name)
    # The rows of sessions before their histories: an outcome that appends holds the row of its session.
    for statement in (
        DELETE_SESSIONS, DELETE_MESSAGES, DELETE_TURNS, DELETE_HISTORIES, DELETE_INSTANCES,
        DELETE_SUGGESTIONS,
    ):  # fmt: skip
        await session.execute(statement, workspace, name)
    if gone:
        await session.execute(DELETE_SIGNAL_IDS, gone)
    # None is added meanwhile: that holds the row of the agent.
    ids = sorted(await session.column(KEYS_OF_AGENT, workspace, name)) if deleted else []
    for key_id in ids:
        await revoke_key(session, key_id, now_ms)
    return deleted > 0, ids


def _is(count: int) -> str:
    return "is" if count == 1 else "are"


def _agent(row: Row | None) -> AgentRow | None:
    return None if row is None else agent_row(row)


def agent_row(row: Row) -> AgentRow:
    """Return an agent from its columns."""
    agent = AgentRow(*row)
    return agent._replace(active=bool(agent.active))  # SQLite has no booleans


# --- keys -----------------------------------------------------------------------------------------------


async def add_key(session: SqlSession, row: KeyRow) -> None:
    """Add a key, and its agent if there is none. A person who was removed adds none."""
    kind, _, person_id = row.created_by.partition(":")
    if kind == "person" and row.client is None and await session.value(HOLD_PERSON, person_id) is not None:
        raise PermissionDenied("you were removed from this installation; sign in again")
    if row.workspace is not None and row.agent is not None:
        await add_agent(session, row.workspace, row.agent, row.created_ms)
    try:
        await session.execute(ADD_KEY, *row)
    except Duplicate as error:
        raise AlreadyExists(f"there is a key '{row.id}' already, or one with the same secret") from error


async def key_by_hash(session: SqlSession, hash: bytes) -> KeyRow | None:
    """Return the key with that hash, expired and revoked ones included."""
    row = await session.row(KEY_BY_HASH, hash)
    return None if row is None else KeyRow(*row)


async def key_names(session: SqlSession, ids: Sequence[str]) -> dict[str, str]:
    """Return the names of these keys by id, expired and revoked ones included."""
    rows = await session.rows(KEY_NAMES, ids)
    return {row[0]: row[1] for row in rows}


async def keys(session: SqlSession, workspace: str | None) -> list[KeyRow]:
    """Return the keys of a workspace, oldest first; None: all keys."""
    rows = await (session.rows(ALL_KEYS) if workspace is None else session.rows(KEYS, workspace))
    return [KeyRow(*row) for row in rows]


async def global_keys(session: SqlSession) -> list[KeyRow]:
    """Return the keys that belong to no workspace, oldest first."""
    return [KeyRow(*row) for row in await session.rows(GLOBAL_KEYS)]


async def revoke_key(session: SqlSession, key_id: str, now_ms: int) -> bool:
    """Revoke a key and the assistants that were connected with it, and let their subscriptions expire."""
    actor = f"key:{key_id}"
    if not await session.execute(REVOKE_KEY, key_id, now_ms):
        return False
    await session.execute(EXPIRE_SUBSCRIPTIONS, actor, now_ms)
    for grant in await session.column(GRANTS_OF, actor):
        await session.execute(REVOKE_KEY, grant, now_ms)
        await session.execute(EXPIRE_SUBSCRIPTIONS, f"key:{grant}", now_ms)
    return True


async def change_keys(
    session: SqlSession, decide: Callable[[Sequence[KeyRow]], KeyChange], now_ms: int
) -> KeyChange:
    """Write what `decide` returns for all keys."""
    await session.lock_table("keys")
    change = decide(await keys(session, None))
    if change.add is not None:
        await add_key(session, change.add)
    for key_id in change.revoke:
        await revoke_key(session, key_id, now_ms)
    return change


async def touch_keys(session: SqlSession, used: Sequence[tuple[str, int]]) -> None:
    """Record when keys were last used: (id, instant). An instant before the stored one is ignored."""
    newest = dict(sorted(used, key=lambda use: use[1]))
    await session.execute_many(TOUCH_KEY, sorted(newest.items()))
