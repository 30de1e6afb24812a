"""Runs that follow from a run, and where a bounded search through runs ends."""

from __future__ import annotations

from typing import Final

from wakeful.ids import is_id
from wakeful.store.sql.driver import Session

#: runs_replay_of
REPLAYS: Final = """
    SELECT r.id::text FROM runs r
    WHERE r.replay_of = $1 AND r.replay_of IS NOT NULL ORDER BY r.id LIMIT $2"""
#: runs_follow_up
FOLLOW_UPS: Final = """
    SELECT r.id::text FROM runs r
    WHERE r.triggered_by = $1 AND r.trigger IN ('chain', 'heartbeat', 'alert') ORDER BY r.id LIMIT $2"""
#: runs_of_workspace: a range of it, backwards
HORIZON: Final = """
    SELECT r.id::text FROM runs r
    WHERE r.workspace = $1 AND r.id < $2 ORDER BY r.id DESC LIMIT 1 OFFSET $3"""


async def follow_up_ids(session: Session, run_id: str, limit: int) -> list[str]:
    """Return the ids of the runs that a run caused, and of its replays, in order."""
    if not is_id(run_id):
        return []
    found = [*await session.rows(REPLAYS, run_id, limit), *await session.rows(FOLLOW_UPS, run_id, limit)]
    return sorted(row[0] for row in found)[:limit]


async def horizon(session: Session, workspace: str, before: str, count: int) -> str | None:
    """Return the id of the run that is so many runs older than an id; None if there are fewer."""
    row = await session.row(HORIZON, workspace, before, count) if is_id(before) else None
    return None if row is None else str(row[0])
