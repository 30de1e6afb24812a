"""Agents in SQLite, for transactions that create or change their jobs."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from typing import Final

from wakeful.store.accounts import AgentChanged, Inherited
from wakeful.store.quotas import QuotaOwner

#: the primary key; writes nothing if the agent exists
ADD_AGENT: Final = """
    INSERT INTO agents (workspace, name, active, description, version, created_at, updated_at)
    VALUES (?1, ?2, 1, '', 1, ?3, ?3)
    ON CONFLICT DO NOTHING"""
#: the primary key; the columns of `Inherited`
INHERITED: Final = """
    SELECT target, active, secret, old_secret, old_secret_until_at FROM agents
    WHERE workspace = ? AND name = ?"""


def add_agents(
    db: sqlite3.Connection,
    now_ms: int,
    owners: Iterable[QuotaOwner],
    expected: Mapping[QuotaOwner, Inherited] | None = None,
) -> None:
    """Add those of these agents that do not exist. Raise AgentChanged if one differs from `expected`."""
    db.executemany(ADD_AGENT, [(*owner, now_ms) for owner in owners])
    for owner, inherited in (expected or {}).items():
        check_agent(db, *owner, inherited)


def check_agent(db: sqlite3.Connection, workspace: str, name: str, expected: Inherited) -> None:
    """Raise AgentChanged if the agent exists and differs from `expected`."""
    row = db.execute(INHERITED, (workspace, name)).fetchone()
    if row is not None and row != expected:  # 1 == True
        raise AgentChanged(name)
