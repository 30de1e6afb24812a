"""A connection that receives the notifications of other processes and reads the database's clock.

A broken connection is replaced, with increasing delays. Then all topics are published, since notifications
may have been missed; a missed stop of a run shows in the next heartbeat. Meanwhile the clock runs on by
itself. A connection to a server that has become read-only, or whose session a pooler shares with others,
counts as broken.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any, Final

from wakeful.errors import FailedPrecondition, Unavailable
from wakeful.logs import get_logger
from wakeful.store.accounts import KEYS_TOPIC
from wakeful.store.changelog import PULL_RUNS, RUNS
from wakeful.store.instances import INSTANCES_TOPIC
from wakeful.store.postgres.connect import CONNECT_S, Raw
from wakeful.store.postgres.connection import BROKEN, Pool
from wakeful.store.postgres.session_check import LOST_STATEMENT, SharedSessions
from wakeful.values.clock import SteeredClock

#: how often the clock is read and the connection checked
EVERY_S: Final = 3.0
_FIRST_DELAY_S: Final = 0.1
_CLOSE_S: Final = 3.0
_LONGEST_DELAY_S: Final = 5.0
_SAMPLES: Final = 3
_CHECK: Final = """
    SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, pg_backend_pid(),
        current_setting('transaction_read_only')"""

log = get_logger("wakeful.store")
#: The topics without an object: all that may be missed while a process receives no notifications.
TOPICS: Final = (
    "jobs", RUNS, PULL_RUNS, "budget_blocks", "incidents", "sessions", "deliveries", "verifications",
    INSTANCES_TOPIC, KEYS_TOPIC,
)  # fmt: skip


class Listener:
    """Receives notifications, and steers the clock."""

    def __init__(self, pool: Pool, clock: SteeredClock | None) -> None:
        self._pool = pool
        self._clock = clock
        self._connection: Raw | None = None
        self._server_pid = 0
        self._task: asyncio.Task[None] | None = None
        #: why the database cannot be used although it responds
        self.problem: str | None = None

    async def start(self) -> None:
        """Connect. From then on no notification is missed, and the clock is right.

        FailedPrecondition: a pooler shares the sessions of the server, or drops notifications.
        """
        self._connection = await self._connect()
        self._task = asyncio.create_task(self._run(self._connection), name="wakeful-postgres-listener")

    async def stop(self) -> None:
        """Disconnect."""
        try:
            if self._task is not None:
                task, self._task = self._task, None
                task.cancel()
                await asyncio.wait([task])
        finally:
            if self._connection is not None:
                connection, self._connection = self._connection, None
                with suppress(*BROKEN):
                    await connection.close(timeout=_CLOSE_S)

    async def _run(self, connection: Raw) -> None:
        while True:
            try:
                await self._wait(connection)
            except Exception as error:  # a new connection helps in any case
                self._report(error)
            connection.terminate()
            await self._pool.expire()  # the server may be gone without a word
            self._connection = connection = await self._reconnect()
            await self._pool.expire()  # those that a pooler connected meanwhile may share sessions
            log.info("store.listener_restored")
            self._pool.notify(TOPICS)

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
                connection = await self._connect()
            except Exception as error:
                if isinstance(error, FailedPrecondition) and self.problem != error.message:
                    self._report(error)
                delay = min(2 * delay, _LONGEST_DELAY_S)
            else:
                self.problem = None
                return connection

    def _report(self, error: Exception) -> None:
        if isinstance(error, LOST_STATEMENT):
            error = SharedSessions(self._pool.address.masked)
        self.problem = error.message if isinstance(error, FailedPrecondition) else None
        log.warning("store.listener_lost", error=str(error) or type(error).__name__)

    async def _connect(self) -> Raw:
        connection = await self._pool.connect_checked()
        try:
            await connection.execute("SET idle_session_timeout = 0")
            await connection.add_listener(self._pool.address.schema, self._on_notification)
            self._server_pid = 0
            await self._steer(connection)
        except BaseException:
            connection.terminate()
            raise
        return connection

    def _on_notification(self, _connection: Any, pid: int, _channel: str, topic: object) -> None:
        if not self._pool.is_ours(pid):  # this process has called its own listeners
            self._pool.notify([str(topic)])

    async def _steer(self, connection: Raw) -> None:
        """Read the database's clock; of several samples the one with the least delay counts.

        Unavailable: the server has become read-only. SharedSessions: the session is another one.
        """
        best = None
        for _ in range(_SAMPLES if self._clock else 1):
            now_us, pid, read_only = await connection.fetchrow(_CHECK)  # type: ignore[misc]
            ahead_ns = now_us * 1000 - time.monotonic_ns()
            best = ahead_ns if best is None else max(best, ahead_ns)
            if pid != (self._server_pid or pid):
                raise SharedSessions(self._pool.address.masked)
            if read_only == "on":
                raise Unavailable(f"the server of {self._pool.address.masked} has become read-only")
            self._server_pid = pid
        if self._clock is not None and best is not None:
            self._clock.steer((best + time.monotonic_ns()) // 1000)
