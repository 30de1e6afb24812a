"""A replica suspended past its lease starts none of its runs: others may have finished them."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import time
from pathlib import Path

import asyncpg

from tests.integration.conftest import SELDOM
from tests.support.suspended_replica import build, replica
from tests.support.waiting import eventually, over, runs_of
from wakeful import Function, Wakeful
from wakeful.store.sqlite.connection import database_path

#: Long enough to create the jobs, have them planned and suspend the process, on a busy machine too.
LEAD_MS = 6_000
_BUSY = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL"""
JOBS = [f"job-{number}" for number in range(8)]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def entries(journal: Path, what: str, process: subprocess.Popen[bytes] | None = None) -> list[str]:
    """Return the jobs of journal entries of this kind, of all processes or of one."""
    lines = [line.split() for line in journal.read_text().splitlines()] if journal.exists() else []
    return [job for said, pid, job in lines if said == what and (process is None or pid == str(process.pid))]


async def suspend(process: subprocess.Popen[bytes], url: str) -> None:
    """Stop the process while it has no transaction open: its locks would block the others."""
    while True:
        process.send_signal(signal.SIGSTOP)
        if not await in_transaction(url):
            return
        process.send_signal(signal.SIGCONT)
        await asyncio.sleep(0.01)


async def in_transaction(url: str) -> bool:
    """Whether any process has a transaction open on this database."""
    if url.startswith("sqlite"):
        db = sqlite3.connect(database_path(url), isolation_level=None, timeout=0)
        try:
            db.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
        finally:
            db.close()
        return False
    connection = await asyncpg.connect(url)
    try:
        return bool(await connection.fetchval(_BUSY))
    finally:
        await connection.close()


async def finished_elsewhere(url: str, journal: Path) -> None:
    """Have another replica claim and finish all runs."""
    async with build(url, journal) as other:
        for name in JOBS:
            (run,) = await runs_of(other, name)
            assert (await over(other, run.id)).state == "succeeded"


async def works_again(observer: Wakeful, journal: Path, process: subprocess.Popen[bytes]) -> None:
    """Wait until the process runs a new job: by then it has handled all runs that it held."""
    await observer.jobs.run("after")
    await eventually(lambda: "after" in entries(journal, "start", process))


async def test_runs_waiting_for_their_fire_time_are_not_started_after_a_suspension(
    database: str, tmp_path: Path
):
    journal = tmp_path / "journal"
    observer = build(database, journal)
    await observer.store.open()  # without an engine
    await observer.jobs.create("after", schedule=SELDOM, target=Function("note"))
    await observer.jobs.create("before", schedule=SELDOM, target=Function("note"))
    with replica(database, journal, lead_ms=LEAD_MS) as process:
        await observer.jobs.run("before")
        await eventually(lambda: entries(journal, "start", process) == ["before"])
        at_ms = now_ms() + LEAD_MS
        for name in JOBS:
            await observer.jobs.create(name, schedule={"kind": "at", "atMs": at_ms}, target=Function("note"))

        async def all_held() -> bool:
            states = [run.state for name in JOBS for run in await runs_of(observer, name)]
            return states == ["running"] * len(JOBS)

        await eventually(all_held)
        await suspend(process, database)
        assert entries(journal, "start") == ["before"], "it was suspended before their instant"
        await finished_elsewhere(database, journal)
        await eventually(lambda: now_ms() > at_ms)
        process.send_signal(signal.SIGCONT)
        await works_again(observer, journal, process)
        assert entries(journal, "start", process) == ["before", "after"]
        assert sorted(entries(journal, "start")) == sorted([*JOBS, "before", "after"])
    await observer.store.close()


async def test_runs_in_their_precheck_are_not_started_after_a_suspension(database: str, tmp_path: Path):
    journal = tmp_path / "journal"
    observer = build(database, journal)
    await observer.store.open()
    await observer.jobs.create("after", schedule=SELDOM, target=Function("note"))
    precheck = {"kind": "function", "name": "check", "timeoutMs": 60_000}
    for name in JOBS:
        await observer.jobs.create(name, schedule="in 1s", target=Function("note"), precheck=precheck)
    with replica(database, journal, lead_ms=50) as process:
        await eventually(lambda: len(entries(journal, "check", process)) == len(JOBS))
        await suspend(process, database)
        journal.with_suffix(f".{process.pid}").touch()  # each precheck ends when the process resumes
        journal.with_suffix(f".{os.getpid()}").touch()
        await finished_elsewhere(database, journal)
        process.send_signal(signal.SIGCONT)
        await works_again(observer, journal, process)
        assert entries(journal, "start", process) == ["after"]
    await observer.store.close()
