"""Prefetched runs in PostgreSQL: those that were claimed before a slot was free."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from wakeful.store.postgres import statements as sql

if TYPE_CHECKING:
    from wakeful.store.postgres.connection import Db, TransactionEvents

_HELD: Final = "r.worker = $1 AND r.state = 'running' AND r.started_at IS NULL"
#: the primary keys of runs and attempts; then `ADD_LIVE_RUNS`
GIVE_BACK: Final = f"""
    WITH held AS (
        SELECT r.id FROM unnest($2::uuid[], $3::integer[]) g (id, attempt)
        CROSS JOIN LATERAL (SELECT r.* FROM runs r WHERE r.id = g.id OFFSET 0) r
        WHERE r.attempt = g.attempt AND {_HELD}),
    released AS (
        UPDATE runs r SET state = 'retrying', worker = NULL, due_at = r.fire_at, error = 'released',
            is_pull = r.claim_timeout_ms IS NOT NULL,
            claim_deadline = greatest(r.fire_at, $4::timestamptz) + r.claim_timeout_ms * interval '1 ms'
        WHERE r.id = ANY(ARRAY(SELECT id FROM held ORDER BY id)) AND CASE WHEN {_HELD} THEN true END
        RETURNING r.id, r.attempt),
    noted AS (
        INSERT INTO attempts (run_id, attempt, worker, finished_at, error)
        SELECT id, attempt, $1, $4, 'released' FROM released)
    SELECT id::text FROM released"""
#: the primary key
RECORD_STARTS: Final = f"""
    UPDATE runs r SET started_at = s.at
    FROM unnest($2::uuid[], $3::integer[], $4::timestamptz[]) s (id, attempt, at)
    WHERE r.id = s.id AND CASE WHEN r.attempt = s.attempt THEN {_HELD} END"""


async def give_back(
    db: Db, events: TransactionEvents, worker: str, now_ms: int, runs: Sequence[tuple[str, int]]
) -> int:
    """Release prefetched runs that have not started. See `Store.give_back`."""
    if not runs:
        return 0
    ids, attempts = map(list, zip(*runs, strict=True))
    released = [run_id for (run_id,) in await db.fetch(GIVE_BACK, worker, ids, attempts, now_ms)]
    if released:
        await db.execute(sql.ADD_LIVE_RUNS, released)
        events.retried(released)
        events.publish("runs")
    return len(released)


async def record_starts(db: Db, worker: str, starts: Sequence[tuple[str, int, int]]) -> None:
    """Write when prefetched runs started. See `Store.record_starts`."""
    if starts:
        ids, attempts, at_ms = map(list, zip(*starts, strict=True))
        await db.execute(RECORD_STARTS, worker, ids, attempts, at_ms)
