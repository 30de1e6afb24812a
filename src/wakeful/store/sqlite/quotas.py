"""Quotas in SQLite: what is charged, in the transaction of what it is charged for."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence

from wakeful.store.quotas import (
    CREATE_JOB,
    LIVE_JOBS,
    Allowance,
    Charged,
    QuotaRow,
    Stored,
    charges,
    check_created,
    check_live,
    day_of,
    listed,
    live_limits,
)
from wakeful.store.rows import JobRow
from wakeful.store.sqlite import office_statements as sql


def charge(db: sqlite3.Connection, now_ms: int, jobs: Sequence[JobRow], allowance: Allowance) -> None:
    """Charge these jobs, which have just been added, to their workspaces and agents."""
    added = charges(jobs)
    day = day_of(now_ms)
    db.executemany(sql.CHARGE, [(*owner, CREATE_JOB, count, day) for owner, count in added.items()])
    rows = db.execute(sql.CHARGED, (json.dumps(list(added)), CREATE_JOB, LIVE_JOBS))
    charged = [Charged(*row) for row in rows]
    check_created(charged, added, allowance)
    limits = live_limits(charged, allowance)
    check_live({owner: _live(db, *owner, limit) for owner, limit in limits.items()}, limits)


def _live(db: sqlite3.Connection, workspace: str, agent: str, limit: int) -> int:
    """How many jobs there are, as far as that matters: the limit, or one more."""
    if agent:
        count: int = db.execute(sql.LIVE_OF_AGENT, (workspace, agent, limit)).fetchone()[0]
    else:
        count = db.execute(sql.LIVE_OF_WORKSPACE, (workspace, limit)).fetchone()[0]
    return count


def quotas(db: sqlite3.Connection, workspace: str, now_ms: int) -> list[QuotaRow]:
    """What is set and what is used in a workspace."""
    rows = db.execute(sql.QUOTAS, (workspace, LIVE_JOBS))
    return listed(workspace, [Stored(*row) for row in rows], now_ms)


def set_quota(db: sqlite3.Connection, workspace: str, agent: str, bucket: str, limit: int | None) -> None:
    """Set a limit, or none."""
    db.execute(sql.SET_QUOTA, (workspace, agent, bucket, limit))
