"""Start and stop while the database is unavailable."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from tests.integration.conftest import QUICK, SELDOM, STORES
from tests.support.command_line import Machine, first_json
from tests.support.lock_holder import lock_held
from tests.support.waiting import PATIENCE, eventually
from wakeful import Function, Unavailable, Wakeful
from wakeful.store.port import Store
from wakeful.store.sqlite import SqliteStore


class Work:
    """A function that returns when `finish` is set."""

    def __init__(self, app: Wakeful) -> None:
        self.started, self.finish = asyncio.Event(), asyncio.Event()
        app.function("work")(self)

    async def __call__(self) -> str:
        self.started.set()
        await self.finish.wait()
        return "done"


async def under_way(app: Wakeful, work: Work) -> str:
    """Start a run and return its id."""
    await app.jobs.create("job", schedule=SELDOM, target=Function("work"))
    run = await app.jobs.run("job")
    async with asyncio.timeout(PATIENCE):
        await work.started.wait()
    return run.id


def app_on(store: Store) -> Wakeful:
    return Wakeful(store=store, config=QUICK, secret_key="a key for tests")


async def outcome(store: Store, run_id: str) -> tuple[str, str | None]:
    await store.open()
    try:
        run = await store.run(run_id)
        assert run is not None
        return run.state, run.output
    finally:
        await store.close()


async def test_outcomes_are_written_when_the_lock_is_released(tmp_path: Path):
    path = tmp_path / "wakeful.db"
    app = app_on(SqliteStore(path, busy_ms=50))
    work = Work(app)
    await app.__aenter__()
    run_id = await under_way(app, work)
    with lock_held(path):
        work.finish.set()
        stopping = asyncio.create_task(app.stop(grace=3_600))
        await asyncio.sleep(0.5)
        assert not stopping.done()
    async with asyncio.timeout(PATIENCE):
        await stopping
    assert await outcome(SqliteStore(path), run_id) == ("succeeded", "done")


async def test_a_stop_ends_with_the_grace_period_and_reports_unwritten_outcomes(tmp_path: Path):
    path = tmp_path / "wakeful.db"
    app = app_on(SqliteStore(path, busy_ms=50))
    work = Work(app)
    await app.__aenter__()
    run_id = await under_way(app, work)
    with lock_held(path):
        work.finish.set()
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(Unavailable, match="stopped without writing 1 outcomes"):
                await app.stop(grace=0.5)
    assert (await outcome(SqliteStore(path), run_id))[0] == "running"


@pytest.mark.skipif("postgres" not in STORES, reason="there is no PostgreSQL here")
async def test_outcomes_are_written_when_postgresql_restarts():
    from tests.support.postgres_server import PrivateServer
    from wakeful.store.postgres import PostgresStore

    server = await asyncio.to_thread(PrivateServer)
    try:
        app = app_on(PostgresStore(server.url))
        work = Work(app)
        await app.__aenter__()
        run_id = await under_way(app, work)
        await asyncio.to_thread(server.stop)
        work.finish.set()
        stopping = asyncio.create_task(app.stop(grace=3_600))
        await asyncio.sleep(0.5)
        assert not stopping.done()
        await asyncio.to_thread(server.start)
        async with asyncio.timeout(PATIENCE):
            await stopping
        assert await outcome(PostgresStore(server.url), run_id) == ("succeeded", "done")
    finally:
        await asyncio.to_thread(server.close)


@pytest.mark.parametrize("command", [("worker",), ("serve", "--port", "0", "--wait-for-db")])
async def test_a_start_waits_for_the_database_and_logs_it(tmp_path: Path, command: tuple[str, ...]):
    database = tmp_path / "later" / "a.db"
    process = Machine(tmp_path).start(*command, "--db", str(database), "--json")
    try:
        log = tmp_path / "log"
        await eventually(lambda: "database.waiting" in log.read_text())
        assert f"cannot use the database {database}" in log.read_text()
        database.parent.mkdir()
        assert (await asyncio.to_thread(first_json, process))["db"].endswith("a.db")
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        process.stdout.close()
        assert await asyncio.to_thread(process.wait, PATIENCE) == 0


@pytest.mark.parametrize("command", [("worker",), ("serve", "--port", "0", "--wait-for-db")])
async def test_a_signal_ends_a_start_that_waits_for_the_database(tmp_path: Path, command: tuple[str, ...]):
    process = Machine(tmp_path).start(*command, "--db", str(tmp_path / "nowhere" / "a.db"))
    await eventually(lambda: "database.waiting" in (tmp_path / "log").read_text())
    process.send_signal(signal.SIGTERM)
    await asyncio.to_thread(process.communicate, timeout=PATIENCE)
    assert process.returncode == 0


@pytest.mark.parametrize("command", [("worker", "--wait-for-db", "0"), ("serve", "--port", "0")])
def test_a_start_without_waiting_fails_immediately(tmp_path: Path, command: tuple[str, ...]):
    said = Machine(tmp_path).process(*command, "--db", str(tmp_path / "nowhere" / "a.db"))

    assert said.code == 7
    assert "nowhere/a.db" in said.err
    assert "database.waiting" not in said.err
