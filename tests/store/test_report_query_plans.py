"""Reports read a bounded number of rows, with 2,000 jobs that have spending on each of 30 days.

Measured by the counts of the databases, not by time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.factories import NOW, FalseClock
from tests.support.query_plans import visited
from wakeful.store.sql import audit, deliveries, reports
from wakeful.store.sql.driver import Statement, Texts
from wakeful.store.sql.reports import DayRange
from wakeful.store.sqlite import SqliteStore
from wakeful.store.sqlite.session import translate

JOBS, AGENTS, LAST = 2_000, 50, 20_000
DAYS = DayRange(LAST - 29, LAST)
ENTRIES = 5_000
_ADD_SPENDING = "INSERT INTO spending (workspace, agent, job, day, tokens, cost) VALUES ($1,$2,$3,$4,$5,$6)"
_ADD_ENTRY = f"INSERT INTO audit ({audit.ENTRY_COLUMNS}) VALUES ($1,$2,$3,$4,$5,$6,$7,$8,$9,$10)"


def _job(number: int) -> str:
    return f"01900002-0000-7000-8000-{number:012x}"


def _spending() -> Iterator[tuple[object, ...]]:
    for day in range(DAYS.first, DAYS.last + 1):
        for agent in range(AGENTS):
            yield "default", f"agent-{agent}", "", day, 1_000, 100.0 + agent
        for number in range(JOBS):
            cost = float((number * 7 + day) % JOBS)
            yield "default", f"agent-{number % AGENTS}", _job(number), day, 10, cost


def _entries() -> Iterator[tuple[object, ...]]:
    for seq in range(1, ENTRIES + 1):
        action = "job.create" if seq % 2 else "run.stop"
        yield "default", seq, NOW + seq, f"key:{seq % 7}", action, f"a/{seq % 100}", "{}", None, "", "hash"


def _cases() -> list[tuple[str, Statement, list[object], int]]:
    """Return statements with arguments, and the most rows that each may visit."""
    jobs = [_job(number) for number in range(100)]
    agents = [f"agent-{number % AGENTS}" for number in range(100)]
    like: list[object] = ["key:1", "job", "job.%"]

    def top(jobs: bool, agent: bool) -> Texts:
        return reports.top_statement(DAYS, jobs=jobs, agent=agent)

    return [
        # the 100 most expensive of each of 30 days
        ("top jobs", top(True, False), ["default", 100, 100], 3 * 3_100),
        ("top agents", top(False, False), ["default", 100, 100], 3 * 30 * (AGENTS + 2)),
        ("top jobs of an agent", top(True, True), ["default", 100, 100, "agent-7"], 3 * 30 * 45),
        ("owners", reports.OF_OWNERS, ["default", agents, jobs, *DAYS], 3 * 3_100),
        ("budgets", reports.AGENT_BUDGETS, ["default", LAST, 200, None], 200),
        ("blocks", reports.JOB_BLOCKS, [LAST, "default", 200, None], 200),
        ("titles", reports.JOB_TITLES, [jobs], 300),
        ("of a subject", audit.OF_SUBJECT, ["default", 1, 4_000, 51, *like, "a/7"], 60),
        ("matching", audit.MATCHING, ["default", 2_000, 4_000, 51, *like], 2_100),
        ("instant", audit.INSTANT, ["default", 2_000], 2),
        ("deliveries", deliveries.RECENT_DELIVERIES, [_job(0), 100, "default", 50], 300),
        ("holders", reports.holders_statement(of_workspace=True), [50, "default"], 10),
        ("all holders", reports.holders_statement(of_workspace=False), [50], 10),
    ]


async def test_sqlite_scans_no_table(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "big.db", clock=FalseClock(), inline=True)
    await store.open()
    db = store._connection._write_connection()
    db.execute("PRAGMA synchronous = OFF")
    db.execute("BEGIN")
    db.executemany(translate(_ADD_SPENDING), _spending())
    db.executemany(translate(_ADD_ENTRY), _entries())
    db.execute("COMMIT")
    db.execute("ANALYZE")
    wrong = {}
    for name, statement, given, _ in _cases():
        values = [None if isinstance(each, list) else each for each in given]
        plan = [step[3] for step in db.execute(f"EXPLAIN QUERY PLAN {translate(statement)}", values)]
        scans = [step for step in plan if re.match(r"SCAN (TABLE )?\w*(spending|audit|jobs|[sbra])$", step)]
        scans = [step for step in scans if "VIRTUAL" not in step and step != "SCAN a"]
        if scans:
            wrong[name] = plan
        if name == "deliveries" and not any(re.match(r"SEARCH r .*\bid=\?", step) for step in plan):
            wrong[name] = plan  # all runs of the workspace
        if name.startswith("top") and not all(
            "COVERING INDEX spending_of" in step for step in plan if " spending " in step
        ):
            wrong[name] = plan
    await store.close()
    assert wrong == {}


async def test_postgres_visits_few_rows() -> None:
    server = pytest.importorskip("tests.support.postgres_server")
    from wakeful.store.postgres import PostgresStore

    store = PostgresStore(server.fresh_database(), clock=FalseClock())
    await store.open()
    beyond = {}
    async with store._pool._acquire() as db:
        await db.copy_records_to_table(
            "spending",
            records=list(_spending()),
            columns=["workspace", "agent", "job", "day", "tokens", "cost"],
        )
        await db.executemany(_ADD_ENTRY, _entries())
        await db.execute("ANALYZE")
        for name, statement, given, most in _cases():
            rows, scanned = await visited(db, statement, *given)
            if rows > most or {"spending", "audit", "jobs"} & set(scanned):
                beyond[name] = rows, scanned
    await store.close()
    assert beyond == {}
