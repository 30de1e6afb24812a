"""Who there is, in SQLite: workspaces, agents and keys."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence

from wakeful.errors import AlreadyExists, FailedPrecondition
from wakeful.store.accounts import AgentChanged, AgentRow, Inherited, KeyChange, KeyRow, WorkspaceRow
from wakeful.store.quotas import QuotaOwner
from wakeful.store.sqlite import office_statements as sql

_ACTIVE = AgentRow._fields.index("active")


# --- workspaces and agents ------------------------------------------------------------------------------


def workspace(db: sqlite3.Connection, name: str) -> WorkspaceRow | None:
    """The workspace of that name."""
    row = db.execute(sql.WORKSPACE, (name,)).fetchone()
    return None if row is None else WorkspaceRow(*row)


def workspaces(db: sqlite3.Connection) -> list[WorkspaceRow]:
    """All of them, by name."""
    return [WorkspaceRow(*row) for row in db.execute(sql.WORKSPACES)]


def put_workspace(db: sqlite3.Connection, row: WorkspaceRow) -> None:
    """Add it, or replace it."""
    db.execute(sql.PUT_WORKSPACE, row)


def agent(db: sqlite3.Connection, workspace: str, name: str) -> AgentRow | None:
    """The agent of that name."""
    row = db.execute(sql.AGENT, (workspace, name)).fetchone()
    return None if row is None else _agent(row)


def agents(db: sqlite3.Connection, workspace: str) -> list[AgentRow]:
    """All of a workspace, by name."""
    return [_agent(row) for row in db.execute(sql.AGENTS, (workspace,))]


def put_agent(
    db: sqlite3.Connection, workspace: str, name: str, change: Callable[[AgentRow | None], AgentRow | None]
) -> tuple[AgentRow | None, bool]:
    """Write what `change` makes of the agent. Returns it as it is now, and whether anything was written."""
    old = agent(db, workspace, name)
    new = change(old)
    if new is None:
        return old, False
    new = new._replace(workspace=workspace, name=name, version=old.version + 1 if old else 1)
    if old is not None:
        new = new._replace(created_ms=old.created_ms)
    db.execute(sql.PUT_AGENT, new)
    return new, True


def make_agents(
    db: sqlite3.Connection,
    now_ms: int,
    owners: Iterable[QuotaOwner],
    expected: Mapping[QuotaOwner, Inherited] | None = None,
) -> None:
    """Make those of these agents that are not there yet. AgentChanged: one does not have what is expected."""
    db.executemany(sql.MAKE_AGENT, [(*owner, now_ms) for owner in owners])
    for owner, inherited in (expected or {}).items():
        check_agent(db, *owner, inherited)


def check_agent(db: sqlite3.Connection, workspace: str, name: str, expected: Inherited) -> None:
    """AgentChanged: the agent does not have what is expected."""
    row = agent(db, workspace, name)
    if row is not None and row.inherited != expected:
        raise AgentChanged(name)


def delete_agent(db: sqlite3.Connection, workspace: str, name: str) -> bool:
    """Delete the agent, unless it has jobs."""
    jobs = db.execute(sql.COUNT_JOBS, (workspace, name)).fetchone()[0]
    if jobs:
        raise FailedPrecondition(f"agent '{name}' has {jobs} job{'s' * (jobs > 1)}: delete them first")
    for statement in sql.DELETE_TALK:
        db.execute(statement, (workspace, name))
    return db.execute(sql.DELETE_AGENT, (workspace, name)).rowcount > 0


def _agent(row: Sequence[object]) -> AgentRow:
    return AgentRow._make((*row[:_ACTIVE], bool(row[_ACTIVE]), *row[_ACTIVE + 1 :]))


# --- keys -----------------------------------------------------------------------------------------------


def add_key(db: sqlite3.Connection, row: KeyRow) -> None:
    """Keep a key."""
    try:
        db.execute(sql.ADD_KEY, row)
    except sqlite3.IntegrityError as error:
        raise AlreadyExists(f"there is a key '{row.id}' already, or one with the same secret") from error


def key_by_hash(db: sqlite3.Connection, hash: bytes) -> KeyRow | None:
    """The key with that hash."""
    row = db.execute(sql.KEY_BY_HASH, (hash,)).fetchone()
    return None if row is None else KeyRow(*row)


def keys(db: sqlite3.Connection, workspace: str | None) -> list[KeyRow]:
    """The keys of a workspace, or all of them, oldest first."""
    rows = db.execute(sql.ALL_KEYS) if workspace is None else db.execute(sql.KEYS, (workspace,))
    return [KeyRow(*row) for row in rows]


def revoke_key(db: sqlite3.Connection, key_id: str, now_ms: int) -> bool:
    """End a key."""
    return db.execute(sql.REVOKE_KEY, (key_id, now_ms)).rowcount > 0


def change_keys(
    db: sqlite3.Connection, decide: Callable[[Sequence[KeyRow]], KeyChange], now_ms: int
) -> KeyChange:
    """Write what `decide` makes of all keys there are."""
    change = decide(keys(db, None))
    if change.add is not None:
        add_key(db, change.add)
    for key_id in change.revoke:
        revoke_key(db, key_id, now_ms)
    return change


def touch_keys(db: sqlite3.Connection, used: Sequence[tuple[str, int]]) -> None:
    """Note when keys were last used."""
    db.executemany(sql.TOUCH_KEY, used)
