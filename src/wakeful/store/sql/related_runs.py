"""Runs that follow from a run, and where a bounded search through runs ends."""

from __future__ import annotations

from typing import Final

from wakeful.store.sql.driver import Session
from wakeful.values.ids import first_id, is_id

#: Where the signals of a run are: recorded shortly after it ended, among so many runs.
_BEFORE_MS: Final = 1_000
_AFTER_MS: Final = 5_000
_NEARBY: Final = 5_000
#: runs_replay_of
REPLAYS: Final = """
    SELECT r.id::text FROM runs r
    WHERE r.replay_of = $1 AND r.replay_of IS NOT NULL ORDER BY r.id LIMIT $2"""
#: runs_follow_up
FOLLOW_UPS: Final = """
    SELECT r.id::text FROM runs r
    WHERE r.triggered_by = $1 AND r.trigger IN ('chain', 'heartbeat', 'alert') ORDER BY r.id LIMIT $2"""
#: runs_of_workspace: a range of it. A run sends its signals in the transaction that ends it
SIGNALS: Final = """
    SELECT s.id::text FROM (
        SELECT r.id, r.triggered_by FROM runs r
        WHERE r.workspace = $1 AND r.id >= $2 AND r.id < $3 ORDER BY r.id LIMIT $4) s
    WHERE s.triggered_by = $5 ORDER BY s.id LIMIT $6"""
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


async def signal_ids(session: Session, workspace: str, run_id: str, ended_ms: int, limit: int) -> list[str]:
    """Return the ids of the signals that a run sent when it ended, as far as they are found nearby."""
    since, until = first_id(max(0, ended_ms - _BEFORE_MS)), first_id(ended_ms + _AFTER_MS)
    found = await session.rows(SIGNALS, workspace, since, until, _NEARBY, run_id, limit)
    return [row[0] for row in found]


async def horizon(session: Session, workspace: str, before: str, count: int) -> str | None:
    """Return the id of the run that is so many runs older than an id; None if there are fewer."""
    row = await session.row(HORIZON, workspace, before, count) if is_id(before) else None
    return None if row is None else str(row[0])
