"""A connection that receives the notifications of other processes and reads the database's clock.

A broken connection is replaced, with increasing delays. Then `jobs` and `runs` are published, since
notifications may have been missed. Meanwhile the clock runs on by itself.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from wakeful.clock import SteeredClock
from wakeful.logs import get_logger
from wakeful.store.postgres.connection import BROKEN, CONNECT_S, Pool

if TYPE_CHECKING:
    from wakeful.store.postgres.connection import Raw

#: how often the clock is read and the connection checked
EVERY_S: Final = 3.0
_FIRST_DELAY_S: Final = 0.1
_LONGEST_DELAY_S: Final = 5.0
_SAMPLES: Final = 3
_NOW_US: Final = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"

log = get_logger("wakeful.store")


class Listener:
    """Receives notifications, and steers the clock."""

    def __init__(self, pool: Pool, clock: SteeredClock | None) -> None:
        self._pool = pool
        self._clock = clock
        self._connection: Raw | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Connect. From then on no notification is missed, and the clock is right."""
        self._connection = await self._connect()
        self._task = asyncio.create_task(self._run(self._connection), name="wakeful-postgres-listener")

    async def stop(self) -> None:
        """Disconnect."""
        if self._task is not None:
            task, self._task = self._task, None
            task.cancel()
            await asyncio.wait([task])
        if self._connection is not None:
            connection, self._connection = self._connection, None
            with suppress(*BROKEN):
                await connection.close(timeout=CONNECT_S)

    async def _run(self, connection: Raw) -> None:
        while True:
            try:
                await self._wait(connection)
            except Exception as error:  # a new connection helps in any case
                log.warning("store.listener_lost", error=str(error) or type(error).__name__)
            connection.terminate()
            self._connection = connection = await self._reconnect()
            log.info("store.listener_restored")
            self._pool.notify(["jobs", "runs"])

    async def _wait(self, connection: Raw) -> None:
        """Wait until the connection breaks. Notifications arrive by callback."""
        broken = asyncio.Event()
        connection.add_termination_listener(lambda _: broken.set())
        while not connection.is_closed():
            try:
                async with asyncio.timeout(EVERY_S):
                    await broken.wait()
            except TimeoutError:
                async with asyncio.timeout(CONNECT_S):
                    await self._steer(connection)

    async def _reconnect(self) -> Raw:
        delay = _FIRST_DELAY_S
        while True:
            await asyncio.sleep(delay)
            try:
                return await self._connect()
            except Exception:
                delay = min(2 * delay, _LONGEST_DELAY_S)

    async def _connect(self) -> Raw:
        connection = await self._pool.connect()
        try:
            await connection.add_listener(self._pool.address.schema, self._notified)
            await self._steer(connection)
        except BaseException:
            connection.terminate()
            raise
        return connection

    def _notified(self, _connection: Any, pid: int, _channel: str, topic: object) -> None:
        if not self._pool.is_ours(pid):  # this process has called its own listeners
            self._pool.notify([str(topic)])

    async def _steer(self, connection: Raw) -> None:
        """Read the database's clock; of several samples the one with the least delay counts."""
        best = None
        for _ in range(_SAMPLES if self._clock else 1):
            now_us = int(await connection.fetchval(_NOW_US))
            ahead_ns = now_us * 1000 - time.monotonic_ns()
            best = ahead_ns if best is None else max(best, ahead_ns)
        if self._clock is not None and best is not None:
            self._clock.steer((best + time.monotonic_ns()) // 1000)
