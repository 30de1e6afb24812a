"""The cost of the database alone: the rows of the signals benchmark, written by plain driver calls.

For each signal: the run, its id and its number are inserted; the run is marked as running, and read with the
state of its instance; its outcome and the new state are written. The transaction that ends a run takes the
next one of its instance, as the store does. There is no lock, no fence, no rule and no changelog.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from wakeful.run.instances import AgentClass, instance_id
from wakeful.run.signal_rules import Arrival, signal_run
from wakeful.store.sqlite import statements as lite

WORKER = "floor"
CLASS = AgentClass("default", "counter", 1, "{}", 1_000, 7 * 24 * 3_600_000, "team")

_ADD_INSTANCE = """
    INSERT INTO instances (id, workspace, agent, name, status, created_at, updated_at)
    VALUES (?, 'default', 'counter', ?, 'active', ?, ?) ON CONFLICT DO NOTHING"""
_ADD_ID = "INSERT INTO signal_ids (instance_id, source, id, run_id, expires_at) VALUES (?, ?, ?, ?, ?)"
_NUMBER = "UPDATE instances SET sequence = sequence + ? WHERE id = ?"
_NEXT = """
    SELECT r.rowid, r.id, r.payload, i.data, i.id FROM json_each(?) e CROSS JOIN runs r ON r.rowid = (
        SELECT rowid FROM runs INDEXED BY runs_mailbox WHERE instance_id = e.value AND state = 'pending'
        ORDER BY fire_at, sequence LIMIT 1)
    CROSS JOIN instances i ON i.id = e.value"""
_TAKE = "UPDATE runs SET state = 'running', worker = ?, started_at = ?, due_at = NULL WHERE rowid = ?"
_END = """
    UPDATE runs SET state = 'succeeded', finished_at = ?, due_at = NULL WHERE rowid = ?"""
_STATE = """
    UPDATE instances SET data = ?, version = 1, revision = revision + 1, memory = ?, handled_at = ?,
        updated_at = ? WHERE id = ?"""

_HIBERNATE = """
    UPDATE instances SET data = ?, version = 1, revision = 1, memory = ?, handled_at = ?, hibernated_at = ?"""


def arrivals(names: Sequence[str], signals: int, batch: int) -> Iterator[list[Arrival]]:
    """Yield the signals to store, in batches: the next one of each instance in turn."""
    now_ms = time.time_ns() // 1_000_000
    many: list[Arrival] = []
    for number in range(signals):
        text = json.dumps(
            {
                "specversion": "1.0", "type": "count", "source": "bench", "id": str(number),
                "time": "2026-01-01T00:00:00Z", "data": {"number": number},
            }
        )  # fmt: skip
        name = names[number % len(names)]
        many.append(signal_run(CLASS, name, "count", text, now_ms, source="bench", signal_id=str(number)))
        if len(many) == batch:
            yield many
            many = []
    if many:
        yield many


def id_row(arrival: Arrival) -> tuple[str | None, str, str | None, str, int]:
    """Return the row of `signal_ids`."""
    run = arrival.run
    return run.instance_id, arrival.source, arrival.signal_id, run.id, arrival.expires_ms


def state(number: int) -> str:
    """Return a state as the benchmark writes it."""
    return f'{{"count":{number}}}'


def memory(now_ms: int) -> str:
    """Return what an instance remembers after a signal."""
    return f'{{"runs":{{"count":{now_ms}}}}}'


def sqlite_floor(
    path: str, names: Sequence[str], signals: int, insert: int, batch: int
) -> tuple[float, float]:
    """Return the seconds, and the seconds of CPU time in this process, for these signals as bare SQL.

    `insert` signals are stored per transaction, and `batch` are ended and taken.
    """
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA synchronous = FULL")
    db.execute("PRAGMA cache_size = -65536")
    db.execute("PRAGMA wal_autocheckpoint = 4000")
    now_ms = time.time_ns() // 1_000_000
    ids = [instance_id("default", "counter", name) for name in names]
    began, cpu = time.perf_counter(), time.process_time()
    db.execute("BEGIN IMMEDIATE")
    db.executemany(_ADD_INSTANCE, [(*each, now_ms, now_ms) for each in zip(ids, names, strict=True)])
    db.execute("COMMIT")
    for many in arrivals(names, signals, insert):
        db.execute("BEGIN IMMEDIATE")
        counts = Counter(each.run.instance_id for each in many)
        db.executemany(_NUMBER, [(count, key) for key, count in counts.items()])
        db.executemany(
            lite.INSERT_SIGNALS, [(*run[:-1], 0, None, now_ms, n) for n, (run, *_) in enumerate(many)]
        )
        db.executemany(_ADD_ID, [id_row(each) for each in many])
        db.execute("COMMIT")
    done = 0
    for start in range(0, len(ids), batch):
        taken: list[Any] = []
        chosen = json.dumps(ids[start : start + batch])
        while True:
            now_ms = time.time_ns() // 1_000_000
            db.execute("BEGIN IMMEDIATE")
            if taken:
                db.executemany(_END, [(now_ms, row[0]) for row in taken])
                remembered = memory(now_ms)
                db.executemany(_STATE, [(state(done), remembered, now_ms, now_ms, row[4]) for row in taken])
                done += len(taken)
            taken = db.execute(_NEXT, (chosen,)).fetchall()
            db.executemany(_TAKE, [(WORKER, now_ms, row[0]) for row in taken])
            db.execute("COMMIT")
            if not taken:
                break
    assert done == signals, f"{done} of {signals}"
    took = time.perf_counter() - began, time.process_time() - cpu
    db.close()
    return took


def add_sqlite_instances(path: str, ids: Sequence[str], names: Sequence[str], now_ms: int) -> None:
    """Add instances that have handled a signal and hibernate."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("BEGIN IMMEDIATE")
    db.executemany(_ADD_INSTANCE, [(*each, now_ms, now_ms) for each in zip(ids, names, strict=True)])
    db.execute(_HIBERNATE, (state(1), memory(now_ms), now_ms, now_ms))
    db.execute("COMMIT")
    db.close()
