"""Connections are kept between calls: none is lost, held back, or used by two calls at once."""

from __future__ import annotations

import asyncio
from random import Random

import asyncpg
import pytest
from asyncpg.pool import PoolConnectionProxy

from tests.store.postgres.saying import throw_out
from tests.support.effort import cases
from tests.support.waiting import PATIENCE, eventually
from wakeful.errors import Unavailable
from wakeful.store.changelog import TransactionEvents
from wakeful.store.postgres import kept_connections
from wakeful.store.postgres.changelog import AuditHeads, OneStatement
from wakeful.store.postgres.connection import Pool
from wakeful.store.postgres.kept_connections import KeptConnections
from wakeful.store.postgres.session import Db
from wakeful.store.sql.driver import current_tenant, urgent


async def _pool(url: str, size: int) -> Pool:
    pool = Pool(f"{url}{'&' if '?' in url else '?'}pool_size={size}")
    await pool.open()
    return pool


def _kept(pool: Pool) -> KeptConnections:
    assert pool._pool is not None
    return pool._pool


async def _backend(db: Db) -> int:
    pid: int = await db.fetchval("SELECT pg_backend_pid()")
    return pid


async def test_a_connection_is_kept_for_the_next_call(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_connections, "KEPT_S", 60)
    pool = await _pool(url, 4)
    assert await pool.read(_backend) == await pool.read(_backend)
    assert len(_kept(pool)._kept) == 1
    async with asyncio.timeout(PATIENCE):
        await pool.close()  # it does not wait for a kept connection


async def test_a_kept_connection_returns_to_the_pool(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_connections, "KEPT_S", 0.01)
    pool = await _pool(url, 4)
    await pool.read(_backend)
    await eventually(lambda: not _kept(pool)._kept and _kept(pool).pool.get_idle_size() == 1)
    await pool.close()


async def _plans(db: Db) -> str:
    return str(await db.fetchval("SHOW plan_cache_mode"))


async def _plans_at_once(db: Db, heads: AuditHeads, channel: str) -> OneStatement[str] | None:
    return OneStatement(await _plans(db), (), {})


async def _fail(db: Db, heads: AuditHeads, channel: str) -> OneStatement[str] | None:
    raise Unavailable("no")


async def test_a_call_of_one_statement_succeeds_although_its_connection_ends_afterwards(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_connections, "KEPT_S", 60)
    pool = await _pool(url, 2)

    async def end(db: Db, heads: AuditHeads, channel: str) -> OneStatement[str] | None:
        await pool.expire()  # it returns to the pool after this call
        await throw_out(url)
        return OneStatement("written", (), {})

    assert await pool.write_at_once(end) == "written"
    assert await pool.read(_plans) == "force_custom_plan"
    await pool.close()


@pytest.mark.parametrize("size", [2, 4])
async def test_only_calls_of_one_statement_keep_plans(
    url: str, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(kept_connections, "KEPT_S", 60)
    pool = await _pool(url, size)
    chance = Random(size)
    for _ in range(40):
        step = chance.randrange(4)
        if step == 0:
            assert await pool.read(_plans) == "force_custom_plan"
        elif step == 1:
            assert await pool.write_at_once(_plans_at_once) == "force_generic_plan"
        elif step == 2:
            _kept(pool).return_all()
        else:
            with pytest.raises(Unavailable):
                await pool.write_at_once(_fail)
    reading = asyncio.create_task(pool.read(_plans))
    assert await pool.write_at_once(_plans_at_once) == "force_generic_plan"
    assert await reading == "force_custom_plan"
    await pool.close()


async def test_a_connection_that_ends_while_it_is_kept_is_replaced(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_connections, "KEPT_S", 60)
    pool = await _pool(url, 2)
    first = await pool.read(_backend)
    await throw_out(url)
    (db,) = _kept(pool)._kept
    await eventually(lambda: not kept_connections._is_open(db))
    assert await pool.read(_backend) != first
    await pool.close()


async def test_a_connection_that_keeps_plans_and_ends_is_replaced(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_connections, "KEPT_S", 60)
    pool = await _pool(url, 2)
    for generic in (False, True):
        assert await pool.write_at_once(_plans_at_once) == "force_generic_plan"
        (db,) = _kept(pool)._kept
        await throw_out(url)
        await eventually(lambda: not kept_connections._is_open(db))  # noqa: B023
        if generic:
            assert await pool.write_at_once(_plans_at_once) == "force_generic_plan"
        else:
            assert await pool.read(_plans) == "force_custom_plan"
        _kept(pool).return_all()
        await eventually(lambda: not _kept(pool)._returns)
    assert not _kept(pool)._generic
    await pool.close()


@pytest.mark.parametrize("how", ["cancelled", "cut", "confused"])
async def test_a_connection_that_keeps_plans_is_not_lost_on_its_way_back(
    url: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its setting changes first, which a cancelled call does not wait for."""
    pool = await _pool(url, 2)

    async def lose_track(db: Db, statement: str, **_: float) -> None:
        monkeypatch.undo()
        raise asyncpg.InternalClientError("got result for unknown protocol state 0")

    async def stop(db: Db, heads: AuditHeads, channel: str) -> OneStatement[int] | None:
        _kept(pool)._fresh.clear()  # expired: it returns to the pool
        if how == "cut":
            await throw_out(url)
        elif how == "confused":
            monkeypatch.setattr(PoolConnectionProxy, "execute", lose_track)
        else:
            task = asyncio.current_task()
            assert task is not None
            asyncio.get_running_loop().call_soon(task.cancel)
        return OneStatement(7, (), {})

    async def write() -> int | None:
        written = await pool.write_at_once(stop)
        return written

    for _ in range(3):
        call: asyncio.Task[int | None] = asyncio.create_task(write())
        async with asyncio.timeout(PATIENCE):
            await asyncio.wait([call])
        if how != "cancelled":
            assert call.result() == 7, "it is written"
    kept = _kept(pool)
    await eventually(lambda: kept.pool.get_size() == kept.pool.get_idle_size() + len(kept._kept))
    assert await asyncio.wait_for(pool.read(_plans), PATIENCE) == "force_custom_plan"
    async with asyncio.timeout(PATIENCE):
        await pool.close()


async def test_a_call_that_is_cancelled_when_its_connection_began_to_keep_plans(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = await _pool(url, 2)
    await pool.read(_plans)
    real = PoolConnectionProxy.execute

    async def execute(db: Db, statement: str) -> None:
        await real(db, statement)
        raise asyncio.CancelledError

    with monkeypatch.context() as patched:
        patched.setattr(PoolConnectionProxy, "execute", execute)
        with pytest.raises(asyncio.CancelledError):
            await pool.write_at_once(_plans_at_once)
    assert await pool.read(_plans) == "force_custom_plan"
    await pool.close()


async def test_a_connection_that_expires_while_it_is_used_is_not_kept(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_connections, "KEPT_S", 60)
    pool = await _pool(url, 2)

    async def expire(db: Db) -> int:
        await pool.expire()
        return await _backend(db)

    expired = await pool.read(expire)
    assert await pool.read(_backend) != expired
    assert len(_kept(pool)._kept) == 1
    await pool.close()


async def test_a_call_that_waits_gets_the_next_connection(url: str) -> None:
    """Urgent calls use all connections; another one waits until one of them ends."""
    pool = await _pool(url, 2)
    go_on = [asyncio.Event() for _ in range(3)]

    @urgent
    async def call(number: int) -> None:
        async def wait(db: Db) -> None:
            await go_on[number].wait()

        await pool.read(wait)

    calls = [asyncio.create_task(call(number)) for number in range(3)]
    await eventually(lambda: _kept(pool)._waiting == 1)
    for event in (go_on[2], go_on[0]):
        event.set()
    async with asyncio.timeout(PATIENCE):
        await calls[2]
    go_on[1].set()
    await asyncio.gather(*calls)
    await pool.close()


@pytest.mark.parametrize("seed", range(cases(6, 60)))
async def test_calls_that_fail_or_are_cancelled_lose_no_connection(url: str, seed: int) -> None:
    random, pool = Random(seed), await _pool(url, 3)
    in_use: set[int] = set()

    async def use(db: Db, how: str) -> None:
        pid = await _backend(db)
        assert pid not in in_use, "two calls use one connection"
        in_use.add(pid)
        try:
            if how == "slow":
                await db.fetchval("SELECT pg_sleep(0.02)")
            elif how == "wrong":
                raise ValueError
            elif how == "cut":
                db.terminate()
            await asyncio.sleep(0)
        finally:
            in_use.remove(pid)

    async def write(db: Db, events: TransactionEvents, how: str) -> None:
        await use(db, how)

    async def call() -> None:
        current_tenant.set(random.choice([None, "acme", "other"]))
        how = random.choice(["quick", "quick", "slow", "wrong", "cut"])
        await asyncio.sleep(random.random() / 20)
        if random.random() < 0.3:
            await pool.write(write, how)
        else:
            await pool.read(use, how)

    tasks = [asyncio.create_task(call()) for _ in range(40)]
    for task in tasks:
        if random.random() < 0.3:
            await asyncio.sleep(random.random() / 100)
            task.cancel()
        if random.random() < 0.05:
            await pool.expire()
    async with asyncio.timeout(PATIENCE):
        results = await asyncio.gather(*tasks, return_exceptions=True)
    for result in results:
        assert result is None or isinstance(result, ValueError | Unavailable | asyncio.CancelledError), result
    kept = _kept(pool)
    await eventually(lambda: not kept._returns)
    assert pool._shared._value == pool._shared_size
    await eventually(lambda: kept.pool.get_size() == kept.pool.get_idle_size() + len(kept._kept))
    assert [await asyncio.wait_for(pool.read(_backend), PATIENCE) for _ in range(3)]
    async with asyncio.timeout(PATIENCE):
        await pool.close()
