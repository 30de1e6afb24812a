"""The pool of connections to PostgreSQL; and how a piece of work becomes a transaction.

Every call of the store is one transaction: committed whole, or rolled back if anything is raised. What the
work has to announce goes out with the commit: to this process at once, to the others as a notification.

Nothing hangs. A database that cannot be reached, or does not answer in time, raises Unavailable; the next
call connects anew. A transaction that lost to another (a deadlock) is done again from the start.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit

import asyncpg

from wakeful.errors import InvalidArgument, Unavailable
from wakeful.store import postgres_statements as sql
from wakeful.store.migrations import Migration, load, pending

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

    Db: TypeAlias = PoolConnectionProxy[asyncpg.Record]
    Raw: TypeAlias = asyncpg.Connection[asyncpg.Record]

T = TypeVar("T")
#: Says a topic to those who listen, if the transaction commits.
Tell = Callable[[str], None]

CONNECT_S: Final = 10
ANSWER_S: Final = 30
_TRIES: Final = 5
_EPOCH_MS: Final = 946_684_800_000  # PostgreSQL counts from the year 2000

#: What may be tried again from the start: nothing of it was done.
_LOST_TO_ANOTHER: Final = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
#: What lies with the server or the way to it.
BROKEN: Final = (
    OSError,  # and with it TimeoutError
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,  # shut down, started, cancelled
    asyncpg.InsufficientResourcesError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.LockNotAvailableError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.ReadOnlySQLTransactionError,  # what was the primary is one no more
    asyncpg.InterfaceError,
)


class Address(NamedTuple):
    """Where the database is, and the schema in it that is ours."""

    dsn: str
    schema: str

    @property
    def shown(self) -> str:
        """The address as it may stand in a message: without its password."""
        parts = urlsplit(self.dsn)
        host = parts.hostname or dict(parse_qsl(parts.query)).get("host", "localhost")
        return f"{host}{parts.path}"


def address_of(url: str) -> Address:
    """What a `postgresql://…` address names; `?schema=` is ours, the rest is the driver's.

    >>> address_of("postgresql://localhost/main?schema=night&sslmode=require")
    Address(dsn='postgresql://localhost/main?sslmode=require', schema='night')
    >>> address_of("postgresql://localhost/main").schema
    'wakeful'
    """
    parts = urlsplit(url)
    given = parse_qsl(parts.query, keep_blank_values=True)
    schema = dict(given).get("schema", "wakeful")
    if re.fullmatch(r"[a-z_][a-z0-9_]{0,47}", schema) is None:
        raise InvalidArgument(
            f"'{schema}' cannot be the schema: give a name of lower-case letters, digits and _, at most 48"
        )
    others = urlencode([(key, value) for key, value in given if key != "schema"], safe="/")
    return Address(parts._replace(query=others).geturl(), schema)


class Pool:
    """The connections, and those in this process who listen."""

    def __init__(self, url: str, size: int) -> None:
        self.address = address_of(url)
        self._size = size
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._ours: set[int] = set()
        self._heard: list[Callable[[str], None]] = []

    async def open(self) -> None:
        """Connect, and bring the schema up to date."""
        async with self.translated():
            connection = await self.connect()
            try:
                await migrate(connection, self.address.schema, load("postgres"))
            finally:
                await connection.close()
            self._pool = await asyncpg.create_pool(
                self.address.dsn,
                min_size=0,
                max_size=self._size,
                init=self._prepare,
                reset=_reset,
                timeout=CONNECT_S,
                command_timeout=ANSWER_S,
            )

    async def close(self) -> None:
        """Disconnect."""
        if self._pool is not None:
            pool, self._pool = self._pool, None
            try:
                async with asyncio.timeout(CONNECT_S):
                    await pool.close()
            except BROKEN:
                pool.terminate()

    async def connect(self) -> Raw:
        """A connection outside the pool."""
        return await asyncpg.connect(self.address.dsn, timeout=CONNECT_S, command_timeout=ANSWER_S)

    def listen(self, heard: Callable[[str], None]) -> None:
        """From now on, tell `heard` too."""
        self._heard.append(heard)

    def tell(self, topics: Sequence[str]) -> None:
        """Tell those in this process who listen."""
        for topic in topics:
            for heard in self._heard:
                heard(topic)

    def is_ours(self, pid: int) -> bool:
        """Whether the server's process of that number serves this pool."""
        return pid in self._ours

    async def read(self, work: Callable[[Db], Awaitable[T]]) -> T:
        """Do what one statement does."""
        async with self._acquired() as db:
            return await work(db)

    async def write(self, work: Callable[[Db, Tell], Awaitable[T]]) -> T:
        """Do the work in one transaction."""
        for tried in range(1, _TRIES + 1):
            topics: dict[str, None] = {}
            try:
                async with self._acquired() as db:
                    async with db.transaction():
                        result = await work(db, topics.setdefault)
                        if topics:
                            await db.execute(sql.NOTIFY, self.address.schema, list(topics))
                    self.tell(list(topics))
                    return result
            except _LOST_TO_ANOTHER as error:
                if tried == _TRIES:
                    raise Unavailable(
                        f"the database {self.address.shown} is contended: {tried} tries, and each lost "
                        f"to another transaction ({error}); try again later"
                    ) from error
        raise AssertionError("not reached")

    @asynccontextmanager
    async def _acquired(self) -> AsyncIterator[Db]:
        if self._pool is None:
            raise Unavailable("the store is not open")
        async with self.translated(), self._pool.acquire(timeout=CONNECT_S) as db:
            yield db

    @asynccontextmanager
    async def translated(self) -> AsyncIterator[None]:
        """Raise what lies with the server as Unavailable; what lies with us stays what it is."""
        try:
            yield
        except asyncpg.DataError:
            raise
        except BROKEN as error:
            if self._pool is not None:
                await self._pool.expire_connections()  # the others are likely to be as dead
            what = str(error) or type(error).__name__
            raise Unavailable(f"cannot use the database {self.address.shown}: {what}") from error

    async def _prepare(self, connection: Raw) -> None:
        """Make a new connection ready: its settings, and instants as whole milliseconds."""
        await connection.execute(sql.settings(self.address.schema))
        await connection.set_type_codec(
            "timestamptz", schema="pg_catalog", encoder=_encode_ms, decoder=_decode_ms, format="tuple"
        )
        pid = connection.get_server_pid()
        self._ours.add(pid)
        connection.add_termination_listener(lambda _: self._ours.discard(pid))


def _encode_ms(ms: int) -> tuple[int]:
    return ((ms - _EPOCH_MS) * 1000,)


def _decode_ms(microseconds: tuple[int]) -> int:
    return microseconds[0] // 1000 + _EPOCH_MS


async def _reset(connection: Raw) -> None:
    """Nothing to tidy up after our own work: it saves a round trip. A transaction left open is a mistake."""
    if connection.is_in_transaction():
        raise asyncpg.InterfaceError("a transaction was left open")


async def migrate(connection: Raw, schema: str, steps: Sequence[Migration]) -> None:
    """Take the steps that the schema has still to take, all or none, while nobody else can do the same."""
    version = sql.VERSION.format(schema=schema)
    known = await connection.fetchval(sql.HAS_VERSIONS, schema)
    if known and not pending(steps, await connection.fetchval(version)):
        return  # without a lock, and without the right to create anything
    async with connection.transaction():
        await connection.execute(sql.LOCK_SCHEMA, schema)
        if not await connection.fetchval(sql.HAS_SCHEMA, schema):
            await connection.execute(sql.CREATE_SCHEMA.format(schema=schema))
        await connection.execute(sql.CREATE_VERSION.format(schema=schema))
        for step in pending(steps, await connection.fetchval(version)):  # another may have been faster
            await connection.execute(step.sql)
            await connection.execute(sql.ADD_VERSION, step.number, step.name)
