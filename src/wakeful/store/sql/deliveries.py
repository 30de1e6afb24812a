"""Deliveries of output. See `store/deliveries.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wakeful.store.changelog import TransactionEvents
from wakeful.store.deliveries import UNKNOWN_ERROR, DeliveryResult, DeliveryView, TakenDelivery
from wakeful.store.sql.base import SqlBase, publishes, reads, writes
from wakeful.store.sql.driver import SqlSession
from wakeful.values.ids import first_id
from wakeful.values.stored_text import clean_text

#: the primary keys of runs and agents, once for each
ADD: Final = """
    INSERT INTO deliveries (run_id, state, channel, send_to, attempt, due_at, at)
    SELECT r.id, 'pending', coalesce(g.channel, a.channel),
        coalesce(g.send_to, CASE WHEN coalesce(g.channel, a.channel) = a.channel THEN a.send_to END),
        0, $4::timestamptz, $4::timestamptz
    FROM unnest($1::uuid[], $2::text[], $3::text[]) g (run_id, channel, send_to)
    /*+ CROSS */ JOIN runs r ON r.id = g.run_id
    LEFT JOIN agents a ON a.workspace = r.workspace AND a.name = r.agent
    WHERE true ON CONFLICT (run_id) DO NOTHING"""
#: the primary keys of runs and agents, once for each
ADD_EMITTED: Final = """
    INSERT INTO deliveries (run_id, state, channel, send_to, attempt, due_at, at)
    SELECT r.id, 'pending', a.channel, a.send_to, 0, $2::timestamptz, $2::timestamptz
    FROM unnest($1::uuid[]) g (run_id)
    /*+ CROSS */ JOIN runs r ON r.id = g.run_id
    /*+ CROSS */ JOIN agents a ON a.workspace = r.workspace AND a.name = r.agent
    WHERE a.channel IS NOT NULL ON CONFLICT (run_id) DO NOTHING"""
#: deliveries_due: its beginning
TIME_OUT: Final = f"""
    UPDATE deliveries /*+ INDEXED BY deliveries_due */
    SET state = 'unknown', due_at = NULL, at = $1, error = '{UNKNOWN_ERROR}'
    WHERE due_at <= $1 AND state = 'sending'"""
#: deliveries_due, in its order
DUE: Final = """
    SELECT run_id::text FROM deliveries /*+ INDEXED BY deliveries_due */
    WHERE due_at <= $1 AND state = 'pending' AND NOT coalesce(channel, '') = ANY($3::text[])
    ORDER BY due_at LIMIT $2 FOR UPDATE SKIP LOCKED"""
#: the primary key, once for each
TAKE: Final = """
    UPDATE deliveries SET state = 'sending', worker = $2, due_at = $3, at = $4, attempt = attempt + 1
    WHERE run_id = ANY($1::uuid[])"""
#: the primary keys of deliveries and runs, once for each
TAKEN: Final = """
    SELECT r.id::text, r.workspace, r.agent, r.job_name, d.channel, d.send_to, r.output, d.attempt,
        r.job_id::text, r.idempotency_key, r.attempt, r.emitted
    FROM deliveries d JOIN runs r ON r.id = d.run_id WHERE d.run_id = ANY($1::uuid[])"""
#: the primary key, once for each. Rows are locked in the order of their ids
HELD: Final = """
    SELECT d.run_id::text, d.attempt FROM unnest($2::uuid[], $3::integer[]) c (run_id, attempt)
    /*+ CROSS */ JOIN deliveries d ON d.run_id = c.run_id
    WHERE CASE WHEN d.attempt = c.attempt THEN d.worker = $1 AND d.state = 'sending' END
    ORDER BY d.run_id FOR UPDATE OF d"""
#: the primary key
FINISH: Final = "UPDATE deliveries SET state = $2, due_at = $3, error = $4, at = $5 WHERE run_id = $1"
#: deliveries_due: the first entry after that instant
NEXT_DELIVERY: Final = "SELECT min(due_at) FROM deliveries WHERE due_at > $1"
#: the primary key: its end, backwards
ALL_DELIVERIES: Final = """
    SELECT newest.channel, newest.state, count(*) FROM (
        SELECT coalesce(channel, '') AS channel, state FROM deliveries
        WHERE run_id >= $1 ORDER BY run_id DESC LIMIT $2) newest
    GROUP BY 1, 2 ORDER BY 1, 2"""
#: the primary key: its end, backwards; that of runs for each. A CROSS JOIN: SQLite would read all runs first
DELIVERIES: Final = """
    SELECT newest.channel, newest.state, count(*) FROM (
        SELECT coalesce(channel, '') AS channel, state, run_id FROM deliveries
        WHERE run_id >= $1 ORDER BY run_id DESC LIMIT $2) newest
    CROSS JOIN runs r WHERE r.id = newest.run_id AND r.workspace = $3
    GROUP BY 1, 2 ORDER BY 1, 2"""

#: the primary key: its end, backwards; that of runs for each. A CROSS JOIN, as for `DELIVERIES`
RECENT_DELIVERIES: Final = """
    SELECT newest.run_id::text, r.agent, r.job_id::text, r.job_name, newest.channel, newest.send_to,
        newest.state, newest.attempt, newest.at, newest.error
    FROM (SELECT * FROM deliveries WHERE run_id >= $1 ORDER BY run_id DESC LIMIT $2) newest
    CROSS JOIN runs r WHERE r.id = newest.run_id AND r.workspace = $3
    ORDER BY newest.run_id DESC LIMIT $4"""


async def add_deliveries(
    session: SqlSession,
    events: TransactionEvents,
    now_ms: int,
    deliveries: Sequence[tuple[str, str | None, str | None]],
) -> None:
    """Add deliveries of the outputs of runs: run, channel and recipient, else those of the agent."""
    runs, channels, to = map(list, zip(*deliveries, strict=True))
    await session.execute(ADD, runs, channels, to, now_ms)
    events.publish("deliveries")


async def add_emitted(
    session: SqlSession, events: TransactionEvents, now_ms: int, run_ids: Sequence[str]
) -> None:
    """Add deliveries of the signals that these runs emitted, to the channels of agents that have one."""
    if await session.execute(ADD_EMITTED, list(run_ids), now_ms):
        events.publish("deliveries")


async def take_deliveries(
    session: SqlSession, now_ms: int, worker: str, until_ms: int, limit: int, without: Sequence[str] = ()
) -> tuple[list[TakenDelivery], int]:
    """Mark up to `limit` due deliveries as being sent by this worker, which has to report until then.

    None of them is for the channels `without`; '': those without a channel. Deliveries whose worker did
    not report in time become *unknown*. Returns those that were taken, and how many timed out.
    """
    timed_out = await session.execute(TIME_OUT, now_ms)
    due = await session.column(DUE, now_ms, limit, list(without))
    if not due:
        return [], timed_out
    await session.execute(TAKE, due, worker, until_ms, now_ms)
    found = [TakenDelivery(*row) for row in await session.rows(TAKEN, due)]
    taken = {each.run_id: each for each in found}
    # A row without its run, which was deleted by hand, is not sent: it times out.
    return [taken[run_id] for run_id in due if run_id in taken], timed_out


async def finish_deliveries(
    session: SqlSession,
    events: TransactionEvents,
    now_ms: int,
    worker: str,
    results: Sequence[DeliveryResult],
) -> set[str]:
    """Write how attempts ended, each only if this worker still holds it. Returns their runs."""
    columns = [each.run_id for each in results], [each.attempt for each in results]
    held = {(run_id, attempt) for run_id, attempt in await session.rows(HELD, worker, *columns)}
    written = [each for each in results if (each.run_id, each.attempt) in held]
    await session.execute_many(
        FINISH,
        [
            # The error may quote a channel.
            (each.run_id, each.became, each.due_ms, each.error and clean_text(each.error), now_ms)
            for each in written
        ],
    )
    if any(each.became == "pending" for each in written):
        events.publish("deliveries")
    return {each.run_id for each in written}


async def next_delivery_ms(session: SqlSession, after_ms: int) -> int | None:
    """Return when the next delivery is due or times out after that instant; None: there is none."""
    found: int | None = await session.value(NEXT_DELIVERY, after_ms)
    return found


async def delivery_counts(
    session: SqlSession, workspace: str | None, since_ms: int, limit: int
) -> list[tuple[str, str, int]]:
    """Return the number of deliveries by channel and state, of runs that were created since then.

    At most the newest deliveries are counted. `workspace` None: of all workspaces.
    """
    first = first_id(since_ms)
    if workspace is None:
        rows = await session.rows(ALL_DELIVERIES, first, limit)
    else:
        rows = await session.rows(DELIVERIES, first, limit, workspace)
    return [(channel, state, number) for channel, state, number in rows]


async def recent_deliveries(
    session: SqlSession, workspace: str, since_ms: int, considered: int, limit: int
) -> list[DeliveryView]:
    """Return the newest deliveries of runs of a workspace that were created since then, newest first.

    Only the newest `considered` ones of all workspaces are read.
    """
    rows = await session.rows(RECENT_DELIVERIES, first_id(since_ms), considered, workspace, limit)
    return [DeliveryView(*row) for row in rows]


class SqlDeliveries(SqlBase):
    """Deliveries of output."""

    take_deliveries = writes(take_deliveries)
    finish_deliveries = publishes(finish_deliveries)
    next_delivery_ms = reads(next_delivery_ms)
    delivery_counts = reads(delivery_counts)
    recent_deliveries = reads(recent_deliveries)
