"""Agents in PostgreSQL, locked by transactions that create or change their jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from wakeful.store.accounts import AgentChanged, Inherited
from wakeful.store.quotas import QuotaOwner

if TYPE_CHECKING:
    from wakeful.store.postgres.connection import Db

#: the columns of `Inherited`
_INHERITED: Final = "target, active, secret, old_secret, old_secret_until_at"
#: the primary key, twice for each. Locks the agents against changes and returns what jobs inherit. Without
#: agents that another transaction is adding or deleting
HOLD_AGENTS: Final = f"""
    WITH wanted AS (SELECT * FROM unnest($1::text[], $2::text[]) g (workspace, name)),
    held AS (
        SELECT a.* FROM wanted g CROSS JOIN LATERAL (
            SELECT a.workspace, a.name, {_INHERITED} FROM agents a
            WHERE a.workspace = g.workspace AND a.name = g.name FOR SHARE) a),
    added AS (
        INSERT INTO agents (workspace, name, active, description, version, created_at, updated_at)
        SELECT workspace, name, true, '', 1, $3, $3 FROM wanted
        ON CONFLICT DO NOTHING RETURNING workspace, name, {_INHERITED})
    SELECT * FROM held UNION ALL SELECT * FROM added"""
#: the primary key, once for each
HOLD_EXISTING: Final = f"""
    SELECT a.* FROM (
        SELECT * FROM unnest($1::text[], $2::text[]) g (workspace, name) ORDER BY workspace, name) g
    CROSS JOIN LATERAL (
        SELECT a.workspace, a.name, {_INHERITED} FROM agents a
        WHERE a.workspace = g.workspace AND a.name = g.name FOR SHARE) a"""
#: the primary keys of jobs and agents
HOLD_AGENT_OF_JOB: Final = """
    SELECT a.target, a.active, a.secret, a.old_secret, a.old_secret_until_at
    FROM jobs j JOIN agents a ON a.workspace = j.workspace AND a.name = j.agent
    WHERE j.id = $1 FOR SHARE OF a"""


async def hold_agents(
    db: Db, now_ms: int, owners: Sequence[QuotaOwner], expected: Mapping[QuotaOwner, Inherited] | None = None
) -> None:
    """Add those of these agents that do not exist, and lock all of them against changes.

    Raises AgentChanged if one differs from `expected`.
    """
    columns = [workspace for workspace, _ in owners], [name for _, name in owners]
    while len(held := await db.fetch(HOLD_AGENTS, *columns, now_ms)) < len(owners):
        pass  # another transaction has just added or deleted one: the next statement sees it
    if expected:
        for workspace, name, *inherited in held:
            if expected.get((workspace, name), inherited) != tuple(inherited):
                raise AgentChanged(name)


async def check_agents(db: Db, expected: Mapping[QuotaOwner, Inherited]) -> None:
    """Lock those of these agents that exist. Raises AgentChanged if one differs from `expected`."""
    columns = [workspace for workspace, _ in expected], [name for _, name in expected]
    for workspace, name, *inherited in await db.fetch(HOLD_EXISTING, *columns):
        if expected[workspace, name] != tuple(inherited):
            raise AgentChanged(name)


async def hold_agent_of(db: Db, job_id: str, expected: Inherited) -> None:
    """Lock the agent of a job against changes. Raises AgentChanged if it differs from `expected`."""
    row = await db.fetchrow(HOLD_AGENT_OF_JOB, job_id)
    if row is not None and tuple(row) != expected:
        raise AgentChanged("of the job")
