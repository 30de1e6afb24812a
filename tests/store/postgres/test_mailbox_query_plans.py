"""With 100,000 instances that each have a delayed signal, no statement visits more rows than it needs.

Measured by PostgreSQL's row counts, not by time, with current statistics and with statistics from when the
tables were empty.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support import postgres_server
from tests.support.factories import DAY, NOW, FalseClock, job
from tests.support.instances import HAS_REPORT, arrival, new_instance
from tests.support.query_plans import visited
from wakeful.store.instances import InstanceFilter
from wakeful.store.postgres import PostgresStore, instances, mailbox_statements, signal_outcomes
from wakeful.store.postgres import statements as sql
from wakeful.store.postgres.session import Db
from wakeful.store.quotas import INSTANCES
from wakeful.store.rows import RunFilter
from wakeful.store.sql import erasure, running
from wakeful.store.sql import instances as shared
from wakeful.store.sql import jobs as job_reads
from wakeful.store.sql import runs as run_reads
from wakeful.store.sql.driver import Statement

COUNT = 100_000
BATCH = 500
#: each instance of a batch is visited a few times
MOST_VISITED = 12 * BATCH
MODULES = (mailbox_statements, instances, signal_outcomes, shared)
#: statements of other modules
IMPORTED = {"ADD_AGENT", "HOLD_EXISTING"}
#: small tables
SMALL = {"agent_classes", "job_incidents", "quotas", "workers"}

_NOW = f"to_timestamp({NOW // 1000})"
_ID = "('01900000-0000-7000-8000-' || lpad(to_hex(i), 12, '0'))::uuid"
# Instance i has the delayed run i. Of every thousandth it is running, and run i + COUNT waits for it.
_INSTANCES = f"""
    INSERT INTO agent_classes VALUES ('default', 'report', 1, '{{}}', '{{"mailbox":1000}}', 'h', {_NOW});
    INSERT INTO instances (id, workspace, agent, name, status, sequence, schedules_hash, created_at,
        updated_at)
    SELECT {_ID}, 'default', 'report', 'i' || i, 'active', 1, CASE WHEN i % 100 > 0 THEN 'h' ELSE '' END,
        {_NOW}, {_NOW} FROM generate_series(0, {COUNT - 1}) i;
    INSERT INTO signal_ids SELECT id, '/tests', 'a', id, {_NOW} + interval '7 days' FROM instances;
    INSERT INTO jobs (id, workspace, agent, name, policy, work, description, labels, enabled, anchor_at,
        failures, version, created_at, updated_at, instance_id, schedule_origin, schedule_id)
    SELECT {_ID}, 'default', 'report', 'job-' || i, '{{}}', '{{}}', '', '{{}}', true, {_NOW}, 0, 1, {_NOW},
        {_NOW}, {_ID}, 'declared', 'daily' FROM generate_series(0, {COUNT - 1}, 5) i;
    INSERT INTO cursors SELECT id, {_NOW}, {_NOW} + interval '1 day', 0 FROM jobs"""
_RUNS = f"""
    INSERT INTO runs (id, workspace, agent, scheduled_at, fire_at, trigger, state, covers, attempt, worker,
        lane, serial, due_at, started_at, idempotency_key, created_at, is_pull, requires, instance_id,
        instance, signal, sequence)
    SELECT {_ID}, 'default', 'report', {_NOW}, {_NOW} + interval '1 hour', 'signal',
        CASE WHEN i < {COUNT} AND i % 1000 = 0 THEN 'running' ELSE 'pending' END, 1, 1,
        CASE WHEN i < {COUNT} AND i % 1000 = 0 THEN 'w' || (i / 1000 % 10) END, 'team', false,
        CASE WHEN i < {COUNT} AND i % 1000 > 0 THEN {_NOW} + interval '1 hour' END, {_NOW}, 'key', {_NOW},
        false, 'agent:default/report',
        ('01900000-0000-7000-8000-' || lpad(to_hex(i % {COUNT}), 12, '0'))::uuid, 'i' || (i % {COUNT}), 'a',
        1 + i / {COUNT}
    FROM generate_series(0, {2 * COUNT - 1}) i WHERE i < {COUNT} OR i % 1000 = 0"""
_FILL_LIVE = """
    INSERT INTO live_runs (run_id, state, worker, lane, serial, tick, scheduled_at, due_at, is_pull, requires,
        instance_id, sequence, fire_at)
    SELECT id, state, worker, lane, serial, false, scheduled_at, due_at, is_pull, requires, instance_id,
        sequence, fire_at FROM runs"""


@pytest.fixture(params=["of yesterday", "of now"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[PostgresStore]:
    """Yield a store on the big database, with statistics from when it was empty or current ones."""
    store = PostgresStore(postgres_server.fresh_database(), clock=FalseClock())
    await store.open()
    async with store._pool._acquire() as db:
        for table in ("jobs", "cursors", "runs", "live_runs", "instances", "signal_ids"):
            await db.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
        await db.execute("VACUUM ANALYZE")
        for statement in (_INSTANCES, _RUNS, _FILL_LIVE):
            await db.execute(statement, timeout=120)
        if request.param == "of now":
            await db.execute("VACUUM ANALYZE")
    yield store
    await store.close()


async def _cases(db: Db) -> AsyncIterator[tuple[str, Statement, list[object]]]:
    """Yield statements with arguments, in an order in which each still finds rows."""
    rows = await db.fetch("SELECT id::text, name FROM instances ORDER BY id LIMIT $1", BATCH)
    ids, names = [row[0] for row in rows], [row[1] for row in rows]
    busy = await db.fetch(
        "SELECT instance_id::text, id::text FROM runs WHERE sequence = 2 ORDER BY id LIMIT $1", BATCH
    )
    waiting = [row[1] for row in busy]
    of, agents, keys = ["default"] * BATCH, ["report"] * BATCH, ["/tests"] * BATCH
    new = [arrival(name).run._replace(instance_id=key) for key, name in zip(ids, names, strict=True)]
    row = new_instance("new")
    given: dict[str, list[object]] = {
        "ADD_INSTANCES": [ids, of, agents, names, [1] * BATCH, NOW],
        "ADD_MISSING": [ids, of, agents, names, NOW],
        "LOCK_INSTANCES": [ids],
        "LOCK_INSTANCES_OF_RUNS": [ids],
        "LOCK_INSTANCES_OF_JOBS": [ids],
        "LOCK_INSTANCES_HELD_BY": ["w1"],
        "LOCK_FAILING": [ids, ids[:10]],
        "RESERVE": [ids, [1] * BATCH],
        "UPDATE_INSTANCES": [ids, [NOW] * BATCH, ["{}"] * BATCH, [1] * BATCH, *[[None] * BATCH] * 3, NOW],
        "MAILBOXES": [ids, None, NOW],
        "NEXT": [ids],
        "WAITING": [ids, NOW, True],
        "PENDING_OF": [ids],
        "CLASSES": [["default"], ["report"]],
        "DELAYS": [ids, ["a"] * BATCH],
        "KNOWN_SIGNALS": [ids, keys, ["a"] * BATCH, NOW],
        "ADD_SIGNAL_IDS": [ids, keys, ["b"] * BATCH, ids, [NOW] * BATCH],
        "INSERT_SIGNALS": [[run[:-1] for run in new], NOW, sql.numbers([9] * BATCH)],
        "SET_EMITTED": [ids, ["[]"] * BATCH],
        "HIDE": [ids],
        "EXPOSE": [ids[1:], [1] * (BATCH - 1), NOW],
        "SCHEDULE_IDS": [ids],
        "LOCK_INSTANCE_ROWS": [ids],
        "LIVE_OF_INSTANCE": [ids[0], True],
        "LOCK_LIMITS": ["default"],
        "CLASS": ["default", "report"],
        "HOLD_CLASS": ["default", "report"],
        "PUT_CLASS": ["default", "report", 2, "{}", "{}", "h", NOW],
        "INSTANCE": [ids[5]],
        "ADD_INSTANCE": [*row[:10], *row[11:]],
        "CHANGE_INSTANCE": [ids[5], *row[4:10], *row[11:15], NOW],
        "STALE": ["default", "report", "h", 1, 100],
        "HIBERNATE": [ids, NOW],
        "PRUNE_SIGNAL_IDS": [NOW, BATCH],
        "LIMITS": ["default", ["", "report"], INSTANCES],
        "COUNT_OF_AGENT": ["default", "report", 100],
        "COUNT_OF_WORKSPACE": ["default", 100],
        "HAS_RUNS": [ids[5]],
        "DELETING": [10],
        "DELETE_SIGNAL_IDS": [ids[-10:]],
        "DELETE_INSTANCES": [ids[-10:]],
    }
    statements = _statements()
    for name, values in given.items():
        yield name, statements[name], values
    capabilities: list[Any] = [list(HAS_REPORT), list(HAS_REPORT.values())]
    yield "PICK none", sql.PICK, [NOW, ["team"], [100], *capabilities]
    yield "PICK", sql.PICK, [NOW + DAY, ["team"], [100], *capabilities]
    yield "NEXT_DUE", running.NEXT_DUE, [NOW, ["team"], *capabilities]
    yield "START_SIGNALS", sql.START_SIGNALS, [NOW + DAY, ids[1:], [], "w1", []]
    yield "START_NEXT", statements["START_NEXT"], [ids, ["team"] * BATCH, *capabilities, NOW + DAY, "w1"]
    yield "CANCEL", sql.CANCEL, [waiting, ["stopped"] * len(waiting), NOW]
    yield "WITHDRAW", sql.WITHDRAW, [ids, [NOW] * BATCH, ["edited"] * BATCH, [True] * BATCH, NOW]
    yield "LOST_INSTANCES", sql.LOST_INSTANCES, [NOW + 1, NOW, 50, NOW - 1]
    yield "LOST", sql.LOST, [NOW + 1, NOW, 50, NOW - 1, ids]
    yield "HELD_BY", sql.HELD_BY, ["w1", ids]
    of_instance = RunFilter("default", instance_id=ids[7])
    for only in (
        InstanceFilter("default"),
        InstanceFilter("default", "report", after=("report", "i5")),
    ):
        yield str(only), *shared.list_statement(only, NOW)
    yield str(of_instance), *run_reads.list_runs(of_instance)
    # Runs of a job in mailboxes: run, job and instance have the same id.
    found = await db.fetch(
        """SELECT run_id::text FROM live_runs WHERE sequence = 1 AND state = 'pending'
        ORDER BY run_id OFFSET 5000 LIMIT $1""",
        BATCH,
    )
    moved = [row[0] for row in found]
    for table, key in (("runs", "id"), ("live_runs", "run_id")):
        await db.execute(f"UPDATE {table} SET job_id = instance_id WHERE {key} = ANY($1::uuid[])", moved)
    signals, requires = ["b"] * BATCH, ["agent:default/report"] * BATCH
    others = [*moved[1:], moved[0]]
    given = {
        "WITH_PENDING": [moved],
        "LOCK_INSTANCES_FOR_MOVE": [moved, others],
        "SET_SIGNAL": [moved, moved, signals],
        "OUTSIDE": [moved, others],
        "JOIN": [moved, others, names, signals, requires, [5] * BATCH],
        "LEAVE": [moved, [True] * BATCH, NOW],
    }
    for name, values in given.items():
        yield name, statements[name], values
    yield "erasure.LOCK", erasure.LOCK, [ids[5]]
    yield "erasure.JOBS", erasure.JOBS, [ids[5]]
    yield "erasure.RUNS", erasure.RUNS, [ids[5], 500]
    yield "erasure.RUNS_OF_JOBS", erasure.RUNS_OF_JOBS, [moved[:5], 500]
    yield "erasure.ALERTS", erasure.ALERTS, [moved]
    yield "erasure.DELETE_RUNS", erasure.DELETE_RUNS, [moved[:10]]
    yield "erasure.DELETE_INSTANCE", erasure.DELETE_INSTANCE, [ids[5]]
    yield "VIEWS", shared.VIEWS, [NOW, ids[:10]]
    yield "JOB", job_reads.JOB, ["default", "report", "job-5"]
    yield "VIEW", shared.VIEW, [NOW, ids[5]]
    yield "PENDING", shared.PENDING, [ids[0], 50]
    yield "DELAYS", shared.DELAYS, [ids[0], NOW, 50]
    yield "DELAY_IDS", shared.DELAY_IDS, [ids[0], NOW]
    yield "SCHEDULES", job_reads.SCHEDULES, [ids[5]]
    yield "CREATE_JOBS", sql.CREATE_JOBS, [[job(f"new-{number}") for number in range(BATCH)]]


def _statements() -> dict[str, str]:
    """Return every statement of the modules by name."""
    return {
        name: text
        for module in MODULES
        for name, text in vars(module).items()
        if re.fullmatch(r"[A-Z][A-Z_]+", name)
        and re.match(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\b", str(text))
    }


async def test_no_statement_visits_more_rows_than_it_needs(store: PostgresStore) -> None:
    tried, beyond = set(), {}
    async with store._pool._acquire() as db:
        transaction = db.transaction()
        await transaction.start()
        async for name, statement, given in _cases(db):
            tried.add(name)
            rows, scanned = await visited(db, statement, *given)
            if rows > MOST_VISITED or set(scanned) - SMALL:
                beyond[name] = rows, scanned
        await transaction.rollback()
    assert beyond == {}
    assert set(_statements()) - IMPORTED <= tried
