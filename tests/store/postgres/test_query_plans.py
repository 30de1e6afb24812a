"""With 10,000 jobs and 100,000 runs, no statement of the store visits more rows than it needs.

Measured by PostgreSQL's row counts, not by time: the rows that a statement visits are a small multiple of
those it affects, with current statistics and with statistics from when the tables were empty.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from types import ModuleType

import pytest

from tests.support import postgres_server
from tests.support.factories import NOW, FalseClock, job, tick
from tests.support.query_plans import visited, visited_with_kept_plan
from wakeful.store.accounts import AgentRow
from wakeful.store.audit import AuditEntry, link
from wakeful.store.postgres import (
    PostgresStore,
    caller_transaction,
    leases,
    runs,
)
from wakeful.store.postgres import changelog as postgres_changelog
from wakeful.store.postgres import jobs as postgres_jobs
from wakeful.store.postgres import statements as sql
from wakeful.store.postgres import store as postgres_store
from wakeful.store.postgres.session import Db
from wakeful.store.quotas import CREATE_JOB, INSTANCES, LIVE_JOBS
from wakeful.store.rows import JobFilter, RunFilter
from wakeful.store.sql import accounts as shared_accounts
from wakeful.store.sql import (
    admin,
    base,
    budgets,
    changelog,
    deliveries,
    digests,
    executors,
    figures,
    jobs_and_runs,
    overviews,
    prechecks,
    running,
    stats,
    usage,
)
from wakeful.store.sql import audit as shared_audit
from wakeful.store.sql import jobs as job_reads
from wakeful.store.sql import runs as run_reads
from wakeful.store.sql.driver import Statement, Texts

#: the modules with statements; the names of a group are distinct
GROUPS: dict[str, tuple[ModuleType, ...]] = {
    "admin": (
        *(shared_accounts, shared_audit, admin, base),
        postgres_jobs,
    ),
    "budgets": (budgets, digests, usage),
    "callbacks": (executors,),
    "caller": (caller_transaction,),
    "deliveries": (deliveries,),
    "live": (figures,),
    "prechecks": (prechecks,),
    "queries": (
        changelog,
        postgres_changelog,
        postgres_store,
        stats,
        runs,
        run_reads,
        job_reads,
        jobs_and_runs,
    ),
    "running": (running,),
}
JOBS = 10_000
RUNS = 100_000
LIVE = 4_000
BATCH = 1_000
#: each run of a batch is visited a few times, each live run twice. Full table scans and nested loops over
#: two batches exceed it by far
MOST_VISITED = 10 * BATCH + 2 * LIVE
#: statements that read a whole table
WHOLE = {
    "admin.ALL_KEYS": ("keys",),
    "caller.IDENTITY": ("pg_class", "pg_database", "pg_namespace"),
    "admin.WITH_INTERNAL_JOBS": ("agents", "jobs", "workspaces"),
}
#: statements that read all live runs
ALL_LIVE_RUNS = (
    "queries.DUE_BY_LANE",
    "queries.DUE_BY_AGENT",
    "queries.DUE_REQUIREMENTS",
    "live.LIVE_COUNTS",
)
#: small tables
SMALL = ("incidents", "job_incidents", "alert_cooldowns", "budget_blocks", "reservations", "verifications")

_NOW = f"to_timestamp({NOW // 1000})"
_LOAD = f"""
    INSERT INTO jobs SELECT ('01900000-0000-7000-8000-' || lpad(to_hex(i), 12, '0'))::uuid, 'ws-' || (i % 10),
        'agent-' || (i % 500), 'job-' || i, '{{}}', '{{}}', '{{}}', NULL,
        CASE WHEN i % 100 = 7 THEN 'job-' || (i - 500) END, CASE WHEN i % 100 = 7 THEN 'succeeded' END,
        '', '{{}}', NULL, NULL, NULL, true, NULL, {_NOW}, CASE WHEN i % 10 = 8 THEN 1 ELSE 0 END, 1,
        {_NOW}, {_NOW}, NULL
    FROM generate_series(0, {JOBS - 1}) i;
    INSERT INTO cursors SELECT id, {_NOW}, {_NOW} + CASE WHEN substr(id::text, 36) IN ('0', '1')
        THEN interval '0' ELSE interval '1 day' END, 10 FROM jobs;
    INSERT INTO runs SELECT ('01910000-0000-7000-8000-' || lpad(to_hex(i), 12, '0'))::uuid,
        ('01900000-0000-7000-8000-' || lpad(to_hex(i % {JOBS}), 12, '0'))::uuid,
        'ws-' || (i % 10), 'agent-' || (i % 500), 'job-' || (i % {JOBS}),
        {_NOW} - i * interval '1 second', {_NOW}, 'schedule', NULL,
        CASE WHEN i < {RUNS - LIVE} THEN CASE i % 50 WHEN 0 THEN 'failed' ELSE 'succeeded' END
            WHEN i % 4 = 0 THEN 'pending' WHEN i % 4 = 1 THEN 'retrying' ELSE 'running' END,
        NULL, 1, NULL, 1, CASE WHEN i < {RUNS - LIVE} OR i % 4 > 1 THEN 'w' || (i % 8) END, 'cron', true,
        CASE WHEN i >= {RUNS - LIVE} AND i % 4 < 2 THEN {_NOW} END, {_NOW},
        CASE WHEN i < {RUNS - LIVE} THEN {_NOW} END, 'key', NULL, NULL, {_NOW}, NULL, NULL, NULL,
        i < {RUNS - LIVE} AND i % 50 = 0
    FROM generate_series(0, {RUNS - 1}) i"""
_LOAD_OFFICE = f"""
    INSERT INTO workspaces SELECT 'ws-' || i, NULL, '', {_NOW}, {_NOW} FROM generate_series(0, 999) i;
    INSERT INTO audit_heads SELECT 'ws-' || i, 100, 'hash' FROM generate_series(0, 999) i;
    INSERT INTO audit SELECT 'ws-' || (i % 1000), i / 1000 + 1, {_NOW}, 'key:1', 'job.create', 'a/b', '{{}}',
        NULL, '', 'hash' FROM generate_series(0, {RUNS - 1}) i;
    INSERT INTO agents SELECT DISTINCT workspace, agent, NULL, NULL, true, NULL, NULL, '', 1, {_NOW}, {_NOW}
        FROM jobs;
    INSERT INTO keys SELECT 'key-' || i, 'ws-' || (i % 10), '', 'agent', NULL,
        convert_to('hash-' || i, 'UTF8'), {_NOW}, 'key:1' FROM generate_series(0, {JOBS - 1}) i;
    INSERT INTO quotas SELECT 'ws-' || i % 1000, 'agent-' || i, '{CREATE_JOB}', 5, 3, 7
        FROM generate_series(0, {JOBS - 1}) i;
    INSERT INTO workflows SELECT 'ws-' || i % 10, 'flow', i, '{{}}', {_NOW}
        FROM generate_series(0, {JOBS - 1}) i;
    INSERT INTO idempotency_keys SELECT 'ws-1', 'key-' || i, '', 200, '{{}}', {_NOW} + i * interval '1 second'
        FROM generate_series(0, {JOBS - 1}) i"""
_FILL_LOG = f"""
    INSERT INTO changes (seq, at, kind, count, items)
    SELECT CASE WHEN i <= {RUNS} THEN i END, {_NOW}, 'run.started', 1, i
    FROM generate_series(1, {RUNS + BATCH}) i;
    UPDATE changes_head SET last = {RUNS}"""
_LOAD_DELIVERIES = f"""
    INSERT INTO deliveries SELECT id, 'delivered', 'ops', NULL, 1, 'w1', NULL, {_NOW}, NULL FROM runs
    WHERE state = 'succeeded'"""
_FILL_LIVE = """
    INSERT INTO live_runs (run_id, job_id, state, worker, lane, serial, tick, scheduled_at, due_at,
        workspace, agent)
    SELECT id, job_id, state, worker, lane, serial, true, scheduled_at, due_at, workspace, agent FROM runs
    WHERE state IN ('pending', 'retrying', 'running')"""


@pytest.fixture(params=["of yesterday", "of now"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[PostgresStore]:
    """Yield a store on the big database, with statistics from when it was empty or current ones."""
    store = PostgresStore(postgres_server.fresh_database(), clock=FalseClock())
    await store.open()
    async with store._pool._acquire() as db:
        for table in ("jobs", "cursors", "runs", "live_runs"):
            await db.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
        await db.execute("VACUUM ANALYZE")
        await db.execute(_LOAD, timeout=120)
        await db.execute(_LOAD_OFFICE, timeout=120)
        await db.execute(_LOAD_DELIVERIES, timeout=120)
        await db.execute(_FILL_LIVE)
        await db.execute(_FILL_LOG, timeout=120)
        if request.param == "of now":
            await db.execute("VACUUM ANALYZE")
        else:  # statistics of an empty table that has many pages
            await db.execute("DELETE FROM live_runs")
            await db.execute("VACUUM ANALYZE live_runs")
            await db.execute(_FILL_LIVE)
    yield store
    await store.close()


async def _cases(db: Db) -> AsyncIterator[tuple[str, Statement, list[object]]]:
    """Yield statements with arguments, in an order in which each still finds rows."""
    claimed = await db.fetch(sql.CLAIM, NOW, BATCH)
    jobs = [row[0] for row in claimed]
    text = ",".join(jobs)
    newest = await db.fetch(f"SELECT id::text, state, worker FROM runs ORDER BY runs.id DESC LIMIT {LIVE}")
    pending = [row[0] for row in newest if row[1] == "pending"]
    mine, theirs = ([row[0] for row in newest if row[2] == worker] for worker in ("w2", "w6"))
    numbers = [sql.numbers([1] * BATCH), sql.numbers([NOW] * BATCH), sql.numbers([NOW] * BATCH)]
    outcomes = [(run, None, 1, "failed", NOW, NOW, None, "o", "e", None, None, 1, 500) for run in mine]
    at, reasons = [NOW] * BATCH, ["because"] * BATCH
    births = [tick(job(id=job_id), NOW + 5)[:-1] for job_id in jobs]

    yield "CLAIM", sql.CLAIM, [NOW, BATCH]
    yield "FACTS", sql.FACTS, [text, numbers[1], numbers[0]]
    yield "ADVANCE", sql.ADVANCE, [text, numbers[1], numbers[2], numbers[0]]
    yield "HALT", sql.HALT, [jobs, [True] * BATCH, [None] * BATCH, [None] * BATCH]
    yield "END_REFUSED", sql.END_REFUSED, [jobs]
    yield "running.NEXT_WAKE", running.NEXT_WAKE, []
    yield "INSERT_RUNS", sql.INSERT_RUNS, [births, NOW]
    yield "INSERT_NEW_RUNS", sql.INSERT_NEW_RUNS, [births, NOW]
    yield "ADD_RUNS", sql.ADD_RUNS, [births, NOW, jobs]
    later = [tick(job(id=job_id), NOW + 6)[:-1] for job_id in jobs[:30]]
    entry = link(AuditEntry("ws-5", "a", "b", "c", "{}", None), 102, NOW, "")
    audit = [entry], ["ws-5"], [101], ["hash"], [102], ["hash"]
    at_once = [later, NOW, jobs[:30], [1] * 30, 20_000, *audit, "c", ["runs"], ["ws-5"]]
    yield "ADD_AT_ONCE", sql.ADD_AT_ONCE, at_once
    details = [[run[0] for run in births], [None] * BATCH, [1] * BATCH, [None] * BATCH, [1] * BATCH]
    yield "SET_DETAILS", sql.SET_DETAILS, details
    yield "PICK", sql.PICK, [NOW, ["cron", "main"], [20, 30], [""], [0]]
    yield "PICK_MORE", sql.PICK_MORE, [NOW, ["cron", "main"], [20, 30], [""], [0]]
    yield "DUE_OWNERS", sql.DUE_OWNERS, [NOW, ["cron", "main"], [""], [0], 128, 16]
    owners = await db.fetch(sql.DUE_OWNERS, NOW, ["cron", "main"], [""], [0], 20, 16)
    workspaces, agents = [row[2] for row in owners], [row[3] for row in owners]
    assert len(owners) >= 16
    nothing, zeros, ones = [""] * len(owners), [0] * len(owners), [1] * len(owners)
    yield "PICK_OF_OWNERS", sql.PICK_OF_OWNERS, [NOW, "cron", nothing, zeros, workspaces, agents, ones]
    yield "LOCK_TURNS", sql.LOCK_TURNS, [jobs]
    yield "START", sql.START, [NOW, pending[:20], jobs, "w1", pending[10:20]]
    yield "START_SIGNALS", sql.START_SIGNALS, [NOW, pending[20:40], jobs, "w1", []]
    yield "PICK_SUSPECTS", sql.PICK_SUSPECTS, [NOW, ["cron", "main"], [""], [0], 7]
    yield "HELD_COUNTS", sql.HELD_COUNTS, [["w1", "w2"]]
    yield "ADD_LOSSES", sql.ADD_LOSSES, [pending[:5]]
    yield "CLEAR_LOSSES", sql.CLEAR_LOSSES, [pending[:5]]
    given = pending[10:20], [1] * 10
    yield "running.RECORD_START", running.RECORD_START, ["w1", pending[10], 1, NOW]
    yield "GIVE_BACK", leases.GIVE_BACK, ["w1", *given, NOW]
    yield "running.NEXT_DUE", running.NEXT_DUE, [NOW - 1, ["cron", "main"], [""], [0]]
    yield "HOLDER", sql.HOLDER, [mine[0], 1]
    yield "running.NOT_HELD", running.NOT_HELD, ["w2", mine]
    yield "running.REQUIRED_SCHEMA", running.REQUIRED_SCHEMA, []
    yield "running.BEAT", running.BEAT, ["w2", NOW, "{}"]
    yield "LOCK_CURSORS", sql.LOCK_CURSORS, [jobs]
    ids = ",".join(row[0] for row in newest[:BATCH])
    yield "SUCCEED", sql.SUCCEED, ["w3", False, ids, *numbers, numbers[0]]
    yield "FINISH", sql.FINISH, ["w2", False, outcomes]
    audit = [entry], ["ws-5"], [102], ["hash"], [103], ["hash"]
    at_once = ["w2", outcomes[:10], *audit, NOW, "a", "c"]
    yield "FINISH_AT_ONCE", sql.FINISH_AT_ONCE, at_once
    yield "FINISH of few", sql.FINISH, ["", True, outcomes[:10]]
    yield "ADD_LIVE_RUNS", sql.ADD_LIVE_RUNS, [mine]
    yield "ADD_ATTEMPTS", sql.ADD_ATTEMPTS, [outcomes, ["w2"] * len(outcomes)]
    yield "WHICH_FAIL", sql.WHICH_FAIL, [text]
    yield "LOCK_FAILURES", sql.LOCK_FAILURES, [jobs]
    yield "SET_FAILURES", sql.SET_FAILURES, [jobs, [1] * BATCH]
    yield "EDITS", sql.EDITS, [mine]
    yield "FOLLOWERS", sql.FOLLOWERS, [",".join(row[0] for row in newest[:BATCH]), 1_001]
    yield "HEARTBEATS", sql.HEARTBEATS, [[row[0] for row in newest[:BATCH]]]
    yield "WAITING_OF", sql.WAITING_OF, [text]
    yield "CANCEL", sql.CANCEL, [[row[0] for row in newest[:BATCH]], reasons, NOW]
    yield "WITHDRAW", sql.WITHDRAW, [jobs, at, reasons, [False] * BATCH, NOW - 1]
    yield "WITHDRAW ALL", sql.WITHDRAW, [jobs, at, reasons, [True] * BATCH, NOW - 1]
    yield "DISABLE_JOBS", sql.DISABLE_JOBS, [jobs, at, reasons]
    yield "DELETE_JOBS", sql.DELETE_JOBS, [jobs, at]
    yield "LOST_INSTANCES", sql.LOST_INSTANCES, [NOW + 1, NOW, 100, NOW - 1]
    yield "LOST", sql.LOST, [NOW + 1, NOW, 100, NOW - 1, []]
    yield "running.LIMIT_WORKERS", running.LIMIT_WORKERS, [NOW]
    yield "running.LIMIT_EXECUTORS", running.LIMIT_EXECUTORS, [NOW]
    yield "DELETE_DEAD_WORKERS", sql.DELETE_DEAD_WORKERS, [NOW]
    yield "DELETE_WORKER", sql.DELETE_WORKER, ["w9"]
    yield "HELD_BY", sql.HELD_BY, ["w3", []]
    yield "AHEAD", sql.AHEAD, [jobs, NOW - 1]
    yield "WITHDRAW_AHEAD", sql.WITHDRAW_AHEAD, [theirs, ["because"] * len(theirs), NOW]
    yield "RELEASE", sql.RELEASE, [theirs, NOW]
    yield "OLDEST", sql.OLDEST, [NOW + 1, leases.FIRST_ID, BATCH]
    old = [row[0] for row in await db.fetch(sql.OLDEST, NOW + 1, leases.FIRST_ID, BATCH)]
    yield "DELETE_CURSORS", sql.DELETE_CURSORS, [jobs]
    yield "DELETE_RUNS", sql.DELETE_RUNS, [old]
    yield "DELETE_JOBS_WITHOUT_RUNS", sql.DELETE_JOBS_WITHOUT_RUNS, [jobs]
    yield "CREATE_JOBS", sql.CREATE_JOBS, [[job(f"new-{n}") for n in range(BATCH)]]
    charged = [f"ws-{n}" for n in range(500)], [f"agent-{n}" for n in range(500)]
    charge: list[object] = [*charged, [1] * 500, CREATE_JOB, LIVE_JOBS, 8]
    yield "CHARGE", sql.CHARGE, charge
    yield "admin.CHARGED", postgres_jobs.CHARGED, charge
    yield "queries.ANY_WAITING", postgres_changelog.ANY_WAITING, []
    yield "queries.TAKE_WAITING", postgres_changelog.TAKE_WAITING, [500]
    yield "CREATE_FEW_JOBS", sql.CREATE_FEW_JOBS, [[job(f"few-{n}") for n in range(30)], *charge]
    yield "CHANGE_JOBS", sql.CHANGE_JOBS, [[job(f"changed-{n}", id=each) for n, each in enumerate(jobs)]]
    yield "JOB_IDS_OF_AGENT", sql.JOB_IDS_OF_AGENT, ["ws-5", "agent-5"]
    yield "JOBS_BY_ID", sql.JOBS_BY_ID, [jobs]
    yield "LOCK_JOBS", sql.LOCK_JOBS, [jobs]
    yield "LOCK_FOR_MOVE", sql.LOCK_FOR_MOVE, [jobs]
    yield "queries.JOB", job_reads.JOB, ["ws-5", "agent-5", "job-5"]
    details = ["ws-5", "agent-5", "job-5", NOW, 20_000]
    yield "queries.JOB_WITH_DETAILS", job_reads.JOB_WITH_DETAILS, details
    by_id = [*details[:2], jobs[5], *details[3:]]
    yield "queries.JOB_WITH_DETAILS_BY_ID", job_reads.JOB_WITH_DETAILS_BY_ID, by_id
    yield "queries.TAKEN_NAMES", job_reads.TAKEN_NAMES, ["ws-5", "agent-5", ["job-5", "job-6"]]
    yield "queries.JOB_AND_BLOCKS", job_reads.JOB_AND_BLOCKS, ["ws-5", "agent-5", "job-5", 20_000]
    yield "queries.JOBS_BY_IDS", job_reads.JOBS_BY_IDS, [jobs]
    yield "queries.SCHEDULES", job_reads.SCHEDULES, [jobs[5]]
    yield "LOCK_JOB", sql.LOCK_JOB, [jobs[5]]
    for name in ("JOB_BY_ID", "ANY_JOB_BY_ID"):
        yield f"queries.{name}", getattr(job_reads, name), [jobs[5]]
    yield "queries.OLDEST_LETTERS", run_reads.OLDEST_LETTERS, ["ws-0", BATCH]
    yield "queries.LETTERS", run_reads.LETTERS, ["ws-1", mine]
    yield "queries.CLEAR_DEAD", jobs_and_runs.CLEAR_DEAD, [mine]
    yield "queries.LAST_RUNS", run_reads.LAST_RUNS, ["ws-1", "agent-1", jobs[7], 5]
    for name in ("RUN", "RUN_WITH_ATTEMPTS", "LOCK_RUN", "ATTEMPTS"):
        yield f"queries.{name}", getattr(run_reads, name), [newest[0][0]]
    for jobs_only in (
        JobFilter("ws-1"),
        JobFilter("ws-1", "agent-1", False),
        JobFilter("x", after=("a", "b")),
        JobFilter("ws-1", q="nothing-like-it"),
        JobFilter("ws-1", labels=(("team", "ops"),), creator="agent"),
        JobFilter("ws-8", state="failing"),
        JobFilter("ws-1", schedule_kind="cron", target_kind="webhook", created_by="x"),
    ):
        yield str(jobs_only), *job_reads.list_jobs(jobs_only)
        yield f"count {jobs_only}", *job_reads.count_statement(jobs_only, 1_001)
    for few in (False, True):
        ticks = JobFilter("ws-1", order="next", limit=50, after_tick=(NOW - 1, leases.FIRST_ID))
        yield f"{ticks} {few}", *job_reads.list_jobs(ticks, few)
    yield "job_overviews.RUNS", overviews.RUNS, [jobs[:100], 20]
    yield "job_overviews.COSTS", overviews.COSTS, [jobs[:100], NOW // 86_400_000 - 6]
    yield "job_overviews.INCIDENTS", overviews.INCIDENTS, [jobs[:100]]
    for only in (
        RunFilter("ws-1"),
        RunFilter("ws-1", agent="agent-1"),
        RunFilter("ws-1", agent="nobody"),
        RunFilter("nobody"),
        RunFilter("ws-1", job_id=jobs[7]),
        RunFilter("ws-1", job_id=jobs[7], states=("running",)),
        RunFilter("ws-1", agent="agent-1", instance_id=jobs[7]),
        RunFilter("ws-1", agent="agent-1", instance_id=jobs[7], states=("pending",)),
        RunFilter("ws-1", states=("pending", "running")),
        RunFilter("ws-1", dead=True),
        RunFilter("ws-1", to_confirm=True),
        RunFilter("ws-1", agent="agent-1", states=("running",), to_confirm=True),
        RunFilter("ws-0", states=("failed",)),
        RunFilter("ws-1", states=("failed", "missed")),
        RunFilter("ws-1", agent="nobody", states=("cancelled",)),
        RunFilter("ws-1", job_id=jobs[7], states=("failed",)),
        RunFilter("ws-1", before=newest[-1][0], trigger="schedule"),
    ):
        yield str(only), *run_reads.list_runs(only)


async def _admin_cases() -> AsyncIterator[tuple[str, Statement, list[object]]]:
    """Yield the statements of accounts, audit, quotas, workflows and idempotency keys."""
    agents = [f"agent-{number}" for number in range(500)]
    of = [f"ws-{number % 10}" for number in range(500)]
    rest = [None] * (len(AgentRow._fields) - 11)
    given: dict[str, list[object]] = {
        "WORKSPACE": ["ws-7"],
        "WORKSPACES": [],
        "WORKSPACES_NAMED": ["ws-7", "ws-7~", 20],
        "ADD_WORKSPACE": ["ws-7", None, "", NOW, NOW, None, None, 1],
        "CHANGE_WORKSPACE": ["ws-7", None, "", NOW, None, None, 1],
        "AGENT": ["ws-5", "agent-5"],
        "LOCK_WORKSPACE": ["ws-7"],
        "LOCK_AGENT": ["ws-5", "agent-5"],
        "HOLD_AGENT": ["ws-5", "agent-5"],
        "WITH_INTERNAL_JOBS": [],
        "AGENTS": ["ws-5"],
        "EVOLVING_AGENTS": [],
        "ADD_AGENT": ["ws-5", "agent-5", None, None, True, None, None, "", 1, NOW, NOW, *rest],
        "CHANGE_AGENT": ["ws-5", "agent-5", None, None, True, None, None, "", 1, NOW, *rest],
        "HOLD_AGENTS": [of, agents, NOW],
        "HOLD_EXISTING": [of, agents],
        "HOLD_AGENT_OF_JOB": ["01900000-0000-7000-8000-000000000007"],
        "COUNT_JOBS": ["ws-5", "agent-5"],
        "EXPIRE_SUBSCRIPTIONS": ["key:1", NOW],
        "KEY_NAMES": [[f"key-{number}" for number in range(BATCH)]],
        "ADD_KEY": ["new", None, "", "admin", None, b"new", NOW, "", None, None, None, None],
        "HOLD_PERSON": ["7"],
        "KEY_BY_HASH": [b"hash-77"],
        "KEYS": ["ws-7"],
        "GLOBAL_KEYS": [],
        "ALL_KEYS": [],
        "REVOKE_KEY": ["key-7", NOW],
        "GRANTS_OF": ["key:7"],
        "KEYS_OF_AGENT": ["ws-5", "agent-5"],
        "TOUCH_KEY": ["key-7", NOW],
        "HEAD": ["ws-7"],
        "ENTRIES": ["ws-7", 50, 20],
        "ENTRIES_BACK": ["ws-7", 0, 90, 20],
        "OF_SUBJECT": ["ws-7", 1, 90, 20, None, None, None, "subject"],
        "MATCHING": ["ws-7", 1, 90, 20, "key:1", "job", "job.%"],
        "INSTANT": ["ws-7", 50],
        "LIVE_OF_AGENTS": [of[:10], agents[:10], [100] * 10],
        "LIVE_OF_WORKSPACES": [of[:10], [""] * 10, [100] * 10],
        "CALLING_RUN": [leases.FIRST_ID],
        "CHARGE_RUN": [leases.FIRST_ID, 1, 5],
        "RUN_CHARGED": [leases.FIRST_ID],
        "QUOTAS": ["ws-5", LIVE_JOBS, INSTANCES, None],
        "QUOTA": ["ws-5", "", LIVE_JOBS],
        "SET_QUOTA": ["ws-5", "", LIVE_JOBS, 7],
        "PUT_WORKFLOW": ["ws-5", "flow", 5, "{}", NOW],
        "WORKFLOW": ["ws-5", "flow", 5],
        "WORKFLOWS": ["ws-5", ["flow", "other"], [5, 7]],
        "KEY_ROW": ["ws-1", "key-5"],
        "RESPONSE": ["ws-1", "key-5", NOW],
        "EXPIRE_KEYS": [NOW + 500_000],
        "CLAIM_KEY": ["ws-1", "key-7000", "", 0, "", NOW, NOW, NOW],
        "STORE_RESPONSE": ["ws-1", "key-7000", 200, "{}"],
        "DELETE_AGENT": ["ws-5", "agent-5"],
        "DELETE_SESSIONS": ["ws-5", "agent-5"],
        "LIVE_INSTANCES": ["ws-5", "agent-5"],
        "INSTANCE_IDS": ["ws-5", "agent-5"],
        "DELETE_INSTANCES": ["ws-5", "agent-5"],
        "DELETE_SIGNAL_IDS": [[f"00000000-0000-0000-0000-00000000000{number}" for number in range(3)]],
        "DELETE_CLASS": ["ws-5", "agent-5"],
        "DELETE_HISTORIES": ["ws-5", "agent-5"],
        "DELETE_SUGGESTIONS": ["ws-5", "agent-5"],
        "DELETE_MESSAGES": ["ws-5", "agent-5"],
        "DELETE_TURNS": ["ws-5", "agent-5"],
    }
    statements = _statements()
    for name, values in given.items():
        yield f"admin.{name}", statements[f"admin.{name}"], values


async def _query_cases(db: Db) -> AsyncIterator[tuple[str, Statement, list[object]]]:
    """Yield the statements of the changelog, the audit, statistics and small queries."""
    many = [f"ws-{number}" for number in range(500)]
    entries = [link(AuditEntry(name, "a", "b", "c", "{}", None), 101, NOW, "") for name in many]
    runs = ",".join(row[0] for row in await db.fetch(f"SELECT id::text FROM runs LIMIT {BATCH}"))
    jobs = ",".join(row[0] for row in await db.fetch(f"SELECT id::text FROM jobs LIMIT {BATCH}"))
    given: dict[str, list[object]] = {
        "LOCK_HEADS": [many],
        "ADD_HEADS": [many],
        "PUBLISH": [
            entries,
            many,
            [100] * 500,
            ["hash"] * 500,
            [101] * 500,
            ["hash"] * 500,
            NOW,
            ["job.changed"],
            [1],
            ["a"],
            "c",
            ["runs"],
            True,
        ],
        "ANY_NEW": [],
        "LOCK_HEAD": [],
        "NUMBER": [RUNS, BATCH],
        "CHANGES": [RUNS // 2, 20],
        "LAST_CHANGE": [],
        "PRUNE_CHANGES": [NOW + 1, BATCH, NOW + 2],
        "RUNS_BY_IDS": [runs.split(",")],
        "RUN_AGENTS": [runs.split(",")],
        "REPORTED_RUNS": [runs.split(",")],
        "JOB_CREATORS": [jobs.split(",")],
        "EXISTING_JOBS": [jobs.split(",")],
        "JOB_LABELS": [jobs.split(",")],
        "COUNT_JOBS": ["ws-5", "agent-5"],
        "COUNT_LIVE": ["ws-5", "agent-5"],
        "NEXT_TICK": ["ws-5", None],
        "NEXT_TICK_OF_FEW": ["ws-5", None],
        "RECENT_RUNS": ["ws-5", leases.FIRST_ID, BATCH, None],
        "DUE_BY_LANE": [NOW],
        "DUE_BY_AGENT": [NOW, 20],
        "TOTALS": [NOW],
        "READ_ONLY": [],
        "EXPIRED_LEASES": ["ws-5", NOW],
        "SIZE": [],
        "CONNECTION_USE": ["wakeful host:1"],
        "DEAD_LETTERS": ["ws-0", BATCH],
        "ALL_DEAD_LETTERS": [BATCH],
        "SCHEMA": [],
        "COUNT_INCIDENTS": ["ws-5", "agent-5"],
        "COUNT_ALL_INCIDENTS": [],
        "WORKERS": [NOW],
        "CAPABILITIES": [NOW],
        "DUE_REQUIREMENTS": [NOW],
        "LIVE": [jobs.partition(",")[0]],
        "TIMINGS": ["ws-5", "", "", BATCH],
        "TIMINGS_OF_AGENT": ["ws-5", "agent-5", "", BATCH],
    }
    statements = _statements()
    for name, values in given.items():
        yield f"queries.{name}", statements[f"queries.{name}"], values


async def _budget_cases(db: Db) -> AsyncIterator[tuple[str, Statement, list[object]]]:
    """Yield the statements of budgets and alerts."""
    runs = [row[0] for row in await db.fetch(f"SELECT id::text FROM runs LIMIT {BATCH}")]
    jobs = [row[0] for row in await db.fetch(f"SELECT id::text FROM jobs LIMIT {BATCH}")]
    of, agents, days = ["ws-1"] * len(jobs), ["agent-1"] * len(jobs), [1] * len(jobs)
    given: dict[str, list[object]] = {
        "OWNERS": [runs],
        "ADD_SPENDING": [of, agents, jobs, days, days, [0.5] * len(jobs)],
        "LOCK_SPENDING": [of, agents, jobs, 1],
        "DELETE_UNUSED": ["ws-1", "agent-1", jobs[0], 1],
        "SPENT": ["ws-1", "agent-1", jobs[0], 1],
        "BLOCKS": [1],
        "ANY_CAP": [1, ["ws-1", "ws-2"]],
        "BLOCKS_OF": [1, "ws-1"],
        "USAGE": [of, agents, jobs, 1],
        "ADD_BLOCK": [1, "ws-1", "agent-1", "", "tokensPerDay", 5.0],
        "DELETE_BLOCK": [1, "ws-1", "agent-1", "", "tokensPerDay"],
        "MISSED": [NOW, runs],
        "RUNS_WAIT": [NOW, runs],
        "JOBS_WAIT": [NOW, jobs],
        "CAP_REACHED": [NOW, "ws-1", "agent-1", "", "{}"],
        "EVENTS": [200],
        "DROP_EVENTS": [[1, 2, 3]],
        "START_COOLDOWN": ["ws-1", jobs[0], "failures", NOW, NOW, NOW],
        "BUDGET_OWNERS": [],
        "DIGEST_OWNERS": [],
        "BUDGET_OWNERS_OF": ["ws-1", ["agent-1"]],
        "RUNNING": [runs[0], 1],
        "BUDGETS": ["ws-1", "agent-1", jobs[0]],
        "SPENT_BY_LEVEL": ["ws-1", "agent-1", jobs[0], 1],
        "RESERVED": ["ws-1", runs[0]],
        "LEDGER": [runs[0]],
        "WRITE_RESERVATION": [runs[0], 1, "ws-1", "agent-1", jobs[0], 0, 0.0, 0, 0.0, 5, 0.5],
        "SETTLE": [runs[0], 5, 0.5],
        "PRUNE_RESERVATIONS": [],
        "PRUNE_SPENDING": [0],
        "PRUNE_BLOCKS": [0],
        "PRUNE_COOLDOWNS": [NOW],
    }
    statements = _statements()
    for name, values in given.items():
        yield f"budgets.{name}", statements[f"budgets.{name}"], values


async def _delivery_cases(db: Db) -> AsyncIterator[tuple[str, Statement, list[object]]]:
    """Yield the statements of deliveries, most of which are finished."""
    new = [row[0] for row in await db.fetch(f"SELECT id::text FROM runs ORDER BY id DESC LIMIT {BATCH}")]
    given: dict[str, list[object]] = {
        "ADD": [new, ["ops"] * BATCH, [None] * BATCH, NOW],
        "ADD_EMITTED": [new, NOW],
        "TIME_OUT": [NOW],
        "DUE": [NOW, BATCH, []],
        "TAKE": [new, "w1", NOW + 60_000, NOW],
        "TAKEN": [new],
        "HELD": ["w1", new, [1] * BATCH],
        "FINISH": [new[0], "delivered", None, None, NOW],
        "NEXT_DELIVERY": [NOW],
        "DELIVERIES": [leases.FIRST_ID, BATCH, "ws-1"],
        "ALL_DELIVERIES": [leases.FIRST_ID, BATCH],
        "RECENT_DELIVERIES": [leases.FIRST_ID, BATCH, "ws-1", 50],
    }
    for name, values in given.items():
        yield f"deliveries.{name}", getattr(deliveries, name), values


async def _live_cases(db: Db) -> AsyncIterator[tuple[str, Statement, list[object]]]:
    """Yield the statements of live figures."""
    runs = [row[0] for row in await db.fetch(f"SELECT id::text FROM runs LIMIT {BATCH}")]
    given: dict[str, list[object]] = {
        "RUN_CHANGES": [runs],
        "DEAD_LETTERS": ["ws-0", "agent-0", BATCH],
        "OPEN_INCIDENTS": ["ws-0", None, BATCH],
        "WORKERS": [NOW],
        "LIVE_WORKERS": [NOW],
        "LIVE_COUNTS": ["ws-5", None, LIVE],
        "LIVE_NEXT_TICK": ["nowhere", None, LIVE],
    }
    statements = _statements()
    for name, values in given.items():
        yield f"live.{name}", statements[f"live.{name}"], values


async def _precheck_cases(db: Db) -> AsyncIterator[tuple[str, Statement, list[object]]]:
    """Yield the statements of prechecks."""
    newest = f"SELECT id::text, worker FROM runs ORDER BY runs.id DESC LIMIT {BATCH}"
    run, worker = next((row[0], row[1]) for row in await db.fetch(newest) if row[1] is not None)
    jobs = [row[0] for row in await db.fetch(f"SELECT id::text FROM jobs LIMIT {BATCH}")]
    given: dict[str, list[object]] = {
        "RECORD": [run, 1, worker, "{}", "{}"],
        "REVISIONS": [jobs],
        "SET_STATE": [jobs[0], "90", 1],
        "REVISE": [jobs],
        "RESET": [jobs],
    }
    for name, values in given.items():
        yield f"prechecks.{name}", getattr(prechecks, name), values
    yield "callbacks.LOCK_AWAITING", executors.LOCK_AWAITING, [[run], [1]]
    yield "callbacks.EXTEND", executors.EXTEND, [[run], [NOW]]
    yield "callbacks.NOTE", executors.NOTE, [run, 1, "no worker"]
    yield "callbacks.AWAITING", executors.AWAITING, [executors.FIRST_ID, 1000]
    ranges = (
        [0, 1, 2],
        ["ws-0", "ws-1", "ws-0"],
        [None, "agent-1", None],
        [None, "\x1ecron\x1e", "\x1emain\x1e"],
    )
    yield "callbacks.CLAIMABLE", executors.CLAIMABLE, [NOW, *ranges]


async def _caller_cases(db: Db) -> AsyncIterator[tuple[str, Statement, list[object]]]:
    """Yield the statements of transactions of callers."""
    now, owner = "2026-01-01T00:00:00Z", ["ws-5", "agent-5"]
    entries = caller_transaction.write_waiting([AuditEntry("ws-5", "python", "job.run", "x/y", "{}", None)])
    job_id = await db.fetchval("SELECT id::text FROM jobs LIMIT 1")
    run = tick(job(id=job_id), NOW + 7)._replace(trigger="user")
    new = job("of-a-caller", workspace="ws-5", agent="agent-5")
    given: dict[str, list[object]] = {
        "IDENTITY": ["wakeful"],
        "BEFORE": [*owner, "job-5"],
        "FIND_JOB": [*owner, "job-5"],
        "FIND_JOB_BY_ID": [*owner, job_id],
        "HOLD_AGENT": [*owner, None, "true", None, None, None],
        "FIND_AGENT": [*owner],
        "ADD_AGENT": ["ws-5", "of-a-caller", now],
        "ADD_JOB": [
            caller_transaction.write_row(new, new._fields), now, "item", entries, "wakeful", *owner, "job:x"
        ],
        "ADD_RUN": [
            caller_transaction.write_row(run, run._fields[:-1]), job_id, now, None, "0", None, "0", entries,
            "wakeful", "1",
        ],
        "CLAIM_KEY": ["ws-5", "of-a-caller", "print", "200", "{}", now, now, now],
        "READ_KEY": ["ws-5", "key"],
    }  # fmt: skip
    for name, values in given.items():
        yield f"caller.{name}", getattr(caller_transaction, name).replace("{schema}", "wakeful"), values


def _statements() -> dict[str, str]:
    """Return every statement by name; those outside `statements` are prefixed with their group."""
    found = {**vars(sql)}
    for group, modules in GROUPS.items():
        for module in modules:
            found |= {f"{group}.{name}": text for name, text in vars(module).items()}
    found = {name: text.postgresql if isinstance(text, Texts) else text for name, text in found.items()}
    return {
        name: text
        for name, text in found.items()
        if re.fullmatch(r"[A-Z][A-Z_]+", name.split(".")[-1])
        and re.match(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\b", str(text))
    }


Count = Callable[..., Awaitable[tuple[int, list[str]]]]


async def test_no_statement_visits_more_rows_than_it_needs(store: PostgresStore) -> None:
    # Loading the database takes longer than all statements, so each counts twice. Kept plans are first: their
    # counts include rows of a transaction that was rolled back.
    for count in (visited_with_kept_plan, visited):
        tried, beyond = await _try_all(store, count)
        assert (count.__name__, beyond) == (count.__name__, {})
        assert set(_statements()) <= tried


async def _try_all(store: PostgresStore, count: Count) -> tuple[set[str], dict[str, tuple[int, list[str]]]]:
    """Execute all statements and roll back; return their names, and those that visit too many rows."""
    tried: set[str] = set()
    beyond: dict[str, tuple[int, list[str]]] = {}
    async with store._pool._acquire() as db:
        transaction = db.transaction()
        await transaction.start()
        if count is visited_with_kept_plan:
            await db.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        for cases in (
            _admin_cases(), _query_cases(db), _budget_cases(db), _delivery_cases(db), _live_cases(db),
            _precheck_cases(db), _caller_cases(db), _cases(db),
        ):  # fmt: skip
            async for name, statement, given in cases:
                tried.add(name)
                if count is visited_with_kept_plan and "RunFilter" in name:
                    continue  # a list; only transactions that write keep plans
                rows, scanned = await count(db, statement, *given)
                whole = {
                    "workers",
                    "changes_head",
                    "run_counts_position",
                    "event_position",
                    "schema_version",
                    *SMALL,
                }
                whole.update(WHOLE.get(name, ()))
                if name in ALL_LIVE_RUNS:
                    whole.add("live_runs")
                if rows > MOST_VISITED or set(scanned) - whole:
                    beyond[name] = rows, scanned
        await transaction.rollback()
    return tried, beyond
