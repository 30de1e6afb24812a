"""Behavior specific to SQLite: one file, one thread, other processes, and crash safety."""

from __future__ import annotations

import asyncio
import pkgutil
import re
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from importlib import import_module
from pathlib import Path
from textwrap import dedent

import pytest

from tests.support.factories import (
    NOW,
    FalseClock,
    alone,
    asked,
    ended,
    fire,
    held,
    job,
    jobless,
    look,
    start,
    ticks_of,
)
from tests.support.notifications import NotificationRecorder
from tests.support.paths import ROOT
from wakeful.errors import Unavailable
from wakeful.store import sql, sqlite
from wakeful.store.migrations import load
from wakeful.store.plans import DueJob, JobPlan
from wakeful.store.rows import JobFilter
from wakeful.store.sql.driver import Texts
from wakeful.store.sqlite import SqliteStore
from wakeful.store.sqlite.session import Bulk, SqliteSession, translate
from wakeful.store.sqlite.session import _translate as translate_cached


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "wakeful.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path)
    await store.open()
    yield store
    await store.close()


def _pragma(path: Path, name: str) -> object:
    db = sqlite3.connect(path)
    try:
        return db.execute(f"PRAGMA {name}").fetchone()[0]
    finally:
        db.close()


async def test_a_commit_is_durable_when_it_returns(store: SqliteStore, path: Path) -> None:
    assert _pragma(path, "journal_mode") == "wal"

    async def synchronous(db: sqlite3.Connection) -> int:
        level: int = db.execute("PRAGMA synchronous").fetchone()[0]
        return level

    assert await store._connection.write_one(synchronous) == 2


@pytest.mark.parametrize("address", ["sqlite:///{}", "{}"])
async def test_a_store_is_opened_by_url_or_by_path(path: Path, address: str) -> None:
    store = SqliteStore(address.format(path))
    await store.open()
    await store.close()
    assert _pragma(path, "user_version") == 0


@pytest.mark.parametrize("inline", [True, False])
async def test_a_database_can_be_in_memory(inline: bool) -> None:
    store = SqliteStore(":memory:", clock=FalseClock(), inline=inline)
    await store.open()
    await store.create_jobs([job()])
    (created,) = (await store.plan(NOW, 10, start("w1"))).runs
    assert await store.finish("w1", [ended(created)], alone) == {created.id}
    await store.close()


async def test_an_inline_store_runs_in_the_thread_of_the_event_loop(path: Path) -> None:
    threads = []
    for inline in (True, False):
        store = SqliteStore(path, inline=inline)
        await store.open()
        await store.create_jobs([job(f"inline-{inline}".lower())])

        def decide(due: DueJob) -> None:
            threads.append(threading.current_thread() is threading.main_thread())

        await store.plan(NOW, 1, decide)
        await store.close()
    assert threads == [True, False]


async def test_an_inline_store_sends_notifications(path: Path) -> None:
    store = SqliteStore(path, inline=True)
    await store.open()
    recorder = NotificationRecorder()
    store.listen(recorder)
    await store.add_runs([jobless()])
    await recorder.next_event("runs")
    await store.close()


async def test_the_error_for_a_file_that_cannot_be_opened_names_it(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "nowhere" / "wakeful.db")
    with pytest.raises(Unavailable, match=r"nowhere/wakeful\.db"):
        await store.open()
    await store.close()


async def test_the_error_for_a_file_that_is_not_a_database_names_it(path: Path) -> None:
    await asyncio.to_thread(path.write_text, "dear diary " * 1000)
    store = SqliteStore(path)
    with pytest.raises(Unavailable, match=r"wakeful\.db: file is not a database"):
        await store.open()


async def test_a_store_that_is_not_open_raises_unavailable(path: Path) -> None:
    store = SqliteStore(path)
    with pytest.raises(Unavailable, match="not open"):
        await store.next_wake_ms()
    await store.open()
    await store.close()
    await store.close()
    with pytest.raises(Unavailable, match="not open"):
        await store.next_wake_ms()


async def test_a_closed_store_can_be_opened_again(path: Path) -> None:
    store = SqliteStore(path)
    for name in ("one", "two"):
        await store.open()
        await store.create_jobs([job(name)])
        await store.close()
    await store.open()
    assert len(await store.jobs(JobFilter("default"))) == 2
    await store.close()


async def test_a_writer_waits_for_another_process(store: SqliteStore, path: Path) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    adding = asyncio.create_task(store.create_jobs([job()]))
    reading = await store_of(path)
    assert await reading.jobs(JobFilter("default")) == []
    await reading.close()
    assert not adding.done()
    other.execute("COMMIT")
    await adding
    other.close()


async def store_of(path: Path) -> SqliteStore:
    store = SqliteStore(path)
    await store.open()
    return store


async def test_a_transaction_of_a_cancelled_caller_commits_and_is_announced(
    store: SqliteStore,
) -> None:
    await store.create_jobs([job()])
    recorder = NotificationRecorder()
    store.listen(recorder)
    inside, go_on = threading.Event(), threading.Event()

    def decide(due: DueJob) -> JobPlan:
        inside.set()
        go_on.wait(120)
        return fire(due)

    planning = asyncio.create_task(store.plan(NOW, 10, decide))
    await asyncio.to_thread(inside.wait, 120)
    planning.cancel()
    with pytest.raises(asyncio.CancelledError):
        await planning
    go_on.set()
    await recorder.next_event("runs")
    assert len(await store.take(NOW, "w1", {"cron": 5})) == 1


@pytest.mark.slow
async def test_a_batch_larger_than_the_parameter_limit_is_accepted(store: SqliteStore) -> None:
    runs = [held(jobless()) for _ in range(33_000)]  # SQLite allows 32,766 parameters
    await store.add_runs(runs)
    assert (await store.beat("w1", NOW, [run.id for run in runs])).lost == set()
    outcomes = [ended(run) for run in runs]
    outcomes[7] = outcomes[7]._replace(attempt=9)
    assert len(await store.finish("w1", outcomes, alone)) == 32_999


async def test_a_batch_that_is_restarted_counts_each_outcome_once(
    store: SqliteStore,
) -> None:
    await store.create_jobs([job("one"), job("two")])
    one, two = (await store.plan(NOW, 10, start("w1"))).runs
    stranger = ended(asked(job()))
    outcomes = [ended(one, "failed"), stranger, ended(two, "retrying", due_ms=NOW)]
    assert await store.finish("w1", outcomes, alone) == {one.id, two.id}
    found = await store.job_by_id(one.job_id or "")
    assert found is not None
    assert found.failures == 1
    assert len(await store.attempts(two.id)) == 1


PLANNER = """
    import asyncio, sys
    from tests.support.factories import NOW, fire
    from wakeful.store.sqlite import SqliteStore

    async def main():
        store = SqliteStore(sys.argv[1])
        await store.open()
        print("ready", flush=True)
        sys.stdin.readline()
        while (await store.next_wake_ms() or NOW + 1) <= NOW:
            for run in (await store.plan(NOW, 7, fire)).runs:
                print(run.job_id, flush=True)
        await store.close()

    asyncio.run(main())
"""
STORM = """
    import asyncio, sys
    from tests.support.factories import NOW, start, ended, alone
    from wakeful.store.sqlite import SqliteStore

    async def main():
        store = SqliteStore(sys.argv[1])
        await store.open()
        while (born := (await store.plan(NOW, 5, start("mortal"))).runs):
            for run in born:
                print(run.id, flush=True)
            await store.finish("mortal", [ended(run) for run in born[:2]], alone)

    asyncio.run(main())
"""


def _process(script: str, path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", dedent(script), str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


async def test_processes_on_one_file_plan_each_due_job_once(store: SqliteStore, path: Path) -> None:
    jobs = [job(f"job-{n}") for n in range(150)]
    await store.create_jobs(jobs)
    planners = [_process(PLANNER, path) for _ in range(3)]
    for planner in planners:
        assert planner.stdout is not None
        assert await asyncio.to_thread(planner.stdout.readline) == "ready\n"
    talks = [asyncio.to_thread(planner.communicate, "go\n", 30) for planner in planners]
    answers = await asyncio.gather(*talks)
    assert Counter("".join(out for out, _ in answers).split()) == Counter(row.id for row in jobs)
    for row in jobs:
        assert len(await ticks_of(store, row)) == 1


async def test_a_killed_process_leaves_no_partial_transaction(store: SqliteStore, path: Path) -> None:
    jobs = [job(f"job-{n}") for n in range(400)]
    await store.create_jobs(jobs)
    storm = _process(STORM, path)
    assert storm.stdout is not None
    told = [(await asyncio.to_thread(storm.stdout.readline)).strip() for _ in range(30)]
    storm.send_signal(signal.SIGKILL)
    await asyncio.to_thread(storm.communicate)
    for run_id in told:  # what the process reported is committed
        assert (await look(store, run_id)).state in ("running", "succeeded")
    for row in jobs:  # every job has its run and its next tick, or neither
        runs, seen = await ticks_of(store, row), await store.job_by_id(row.id)
        assert seen is not None
        assert (len(runs), seen.run_count, seen.next_ms == NOW) in ((0, 0, True), (1, 1, False))


async def test_the_kinds_of_a_job_of_schema_13_are_computed(store: SqliteStore, path: Path) -> None:
    every = '{"schedule":{"everyMs":60000,"kind":"every"}}'
    chat = '{"target":{"kind":"chat","agent":"ada"}}'
    rows = [job("old", timing=every, work=chat), job("idle", timing=None), job("torn", timing="{", work="{")]
    await store.create_jobs(rows)
    db = sqlite3.connect(path)
    db.execute("UPDATE jobs SET schedule_kind = NULL, target_kind = NULL")  # as code of schema 13 inserts it
    db.commit()
    db.close()

    async def names(only: JobFilter) -> list[str]:
        found = [row.name for row in await store.jobs(only)]
        assert await store.count_jobs(only, 9) == len(found)
        return found

    assert await names(JobFilter("default", schedule_kind="every", target_kind="chat")) == ["old"]
    assert await names(JobFilter("default", schedule_kind="none")) == ["idle"]
    assert await names(JobFilter("default", target_kind="webhook")) == []


#: what SQLite 3.33 does not know
NEWER = re.compile(
    r"\bRETURNING\b|\bMATERIALIZED\b|->|\bDISTINCT FROM\b|\bDROP COLUMN\b|\b(RIGHT|FULL) (OUTER )?JOIN\b"
    r"|\b(unixepoch|string_agg|concat|concat_ws|octet_length|format)\("
)


def _statements() -> Iterator[tuple[str, str]]:
    """Yield the statements that SQLite runs, with their names."""
    for package in (sqlite, sql):
        for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            for name, value in vars(import_module(found.name)).items():
                own = value.get("sqlite") if isinstance(value, dict) else value
                text = own.text(1) if isinstance(own, Bulk) else own
                if isinstance(text, str | Texts) and not name.startswith("__"):
                    yield f"{found.name}.{name}", translate(text)
    for step in load("sqlite"):
        yield step.name, step.sql


def test_no_statement_is_newer_than_sqlite_3_33() -> None:
    """Systems in use have 3.34, such as RHEL 9 with its Python 3.11: a syntax error would stop planning."""
    names = [name for name, _ in _statements()]
    assert {"wakeful.store.sqlite.statements.CLAIM", "wakeful.store.sql.accounts.DELETE_AGENT"} <= {*names}
    assert [(name, text) for name, text in _statements() if NEWER.search(text)] == []


def test_no_statement_searches_a_list_once_for_each_row() -> None:
    """A batch has thousands of outcomes, and nobody else writes until it is stored."""
    assert [name for name, text in _statements() if re.search(r"json_extract\(\?|char\(36\)", text)] == []


async def test_lists_of_the_same_length_are_a_table() -> None:
    statement = """
        SELECT a, b, c, $5::text FROM unnest($2::text[], $3::integer[], $4::float8[]) t (a, b, c)
        WHERE a <> $1"""
    session = SqliteSession(sqlite3.connect(":memory:"))
    rows = [("a", 1, 0.5), ("b", None, None), ("5", 2**62, 1e300), ('"\\é', 0, -0.25)]
    lists = map(list, zip(*rows, strict=True))
    assert await session.rows(statement, "no", *lists, "end") == [(*row, "end") for row in rows]
    assert await session.rows(statement, "no", [], [], [], "end") == []
    with pytest.raises(ValueError, match="shorter"):
        await session.rows(statement, "no", ["a", "b"], [1], [0.5], "end")


def test_searches_do_not_fill_the_memory() -> None:
    """Each length of a searched text makes another statement."""
    for length in range(10_000):
        translate(f"SELECT id FROM jobs WHERE substr(name, 1, {length}) = $1")
    assert translate_cached.cache_info().currsize < 5_000
