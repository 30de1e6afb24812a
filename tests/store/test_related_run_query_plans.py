"""With 20,000 runs, statements about related runs visit no more rows than they need."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.support.factories import MINUTE, NOW, FalseClock, asked, asleep
from tests.support.query_plans import visited
from wakeful.run.run import NewRun
from wakeful.store.port import Store
from wakeful.store.rows import JobRow
from wakeful.store.sql import chains
from wakeful.store.sqlite import SqliteStore
from wakeful.store.sqlite.session import translate
from wakeful.values.ids import first_id

RUNS = 20_000


def _id(number: int) -> str:
    return f"{first_id(NOW - MINUTE)[:-12]}{number:012x}"


def _runs(job: JobRow) -> list[NewRun]:
    """One in a hundred is a replay, and one in a hundred a follow-up."""
    return [
        asked(
            job,
            id=_id(number),
            trigger="replay" if number % 100 == 1 else "chain" if number % 100 == 2 else "schedule",
            scheduled_ms=NOW + number,
            triggered_by=_id(number - 2) if number % 100 == 2 else None,
            replay_of=_id(number - 1) if number % 100 == 1 else None,
            state="succeeded",
            due_ms=None,
            finished_ms=NOW,
        )
        for number in range(RUNS)
    ]


#: Statements with arguments, and the most rows that each may visit.
CASES: list[tuple[str, str, list[object], int]] = [
    ("REPLAYS", chains.REPLAYS, [_id(500), 50], 10),
    ("FOLLOW_UPS", chains.FOLLOW_UPS, [_id(500), 50], 10),
    (
        "SIGNALS",
        chains.SIGNALS,
        ["default", _id(500), _id(700), 5_000, _id(500), 50],
        500,
    ),
    ("HORIZON", chains.HORIZON, ["default", _id(RUNS), 1_000], 1_100),
    ("FOLLOWERS", chains.FOLLOWERS, ["default", "default", "job-7", 20], 10),
    ("MOST_FOLLOWED", chains.MOST_FOLLOWED, ["default", "default", ["job-7", "job-8"], 20], 20),
    ("FOLLOWER_IDS", chains.FOLLOWER_IDS, ["default", "default", "job-7"], 10),
    ("BEFORE", chains.BEFORE, ["default", "default", ["job-9"]], 60),
    ("DANGLING", chains.DANGLING, ["", "~", 20], 7_000),
    ("CHAINED", chains.CHAINED, ["", "~", 20], 7_000),
    ("OWNER", chains.OWNER, [_id(0)], 1),
]


def test_every_statement_has_a_case() -> None:
    named = {name for name, text in vars(chains).items() if name.isupper() and isinstance(text, str)}
    assert named == {name for name, *_ in CASES}


async def _fill(store: Store) -> None:
    job = asleep("digest")
    after = [
        asleep(f"job-{n}", after_job=f"job-{n - 1 if n % 10 else 0}", after_on="succeeded")
        for n in range(1, 2_000)
    ]
    await store.create_jobs([job, *after])
    runs = _runs(job)
    for first in range(0, RUNS, 5_000):
        await store.add_runs(runs[first : first + 5_000])


async def test_sqlite_uses_the_indexes(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "big.db", clock=FalseClock(), inline=True)
    await store.open()
    await _fill(store)
    db = store._connection._write_connection()
    db.execute("ANALYZE")
    plans = {}
    for name, statement, given, _ in CASES:
        values = [json.dumps(each) if isinstance(each, list) else each for each in given]
        plan = [step[3] for step in db.execute(f"EXPLAIN QUERY PLAN {translate(statement)}", values)]
        known = r"INDEX (runs_(replay_of|follow_up|of_workspace)|jobs_(after|list)|sqlite_autoindex_jobs_1)\b"
        if not any(re.search(known, step) for step in plan):
            plans[name] = plan
    await store.close()
    assert plans == {}


async def test_postgres_visits_few_rows() -> None:
    server = pytest.importorskip("tests.support.postgres_server")
    from wakeful.store.postgres import PostgresStore

    store = PostgresStore(server.fresh_database(), clock=FalseClock())
    await store.open()
    await _fill(store)
    beyond = {}
    async with store._pool._acquire() as db:
        await db.execute("ANALYZE")
        for name, statement, given, most in CASES:
            rows, scanned = await visited(db, statement, *given)
            if rows > most or scanned:
                beyond[name] = rows, scanned
    await store.close()
    assert beyond == {}
