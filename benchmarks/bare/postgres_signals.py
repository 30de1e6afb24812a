"""The floor of signals on PostgreSQL: the same rows over asyncpg."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from benchmarks.bare.signal_floors import WORKER, arrivals, id_row, memory, state
from wakeful.run.instances import instance_id
from wakeful.run.signal_rules import Arrival
from wakeful.store.postgres.connection import Pool
from wakeful.store.postgres.mailbox_statements import INSERT_SIGNALS
from wakeful.store.postgres.statements import numbers

_ADD_INSTANCES = """
    INSERT INTO instances (id, workspace, agent, name, status, created_at, updated_at)
    SELECT k.id, 'default', 'counter', k.name, 'active', $3, $3
    FROM unnest($1::uuid[], $2::text[]) k (id, name)"""
_ADD_IDS = """
    INSERT INTO signal_ids (instance_id, source, id, run_id, expires_at)
    SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::uuid[], $5::timestamptz[])"""
_NUMBER = """
    UPDATE instances i SET sequence = i.sequence + k.signals
    FROM unnest($1::uuid[], $2::bigint[]) k (id, signals) WHERE i.id = k.id"""
_TAKE = """
    WITH next AS (
        SELECT n.run_id, k.id FROM unnest($1::uuid[]) k (id) CROSS JOIN LATERAL (
            SELECT run_id FROM live_runs WHERE instance_id = k.id AND state = 'pending'
            ORDER BY fire_at, sequence LIMIT 1) n),
    live AS (
        UPDATE live_runs l SET state = 'running', worker = $2, due_at = NULL FROM next n
        WHERE l.run_id = n.run_id)
    UPDATE runs r SET state = 'running', worker = $2, started_at = $3, due_at = NULL
    FROM next n, instances i WHERE r.id = n.run_id AND i.id = n.id
    RETURNING r.id::text, i.id::text, r.payload, i.data"""
_END = """
    WITH live AS (DELETE FROM live_runs WHERE run_id = ANY($1::uuid[]))
    UPDATE runs SET state = 'succeeded', finished_at = $2, due_at = NULL WHERE id = ANY($1::uuid[])"""
_STATE = """
    UPDATE instances SET data = $2, version = 1, revision = revision + 1, memory = $3, handled_at = $4,
        updated_at = $4 WHERE id = ANY($1::uuid[])"""

_HIBERNATE = """
    UPDATE instances SET data = $1, version = 1, revision = 1, memory = $2, handled_at = $3,
        hibernated_at = $3"""


async def postgres_floor(
    url: str, names: Sequence[str], signals: int, insert: int, batch: int
) -> tuple[float, float]:
    """Return the seconds, and the seconds of CPU time in this process, for these signals as bare SQL."""
    pool = Pool(url)
    await pool.open()
    ids = [instance_id("default", "counter", name) for name in names]
    taken: list[Any] = []
    done = 0

    async def start(db: Any, tell: object) -> None:
        await db.execute(_ADD_INSTANCES, ids, names, time.time_ns() // 1_000_000)

    async def store(db: Any, tell: object, many: list[Arrival]) -> None:
        now_ms = time.time_ns() // 1_000_000
        counts = Counter(each.run.instance_id for each in many)
        await db.execute(_NUMBER, list(counts), list(counts.values()))
        await db.fetchval(INSERT_SIGNALS, [each.run[:-1] for each in many], now_ms, numbers(range(len(many))))
        await db.execute(_ADD_IDS, *map(list, zip(*map(id_row, many), strict=True)))

    async def end_and_take(db: Any, tell: object, chosen: list[str]) -> None:
        nonlocal done
        now_ms = time.time_ns() // 1_000_000
        if taken:
            await db.execute(_END, [row[0] for row in taken], now_ms)
            await db.execute(_STATE, [row[1] for row in taken], state(done), memory(now_ms), now_ms)
            done += len(taken)
        taken[:] = await db.fetch(_TAKE, chosen, WORKER, now_ms)

    try:
        await pool.read(lambda db: db.fetchval("SELECT 1"))
        began, cpu = time.perf_counter(), time.process_time()
        await pool.write(start)
        for many in arrivals(names, signals, insert):
            await pool.write(store, many)
        for first in range(0, len(ids), batch):
            await pool.write(end_and_take, ids[first : first + batch])
            while taken:
                await pool.write(end_and_take, ids[first : first + batch])
        assert done == signals, f"{done} of {signals}"
        return time.perf_counter() - began, time.process_time() - cpu
    finally:
        await pool.close()


async def add_instances(url: str, ids: Sequence[str], names: Sequence[str], now_ms: int) -> None:
    """Add instances that have handled a signal and hibernate."""
    pool = Pool(url)
    await pool.open()

    async def add(db: Any, tell: object) -> None:
        await db.execute(_ADD_INSTANCES, ids, names, now_ms)
        await db.execute(_HIBERNATE, state(1), memory(now_ms), now_ms)

    try:
        await pool.write(add)
    finally:
        await pool.close()
