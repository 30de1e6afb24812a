"""Charging quotas in SQLite, in the transaction that creates the jobs."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Final

from wakeful.run.usage import day_of
from wakeful.store.internal_jobs import IN_SQL
from wakeful.store.quotas import (
    CREATE_JOB,
    LIVE_JOBS,
    Allowance,
    Charged,
    charges,
    check_created,
    check_live,
    live_limits,
)
from wakeful.store.rows import JobRow

#: the primary key. The clock may go back over midnight: the later day counts
CHARGE: Final = """
    INSERT INTO quotas (workspace, agent, bucket, used, day) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (workspace, agent, bucket) DO UPDATE SET day = max(quotas.day, excluded.day),
        used = excluded.used + CASE WHEN quotas.day >= excluded.day THEN quotas.used ELSE 0 END"""
#: the primary key, twice for each owner
CHARGED: Final = """
    SELECT c.workspace, c.agent, c.most, c.used, l.most
    FROM json_each(?1) o CROSS JOIN quotas c ON c.workspace = json_extract(o.value, '$[0]')
        AND c.agent = json_extract(o.value, '$[1]') AND c.bucket = ?2
    LEFT JOIN quotas l ON l.workspace = c.workspace AND l.agent = c.agent AND l.bucket = ?3"""
#: jobs_name: of a range of it, as many as the limit and one more. A stored count would make transactions that
#: delete jobs wait for those that create some
LIVE_OF_AGENT: Final = f"""
    SELECT count(*) FROM (SELECT 1 FROM jobs INDEXED BY jobs_name
        WHERE workspace = ? AND agent = ? AND deleted_at IS NULL AND name NOT IN ({IN_SQL})
        AND instance_id IS NULL LIMIT ? + 1)"""
LIVE_OF_WORKSPACE: Final = f"""
    SELECT count(*) FROM (SELECT 1 FROM jobs INDEXED BY jobs_name
        WHERE workspace = ? AND deleted_at IS NULL AND name NOT IN ({IN_SQL})
        AND instance_id IS NULL LIMIT ? + 1)"""


def charge(db: sqlite3.Connection, now_ms: int, jobs: Sequence[JobRow], allowance: Allowance) -> None:
    """Charge these new jobs to their workspaces and agents."""
    added = charges(jobs)
    day = day_of(now_ms)
    db.executemany(CHARGE, [(*owner, CREATE_JOB, count, day) for owner, count in added.items()])
    rows = db.execute(CHARGED, (json.dumps(list(added)), CREATE_JOB, LIVE_JOBS))
    charged = [Charged(*row) for row in rows]
    check_created(charged, added, allowance)
    limits = live_limits(charged, allowance)
    check_live({owner: _live(db, *owner, limit) for owner, limit in limits.items()}, limits)


def _live(db: sqlite3.Connection, workspace: str, agent: str, limit: int) -> int:
    """Count the jobs of an owner, up to one more than the limit."""
    if agent:
        count: int = db.execute(LIVE_OF_AGENT, (workspace, agent, limit)).fetchone()[0]
    else:
        count = db.execute(LIVE_OF_WORKSPACE, (workspace, limit)).fetchone()[0]
    return count
