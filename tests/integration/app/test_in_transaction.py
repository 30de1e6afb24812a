"""Jobs and runs in the transaction of the caller: they exist if and only if it commits."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from psycopg.rows import dict_row
from sqlalchemy import orm

from tests.integration.conftest import SELDOM, NewApp
from tests.support.caller_connections import (
    POSTGRES,
    SQLITE,
    Asyncpg,
    AsyncPsycopg,
    Blocking,
    CallerConnection,
    Sqlite,
)
from tests.support.interruptions import cancel_at_each_await
from tests.support.postgres_server import lent_database
from tests.support.sqlite_files import fresh_file
from tests.support.waiting import PATIENCE, eventually
from wakeful import AlreadyExists, FailedPrecondition, Function, InvalidArgument, NotFound, Wakeful
from wakeful.store.audit import AuditRow

DRIVERS = [
    pytest.param(store, driver, id=f"{store}-{driver.__name__}")
    for store, drivers in (("postgres", POSTGRES), ("sqlite", SQLITE))
    for driver in drivers
]
each_driver = pytest.mark.parametrize(("database", "driver"), DRIVERS, indirect=["database"])


class Program:
    """A program with a scheduler, a table and a function."""

    def __init__(self, app: Wakeful) -> None:
        self.app = app
        self.done: list[int] = []

        @app.function()
        async def note(number: int) -> int:
            self.done.append(number)
            return number

        self.note = note


@asynccontextmanager
async def connected(driver: type[CallerConnection], database: str) -> AsyncIterator[CallerConnection]:
    connection = driver(database)
    await connection.begin()
    try:
        yield connection
    finally:
        await connection.close()


async def create_table(driver: type[CallerConnection], database: str) -> None:
    async with connected(driver, database) as connection:
        await connection.execute("CREATE TABLE orders (number integer)")
        await connection.commit()


@each_driver
async def test_a_run_exists_and_starts_if_and_only_if_the_transaction_commits(
    new_app: NewApp, database: str, driver: type[CallerConnection]
):
    program = Program(new_app())
    async with program.app as app:
        await create_table(driver, database)
        async with connected(driver, database) as caller:
            await caller.execute("INSERT INTO orders VALUES (1)")
            kept = await caller.enqueue(app, program.note, 1)
            also = await caller.enqueue(app, program.note, 2)
            await asyncio.sleep(0.3)
            assert program.done == []
            with pytest.raises(NotFound):
                await app.runs.get(kept.id)
            await caller.commit()
            await eventually(lambda: sorted(program.done) == [1, 2])
            assert (await app.runs.wait(kept.id)).output == "1"
            assert (await app.runs.get(also.id)).payload == {"number": 2}

            await caller.begin()
            await caller.execute("INSERT INTO orders VALUES (2)")
            lost = await caller.enqueue(app, program.note, 3)
            await caller.rollback()

            await caller.begin()
            await caller.execute("INSERT INTO orders VALUES (3)")
            await caller.execute("SAVEPOINT before")
            undone = await caller.enqueue(app, program.note, 4)
            await caller.execute("ROLLBACK TO SAVEPOINT before")
            after = await caller.enqueue(app, program.note, 5)
            await caller.commit()
            assert (await app.runs.wait(after.id)).output == "5"
        for run in (lost, undone):
            with pytest.raises(NotFound):
                await app.runs.get(run.id)
        assert sorted(program.done) == [1, 2, 5]


@each_driver
async def test_a_job_exists_if_and_only_if_the_transaction_commits(
    new_app: NewApp, database: str, driver: type[CallerConnection]
):
    program = Program(new_app())
    fields = {"schedule": SELDOM, "target": Function("note", arguments=True)}
    async with program.app as app, connected(driver, database) as caller:
        lost = await caller.create(app, "report", **fields)
        await caller.rollback()
        await caller.begin()
        made = await caller.create(app, "report", **fields, payload={"number": 7})
        assert made.id != lost.id
        same = await caller.upsert(app, "report", **fields, payload={"number": 7})
        assert same.id == made.id
        run = await caller.run(app, "report")
        assert run is not None
        assert await app.jobs.list() == []
        await caller.commit()
        found = await app.jobs.get("report")
        assert (found.id, found.payload, found.next_ticks) == (made.id, {"number": 7}, made.next_ticks)
        assert (await app.runs.wait(run.id)).output == "7"


@each_driver
async def test_the_window_of_a_key_is_that_of_the_call(
    new_app: NewApp, database: str, driver: type[CallerConnection]
):
    program = Program(new_app())
    async with program.app as app, connected(driver, database) as caller:
        runs = []
        for number, window in ((1, "1h"), (2, "1h"), (3, "1ms"), (4, "1ms")):
            run = await caller.enqueue(app, program.note, number, key=f"key of {window}", unique_for=window)
            runs.append(run.id)
            await caller.commit()
            await asyncio.sleep(0.01)
            await caller.begin()
        assert runs[0] == runs[1]
        assert len({*runs}) == 3


# --- the connection, as a program may have set it up ----------------------------------------------------


async def _asyncpg(url: str, **options: Any) -> CallerConnection:
    caller = Asyncpg(url)
    caller.given = await asyncpg.connect(url, **options)
    return caller


async def _with_codecs(url: str) -> CallerConnection:
    caller = await _asyncpg(url)
    for name, encode, decode in (("json", json.dumps, json.loads), ("timestamptz", str, str)):
        await caller.given.set_type_codec(name, schema="pg_catalog", encoder=encode, decoder=decode)
    return caller


async def _from_pool(url: str) -> CallerConnection:
    caller = Asyncpg(url)
    pool = await asyncpg.create_pool(url, min_size=1, max_size=1)
    caller.given = await pool.acquire()

    async def close() -> None:
        await pool.release(caller.given)
        await pool.close()

    caller.close = close  # type: ignore[method-assign]
    return caller


async def _serializable(url: str) -> CallerConnection:
    # The snapshot is older than the job of the function: the settings are read before the first call.
    return await _asyncpg(url, server_settings={"default_transaction_isolation": "serializable"})


async def _elsewhere(url: str) -> CallerConnection:
    return await _asyncpg(
        url,
        server_settings={"search_path": "pg_temp", "TimeZone": "Asia/Kathmandu", "bytea_output": "escape"},
    )


async def _unprepared(url: str) -> CallerConnection:
    return await _asyncpg(url, statement_cache_size=0)


async def _psycopg_with_factories(url: str) -> CallerConnection:
    caller = AsyncPsycopg(url)
    caller.given = await psycopg.AsyncConnection.connect(
        url, row_factory=dict_row, cursor_factory=psycopg.AsyncClientCursor, prepare_threshold=0
    )
    return caller


class _InTransactionBlock(AsyncPsycopg):
    """A connection in autocommit mode, with an explicit transaction."""

    async def begin(self) -> None:
        self.given = await psycopg.AsyncConnection.connect(self.url, autocommit=True)
        await self.given.execute("BEGIN")


async def _autocommit_with_begin(url: str) -> CallerConnection:
    return _InTransactionBlock(url)


#: All settings but those of a language that a session loads when it is used.
SETTINGS = """
    SELECT string_agg(name || '=' || setting, ',' ORDER BY name) FROM pg_settings
    WHERE name NOT LIKE 'plpgsql.%'"""


@pytest.mark.parametrize(
    "connect",
    [
        _with_codecs,
        _from_pool,
        _serializable,
        _elsewhere,
        _unprepared,
        _psycopg_with_factories,
        _autocommit_with_begin,
    ],
)
@pytest.mark.parametrize("database", ["postgres"], indirect=True)
async def test_the_settings_of_a_connection_neither_matter_nor_change(
    new_app: NewApp, database: str, connect: Callable[[str], Awaitable[CallerConnection]]
):
    program = Program(new_app())
    fields = {"schedule": SELDOM, "target": Function("note", arguments=True)}
    async with program.app as app:
        caller = await connect(database)
        await caller.begin()
        before = await _settings(caller)
        made = await caller.create(app, "report", **fields, payload={"number": 7})
        first = await caller.run(app, "report")
        second = await caller.enqueue(app, program.note, 8, key="8")
        assert (await caller.enqueue(app, program.note, 8, key="8")).id == second.id
        assert await _settings(caller) == before
        await caller.commit()
        await caller.close()
        assert first is not None
        assert (await app.runs.wait(first.id)).output == "7"
        assert (await app.runs.wait(second.id)).output == "8"
        assert (await app.jobs.get("report")).next_ticks == made.next_ticks


async def _settings(caller: CallerConnection) -> object:
    if isinstance(caller, Asyncpg):
        return await caller.given.fetchval(SETTINGS)
    async with psycopg.AsyncCursor(caller.given) as cursor:
        return await (await cursor.execute(SETTINGS)).fetchone()


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
async def test_a_connection_that_cannot_be_used_is_refused(new_app: NewApp, database: str, tmp_path: Path):
    program = Program(new_app())

    async def refuse(connection: object, error: type[Exception], words: str) -> None:
        with pytest.raises(error, match=words):
            await app.enqueue(program.note, 1, connection=connection)

    async with program.app as app:
        await app.enqueue(program.note, 0).result(PATIENCE)
        plain = await asyncpg.connect(database)
        await refuse(plain, FailedPrecondition, "no transaction has begun")
        transaction = plain.transaction()
        await transaction.start()
        with pytest.raises(asyncpg.PostgresError):
            await plain.execute("SELECT 1 / 0")
        await refuse(plain, FailedPrecondition, "has failed; roll it back")
        await transaction.rollback()
        await plain.execute("DROP ROLE IF EXISTS wakeful_guest")
        await plain.execute("CREATE ROLE wakeful_guest")
        try:
            async with plain.transaction():
                await plain.execute("SET LOCAL ROLE wakeful_guest")
                await refuse(plain, FailedPrecondition, "role 'wakeful_guest' may not write.*USAGE")
        finally:
            await plain.execute("DROP ROLE wakeful_guest")
        other = await asyncpg.connect(database, database="postgres")
        async with other.transaction():
            await refuse(other, InvalidArgument, "another database")
        await other.close()
        await plain.close()

        async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
            await refuse(connection, FailedPrecondition, "no transaction has begun")
        async with await psycopg.AsyncConnection.connect(database) as connection:
            with pytest.raises(psycopg.Error):
                await connection.execute("SELECT 1 / 0")
            await refuse(connection, FailedPrecondition, "has failed; roll it back")
        with psycopg.connect(database) as blocking:
            await refuse(blocking, InvalidArgument, "would block the event loop; use `app.sync")
        engine = sqlalchemy.create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(database))
        await refuse(orm.Session(engine), InvalidArgument, "would block the event loop; use `app.sync")
        await refuse(sqlite3.connect(":memory:"), InvalidArgument, "SQLite.*PostgreSQL")
        await refuse("postgresql://localhost", InvalidArgument, "a str cannot be used here; give a conn")
        assert program.done == [0]


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
async def test_another_database_of_wakeful_on_the_same_server_is_refused(new_app: NewApp, database: str):
    program = Program(new_app())
    with lent_database() as other:
        async with program.app as app, connected(Asyncpg, other) as caller:
            with pytest.raises(InvalidArgument, match="another database"):
                await caller.enqueue(app, program.note, 1)


async def _value(database: str, query: str) -> Any:
    connection = await asyncpg.connect(database)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_a_connection_to_another_file_or_without_a_transaction_is_refused(
    new_app: NewApp, database: str, tmp_path: Path
):
    program = Program(new_app())
    path = database.removeprefix("sqlite:///")
    async with program.app as app:
        for other in (":memory:", str(fresh_file(tmp_path / "other.db"))):
            with pytest.raises(InvalidArgument, match="another database"):
                await app.enqueue(program.note, 1, connection=sqlite3.connect(other))
        autocommit = sqlite3.connect(path, isolation_level=None)
        with pytest.raises(FailedPrecondition, match=r"autocommit mode.*BEGIN IMMEDIATE"):
            await app.enqueue(program.note, 1, connection=autocommit)
        autocommit.execute("BEGIN")
        autocommit.row_factory, autocommit.text_factory = sqlite3.Row, bytes
        await app.enqueue(program.note, 2, connection=autocommit)
        assert (autocommit.row_factory, autocommit.text_factory) == (sqlite3.Row, bytes)
        autocommit.execute("COMMIT")
        await eventually(lambda: program.done == [2])


def test_a_file_without_tables_is_named(tmp_path: Path):
    path = tmp_path / "shop.db"
    app = Wakeful(f"sqlite:///{path}", connect_on_use=True)

    @app.function()
    def note() -> None: ...

    with closing(sqlite3.connect(path)) as caller:
        caller.execute("BEGIN IMMEDIATE")
        with pytest.raises(FailedPrecondition, match=r"no tables of Wakeful yet.*wakeful migrate"):
            app.sync.enqueue(note, connection=caller)
        caller.rollback()
        app.sync.jobs.list()  # creates them
        app.sync.enqueue(note, connection=caller)
        caller.commit()
        assert len(app.sync.runs.list()) == 1
    app.stop()


# --- keys, errors, results ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("database", "driver"), [("postgres", Asyncpg), ("postgres", Blocking), ("sqlite", Sqlite)],
    indirect=["database"],
)  # fmt: skip
async def test_a_key_is_taken_if_and_only_if_the_transaction_commits(
    new_app: NewApp, database: str, driver: type[CallerConnection]
):
    program = Program(new_app())

    @program.app.function()
    async def other() -> None: ...

    async with program.app as app, connected(driver, database) as caller:
        lost = await caller.enqueue(app, program.note, 1, key="mail")
        await caller.rollback()
        await caller.begin()
        kept = await caller.enqueue(app, program.note, 2, key="mail")
        assert kept.id != lost.id
        assert (await caller.enqueue(app, program.note, 3, key="mail")).id == kept.id
        with pytest.raises(InvalidArgument, match="used for another request"):
            await caller.enqueue(app, other, key="mail")
        await caller.commit()
        await caller.begin()
        assert (await caller.enqueue(app, program.note, 4, key="mail")).id == kept.id
        await caller.commit()
        assert (await app.enqueue(program.note, 5, key="mail")).id == kept.id
        assert (await app.runs.wait(kept.id)).output == "2"
        assert program.done == [2]


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
async def test_of_two_transactions_with_one_key_the_second_waits_for_the_first(
    new_app: NewApp, database: str
):
    program = Program(new_app())
    async with program.app as app, connected(Asyncpg, database) as one, connected(Asyncpg, database) as two:
        for number, ends in enumerate((one.commit, one.rollback)):
            key = f"mail-{number}"
            first = await one.enqueue(app, program.note, 1, key=key)
            second = asyncio.create_task(two.enqueue(app, program.note, 2, key=key))
            await asyncio.sleep(0.2)
            assert not second.done()
            await ends()
            assert ((await second).id == first.id) is (ends == one.commit)
            await two.commit()
            await one.begin()
            await two.begin()
        await eventually(lambda: sorted(program.done) == [1, 2])


@each_driver
async def test_after_an_error_the_transaction_continues_without_the_call(
    new_app: NewApp, database: str, driver: type[CallerConnection]
):
    program = Program(new_app())
    fields: dict[str, Any] = {"schedule": SELDOM, "target": Function("note", arguments=True)}
    async with program.app as app:
        await app.jobs.create("taken", **fields)
        await create_table(driver, database)
        async with connected(driver, database) as caller:
            await caller.execute("INSERT INTO orders VALUES (1)")
            with pytest.raises(AlreadyExists, match="already has a job 'taken'"):
                await caller.create(app, "taken", **fields)
            with pytest.raises(FailedPrecondition, match="'taken' exists with other fields"):
                await caller.upsert(app, "taken", **{**fields, "schedule": "0 0 1 1 *"})
            with pytest.raises(NotFound):
                await caller.run(app, "nowhere")
            with pytest.raises(InvalidArgument, match="overlap_policy: leave it out"):
                await caller.run(app, "taken", overlap_policy="queue")
            await caller.create(app, "first", after="second", target=fields["target"])
            with pytest.raises(InvalidArgument, match="the chain would never end"):
                await caller.create(app, "second", after="first", target=fields["target"])
            assert (await caller.upsert(app, "taken", **fields)).created is False
            run = await caller.enqueue(app, program.note, 1)
            await caller.commit()
            assert (await app.runs.wait(run.id)).output == "1"
        assert [job.name for job in await app.jobs.list()] == ["first", "note", "taken"]


async def test_a_result_is_there_after_the_commit(new_app: NewApp, database: str):
    program = Program(new_app())
    driver = Asyncpg if database.startswith("postgres") else Sqlite
    async with program.app as app, connected(driver, database) as caller:
        call = app.enqueue(program.note, 5, connection=caller.given)
        with pytest.raises(FailedPrecondition, match="await the call, commit"):
            await call.result()
        await call
        with pytest.raises(FailedPrecondition, match="await the call, commit"):
            await call.result()
        await caller.commit()
        assert await call.result(PATIENCE) == 5


async def test_a_parameter_named_connection_is_still_an_argument(new_app: NewApp):
    app = new_app()

    @app.function()
    async def dial(connection: str) -> str:
        return connection

    async with app:
        assert await app.enqueue(dial, connection="fast").result(PATIENCE) == "fast"


# --- open transactions and others -----------------------------------------------------------------------


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
async def test_an_open_transaction_keeps_nobody_waiting(new_app: NewApp, database: str):
    program = Program(new_app())
    app = program.app
    failed: list[int] = []

    @app.function(max_attempts=1)
    async def fail(number: int) -> None:
        failed.append(number)
        raise ValueError("no")

    fields: dict[str, Any] = {"schedule": SELDOM, "target": Function("note", arguments=True)}
    async with app, connected(Asyncpg, database) as caller:
        await caller.enqueue(app, program.note, 1)
        await caller.enqueue(app, fail, 1)
        await caller.create(app, "report", **fields)
        async with asyncio.timeout(5):  # a wait for a lock takes 10 s
            assert await app.enqueue(program.note, 2).result() == 2
            # Its failure is counted in the row of the job.
            with pytest.raises(FailedPrecondition, match="no"):
                await app.enqueue(fail, 2).result()
            await app.jobs.create("other", **fields)
            await app.jobs.upsert("note", target=Function("note", arguments=True), max_attempts=7)
        await caller.commit()
        await eventually(lambda: sorted(program.done) == [1, 2] and sorted(failed) == [1, 2])


_FUNCTION: dict[str, Any] = {"target": Function("note", arguments=True)}


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
async def test_a_transaction_does_not_wait_for_what_it_has_created_itself(new_app: NewApp, database: str):
    program = Program(new_app(agent="new"))
    async with program.app as app, connected(Asyncpg, database) as caller:
        async with asyncio.timeout(5):
            await caller.create(app, "report", schedule=SELDOM, **_FUNCTION)
            await app.jobs.create("other", schedule=SELDOM, **_FUNCTION)  # also of the new agent
            await caller.create(app, "note", **_FUNCTION)  # the job of the calls of the function
            calls = [await caller.enqueue(app, program.note, number) for number in (1, 2)]
        await caller.rollback()
        await app.enqueue(program.note, 3).result(PATIENCE)
        assert program.done == [3]
        with pytest.raises(NotFound):
            await app.runs.get(calls[0].id)


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
async def test_of_two_transactions_that_upsert_a_job_the_second_finds_it(new_app: NewApp, database: str):
    program = Program(new_app())
    fields = {"schedule": SELDOM, **_FUNCTION}
    async with program.app as app, connected(Asyncpg, database) as one, connected(Asyncpg, database) as two:
        for name, same in (("same", True), ("other", False)):
            made = await one.upsert(app, name, **fields)
            changed = {} if same else {"description": "another one"}
            upsert = asyncio.create_task(two.upsert(app, name, **{**fields, **changed}))
            await asyncio.sleep(0.2)
            await one.commit()
            if same:
                found = await upsert
                assert (found.id, found.created) == (made.id, False)
            else:
                with pytest.raises(FailedPrecondition, match="exists with other fields"):
                    await upsert
            await one.begin()


async def test_a_job_that_is_changed_or_deleted_while_a_run_is_planned_is_planned_again(
    new_app: NewApp, database: str, monkeypatch: pytest.MonkeyPatch
):
    program = Program(new_app())
    driver = Asyncpg if database.startswith("postgres") else Sqlite
    async with program.app as app, connected(driver, database) as caller:
        await caller.rollback()
        await app.jobs.create("report", schedule=SELDOM, target={"kind": "pull"}, payload={"number": 1})
        check = app.store.caller_transaction.check_planned
        changes: list[Callable[[], Awaitable[Any]]] = [
            lambda: app.jobs.update("report", target=Function("note", arguments=True)),
            lambda: app.jobs.delete("report"),
        ]

        async def change(planned: Any) -> None:
            await check(planned)
            if todo:
                await todo.pop()()

        monkeypatch.setattr(app.store.caller_transaction, "check_planned", change)
        for each in changes:
            todo = [each]
            if database.startswith("sqlite"):  # nobody else can write after the transaction has begun
                await todo.pop()()
            await caller.begin()
            if each is changes[1]:
                with pytest.raises(NotFound):
                    await caller.run(app, "report")
                break
            run = await caller.run(app, "report")
            await caller.commit()
            assert run is not None
            assert (await app.runs.wait(run.id)).output == "1", "it waits where the new target says"


async def test_a_call_whose_run_is_deleted_with_the_history_is_not_made_again(new_app: NewApp, database: str):
    program = Program(new_app())
    driver = Asyncpg if database.startswith("postgres") else Sqlite
    async with program.app as app, connected(driver, database) as caller:
        await caller.rollback()
        await app.enqueue(program.note, 1, key="k", unique_for="60d").result(PATIENCE)
        assert await app.store.prune(app.services.now_ms() + 1000, 10) == 1
        await caller.begin()
        for enqueue in (app.enqueue, partial(caller.enqueue, app)):
            with pytest.raises(NotFound, match="was enqueued before, as run"):
                await enqueue(program.note, 1, key="k", unique_for="60d")
        assert program.done == [1]


@pytest.mark.parametrize(
    ("database", "driver"), [("postgres", Asyncpg), ("postgres", Blocking), ("sqlite", Sqlite)],
    indirect=["database"],
)  # fmt: skip
async def test_twenty_transactions_at_once_of_which_half_are_rolled_back(
    new_app: NewApp, database: str, driver: type[CallerConnection]
):
    program = Program(new_app())
    turn = asyncio.Lock() if driver is Sqlite else None  # one writer at a time, in one thread

    async def order(number: int) -> None:
        async with connected(driver, database) as caller:
            if turn is not None:
                await turn.acquire()
            await caller.enqueue(app, program.note, number, key=f"order-{number}")
            await caller.create(app, f"job-{number}", schedule=SELDOM, target=Function("note"))
            await (caller.commit() if number % 2 else caller.rollback())
            if turn is not None:
                turn.release()

    async with program.app as app:
        await asyncio.gather(*map(order, range(20)))
        kept = list(range(1, 20, 2))
        await eventually(lambda: sorted(program.done) == kept)
        names = {job.name for job in await app.jobs.list()} - {"note"}
        assert names == {f"job-{number}" for number in kept}
        wanted = sorted(f"default/job-{number}" for number in kept)

        async def audited() -> list[AuditRow]:
            rows = await app.store.audit("default", limit=1000)
            made = [row.subject for row in rows if row.action == "job.create" and "/job-" in row.subject]
            return rows if sorted(made) == wanted else []

        rows = await eventually(audited)  # the scheduler appends entries, too, and may be doing so
        assert sum(row.action == "job.run" for row in rows) == len(kept)
        used = {
            row.bucket: row.used
            for row in await app.store.quotas("default", app.services.now_ms())
            if not row.agent
        }
        assert used["scheduler.createJob"] == used["scheduler.liveJobs"] == len(kept) + 1


# --- interruptions --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("driver", [Asyncpg, AsyncPsycopg])
@pytest.mark.parametrize("database", ["postgres"], indirect=True)
async def test_a_call_that_is_cancelled_at_any_await_leaves_all_or_nothing(
    new_app: NewApp, database: str, driver: type[CallerConnection]
):
    program = Program(new_app())
    callers: list[CallerConnection] = []

    async def prepare() -> None:
        callers.append(driver(database))
        await callers[-1].begin()

    async def order() -> None:
        caller = callers[-1]
        try:
            await caller.execute("INSERT INTO orders VALUES (1)")
            await caller.enqueue(app, program.note, 1)
            await caller.create(app, f"job-{len(callers)}", schedule=SELDOM, target=Function("note"))
            await caller.commit()
        except BaseException:
            with suppress(asyncpg.InterfaceError):  # after a cancelled COMMIT there is nothing to roll back
                await caller.rollback()
            raise

    async def check() -> None:
        orders = await _value(database, "SELECT count(*) FROM public.orders")
        assert await _value(database, "SELECT count(*) FROM wakeful.runs") == orders + 1
        assert len(await app.jobs.list()) == orders + 1
        await callers[-1].close()

    async with program.app as app:
        await _value(database, "CREATE TABLE public.orders (number integer)")
        await app.enqueue(program.note, 0).result(PATIENCE)
        assert await cancel_at_each_await(order, check, prepare=prepare) > 10
        # The connections of the store are well.
        assert await app.enqueue(program.note, 2).result(PATIENCE) == 2


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
async def test_a_cancelled_call_in_a_transaction_that_goes_on_leaves_nothing(new_app: NewApp, database: str):
    program = Program(new_app())
    async with program.app as app:
        await app.enqueue(program.note, 0).result(PATIENCE)
        async with connected(Asyncpg, database) as holder, connected(Asyncpg, database) as caller:
            await holder.enqueue(app, program.note, 1, key="k")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await caller.enqueue(app, program.note, 2, key="k")  # waits for the holder
            await caller.execute("SELECT 1")
            await caller.commit()
            await holder.rollback()
        assert await _value(database, "SELECT count(*) FROM wakeful.runs") == 1
        assert await _value(database, "SELECT count(*) FROM wakeful.idempotency_keys") == 0


@pytest.mark.slow
@pytest.mark.parametrize("driver", POSTGRES)
@pytest.mark.parametrize("database", ["postgres"], indirect=True)
async def test_a_connection_that_the_server_ends_before_the_commit_leaves_nothing(
    new_app: NewApp, database: str, driver: type[CallerConnection]
):
    program = Program(new_app())
    async with program.app as app:
        caller = driver(database)
        await caller.begin()
        await caller.execute("SET LOCAL application_name = 'the caller'")
        run = await caller.enqueue(app, program.note, 1)
        await _value(
            database,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'the caller'",
        )
        with pytest.raises(Exception):  # noqa: B017, PT011
            await caller.commit()
        with pytest.raises(NotFound):
            await app.runs.get(run.id)
        with suppress(Exception):
            await caller.close()
        assert await app.enqueue(program.note, 2).result(PATIENCE) == 2
        assert program.done == [2]


@pytest.mark.slow
async def test_a_program_that_is_killed_before_the_commit_leaves_nothing(new_app: NewApp, database: str):
    async with new_app():
        pass  # the schema
    driver = Asyncpg if database.startswith("postgres") else Sqlite
    await create_table(driver, database)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.transaction_program", database, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE):
        assert await process.stdout.readline() == b"enqueued\n"
    process.send_signal(signal.SIGKILL)
    await process.wait()
    program = Program(new_app())
    async with program.app as app:
        assert await app.enqueue(program.note, 9).result(PATIENCE) == 9
        runs = await app.runs.list()
        assert sorted(str(run.payload) for run in runs) == ["{'number': 0}", "{'number': 9}"]
