"""Charging quotas in PostgreSQL, in the transaction that creates the jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from wakeful.run.usage import day_of
from wakeful.store.internal_jobs import IN_SQL
from wakeful.store.quotas import (
    CREATE_JOB,
    LIVE_JOBS,
    Allowance,
    Charged,
    QuotaOwner,
    charges,
    check_created,
    check_live,
    live_limits,
)
from wakeful.store.rows import JobRow

if TYPE_CHECKING:
    from wakeful.store.postgres.connection import Db


#: the primary key, twice for each. The clocks of two processes may differ at midnight: the later day
#: counts. The row stays locked, so other transactions count jobs after the commit
CHARGE: Final = """
    INSERT INTO quotas AS q (workspace, agent, bucket, used, day)
    SELECT workspace, agent, $4, jobs, $6 FROM unnest($1::text[], $2::text[], $3::bigint[])
        c (workspace, agent, jobs)
    ON CONFLICT (workspace, agent, bucket) DO UPDATE SET day = greatest(q.day, EXCLUDED.day),
        used = EXCLUDED.used + CASE WHEN q.day >= EXCLUDED.day THEN q.used ELSE 0 END
    RETURNING q.workspace, q.agent, q.most, q.used, (
        SELECT l.most FROM quotas l
        WHERE l.workspace = q.workspace AND l.agent = q.agent AND l.bucket = $5)"""


def _live(of: str) -> str:
    return f"""
    SELECT o.workspace, o.agent, c.jobs
    FROM unnest($1::text[], $2::text[], $3::bigint[]) o (workspace, agent, most) CROSS JOIN LATERAL (
        SELECT count(*) AS jobs FROM (
            SELECT FROM jobs j WHERE j.workspace = o.workspace {of} AND j.deleted_at IS NULL
                AND j.name NOT IN ({IN_SQL}) AND j.instance_id IS NULL
            LIMIT o.most + 1) counted) c"""


#: jobs_name: of a range of it, for each owner, as many as the limit and one more. A stored count
#: would make transactions that delete jobs wait for those that create some
LIVE_OF_AGENTS: Final = _live("AND j.agent = o.agent")
LIVE_OF_WORKSPACES: Final = _live("")


async def charge(db: Db, now_ms: int, jobs: Sequence[JobRow], allowance: Allowance) -> None:
    """Charge these new jobs to their workspaces and agents."""
    added = charges(jobs)
    rows = await db.fetch(CHARGE, *_columns(added), CREATE_JOB, LIVE_JOBS, day_of(now_ms))
    charged = [Charged(*row) for row in rows]
    check_created(charged, added, allowance)
    limits = live_limits(charged, allowance)
    if limits:
        check_live(await _count_live(db, limits), limits)


async def _count_live(db: Db, limits: Mapping[QuotaOwner, int]) -> dict[QuotaOwner, int]:
    """Count the jobs of each owner, up to one more than its limit."""
    live: dict[QuotaOwner, int] = {}
    for statement, whole in ((LIVE_OF_WORKSPACES, True), (LIVE_OF_AGENTS, False)):
        limited = {owner: limit for owner, limit in limits.items() if (owner[1] == "") is whole}
        if limited:
            rows = await db.fetch(statement, *_columns(limited))
            live.update({(workspace, agent): count for workspace, agent, count in rows})
    return live


def _columns(numbers: Mapping[QuotaOwner, int]) -> tuple[list[str], list[str], list[int]]:
    return [workspace for workspace, _ in numbers], [agent for _, agent in numbers], list(numbers.values())
