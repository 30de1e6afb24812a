"""Agents in SQLite, with the jobs that inherit from them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from wakeful.store.accounts import AgentRow, InheritingChange
from wakeful.store.sql import accounts
from wakeful.store.sqlite import statements as sql
from wakeful.store.sqlite.connection import TransactionEvents
from wakeful.store.sqlite.jobs import job_row, write_change
from wakeful.store.sqlite.session import SqliteSession
from wakeful.values.clock import Clock


async def put_agent(
    db: sqlite3.Connection,
    events: TransactionEvents,
    clock: Clock,
    workspace: str,
    name: str,
    change: Callable[[AgentRow | None], AgentRow | None],
    follow: InheritingChange | None,
) -> tuple[AgentRow | None, bool]:
    """Write an agent and the changes of its jobs. See `Store.put_agent`."""
    _, row, written = await accounts.put_agent(SqliteSession(db), workspace, name, change)
    if follow is not None and row is not None:
        for each in db.execute(sql.JOBS_OF_AGENT, (workspace, name)).fetchall():
            job = job_row(each)
            changed = follow(row, job)
            if changed is not None:
                await write_change(db, events, clock.now_ms(), job, changed)
    return row, written
