"""Connections of callers, whose transactions jobs and runs are added to.

A driver or framework is recognized among those that the program has imported; none is imported here. What
SQLAlchemy and Django wrap is unwrapped to the connection of the driver.

A call is planned on the event loop of the scheduler and written on the connection of the caller, in its
thread or event loop: `run_async` and `run_blocking` execute each step of a call where it belongs.
"""

from __future__ import annotations

import re
import sqlite3
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from wakeful.errors import FailedPrecondition, InvalidArgument
from wakeful.store.caller_transaction import Sql, Step
from wakeful.store.sql.driver import run_to_end

T = TypeVar("T")

#: Executes a step where the connection lives.
Execute: TypeAlias = Callable[[Step], Any]
ExecuteAsync: TypeAlias = Callable[[Step], Awaitable[Any]]

_KNOWN: Final = (
    "a connection of asyncpg, psycopg, sqlite3 or aiosqlite, a session or connection of SQLAlchemy, or "
    "`django.db.connection`"
)
_AUTOCOMMIT: Final = (
    "connection: no transaction has begun on it, and it commits each statement by itself; begin one first, "
    "for example `async with connection.transaction():`"
)
_FAILED: Final = "connection: its transaction has failed; roll it back, and do all of it again"
_IN_FAILED_TRANSACTION: Final = "25P02"
_OTHER_KIND: Final = "connection: it is one of {given}, and the database of this Wakeful is {own}"
_NAMES: Final = {"postgresql": "PostgreSQL", "sqlite": "SQLite"}


class AtHome(NamedTuple):
    """A step on the event loop of the scheduler."""

    call: Callable[[], Coroutine[Any, Any, Any]]


#: A call that awaits only steps.
Steps: TypeAlias = Callable[[], Coroutine[Any, Any, T]]


async def run_async(
    run_at_home: Callable[[Callable[[], Coroutine[Any, Any, Any]]], Awaitable[Any]],
    kind: str,
    connection: object,
    call: Steps[T],
) -> T:
    """Return the result of a call that uses a connection in this event loop."""
    execute = await _open_async_connection(connection, kind)

    async def perform(step: AtHome | Step) -> Any:
        return await (run_at_home(step.call) if isinstance(step, AtHome) else execute(step))

    return await _perform_steps(call(), perform)


def run_blocking(
    run_at_home: Callable[[Callable[[], Coroutine[Any, Any, Any]]], Any],
    kind: str,
    connection: object,
    call: Steps[T],
) -> T:
    """Return the result of a call that uses a connection of this thread."""
    execute = _open_connection(connection, kind)

    async def perform(step: AtHome | Step) -> Any:
        return run_at_home(step.call) if isinstance(step, AtHome) else execute(step)

    return run_to_end(_perform_steps(call(), perform))


async def _perform_steps(
    call: Coroutine[Any, Any, T], perform: Callable[[AtHome | Step], Awaitable[Any]]
) -> T:
    try:
        step = call.send(None)
        while True:
            try:
                result = await perform(step)
            except GeneratorExit:
                raise
            except BaseException as error:
                undoes = isinstance(step, Sql) and step.undoes
                step = call.send([]) if undoes else call.throw(_translate_error(error))
            else:
                step = call.send(result)
    except StopIteration as end:
        value: T = end.value
        return value


def _open_connection(connection: object, kind: str) -> Execute:
    """Return what executes steps on a connection that blocks; `kind` is the database of the store."""
    found = _unwrap(connection)
    if _is_a(found, "asyncpg", "Connection") or _is_a(found, "psycopg", "AsyncConnection"):
        raise InvalidArgument("connection: it is one for async programs; use `await app.…` with it")
    if _is_any(found, _ASYNC_WRAPPERS) or _is_a(found, "aiosqlite", "Connection"):
        raise InvalidArgument("connection: it is one for async programs; use `await app.…` with it")
    if isinstance(found, sqlite3.Connection):
        _check_kind("sqlite", kind)
        return lambda step: _call(step, found)
    if _is_a(found, "psycopg", "Connection"):
        _check_kind("postgresql", kind)
        _check_psycopg(found)
        return lambda step: _execute_psycopg(found, step)
    if _is_a(found, "psycopg2.extensions", "connection"):
        _check_kind("postgresql", kind)
        _check_psycopg2(found)
        return lambda step: _execute_psycopg2(found, step)
    raise InvalidArgument(f"connection: a {type(connection).__name__} cannot be used here; give {_KNOWN}")


async def _open_async_connection(connection: object, kind: str) -> ExecuteAsync:
    """Return what executes steps on a connection in this event loop."""
    found = await _unwrap_async(connection)
    if isinstance(found, sqlite3.Connection):
        _check_kind("sqlite", kind)
        return _async(lambda step: _call(step, found))
    if _is_a(found, "aiosqlite", "Connection"):
        _check_kind("sqlite", kind)
        return lambda step: found._execute(_call, step, found._conn)
    if _is_a(found, "asyncpg", "Connection") or _is_a(found, "asyncpg.pool", "PoolConnectionProxy"):
        _check_kind("postgresql", kind)
        if not found.is_in_transaction():
            raise FailedPrecondition(_AUTOCOMMIT)
        return lambda step: _execute_asyncpg(found, step)
    if _is_a(found, "psycopg", "AsyncConnection"):
        _check_kind("postgresql", kind)
        _check_psycopg(found)
        return lambda step: _execute_psycopg_async(found, step)
    _refuse_blocking(connection)
    raise InvalidArgument(f"connection: a {type(connection).__name__} cannot be used here; give {_KNOWN}")


_ASYNC_WRAPPERS: Final = (
    ("sqlalchemy.ext.asyncio", "AsyncSession"),
    ("sqlalchemy.ext.asyncio", "async_scoped_session"),
    ("sqlalchemy.ext.asyncio", "AsyncConnection"),
)
_SESSIONS: Final = (("sqlalchemy.orm", "Session"), ("sqlalchemy.orm", "scoped_session"))


def _refuse_blocking(connection: object) -> None:
    drivers = (("psycopg", "Connection"), ("psycopg2.extensions", "connection"))
    blocking = (*_SESSIONS, ("sqlalchemy.engine", "Connection"), *drivers)
    if _is_any(connection, blocking) or _is_django(connection):
        raise InvalidArgument(
            "connection: it is one for sync programs, and would block the event loop; use `app.sync.…` with "
            "it, in another thread"
        )


def _unwrap(connection: object) -> Any:
    """Return the connection of the driver, after its transaction has begun."""
    found: Any = connection
    if _is_django(found):
        if not found.in_atomic_block:
            raise FailedPrecondition(
                "connection: no transaction has begun on it; use `with transaction.atomic():`"
            )
        if found.needs_rollback:
            raise FailedPrecondition(_FAILED)
        found.ensure_connection()
        return found.connection
    if _is_any(found, _SESSIONS):
        found = found.connection()
    if _is_a(found, "sqlalchemy.engine", "Connection"):
        found.exec_driver_sql("SELECT 1").close()  # begins the transaction of the driver
        return found.connection.driver_connection
    return found


async def _unwrap_async(connection: object) -> Any:
    found: Any = connection
    if _is_any(found, _ASYNC_WRAPPERS[:2]):
        found = await found.connection()
    if _is_any(found, _ASYNC_WRAPPERS[2:]):
        await found.exec_driver_sql("SELECT 1")  # begins the transaction of the driver
        return (await found.get_raw_connection()).driver_connection
    return found


def _translate_error(error: BaseException) -> BaseException:
    """Return a clearer error for a transaction that had failed before the call; others stay as they are."""
    failed = getattr(error, "sqlstate", None) == _IN_FAILED_TRANSACTION
    return FailedPrecondition(_FAILED) if failed else error


def _is_django(connection: Any) -> bool:
    return "django.db" in sys.modules and hasattr(connection, "in_atomic_block")


def _is_a(value: object, module: str, name: str) -> bool:
    """Return whether a value is of this class, if the program has imported its module."""
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(value, kind)


def _is_any(value: object, classes: Sequence[tuple[str, str]]) -> bool:
    return any(_is_a(value, module, name) for module, name in classes)


def _check_kind(given: str, own: str) -> None:
    if given != own:
        raise InvalidArgument(_OTHER_KIND.format(given=_NAMES[given], own=_NAMES[own]))


def _call(step: Step, db: sqlite3.Connection) -> Any:
    assert callable(step)
    return step(db)


def _async(execute: Execute) -> ExecuteAsync:
    async def run(step: Step) -> Any:
        return execute(step)

    return run


# --- PostgreSQL -----------------------------------------------------------------------------------------


async def _execute_asyncpg(connection: Any, step: Step) -> Any:
    assert isinstance(step, Sql)
    if not step.args:
        return await connection.execute(step.text)
    return [tuple(row) for row in await connection.fetch(step.text, *step.args)]


def _check_psycopg(connection: Any) -> None:
    status = connection.info.transaction_status.name
    if status == "INERROR":
        raise FailedPrecondition(_FAILED)
    if status == "IDLE" and connection.autocommit:
        raise FailedPrecondition(_AUTOCOMMIT)


def _execute_psycopg(connection: Any, step: Step) -> Any:
    assert isinstance(step, Sql)
    psycopg = sys.modules["psycopg"]
    with psycopg.RawCursor(connection, row_factory=psycopg.rows.tuple_row) as cursor:
        cursor.execute(step.text, step.args or None, prepare=False)
        return cursor.fetchall() if cursor.description else []


async def _execute_psycopg_async(connection: Any, step: Step) -> Any:
    assert isinstance(step, Sql)
    psycopg = sys.modules["psycopg"]
    async with psycopg.AsyncRawCursor(connection, row_factory=psycopg.rows.tuple_row) as cursor:
        await cursor.execute(step.text, step.args or None, prepare=False)
        return await cursor.fetchall() if cursor.description else []


def _check_psycopg2(connection: Any) -> None:
    status = connection.info.transaction_status
    if status == 3:  # INERROR
        raise FailedPrecondition(_FAILED)
    if status == 0 and connection.autocommit:  # IDLE
        raise FailedPrecondition(_AUTOCOMMIT)


def _execute_psycopg2(connection: Any, step: Step) -> Any:
    assert isinstance(step, Sql)
    extensions = sys.modules["psycopg2.extensions"]
    text = re.sub(r"\$(\d+)", r"%(a\1)s", step.text.replace("%", "%%"))
    args = {f"a{number}": value for number, value in enumerate(step.args, 1)}
    with connection.cursor(cursor_factory=extensions.cursor) as cursor:
        cursor.execute(text, args) if args else cursor.execute(step.text)
        return cursor.fetchall() if cursor.description else []
