"""The calls of one tenant leave a part of the database to those of others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.support.factories import FalseClock
from tests.support.waiting import PATIENCE
from wakeful.errors import Unavailable
from wakeful.store.sql.driver import current_tenant
from wakeful.store.sqlite import SqliteStore

if TYPE_CHECKING:
    from wakeful.store.postgres import PostgresStore

MANY: Final = 60


def _as_tenant(name: str, call: Callable[[], Awaitable[object]]) -> asyncio.Task[object]:
    async def run() -> object:
        current_tenant.set(name)
        return await call()

    return asyncio.create_task(run())


@pytest.fixture
async def postgres_store() -> AsyncIterator[PostgresStore]:
    server = pytest.importorskip("tests.support.postgres_server")
    from wakeful.store.postgres import PostgresStore

    store = PostgresStore(server.fresh_database(), clock=FalseClock())
    await store.open()
    yield store
    await store.close()


async def test_a_tenant_whose_requests_wait_leaves_connections_to_others(
    postgres_store: PostgresStore,
) -> None:
    go_on = asyncio.Event()

    async def wait(_: Any) -> None:
        await go_on.wait()

    requests = [_as_tenant("acme", lambda: postgres_store._pool.read(wait)) for _ in range(MANY)]
    try:
        async with asyncio.timeout(PATIENCE):  # a call that waits for a connection is refused after 10 s
            await asyncio.sleep(0.1)
            await _as_tenant("other", lambda: postgres_store.workspace("default"))
            await postgres_store.workspace("default")
    finally:
        go_on.set()
        await asyncio.gather(*requests, return_exceptions=True)


async def test_calls_of_another_tenant_are_executed_between_those_of_one(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "wakeful.db")
    await store.open()
    done: list[str] = []

    async def slow(_: Any, *events: Any) -> None:
        time.sleep(0.005)  # noqa: ASYNC251 - it runs in a thread

    async def call(name: str, method: Callable[[Any], Awaitable[object]]) -> None:
        await method(slow)
        done.append(name)

    for method in (store._connection.read, store._connection.write):
        done.clear()
        calls = [_as_tenant("acme", lambda m=method: call("acme", m)) for _ in range(MANY)]  # type: ignore[misc]
        await asyncio.sleep(0.02)
        await _as_tenant("other", lambda m=method: call("other", m))  # type: ignore[misc]
        assert done.index("other") < MANY / 2
        await asyncio.gather(*calls)
    calls = [_as_tenant("acme", lambda: call("acme", store._connection.write)) for _ in range(MANY)]
    await asyncio.sleep(0.02)
    await store.close()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(each) for each in results} == {type(None), Unavailable}
