"""The changelog in PostgreSQL.

Writers add rows without a number. A reader numbers them first, one reader at a time. So the numbers are in an
order in which the rows became visible, however their transactions overlapped, and no row appears later with
a number below one that was read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from wakeful.store.postgres.connection import Db, TransactionEvents

#: How many rows one transaction numbers.
BATCH: Final = 5_000

#: changes_new: its first entry
ANY_NEW: Final = "SELECT EXISTS (SELECT FROM changes WHERE seq IS NULL)"
LOCK_HEAD: Final = "SELECT last FROM changes_head FOR UPDATE"
#: changes_new, in its order; the primary key, once for each
NUMBER: Final = """
    WITH found AS (
        SELECT id, sum(count) OVER (ORDER BY id) AS place FROM (
            SELECT id, count FROM changes WHERE seq IS NULL ORDER BY id LIMIT $2) n),
    numbered AS (
        UPDATE changes c SET seq = $1::bigint + f.place FROM found f WHERE c.id = f.id RETURNING c.seq),
    head AS (SELECT max(seq) AS last, count(*) AS rows FROM numbered)
    UPDATE changes_head SET last = head.last FROM head WHERE head.rows > 0 RETURNING head.rows"""
LAST_CHANGE: Final = "SELECT last FROM changes_head"
#: the primary key, from its beginning up to the first that is neither old nor of a future that a wrong clock
#: showed; rows whose runs are not counted yet stay (`store/sql/run_counts.py`)
PRUNE_CHANGES: Final = """
    WITH page AS MATERIALIZED (SELECT id, seq, at FROM changes ORDER BY id LIMIT $2),
    kept AS MATERIALIZED (SELECT min(id) AS id FROM page WHERE at >= $1 AND at <= $3),
    deleted AS (
        DELETE FROM changes WHERE id = ANY(ARRAY(
            SELECT page.id FROM page CROSS JOIN kept
            WHERE page.id < coalesce(kept.id, page.id + 1) AND seq < (SELECT last FROM changes_head)
                AND seq <= coalesce((SELECT position FROM run_counts_position), seq))) RETURNING id)
    SELECT count(*) FROM deleted"""


async def any_unnumbered(db: Db) -> bool:
    """Return whether a committed row has no number."""
    return bool(await db.fetchval(ANY_NEW))


async def number(db: Db, events: TransactionEvents) -> int:
    """Number up to `BATCH` rows, while no other reader does. Returns how many."""
    last = await db.fetchval(LOCK_HEAD)
    return int(await db.fetchval(NUMBER, last, BATCH) or 0)


async def last_change(db: Db) -> int:
    return int(await db.fetchval(LAST_CHANGE))


async def prune_changes(db: Db, before_ms: int, limit: int, future_ms: int) -> int:
    return int(await db.fetchval(PRUNE_CHANGES, before_ms, limit, future_ms))
