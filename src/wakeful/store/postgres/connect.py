"""Connections to PostgreSQL: to the first of several servers that accepts writes, and never for ever.

A server that vanished without closing its connections gives no error. So the next server is tried while the
first does not respond, and the operating system closes a connection whose other end is silent.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeAlias

import asyncpg

from wakeful.errors import FailedPrecondition
from wakeful.store.postgres.address import Address, Host
from wakeful.store.postgres.builtin_types import Connection
from wakeful.values.process_share import current_share

if TYPE_CHECKING:
    Raw: TypeAlias = asyncpg.Connection[asyncpg.Record]

CONNECT_S: Final = 10
ANSWER_S: Final = 30
#: how long to wait for a server before the next is tried as well
_NEXT_HOST_S: Final = 1.0

#: The oldest version that the tests cover.
OLDEST_SERVER: Final = 15

#: A connection whose other end does not respond is closed by the operating system after about 15 seconds.
_TCP_OPTIONS: Final = {
    "TCP_KEEPIDLE": 5,
    "TCP_KEEPINTVL": 5,
    "TCP_KEEPCNT": 2,
    "TCP_USER_TIMEOUT": 15_000,
}

_READ_ONLY: Final = "it is read-only (a standby, or default_transaction_read_only is set)"


class Connector:
    """Connects to the servers of an address: first to the one that responded last."""

    def __init__(self, address: Address) -> None:
        self._dsn = address.dsn
        # An option of the address is the operator's own name.
        self._named = (
            {} if address.application_name else {"application_name": current_share().connection_name}
        )
        self._hosts = list(address.hosts)

    async def connect(self, *_: object, **__: object) -> Raw:
        """Return a connection. The arguments are those of a pool, which calls this, and are not used."""
        if len(self._hosts) < 2:
            try:
                return await self._connect_to(None)
            except asyncpg.TargetServerAttributeNotMatched as error:
                raise ConnectionError(_READ_ONLY) from error
        return await self._first_of(list(self._hosts))

    async def _first_of(self, untried: list[Host]) -> Raw:
        waiting: dict[asyncio.Task[Raw], Host] = {}
        failures: dict[Host, BaseException] = {}
        try:
            while untried or waiting:
                if untried:
                    host = untried.pop(0)
                    waiting[asyncio.create_task(self._connect_to(host))] = host
                done, _ = await asyncio.wait(
                    waiting,
                    timeout=_NEXT_HOST_S if untried else None,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                for task in done:
                    error = task.exception()
                    if error is None:
                        host = waiting.pop(task)
                        self._hosts.sort(key=lambda other: other != host)
                        return task.result()
                    failures[waiting.pop(task)] = error
        finally:
            for task in waiting:
                task.add_done_callback(_discard)
                task.cancel()
        causes = "; ".join(f"{host}: {_cause(error)}" for host, error in failures.items())
        raise ConnectionError(causes) from next(iter(failures.values()))

    async def _connect_to(self, host: Host | None) -> Raw:
        connection = await asyncpg.connect(
            self._dsn,
            host=host and host.name,
            port=host and host.port,
            timeout=CONNECT_S,
            command_timeout=ANSWER_S,
            connection_class=Connection,
            server_settings=self._named,
        )
        _close_if_silent(connection)
        return connection


def _discard(task: asyncio.Task[Raw]) -> None:
    """Close a connection that is not needed any more."""
    if not task.cancelled() and task.exception() is None:
        task.result().terminate()


def _cause(error: BaseException) -> str:
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        return _READ_ONLY
    return str(error) or ("no response" if isinstance(error, TimeoutError) else type(error).__name__)


def _close_if_silent(connection: Raw) -> None:
    """Have the operating system check that the other end of a TCP connection still exists."""
    transport: asyncio.Transport = connection._transport  # type: ignore[attr-defined]
    sock = transport.get_extra_info("socket")
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    with suppress(OSError):  # a closed socket: the next statement says so
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _TCP_OPTIONS.items():
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def check_version(connection: Raw, address: Address) -> None:
    """Raise FailedPrecondition if the server is older than what the tests cover."""
    if connection.get_server_version().major < OLDEST_SERVER:
        version = connection.get_settings().server_version.split()[0]
        raise FailedPrecondition(
            f"the server of {address.shown} runs PostgreSQL {version}; Wakeful needs PostgreSQL "
            f"{OLDEST_SERVER} or newer: upgrade the server, or use another"
        )
