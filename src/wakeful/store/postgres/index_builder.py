"""Builds the indexes that migrations leave for later, while all replicas read and write.

A migration writes their statements to `pending_indexes`, in its transaction. Every replica that opens the
database and finds rows there tries to build them, on a connection of its own. An advisory lock of that
session lets one of them do it at a time; the others look again every few seconds, so one of them continues if
the first dies. `CREATE INDEX CONCURRENTLY` that was cut off leaves an invalid index, which is dropped and
built again.

A process that ends leaves the statement to the server, which completes it and keeps the lock until then.
Nobody waits for the lock: a session that waits has a snapshot, for whose end the statement would wait.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

import asyncpg

from wakeful.errors import WakefulError
from wakeful.logs import get_logger
from wakeful.store.postgres.connect import Raw
from wakeful.store.postgres.connection import Pool
from wakeful.store.postgres.schema import has_pending

#: how long to wait while another process builds, and after an error
_AGAIN_S: Final = 5.0
_AFTER_ERROR_S: Final = 60.0
#: how long one statement may take
_BUILD_S: Final = 30 * 24 * 3_600
_SETTINGS: Final = """
    SET search_path = "{schema}";
    SET statement_timeout = 0;
    SET lock_timeout = 0;
    SET idle_session_timeout = 0"""
_PENDING: Final = "SELECT name, statement FROM pending_indexes ORDER BY name"
_LOCK: Final = "SELECT pg_try_advisory_lock(hashtextextended('wakeful.indexes.' || $1, 0))"
#: None: there is no such index
_IS_VALID: Final = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass($1)"
_DROP: Final = "DROP INDEX CONCURRENTLY {name}"
_FORGET: Final = "DELETE FROM pending_indexes WHERE name = $1"

log = get_logger("wakeful.store")


class IndexBuilder:
    """Builds pending indexes in the background of an open store."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin. The task ends when nothing is pending."""
        self._task = asyncio.create_task(self._run(), name="wakeful-index-builder")

    async def stop(self) -> None:
        """End. The server completes the index that it builds."""
        if self._task is not None:
            task, self._task = self._task, None
            task.cancel()
            await asyncio.wait([task])

    async def wait(self) -> None:
        """Wait until nothing is pending."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            again_s = _AGAIN_S
            try:
                async with self._pool.translate_errors():
                    if await self._build():
                        return
            except asyncpg.InsufficientPrivilegeError as error:
                log.warning("index.not_allowed", error=str(error))
                return
            except (WakefulError, asyncpg.PostgresError) as error:
                again_s = _AFTER_ERROR_S
                log.warning("index.not_built", error=str(error), again_in_s=again_s)
            await asyncio.sleep(again_s)

    async def _build(self) -> bool:
        """Build what is pending. False: another process builds."""
        schema = self._pool.address.schema
        connection = await self._pool.connect()
        try:
            if not await has_pending(connection, schema):
                return True
            await connection.execute(_SETTINGS.format(schema=schema))
            if not await connection.fetchval(_LOCK, schema):
                return False
            for name, statement in await connection.fetch(_PENDING):
                await _build_index(connection, name, statement)
            return True
        finally:
            connection.terminate()  # and with it the lock, unless the server still builds


async def _build_index(connection: Raw, name: str, statement: str) -> None:
    """Build an index, unless it is there."""
    is_valid = await connection.fetchval(_IS_VALID, name)
    if is_valid is False:
        log.info("index.dropped", index=name)
        await _complete(connection, _DROP.format(name=name))
    if not is_valid:
        log.info("index.building", index=name)
        await _complete(connection, statement)
        log.info("index.built", index=name)
    await connection.execute(_FORGET, name)


async def _complete(connection: Raw, statement: str) -> None:
    """Execute a statement that the server completes even if this task is cancelled."""
    executing = asyncio.ensure_future(connection.execute(statement, timeout=_BUILD_S))
    try:
        await asyncio.shield(executing)
    except asyncio.CancelledError:
        connection.terminate()  # before the driver can ask the server to stop
        with suppress(Exception):
            await executing
        raise
