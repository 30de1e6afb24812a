"""With 25,000 jobs and 250,000 runs, no statement of the store visits more rows than it needs.

One test, so that the big database is created once, by one process. Measured by query plans and by the
virtual machine steps of each call, not by time.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.factories import DAY, NOW, FalseClock, alone, asleep, ended, start
from wakeful.store.lane_shares import LaneOccupancy
from wakeful.store.quotas import Allowance
from wakeful.store.rows import JobFilter, RunFilter
from wakeful.store.sql import accounts as shared_accounts
from wakeful.store.sql import (
    admin,
    base,
    budgets,
    changelog,
    deliveries,
    executors,
    figures,
    jobs_and_runs,
    overviews,
    prechecks,
    stats,
    usage,
)
from wakeful.store.sql import audit as shared_audit
from wakeful.store.sql import jobs as job_reads
from wakeful.store.sql import runs as run_reads
from wakeful.store.sql.driver import Texts
from wakeful.store.sqlite import (
    SqliteStore,
    jobs,
    leases,
    runs,
    statements,
)
from wakeful.store.sqlite import changelog as sqlite_changelog
from wakeful.store.sqlite.session import Bulk, translate
from wakeful.values.ids import new_id

JOBS = 25_000
RUNS = 250_000
AGENTS = 125
TABLES = "jobs|runs|attempts|workspaces|agents|keys|audit|audit_heads|quotas|workflows|answers|deliveries"
#: indexes that may be scanned: they hold only live runs or dead letters
SMALL = (
    "runs_running",
    "runs_waiting",
    "runs_due",
    "runs_claimable_of_agent",
    "runs_dead",
    "job_incidents_open",
)
#: statements that read a whole table by design, or a single row from their arguments
WHOLE = (
    *("WORKSPACES", "ALL_KEYS", "EVENTS", "CAP_REACHED"),
    *("BUDGET_OWNERS", "WITH_INTERNAL_JOBS", "PRUNE_COOLDOWNS", "PRUNE_SESSIONS"),
)
STEP = 1_000
FULL_LANE = {"cron": LaneOccupancy({}, {}, saturated=True)}


def _load(db: sqlite3.Connection) -> None:
    """Fill the tables. Indexes are created afterwards, which is faster."""
    indexes = db.execute(
        "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
    ).fetchall()
    db.execute("PRAGMA synchronous = OFF")
    db.execute("BEGIN")
    for name, _ in indexes:
        db.execute(f"DROP INDEX {name}")
    # 60 jobs in a thousand are due; each has ten runs, and the newest runs of some are live.
    db.execute(
        f"""
        WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n LIMIT {JOBS})
        INSERT INTO jobs (id, workspace, agent, name, timing, policy, work, payload, after_job, after_on,
            description, labels, secret, old_secret, old_secret_until, enabled, disabled_reason, anchor_at,
            next_at, wake_at, run_count, failures, version, created_at, updated_at, deleted_at)
        SELECT printf('j%05d', i), 'ws-' || (i % 10),
            'agent-' || (i % {AGENTS}), 'job-' || i, '{{}}', '{{}}', '{{}}', NULL,
            iif(i % 1000 = 7, 'job-' || (i - 500), NULL), iif(i % 1000 = 7, 'succeeded', NULL),
            '', '{{}}', NULL, NULL, NULL, 1, NULL, 0, {NOW}, {NOW} + iif(i % 1000 < 60, -1, {DAY}),
            10, i % 1000 = 8, 1, 0, 0, NULL FROM n"""
    )
    db.execute(
        f"""
        WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n LIMIT {RUNS}),
            r AS (SELECT i, i % {JOBS} AS j, i >= {RUNS - 2_000} AS new, i % 4 AS k FROM n)
        INSERT INTO runs (id, job_id, workspace, agent, job_name, scheduled_at, fire_at, trigger,
            triggered_by, state, reason, covers, until_at, attempt, worker, lane, serial, due_at, started_at,
            finished_at, idempotency_key, replay_of, payload, created_at, output, error, usage, dead,
            awaiting_callback)
        SELECT printf('r%07d', i),
            printf('j%05d', j), 'ws-' || (j % 10), 'agent-' || (j % {AGENTS}), 'job-' || j,
            {NOW} - {RUNS} + i, {NOW} - {RUNS} + i, 'schedule', NULL,
            iif(new, iif(k = 0, 'pending', iif(k = 1, 'retrying', 'running')),
                iif(i % 100 = 0, 'failed', 'succeeded')),
            NULL, 1, NULL, 1, iif(new AND k > 1, iif(k = 2, 'w' || (i % 8), NULL), NULL), 'cron', 1,
            iif(new AND k <> 2, {NOW} - {RUNS} + i, NULL), {NOW} - {RUNS} + i,
            iif(new, NULL, {NOW} - {RUNS} + i), 'key', NULL, NULL, {NOW}, NULL, NULL, NULL,
            NOT new AND i % 100 = 0, new AND k = 3
        FROM r"""
    )
    db.execute(
        f"""
        INSERT INTO deliveries SELECT id, 'delivered', 'ops', NULL, 1, 'w1', NULL, {NOW}, NULL FROM runs
        WHERE job_id < 'j1' AND state = 'succeeded'"""
    )
    db.execute(
        f"""
        WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n LIMIT {JOBS})
        INSERT INTO audit SELECT 'ws-' || (i % 10), i / 10 + 1, {NOW}, 'key:1', 'job.create', 'a/b', '{{}}',
            NULL, '', 'hash' FROM n"""
    )
    db.execute(
        f"""
        INSERT INTO agents (workspace, name, active, description, version, created_at, updated_at, evolution)
        SELECT DISTINCT workspace, agent, 1, '', 1, {NOW}, {NOW}, iif(agent = 'agent-7', 'suggest', NULL)
        FROM jobs"""
    )
    db.execute(
        f"""
        WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n LIMIT {JOBS // 10})
        INSERT INTO keys SELECT 'key-' || i, 'ws-' || (i % 10), '', 'agent', 'agent-1',
            CAST('hash-' || i AS BLOB), {NOW}, 'key:1', NULL, NULL, NULL, NULL FROM n"""
    )
    for _, sql in indexes:
        db.execute(sql)
    db.execute("COMMIT")
    # Statistics must not make a plan worse, in case a tool gathers them.
    db.execute("PRAGMA analysis_limit = 1000")
    db.execute("ANALYZE")


SHARED = (
    *(shared_accounts, shared_audit, admin, base),
    *(
        budgets,
        changelog,
        deliveries,
        executors,
        jobs_and_runs,
        figures,
        job_reads,
        prechecks,
        run_reads,
        stats,
    ),
    usage,
)
OWN = (sqlite_changelog, jobs, leases, runs, statements)


def _all_statements() -> dict[str, str]:
    named = {
        f"{module.__name__}.{name}": translate(text) if module in SHARED else str(text)
        for module in (*SHARED, *OWN)
        for name, text in vars(module).items()
        if not name.startswith("_")
        and name not in WHOLE
        and isinstance(text, str | Texts)
        and re.match(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\b", translate(text))
        and (module in SHARED or "$1" not in text)  # imported statements are in SHARED
    }
    named |= {name: bulk.text(2) for name, bulk in vars(statements).items() if isinstance(bulk, Bulk)}
    for before in (None, "x"):
        for states in ((), ("running",), ("failed",), ("skipped", "missed"), ("succeeded", "failed")):
            for dead in (False, True):
                for agent, job_id in ((None, None), ("a", None), (None, "j"), ("a", "j")):
                    listed = RunFilter("w", agent, job_id, states, None, dead, before)
                    for each in (listed, listed._replace(to_confirm=True)):
                        named[str(each)] = translate(run_reads.list_runs(each)[0])
                of_instance = RunFilter("w", "a", None, states, None, dead, before, instance_id="i")
                named[str(of_instance)] = translate(run_reads.list_runs(of_instance)[0])
    for agent in (None, "a"):
        for after in (None, ("a", "b")):
            for disabled in (True, False):
                jobs = JobFilter("w", agent, disabled, after)
                named[str(jobs)] = translate(job_reads.list_jobs(jobs)[0])
    for jobs in (
        JobFilter(
            "w", q="x", labels=(("a", "b"),), creator="agent", schedule_kind="cron", target_kind="chat"
        ),
        JobFilter("w", state="failing"),
    ):
        for order in ("name", "next"):
            ordered = jobs._replace(order=order, after_tick=(1, "x"))
            named[str(ordered)] = translate(job_reads.list_jobs(ordered, few=True)[0])
            named[f"count {ordered}"] = translate(job_reads.count_statement(ordered, 9)[0])
    named["job_overviews.RUNS"] = translate(overviews.RUNS)
    named["job_overviews.COSTS"] = translate(overviews.COSTS)
    named["job_overviews.INCIDENTS"] = translate(overviews.INCIDENTS)
    return named


def _scans(db: sqlite3.Connection, statement: str) -> list[str]:
    """Return the steps of the plan that scan a table, or an index of it that is not small."""
    numbered = [int(number) for number in re.findall(r"\?(\d+)", statement)]
    named = re.findall(r":([a-z_]+)\b", statement)
    given: Any = [None] * (max(numbered) if numbered else statement.count("?"))
    if named and not given:
        given = dict.fromkeys(named)
    steps = [step[3] for step in db.execute(f"EXPLAIN QUERY PLAN {statement}", given)]
    return [
        step
        for step in steps
        if re.match(rf"SCAN ({TABLES}|[a-z])\b", step)
        and not re.search(r"VIRTUAL TABLE|^SCAN [jkv]$", step)  # a list argument, a few rows of a subquery
        and not any(f"INDEX {index}" in step for index in SMALL)
    ]


async def test_no_statement_scans_a_table_and_no_call_exceeds_its_step_budget(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "big.db", clock=FalseClock(), inline=True)
    await store.open()
    db = store._connection._write_connection()
    _load(db)

    named = _all_statements()
    assert len(named) > 80
    scans = {name: found for name, text in named.items() if (found := _scans(db, text))}
    assert scans == {}
    assert _scans(db, "SELECT * FROM runs WHERE reason = ?") == ["SCAN runs"]
    assert _scans(db, "SELECT count(*) FROM jobs r") != []

    steps = 0

    def count() -> None:
        nonlocal steps
        steps += STEP

    async def cost(call: Callable[[], object]) -> int:
        nonlocal steps
        steps = 0
        await call()  # type: ignore[misc]
        return steps

    db.set_progress_handler(count, STEP)
    planned_runs = (await store.plan(NOW, 100, start("w1"))).runs
    assert (len(planned_runs), steps < 50_000) == (100, True), steps
    budget = {
        "plan": (lambda: store.plan(NOW, 100, start("w1")), 50_000),
        "finish": (lambda: store.finish("w1", [ended(run) for run in planned_runs], alone), 30_000),
        "take": (lambda: store.take(NOW, "w1", {"cron": 30}), 12_000),
        "prefetch": (lambda: store.take(NOW, "w1", {}, prefetch={"cron": 30}), 10_000),
        "a shared lane": (lambda: store.take(NOW, "w1", {"cron": 30}, usage=FULL_LANE), 40_000),
        "give back": (lambda: store.give_back("w1", NOW, [(run.id, 1) for run in planned_runs]), 5_000),
        "next_wake": (store.next_wake_ms, STEP),
        "next_due": (lambda: store.next_due_ms(NOW, ["cron", "main"]), STEP),
        "beat": (lambda: store.beat("w1", NOW, [run.id for run in planned_runs]), 4_000),
        "release": (lambda: store.release("w7", NOW), 10_000),
        "rescue": (lambda: store.rescue(NOW, 0, 10, lambda lost: ended(planned_runs[0]), alone), 70_000),
        "prune": (lambda: store.prune(NOW, 100), 20_000),
        "job": (lambda: store.job("ws-1", "agent-1", "job-1"), STEP),
        "jobs": (lambda: store.jobs(JobFilter("ws-1", limit=50)), 4_000),
        # 2,500 entries of an index, and no row: a row of each would be twice as much
        "a search that finds nothing": (lambda: store.jobs(JobFilter("ws-1", q="zz")), 75_000),
        "a label that no job has": (lambda: store.jobs(JobFilter("ws-1", labels=(("a", "b"),))), 75_000),
        "jobs by next tick": (lambda: store.jobs(JobFilter("ws-1", order="next", limit=50)), 100_000),
        "failing jobs": (lambda: store.jobs(JobFilter("ws-8", state="failing")), 5_000),
        "overviews": (
            lambda: store.job_overviews([f"j{number:05d}" for number in range(100)], 20, 0),
            60_000,
        ),
        "runs": (lambda: store.runs(RunFilter("ws-1")), 3_000),
        "runs of an agent": (lambda: store.runs(RunFilter("ws-1", "agent-1")), 3_000),
        "runs of a job": (lambda: store.runs(RunFilter("ws-1", job_id=planned_runs[0].job_id)), 3_000),
        "running": (lambda: store.runs(RunFilter("ws-1", states=("running",))), 60_000),
        "dead letters": (lambda: store.runs(RunFilter("ws-0", dead=True)), 3_000),
        "failed": (lambda: store.runs(RunFilter("ws-0", states=("failed",))), 4_000),
        "cancelled or missed, of which there are none": (
            lambda: store.runs(RunFilter("ws-0", states=("cancelled", "missed"))),
            40_000,
        ),
        "failed of an agent": (lambda: store.runs(RunFilter("ws-0", "agent-0", states=("failed",))), 30_000),
        "failed of a job": (
            lambda: store.runs(RunFilter("ws-1", job_id=planned_runs[0].job_id, states=("failed",))),
            STEP,
        ),
        "discarding the oldest": (lambda: store.discard_runs("ws-0", 100), 30_000),
        "a key": (lambda: store.key_by_hash(b"hash-77"), STEP),
        "a page of the audit": (lambda: store.audit("ws-1", after=1_250, limit=50), 3_000),
        "the newest of the audit": (lambda: store.audit("ws-1", before=2**62, limit=50), 3_000),
        "create within limits": (
            lambda: store.create_jobs(
                [asleep(workspace="ws-1", agent="agent-1")], allowance=Allowance(live_per_agent=500)
            ),
            5_000,
        ),
        "changes": (lambda: store.changes(0, 20), STEP),
        "runs by ids": (lambda: store.runs_by_ids([run.id for run in planned_runs]), 10_000),
        "changed runs": (lambda: store.run_changes([run.id for run in planned_runs]), 5_000),
        "live figures": (lambda: store.live_figures("ws-1", None, NOW), 250_000),
        "live figures of an agent": (lambda: store.live_figures("ws-1", "agent-1", NOW), 300_000),
        "recent runs": (lambda: store.recent_runs("ws-1", 0, 100), 3_000),
        "workers": (lambda: store.workers(0), STEP),
        "expired leases": (lambda: store.expired_leases(None, NOW), 60_000),
        "dead letters by reason": (lambda: store.dead_letters_by_reason("ws-0", 100), 10_000),
        "all dead letters by reason": (lambda: store.dead_letters_by_reason(None, 100), 5_000),
        "deliveries by channel": (lambda: store.delivery_counts("ws-1", 0, 100), 10_000),
        "all deliveries by channel": (lambda: store.delivery_counts(None, 0, 100), 5_000),
        "backlog": (lambda: store.backlog(NOW, NOW, 20), 30_000),
        "take deliveries": (lambda: store.take_deliveries(NOW, "w1", NOW + DAY, 10), STEP),
        "the next delivery": (lambda: store.next_delivery_ms(NOW), STEP),
        "a run that is not there": (lambda: store.run(new_id(NOW)), STEP),
    }
    costs = {name: (await cost(call), most) for name, (call, most) in budget.items()}
    assert {name: spent for name, (spent, most) in costs.items() if spent > most} == {}
    await store.close()
