"""Runs that executors outside claim, in PostgreSQL: claiming, what becomes of those nobody
claims, and how a run becomes one of them or stops being one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from wakeful.store.port import TURN_MS, UNCLAIMED
from wakeful.store.postgres import pull_statements as sql
from wakeful.store.postgres.outcomes import Follow, finish
from wakeful.store.postgres.running import beat, start
from wakeful.store.rows import Finished, LostRun, Move, TakenRun

if TYPE_CHECKING:
    from wakeful.store.postgres.connection import Db, Tell


async def claim(
    db: Db,
    tell: Tell,
    now_ms: int,
    worker: str,
    workspace: str,
    agents: Sequence[str] | None,
    lanes: Sequence[str] | None,
    limit: int,
) -> list[TakenRun]:
    """Mark due pull runs of a workspace as running under this executor. See `Store.claim`."""
    if agents is None:
        picked = await db.fetch(sql.CLAIMABLE, now_ms, workspace, _lanes(lanes), limit)
    else:
        of = sorted(set(agents))
        picked = await db.fetch(sql.CLAIMABLE_OF_AGENTS, now_ms, workspace, _lanes(lanes), limit, of)
    claimed = await start(db, tell, now_ms, worker, picked)
    if claimed:
        await beat(db, worker, now_ms, [])
    return claimed


async def next_claim_ms(
    db: Db, after_ms: int, workspace: str, agents: Sequence[str] | None, lanes: Sequence[str] | None
) -> int | None:
    """When the next one is due that could be claimed. See `Store.next_claim_ms`."""
    of = None if agents is None else list(agents)
    due: int | None = await db.fetchval(sql.NEXT_CLAIMABLE, after_ms, workspace, _lanes(lanes), of)
    return due


async def expire(
    db: Db,
    tell: Tell,
    now_ms: int,
    limit: int,
    judge: Callable[[LostRun], Finished],
    follow: Follow,
) -> list[str]:
    """End what nobody claimed in time. See `Store.expire`."""
    await db.execute(sql.WAIT_ANEW, now_ms, now_ms + TURN_MS, limit)
    expired = [LostRun(*row) for row in await db.fetch(sql.EXPIRED, now_ms, limit)]
    if not expired:
        return []
    await db.execute(sql.MARK_UNCLAIMED, [run.id for run in expired])
    ended = await finish(db, tell, now_ms, UNCLAIMED, [judge(run) for run in expired], follow)
    await db.execute(sql.NEVER_STARTED, list(ended))
    return [run.id for run in expired if run.id in ended]


async def move(db: Db, tell: Tell, now_ms: int, jobs: Mapping[str, Move]) -> None:
    """Let the runs of these jobs that wait do so in another lane. See `Store.change_job`."""
    lanes, claims = [to.lane for to in jobs.values()], [to.claim_ms for to in jobs.values()]
    if jobs and await db.fetch(sql.MOVE, list(jobs), lanes, claims, now_ms):
        tell("runs")


def _lanes(lanes: Sequence[str] | None) -> list[str] | None:
    return None if lanes is None else list(lanes)
