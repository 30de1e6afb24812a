"""Deliveries in PostgreSQL. See `store/deliveries.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from wakeful.store.deliveries import UNKNOWN_ERROR, Delivery, DeliveryResult

if TYPE_CHECKING:
    from wakeful.store.postgres.connection import Db, TransactionEvents

#: the primary keys of runs and agents, once for each
ADD: Final = """
    INSERT INTO deliveries (run_id, state, channel, send_to, attempt, due_at, at)
    SELECT r.id, 'pending', coalesce(g.channel, a.channel),
        coalesce(g.send_to, CASE WHEN coalesce(g.channel, a.channel) = a.channel THEN a.send_to END),
        0, $4, $4
    FROM unnest($1::uuid[], $2::text[], $3::text[]) g (run_id, channel, send_to)
    JOIN runs r ON r.id = g.run_id
    LEFT JOIN agents a ON a.workspace = r.workspace AND a.name = r.agent
    ON CONFLICT (run_id) DO NOTHING"""
#: the primary keys of runs and agents, once for each
ADD_EMITTED: Final = """
    INSERT INTO deliveries (run_id, state, channel, send_to, attempt, due_at, at)
    SELECT r.id, 'pending', a.channel, a.send_to, 0, $2, $2 FROM unnest($1::uuid[]) g (run_id)
    JOIN runs r ON r.id = g.run_id JOIN agents a ON a.workspace = r.workspace AND a.name = r.agent
    WHERE a.channel IS NOT NULL ON CONFLICT (run_id) DO NOTHING RETURNING true"""
#: deliveries_due: its beginning
TIME_OUT: Final = f"""
    WITH ended AS (
        UPDATE deliveries SET state = 'unknown', due_at = NULL, at = $1,
            error = '{UNKNOWN_ERROR}'
        WHERE due_at <= $1 AND state = 'sending' RETURNING run_id)
    SELECT count(*) FROM ended"""
#: deliveries_due, in its order; the primary keys of deliveries and runs, once for each
TAKE: Final = """
    WITH due AS (
        SELECT run_id FROM deliveries
        WHERE due_at <= $1 AND state = 'pending' AND coalesce(channel, '') <> ALL($5::text[])
        ORDER BY due_at LIMIT $4 FOR UPDATE SKIP LOCKED),
    taken AS (
        UPDATE deliveries d SET state = 'sending', worker = $2, due_at = $3, at = $1, attempt = d.attempt + 1
        FROM due WHERE d.run_id = due.run_id
        RETURNING d.run_id, d.channel, d.send_to, d.attempt)
    SELECT r.id::text, r.workspace, r.agent, r.job_name, t.channel, t.send_to, r.output, t.attempt,
        r.job_id::text, r.idempotency_key, r.attempt, r.emitted
    FROM taken t JOIN runs r ON r.id = t.run_id ORDER BY r.id"""
#: the primary key, once for each
FINISH: Final = """
    UPDATE deliveries d SET state = c.state, due_at = c.due_at, error = c.error, at = $1
    FROM unnest($3::uuid[], $4::integer[], $5::text[], $6::timestamptz[], $7::text[])
        c (run_id, attempt, state, due_at, error)
    WHERE d.run_id = c.run_id
        AND CASE WHEN d.attempt = c.attempt THEN d.worker = $2 AND d.state = 'sending' END
    RETURNING d.run_id::text"""


async def add_deliveries(
    db: Db, events: TransactionEvents, now_ms: int, deliveries: Sequence[tuple[str, str | None, str | None]]
) -> None:
    """Add deliveries of the outputs of runs: run, channel and recipient, else those of the agent."""
    runs, channels, to = map(list, zip(*deliveries, strict=True))
    await db.execute(ADD, runs, channels, to, now_ms)
    events.publish("deliveries")


async def add_emitted(db: Db, events: TransactionEvents, now_ms: int, runs: Sequence[str]) -> None:
    """Add deliveries of the signals that these runs emitted, to the channels of their agents."""
    if await db.fetch(ADD_EMITTED, list(runs), now_ms):
        events.publish("deliveries")


async def take_deliveries(
    db: Db,
    events: TransactionEvents,
    now_ms: int,
    worker: str,
    until_ms: int,
    limit: int,
    without: Sequence[str],
) -> tuple[list[Delivery], int]:
    timed_out = int(await db.fetchval(TIME_OUT, now_ms))
    taken = await db.fetch(TAKE, now_ms, worker, until_ms, limit, list(without))
    return [Delivery(*row) for row in taken], timed_out


async def finish_deliveries(
    db: Db, events: TransactionEvents, now_ms: int, worker: str, results: Sequence[DeliveryResult]
) -> set[str]:
    if not results:
        return set()
    columns = map(list, zip(*sorted(results), strict=True))  # rows are locked in this order
    written = {run_id for (run_id,) in await db.fetch(FINISH, now_ms, worker, *columns)}
    if any(each.became == "pending" for each in results):
        events.publish("deliveries")
    return written
