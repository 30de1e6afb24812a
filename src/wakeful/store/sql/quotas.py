"""Quotas, as they are listed and set. Each database charges them in its own way."""

from __future__ import annotations

from typing import Final

from wakeful.store.internal_jobs import IN_SQL
from wakeful.store.quotas import INSTANCES, LIVE_JOBS, QuotaRow, Stored, listed
from wakeful.store.sql.driver import Session

#: the primary key, jobs_list and instances_schedules: a range of each, in its order
QUOTAS: Final = f"""
    SELECT agent, bucket, most, used, day FROM quotas WHERE workspace = $1
    UNION ALL SELECT agent, $2, NULL, count(*), 0 FROM jobs /*+ INDEXED BY jobs_list */
    WHERE workspace = $1 AND deleted_at IS NULL AND name NOT IN ({IN_SQL}) AND instance_id IS NULL
    GROUP BY agent
    UNION ALL SELECT agent, $3, NULL, count(*), 0 FROM instances
    WHERE workspace = $1 AND status <> 'stopped' GROUP BY agent"""
#: the primary key
SET_QUOTA: Final = """
    INSERT INTO quotas (workspace, agent, bucket, most) VALUES ($1, $2, $3, $4)
    ON CONFLICT (workspace, agent, bucket) DO UPDATE SET most = EXCLUDED.most"""


async def quotas(session: Session, workspace: str, now_ms: int) -> list[QuotaRow]:
    """Return limits and use in a workspace."""
    rows = await session.rows(QUOTAS, workspace, LIVE_JOBS, INSTANCES)
    return listed(workspace, [Stored(*row) for row in rows], now_ms)


async def set_quota(session: Session, workspace: str, agent: str, bucket: str, limit: int | None) -> None:
    """Set a limit, or remove it."""
    await session.execute(SET_QUOTA, workspace, agent, bucket, limit)
