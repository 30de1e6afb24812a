"""Servers that become read-only, fall silent or are promoted: the store finds the one that accepts writes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest

from tests.support.factories import FalseClock, job
from tests.support.notifications import NotificationRecorder
from tests.support.postgres_cluster import Cluster, cluster, wait_for
from tests.support.waiting import PATIENCE, eventually
from wakeful.errors import Unavailable
from wakeful.store.postgres import PostgresStore
from wakeful.store.postgres.session import Db, savepoint
from wakeful.store.sql.driver import urgent


@pytest.fixture
def primary() -> Iterator[Cluster]:
    """Run a server."""
    with cluster() as made:
        yield made


@pytest.fixture
def standby(primary: Cluster) -> Iterator[Cluster]:
    """Run a standby of it."""
    made = primary.standby()
    yield made
    made.remove()


def store_on(*servers: Cluster) -> PostgresStore:
    hosts = ",".join(f"127.0.0.1:{server.port}" for server in servers)
    return PostgresStore(f"postgresql://postgres@{hosts}/postgres", clock=FalseClock())


async def responds(store: PostgresStore) -> bool:
    try:
        await store.ping()
    except Unavailable:
        return False
    return True


async def created(store: PostgresStore, name: str) -> bool:
    try:
        await store.create_jobs([job(name)])
    except Unavailable:
        return False
    return True


async def test_a_server_that_becomes_read_only_is_reported_until_it_accepts_writes(primary: Cluster) -> None:
    store = store_on(primary)
    await store.open()
    await primary.execute("ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()")
    await eventually(lambda: _not_responding(store))
    with pytest.raises(Unavailable, match=r"read-only"):
        await store.ping()
    with pytest.raises(Unavailable, match=r"read-only"):
        await store.create_jobs([job()])
    refused = store_on(primary)
    with pytest.raises(Unavailable, match=r"cannot use the database 127.0.0.1/postgres: it is read-only \("):
        await refused.open()
    await refused.close()
    await _writable(primary)
    await eventually(lambda: created(store, "later"))
    await eventually(lambda: responds(store))
    await store.close()


async def _not_responding(store: PostgresStore) -> bool:
    return not await responds(store)


async def _writable(server: Cluster) -> None:
    import asyncpg

    connection = await asyncpg.connect(server.url())
    await connection.execute("SET default_transaction_read_only = off")
    await connection.execute("ALTER SYSTEM RESET default_transaction_read_only")
    await connection.execute("SELECT pg_reload_conf()")
    await connection.close()


async def test_a_standby_is_not_used(primary: Cluster, standby: Cluster) -> None:
    await wait_for(primary, "SELECT state = 'streaming' FROM pg_stat_replication")
    alone = store_on(standby)
    with pytest.raises(Unavailable, match=r"it is read-only \(a standby"):
        await alone.open()
    await alone.close()
    store = store_on(standby, primary)
    await store.open()
    assert await created(store, "digest")
    await wait_for(primary, "SELECT replay_lsn >= pg_current_wal_lsn() FROM pg_stat_replication")
    await asyncio.to_thread(primary.kill)
    await eventually(lambda: _not_responding(store))
    with pytest.raises(Unavailable, match=rf"{primary.port}: .*{standby.port}: it is read-only "):
        await eventually(lambda: store.ping())
    await standby.query("SELECT pg_promote()")
    await eventually(lambda: responds(store))
    assert await store.job("default", "default", "digest") is not None
    await store.close()


async def test_a_silent_server_does_not_keep_calls_from_another(
    primary: Cluster, standby: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The processes of the primary are suspended: connections stay open, and nothing responds."""
    monkeypatch.setattr("wakeful.store.postgres.connect.ANSWER_S", 2)
    await wait_for(primary, "SELECT state = 'streaming' FROM pg_stat_replication")
    store, other = store_on(primary, standby), store_on(primary, standby)
    recorder = NotificationRecorder()
    async with AsyncExitStack() as stack:
        for each in (store, other):
            stack.push_async_callback(each.close)  # open connections would fail the next test
            await each.open()
        other.listen(recorder)
        assert await created(store, "before")
        await wait_for(primary, "SELECT replay_lsn >= pg_current_wal_lsn() FROM pg_stat_replication")
        await asyncio.to_thread(primary.freeze)
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert not await created(store, "lost")
        assert loop.time() - began < PATIENCE / 4, "calls do not hang"
        await standby.query("SELECT pg_promote()")
        await eventually(lambda: created(store, "after"))
        await eventually(lambda: responds(other))
        await recorder.next_event("jobs", "runs")  # its listener is connected again
        assert await created(store, "notified")
        await recorder.next_event("jobs")


async def test_a_call_that_is_cancelled_does_not_wait_for_a_silent_server(primary: Cluster) -> None:
    """It ends as cancelled, and not with the error of its connection: a loop that is stopped ends."""
    pool = store_on(primary)._pool
    await pool.open()

    async def sleep(db: Db, *_: object) -> None:
        await db.fetchval("SELECT pg_sleep(60)")

    async def sleep_in_savepoint(db: Db, _: object) -> None:
        async with savepoint(db):
            await sleep(db)

    calls = [
        asyncio.ensure_future(call)
        for call in (
            pool.read(sleep), pool.write(sleep), pool.write(sleep_in_savepoint), pool.write_at_once(sleep),
        )
    ]  # fmt: skip
    await wait_for(primary, f"SELECT count(*) = {len(calls)} FROM pg_stat_activity WHERE query LIKE '%(60)'")
    await asyncio.to_thread(primary.freeze)
    for call in calls:
        call.cancel()
    async with asyncio.timeout(PATIENCE / 4):
        await asyncio.wait(calls)
    assert [call.cancelled() for call in calls] == [True] * len(calls)
    assert pool._shared._value == pool._shared_size - len(calls), "others do not wait for their connections"
    assert pool._pool is not None
    pool._pool.terminate()


@pytest.mark.parametrize("others", ["", ",127.0.0.1:1"])
async def test_calls_share_the_connections_of_a_server_that_accepts_no_more(
    primary: Cluster, others: str
) -> None:
    """A call waits for the connection of another one. Urgent calls are the next to get it."""
    pool = store_on(primary)._pool
    await pool.open()
    await primary.execute(
        "CREATE ROLE few LOGIN",
        "GRANT USAGE ON SCHEMA wakeful TO few",
        "GRANT SELECT ON ALL TABLES IN SCHEMA wakeful TO few",
    )
    await pool.close()
    url = primary.url(user="few").replace("/postgres", f"{others}/postgres")
    pool = PostgresStore(url, clock=FalseClock())._pool
    await pool.open()
    kept = pool._pool
    assert kept is not None
    go_on, order, used = asyncio.Event(), list[str](), set[int]()

    async def use(db: Db, *_: object) -> None:
        used.add(await db.fetchval("SELECT pg_backend_pid()"))
        await go_on.wait()

    async def fail(db: Db, _: object) -> None:
        raise ValueError("no")

    async def call(name: str) -> None:
        await pool.read(use)
        order.append(name)

    async def fail_later() -> None:
        with pytest.raises(ValueError, match="no"):
            await pool.write(fail)

    await pool.read(lambda db: db.execute("SELECT 1"))
    await primary.execute("ALTER ROLE few CONNECTION LIMIT 1")
    async with asyncio.timeout(PATIENCE):
        first = asyncio.create_task(call("first"))
        await eventually(lambda: bool(used))
        calls = []
        for waiting in (call("second"), call("third"), fail_later(), call("fourth"), urgent(call)("urgent")):
            calls.append(asyncio.create_task(waiting))
            await eventually(lambda: len(kept._refused) == len(calls))
        calls[1].cancel()
        go_on.set()
        await asyncio.gather(first, calls[0], *calls[2:])
    assert order == ["first", "urgent", "second", "fourth"]
    assert len(used) == 1, "a connection that works is not replaced"
    assert pool._shared._value == pool._shared_size
    await primary.execute("ALTER ROLE few CONNECTION LIMIT 0")
    await pool.expire()
    with pytest.raises(Unavailable, match="too many connections"):
        await pool.read(use)
    async with asyncio.timeout(PATIENCE):
        await pool.close()


async def test_a_fresh_store_finds_the_server_that_responds(primary: Cluster) -> None:
    with socket.socket() as silent:  # accepts connections, and never responds
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        hosts = f"127.0.0.1:{silent.getsockname()[1]},127.0.0.1:{primary.port}"
        store = PostgresStore(f"postgresql://postgres@{hosts}/postgres", clock=FalseClock())
        await store.open()
        assert await created(store, "digest")
        await store.close()


async def test_connections_are_watched_by_the_operating_system(primary: Cluster) -> None:
    store = store_on(primary)
    await store.open()
    async with store._pool._acquire() as db:
        sock = db._con._transport.get_extra_info("socket")  # type: ignore[attr-defined]
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 15_000
    await store.close()


async def test_limits_of_the_role_do_not_disturb(primary: Cluster) -> None:
    await primary.execute(
        "ALTER ROLE postgres SET idle_session_timeout = '300ms'",
        "ALTER ROLE postgres SET statement_timeout = '5s'",
        "ALTER ROLE postgres SET default_transaction_isolation = 'serializable'",
    )
    store = store_on(primary)
    await store.open()
    assert await created(store, "digest")
    sessions = {store._listener._server_pid, *store._pool._ours}
    assert len(sessions) == 2
    await asyncio.sleep(0.6)  # longer than the limit
    assert sessions <= set(await primary.query("SELECT pid FROM pg_stat_activity"))
    async with store._pool._acquire() as db:
        assert await db.fetchval("SHOW transaction_isolation") == "read committed"
    await store.ping()
    await store.close()
