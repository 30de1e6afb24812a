"""Connection poolers: session mode works; others are refused at start, and reported while running."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import aiohttp
import asyncpg
import pytest

from tests.support.command_line import Machine, first_json
from tests.support.factories import job
from tests.support.notifications import NotificationRecorder
from tests.support.postgres_cluster import Cluster, cluster, pgbouncer
from tests.support.waiting import PATIENCE, eventually
from wakeful.errors import FailedPrecondition, Unavailable
from wakeful.store.postgres import PostgresStore
from wakeful.store.postgres.session_check import check_sessions

if TYPE_CHECKING:
    Pair: TypeAlias = tuple[asyncpg.Connection[asyncpg.Record], asyncpg.Connection[asyncpg.Record]]

REFUSED = "is a connection pooler in transaction or statement mode, which Wakeful cannot use"


@pytest.fixture(scope="module")
def server() -> Iterator[Cluster]:
    """Run a server for the poolers of this module."""
    with cluster() as made:
        yield made


@pytest.mark.parametrize("size", [1, 2, 20])
@pytest.mark.parametrize("mode", ["transaction", "statement"])
async def test_shared_sessions_are_refused_also_by_an_idle_pooler(
    server: Cluster, mode: str, size: int
) -> None:
    with pgbouncer(server, mode, size=size) as pooler:
        for _ in range(3):  # the pooler has more and more open sessions
            store = PostgresStore(pooler.url())
            with pytest.raises(FailedPrecondition, match=REFUSED):
                await store.open()
            await store.close()


async def test_shared_sessions_are_detected_while_others_use_the_pooler(server: Cluster) -> None:
    with pgbouncer(server, "transaction", size=4) as pooler:
        others = [await asyncpg.connect(pooler.url(), statement_cache_size=0) for _ in range(3)]

        async def work(connection: asyncpg.Connection[asyncpg.Record]) -> None:
            while True:
                await connection.execute("BEGIN; SELECT pg_sleep(0.002); COMMIT")

        tasks = [asyncio.create_task(work(each)) for each in others]
        for _ in range(20):
            store = PostgresStore(pooler.url())
            with pytest.raises(FailedPrecondition, match=f"{REFUSED}|notifications .* do not arrive"):
                await store.open()
            await store.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for each in others:
            each.terminate()


@pytest.fixture
async def pair(server: Cluster) -> AsyncIterator[Pair]:
    """Yield two direct connections."""
    connections = await asyncpg.connect(server.url()), await asyncpg.connect(server.url())
    yield connections
    for each in connections:
        await each.close()


async def test_lost_notifications_are_refused(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    await check_sessions(*pair, "here")
    monkeypatch.setattr("wakeful.store.postgres.session_check._NOTIFIED_S", 0.2)

    async def deaf(*_: object) -> None:
        """Listen to nothing, as a pooler that drops LISTEN."""

    monkeypatch.setattr(type(pair[0]), "add_listener", deaf)
    with pytest.raises(FailedPrecondition, match=r"notifications .* of here do not arrive"):
        await check_sessions(*pair, "here")


async def test_session_mode_works_with_notifications(server: Cluster) -> None:
    with pgbouncer(server, "session") as pooler:
        stores = [PostgresStore(f"{pooler.url()}?schema=pooled") for _ in range(2)]
        recorders = [NotificationRecorder() for _ in stores]
        for store, recorder in zip(stores, recorders, strict=True):
            await store.open()
            store.listen(recorder)
        await stores[0].create_jobs([job()])
        await recorders[1].next_event("jobs")
        assert await stores[1].job("default", "default", "digest") is not None
        assert recorders[0].topics == ["jobs"], "its own notification arrives once"
        for store in stores:
            await store.ping()
            await store.close()


def test_the_server_refuses_to_start_with_one_sentence(server: Cluster, tmp_path: Path) -> None:
    with pgbouncer(server, "transaction") as pooler:
        said = Machine(tmp_path).process("serve", "--db", pooler.url(), "--port", "0", "--wait-for-db")
    assert said.code == 5
    (line,) = [line for line in said.err.splitlines() if line]
    assert REFUSED in line


async def test_a_pooler_that_leaves_session_mode_makes_the_server_unready_until_it_returns(
    server: Cluster, tmp_path: Path
) -> None:
    with pgbouncer(server, "session") as pooler:
        process = Machine(tmp_path).start(
            "serve", "--db", f"{pooler.url()}?schema=switched", "--port", "0", "--json"
        )
        try:
            url = (await asyncio.to_thread(first_json, process))["url"]
            assert await _readiness(url) == (200, "")
            pooler.switch("transaction")
            await eventually(lambda: _is_refused(url))
            pooler.switch("session")
            await eventually(lambda: _is_ready(url))
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.stdout is not None
            process.stdout.close()
            assert await asyncio.to_thread(process.wait, PATIENCE) == 0


async def test_a_store_recovers_when_the_pooler_is_in_session_mode_again(server: Cluster) -> None:
    with pgbouncer(server, "session") as pooler:
        store = PostgresStore(f"{pooler.url()}?schema=recovered")
        await store.open()

        async def errors() -> list[BaseException]:
            """Return the errors of calls that use several connections at once."""
            calls = (store.workspace("default") if each % 2 else store.next_wake_ms() for each in range(24))
            results = await asyncio.gather(*calls, return_exceptions=True)
            return [result for result in results if isinstance(result, BaseException)]

        async def no_errors() -> bool:
            return not await errors()

        assert await errors() == []
        for _ in range(3):
            pooler.switch("transaction")
            found = [error for _ in range(20) for error in await errors()]
            assert all(isinstance(error, Unavailable) for error in found), found
            await eventually(errors)  # the connections have each other's sessions
            pooler.switch("session")
            await eventually(no_errors)
            await asyncio.sleep(0.1)
            await eventually(no_errors)
        await store.close()


async def _readiness(url: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(f"{url}/readyz") as response:
        said = await response.json()
    assert response.status in (200, 503), said
    return response.status, said.get("detail", "")


async def _is_refused(url: str) -> bool:
    return REFUSED in (await _readiness(url))[1]


async def _is_ready(url: str) -> bool:
    return (await _readiness(url))[0] == 200
