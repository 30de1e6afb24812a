"""Quotas in PostgreSQL: what is charged, in the transaction of what it is charged for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from wakeful.store.postgres import office_statements as sql
from wakeful.store.quotas import (
    CREATE_JOB,
    LIVE_JOBS,
    Allowance,
    Charged,
    QuotaOwner,
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

if TYPE_CHECKING:
    from wakeful.store.postgres.connection import Db


async def charge(db: Db, now_ms: int, jobs: Sequence[JobRow], allowance: Allowance) -> None:
    """Charge these jobs, which have just been added, to their workspaces and agents."""
    added = charges(jobs)
    rows = await db.fetch(sql.CHARGE, *_columns(added), CREATE_JOB, LIVE_JOBS, day_of(now_ms))
    charged = [Charged(*row) for row in rows]
    check_created(charged, added, allowance)
    limits = live_limits(charged, allowance)
    if limits:
        check_live(await _live(db, limits), limits)


async def _live(db: Db, limits: Mapping[QuotaOwner, int]) -> dict[QuotaOwner, int]:
    """How many jobs each owner has, as far as that matters: its limit, or one more."""
    live: dict[QuotaOwner, int] = {}
    for statement, whole in ((sql.LIVE_OF_WORKSPACES, True), (sql.LIVE_OF_AGENTS, False)):
        asked = {owner: limit for owner, limit in limits.items() if (owner[1] == "") is whole}
        if asked:
            rows = await db.fetch(statement, *_columns(asked))
            live.update({(workspace, agent): count for workspace, agent, count in rows})
    return live


def _columns(numbers: Mapping[QuotaOwner, int]) -> tuple[list[str], list[str], list[int]]:
    return [workspace for workspace, _ in numbers], [agent for _, agent in numbers], list(numbers.values())


async def quotas(db: Db, workspace: str, now_ms: int) -> list[QuotaRow]:
    """What is set and what is used in a workspace."""
    rows = await db.fetch(sql.QUOTAS, workspace, LIVE_JOBS)
    return listed(workspace, [Stored(*row) for row in rows], now_ms)


async def set_quota(db: Db, workspace: str, agent: str, bucket: str, limit: int | None) -> None:
    """Set a limit, or none."""
    await db.execute(sql.SET_QUOTA, workspace, agent, bucket, limit)
