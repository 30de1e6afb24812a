"""Who there is, in PostgreSQL: workspaces, agents and keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from asyncpg import UniqueViolationError

from wakeful.errors import AlreadyExists, FailedPrecondition
from wakeful.store.accounts import AgentChanged, AgentRow, Inherited, KeyChange, KeyRow, WorkspaceRow
from wakeful.store.postgres import office_statements as sql
from wakeful.store.quotas import QuotaOwner

if TYPE_CHECKING:
    from wakeful.store.postgres.connection import Db


# --- workspaces and agents ------------------------------------------------------------------------------


async def workspace(db: Db, name: str) -> WorkspaceRow | None:
    """The workspace of that name."""
    row = await db.fetchrow(sql.WORKSPACE, name)
    return None if row is None else WorkspaceRow(*row)


async def workspaces(db: Db) -> list[WorkspaceRow]:
    """All of them, by name."""
    return [WorkspaceRow(*row) for row in await db.fetch(sql.WORKSPACES)]


async def put_workspace(db: Db, row: WorkspaceRow) -> None:
    """Add it, or replace it."""
    await db.execute(sql.PUT_WORKSPACE, *row)


async def agent(db: Db, workspace: str, name: str) -> AgentRow | None:
    """The agent of that name."""
    row = await db.fetchrow(sql.AGENT, workspace, name)
    return None if row is None else AgentRow(*row)


async def agents(db: Db, workspace: str) -> list[AgentRow]:
    """All of a workspace, by name."""
    return [AgentRow(*row) for row in await db.fetch(sql.AGENTS, workspace)]


async def put_agent(
    db: Db, workspace: str, name: str, change: Callable[[AgentRow | None], AgentRow | None]
) -> tuple[AgentRow | None, AgentRow | None, bool]:
    """Write what `change` makes of the agent, and lock it.

    Returns it as it was and as it is now, and whether anything was written.
    """
    while True:
        row = await db.fetchrow(sql.LOCK_AGENT, workspace, name)
        old = None if row is None else AgentRow(*row)
        new = change(old)
        if new is None:
            return old, old, False
        new = new._replace(workspace=workspace, name=name, version=old.version + 1 if old else 1)
        if old is not None:
            new = new._replace(created_ms=old.created_ms)
            await db.execute(sql.CHANGE_AGENT, *new[:9], *new[10:])
            return old, new, True
        if await db.fetchval(sql.ADD_AGENT, *new):
            return None, new, True


async def hold_agents(
    db: Db, now_ms: int, owners: Sequence[QuotaOwner], expected: Mapping[QuotaOwner, Inherited] | None = None
) -> None:
    """Make those of these agents that are not there yet, and lock all of them against changes.

    AgentChanged: one does not have what is expected.
    """
    given = [workspace for workspace, _ in owners], [name for _, name in owners]
    while len(held := await db.fetch(sql.HOLD_AGENTS, *given, now_ms)) < len(owners):
        pass  # another transaction has just added or deleted one: the next statement sees it
    if expected:
        for workspace, name, *inherited in held:
            if expected.get((workspace, name), inherited) != tuple(inherited):
                raise AgentChanged(name)


async def hold_agent_of(db: Db, job_id: str, expected: Inherited) -> None:
    """Lock the agent of a job against changes. AgentChanged: it does not have what is expected."""
    row = await db.fetchrow(sql.HOLD_AGENT_OF_JOB, job_id)
    if row is not None and tuple(row) != expected:
        raise AgentChanged("of the job")


async def delete_agent(db: Db, workspace: str, name: str) -> bool:
    """Delete the agent, unless it has jobs."""
    # First the row: who makes jobs of it is done by then, or waits and makes it anew.
    deleted = await db.fetchval(sql.DELETE_AGENT, workspace, name)
    jobs = await db.fetchval(sql.COUNT_JOBS, workspace, name)
    if jobs:
        raise FailedPrecondition(f"agent '{name}' has {jobs} job{'s' * (jobs > 1)}: delete them first")
    for statement in sql.DELETE_TALK:
        await db.execute(statement, workspace, name)
    return deleted is not None


# --- keys -----------------------------------------------------------------------------------------------


async def add_key(db: Db, row: KeyRow) -> None:
    """Keep a key."""
    try:
        await db.execute(sql.ADD_KEY, *row)
    except UniqueViolationError as error:
        raise AlreadyExists(f"there is a key '{row.id}' already, or one with the same secret") from error


async def key_by_hash(db: Db, hash: bytes) -> KeyRow | None:
    """The key with that hash."""
    row = await db.fetchrow(sql.KEY_BY_HASH, hash)
    return None if row is None else KeyRow(*row)


async def keys(db: Db, workspace: str | None) -> list[KeyRow]:
    """The keys of a workspace, or all of them, oldest first."""
    rows = await (db.fetch(sql.ALL_KEYS) if workspace is None else db.fetch(sql.KEYS, workspace))
    return [KeyRow(*row) for row in rows]


async def revoke_key(db: Db, key_id: str, now_ms: int) -> bool:
    """End a key."""
    return await db.fetchval(sql.REVOKE_KEY, key_id, now_ms) is not None


async def change_keys(db: Db, decide: Callable[[Sequence[KeyRow]], KeyChange], now_ms: int) -> KeyChange:
    """Write what `decide` makes of all keys there are."""
    await db.execute(sql.LOCK_KEYS)
    change = decide(await keys(db, None))
    if change.add is not None:
        await add_key(db, change.add)
    for key_id in change.revoke:
        await revoke_key(db, key_id, now_ms)
    return change


async def touch_keys(db: Db, used: Sequence[tuple[str, int]]) -> None:
    """Note when keys were last used."""
    newest = dict(sorted(used, key=lambda use: use[1]))
    ids = sorted(newest)
    await db.execute(sql.TOUCH_KEYS, ids, [newest[key_id] for key_id in ids])
