"""Connections to PostgreSQL: to the first of several servers that accepts writes, and never for ever.

A server that vanished without closing its connections gives no error. So the next server is tried while the
first does not respond, and the operating system closes a connection whose other end is silent.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Collection
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import asyncpg

from wakeful.errors import FailedPrecondition
from wakeful.store.postgres.address import Address, Host
from wakeful.values.process_share import current_share

#: A connection outside the pool.
Raw: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

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


if TYPE_CHECKING:
    Base = asyncpg.Connection[asyncpg.Record]
else:
    Base = asyncpg.Connection

#: Types with smaller object ids have the same description on every server.
_FIRST_ASSIGNED: Final = 10_000

#: All that can change in the description of a row of built-in types, and of an array of such rows.
_SUMMARY: Final = """
    SELECT string_agg(
        concat_ws(' ', t.oid, t.oid::regtype, t.typnamespace::regnamespace, t.typname, t.typtype,
            e.oid, e.oid::regtype, e.typnamespace::regnamespace, e.typname, e.typtype, e.typdelim,
            a.attname, a.atttypid),
        ',' ORDER BY t.oid, a.attnum)
    FROM pg_catalog.pg_type t
    LEFT JOIN pg_catalog.pg_type e ON e.oid = t.typelem
    LEFT JOIN pg_catalog.pg_attribute a
        ON a.attrelid = greatest(t.typrelid, e.typrelid) AND a.attnum > 0 AND NOT a.attisdropped
    WHERE t.oid = ANY($1::oid[])"""

#: The answers of servers, by the object ids of the types and their summary.
_known: dict[tuple[frozenset[int], str], list[asyncpg.Record]] = {}


class _NotExecuted(NamedTuple):
    """Takes the place of the statement: its name says that no unnamed statement was prepared."""

    name: str = "none"


class PostgresConnection(Base):
    """A connection that asks a server for the full description of types only once per process.

    Without it, each new connection asks once for each new combination of types in its statements, with a
    query on the catalog that takes about ten milliseconds of the server's time. The types of the schema are
    rows of built-in types. They can change, so a connection asks for a summary of them, which takes a third
    of that.

    What it overrides and calls is private to asyncpg. A version without `_Connection__execute` always asks.
    """

    async def _introspect_types(
        self, typeoids: Collection[int], *others: Any
    ) -> tuple[list[asyncpg.Record], Any]:
        wanted = frozenset(typeoids)
        summary: str | None = ""
        statement: Any = _NotExecuted()
        if max(wanted) >= _FIRST_ASSIGNED:
            summary, statement = await self._summary(wanted, *others)
        known = None if summary is None else _known.get((wanted, summary))
        if known is not None:
            return known, statement
        rows, statement = await super()._introspect_types(typeoids, *others)  # type: ignore[misc]
        if summary is not None and _is_summarized(wanted, rows):
            _known[wanted, summary] = rows
        return rows, statement

    async def _summary(
        self, wanted: frozenset[int], time_limit: float | None = None
    ) -> tuple[str | None, Any]:
        execute = getattr(self, "_Connection__execute", None)
        if execute is None:
            return None, _NotExecuted()
        rows, statement = await execute(_SUMMARY, (list(wanted),), 0, time_limit, ignore_custom_codec=True)
        return str(rows[0][0]), statement


def _is_summarized(wanted: frozenset[int], rows: list[asyncpg.Record]) -> bool:
    """Return whether the summary of these types has all that the rows say about types that can change."""
    covered = wanted.union(row["elemtype"] for row in rows if row["oid"] in wanted)
    return all(
        row["oid"] < _FIRST_ASSIGNED or (row["oid"] in covered and row["kind"] in (b"b", b"c"))
        for row in rows
    )


class PostgresConnector:
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
        for error in failures.values():
            if isinstance(error, asyncpg.TooManyConnectionsError):  # its other connections are well
                raise error
        causes = "; ".join(f"{host}: {_cause(error)}" for host, error in failures.items())
        raise ConnectionError(causes) from next(iter(failures.values()))

    async def _connect_to(self, host: Host | None) -> Raw:
        connection = await asyncpg.connect(
            self._dsn,
            host=host and host.name,
            port=host and host.port,
            timeout=CONNECT_S,
            command_timeout=ANSWER_S,
            connection_class=PostgresConnection,
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
            f"the server of {address.masked} runs PostgreSQL {version}; Wakeful needs PostgreSQL "
            f"{OLDEST_SERVER} or newer: upgrade the server, or use another"
        )
