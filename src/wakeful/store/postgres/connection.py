"""The driver for PostgreSQL: a pool of connections, and transactions on them.

An exception rolls a transaction back. What it publishes goes out with the commit: directly to listeners of
this process, and as a notification to other processes.

Calls do not hang. A database that cannot be reached, or does not respond in time, raises Unavailable; the
next call connects again. A transaction that was aborted because of another (a deadlock) is repeated.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Concatenate, Final, NamedTuple, ParamSpec, TypeAlias, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit

import asyncpg

from wakeful.clock import Clock, SystemClock
from wakeful.errors import DatabaseFault, FailedPrecondition, InvalidArgument, Unavailable
from wakeful.store.address import split_address
from wakeful.store.changelog import TransactionEvents as TransactionEvents
from wakeful.store.migrations import Migration, check_schema, load, pending
from wakeful.store.postgres.session import PostgresSession
from wakeful.store.sql.driver import Pending, Session
from wakeful.stored_text import UNSTORABLE

if TYPE_CHECKING:
    from wakeful.store.postgres.session import Db as Db

    Raw: TypeAlias = asyncpg.Connection[asyncpg.Record]

P = ParamSpec("P")
T = TypeVar("T")

CONNECT_S: Final = 10
ANSWER_S: Final = 30
_TRIES: Final = 5
_EPOCH_MS: Final = 946_684_800_000  # PostgreSQL counts from the year 2000

#: Errors after which a transaction is repeated.
_LOST_TO_ANOTHER: Final = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
#: Errors of the server or of the connection to it.
BROKEN: Final = (
    OSError,  # and with it TimeoutError
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,  # shut down, started, cancelled
    asyncpg.InsufficientResourcesError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.LockNotAvailableError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.ReadOnlySQLTransactionError,  # a former primary
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # the driver lost track of a connection that was cut
)

#: Internal errors of the server (classes 58 and XX), such as an I/O error.
_FAULTS: Final = (asyncpg.PostgresSystemError, asyncpg.InternalServerError)

# Statements for connections and the schema.
_NOTIFY: Final = "SELECT pg_notify($1, topic) FROM unnest($2::text[]) topic"
#: and whether messages wait in any session: sessions_due, mostly empty
_LOG: Final = """
    WITH noted AS (
        INSERT INTO changes (at, kind, count, items)
        SELECT $1, c.* FROM unnest($2::text[], $3::integer[], $4::text[]) c (kind, count, items))
    SELECT EXISTS (SELECT FROM sessions WHERE due_at IS NOT NULL)"""
_HAS_SCHEMA: Final = "SELECT to_regnamespace(quote_ident($1)) IS NOT NULL"
_HAS_VERSIONS: Final = "SELECT to_regclass(quote_ident($1) || '.schema_version') IS NOT NULL"
_VERSION: Final = 'SELECT coalesce(max(version), 0) FROM "{schema}".schema_version'
_LOCK_SCHEMA: Final = "SELECT pg_advisory_xact_lock(hashtextextended('wakeful.' || $1, 0))"
_CREATE_SCHEMA: Final = 'CREATE SCHEMA "{schema}"'
_CREATE_VERSION: Final = """
    SET LOCAL search_path = "{schema}";
    CREATE TABLE IF NOT EXISTS schema_version (
        version integer NOT NULL PRIMARY KEY, name text NOT NULL,
        applied_at timestamptz NOT NULL DEFAULT clock_timestamp())"""
_ADD_VERSION: Final = "INSERT INTO schema_version (version, name) VALUES ($1, $2)"
_MARK_COMPATIBLE: Final = "UPDATE schema_version SET breaking = false WHERE version = $1"
#: the newest breaking migration; the column exists from schema 9 on
REQUIRED_SCHEMA: Final = 'SELECT max(version) FROM "{schema}".schema_version WHERE breaking'


class Address(NamedTuple):
    """A database, and the schema of our tables."""

    dsn: str
    schema: str

    @property
    def shown(self) -> str:
        """The address for a message: without its password."""
        parts = urlsplit(self.dsn)
        host = parts.hostname or dict(parse_qsl(parts.query)).get("host", "localhost")
        return f"{host}{parts.path}"


def address_of(url: str) -> Address:
    """Return the database of a `postgresql://…` address. `?schema=` is ours, other options are the driver's.

    >>> address_of("postgresql://localhost/main?schema=night&sslmode=require")
    Address(dsn='postgresql://localhost/main?sslmode=require', schema='night')
    >>> address_of("postgresql://localhost/main").schema
    'wakeful'
    """
    parts = split_address(url)
    if parts is None:
        raise InvalidArgument(
            "this PostgreSQL address cannot be read; write postgresql://user:password@host:5432/name, and in "
            "the user and the password %2F for /, %40 for @, %3A for :, %23 for #, %3F for ? and %5B for ["
        )
    given = parse_qsl(parts.query, keep_blank_values=True)
    schema = dict(given).get("schema", "wakeful")
    if re.fullmatch(r"[a-z_][a-z0-9_]{0,47}", schema) is None:
        raise InvalidArgument(
            f"'{schema}' cannot be the schema: give a name of lower-case letters, digits and _, at most 48"
        )
    others = urlencode([(key, value) for key, value in given if key != "schema"], safe="/")
    return Address(parts._replace(query=others).geturl(), schema)


class Pool:
    """The connections, and the listeners of this process. Implements `Driver`."""

    kind = "postgresql"
    notifies_other_processes = True
    unstorable: tuple[type[Exception], ...] = (asyncpg.DataError,)

    def __init__(self, url: str, size: int, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self.address = address_of(url)
        self._size = size
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._ours: set[int] = set()
        #: the newest schema that this code supports
        self.newest_schema = 0
        self._listeners: list[Callable[[str], None]] = []

    async def open(self) -> None:
        """Connect, and migrate the schema."""
        async with self.translated():
            connection = await self.connect()
            try:
                steps = load("postgres")
                await migrate(connection, self.address.schema, steps)
                self.newest_schema = steps[-1].number
            except asyncpg.InsufficientPrivilegeError as error:
                raise FailedPrecondition(
                    f"the schema '{self.address.schema}' of {self.address.shown} must be brought up to date, "
                    f"and this user may not ({error}): grant it CREATE on the database, or ask its owner"
                ) from error
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
        """Return a connection outside the pool."""
        return await asyncpg.connect(self.address.dsn, timeout=CONNECT_S, command_timeout=ANSWER_S)

    def listen(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with each topic that is published."""
        self._listeners.append(listener)

    def session(self, db: Db) -> Session:
        """Return a session in the transaction of this connection."""
        return PostgresSession(db)

    def notify(self, topics: Sequence[str]) -> None:
        """Call the listeners of this process."""
        for topic in topics:
            for listener in self._listeners:
                listener(topic)

    def is_ours(self, pid: int) -> bool:
        """Return whether this server process serves the pool."""
        return pid in self._ours

    async def read(
        self, operation: Callable[Concatenate[Db, P], Pending[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run an operation without a transaction: each of its statements sees what is committed by then."""
        async with self._acquired() as db:
            return await operation(db, *args, **kwargs)

    #: A single statement is a transaction of its own.
    write_one = read

    async def write(
        self,
        operation: Callable[Concatenate[Db, TransactionEvents, P], Pending[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run an operation in one transaction."""
        for tried in range(1, _TRIES + 1):
            events = TransactionEvents()
            try:
                async with self._acquired() as db:
                    async with db.transaction():
                        result = await operation(db, events, *args, **kwargs)
                        if changes := events.log():
                            columns = map(list, zip(*changes, strict=True))
                            waits = await db.fetchval(_LOG, self._clock.now_ms(), *columns)
                            if waits and events.any_ended:
                                events.publish("sessions")
                        topics = list(events.topics)
                        if topics:
                            await db.execute(_NOTIFY, self.address.schema, topics)
                    self.notify(topics)
                    return result
            except _LOST_TO_ANOTHER as error:
                if tried == _TRIES:
                    raise Unavailable(
                        f"the database {self.address.shown} is contended: {tried} tries were "
                        f"aborted because of other transactions ({error}); try again later"
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
        """Raise errors of the server or the connection as Unavailable."""
        try:
            yield
        except asyncpg.CharacterNotInRepertoireError as error:
            raise InvalidArgument(f"a text: {UNSTORABLE}") from error
        except asyncpg.DataError:
            raise
        except _FAULTS as error:
            raise DatabaseFault(f"the database {self.address.shown} reports a fault: {error}") from error
        except BROKEN as error:
            if self._pool is not None:
                await self._pool.expire_connections()  # the others are probably broken too
            what = str(error) or type(error).__name__
            raise Unavailable(f"cannot use the database {self.address.shown}: {what}") from error

    async def _prepare(self, connection: Raw) -> None:
        """Prepare a new connection: its settings, and instants as whole milliseconds."""
        await connection.execute(settings(self.address.schema))
        await connection.set_type_codec(
            "timestamptz", schema="pg_catalog", encoder=_encode_ms, decoder=_decode_ms, format="tuple"
        )
        pid = connection.get_server_pid()
        self._ours.add(pid)
        connection.add_termination_listener(lambda _: self._ours.discard(pid))


def settings(schema: str) -> str:
    """Return the settings of each connection.

    Every statement starts from a few keys and reads an index in its order. The statistics of a queue are
    unreliable (empty a minute ago, full now): with them the planner may scan a table, sort all due rows, or
    join two batches row by row. So it plans each execution, and other strategies are disabled. Where the join
    order matters, statements fix it: by LATERAL with OFFSET 0, by a list of keys instead of a join, or by a
    CASE that refers to the batch, so that the planner cannot use it as a filter on the table alone.
    """
    return f"""
        SET search_path = "{schema}";
        SET plan_cache_mode = force_custom_plan;
        SET max_parallel_workers_per_gather = 0;
        SET enable_seqscan = off;
        SET enable_bitmapscan = off;
        SET enable_material = off;
        SET enable_hashjoin = off;
        SET enable_mergejoin = off;
        SET jit = off;
        SET idle_in_transaction_session_timeout = '15s';
        SET lock_timeout = '10s'"""


def _encode_ms(ms: int) -> tuple[int]:
    return ((ms - _EPOCH_MS) * 1000,)


def _decode_ms(microseconds: tuple[int]) -> int:
    return microseconds[0] // 1000 + _EPOCH_MS


async def _reset(connection: Raw) -> None:
    """Check that no transaction is open. Nothing needs a reset, which saves a round trip."""
    if connection.is_in_transaction():
        raise asyncpg.InterfaceError("a transaction was left open")


async def migrate(connection: Raw, schema: str, steps: Sequence[Migration]) -> None:
    """Apply the pending migrations, all or none, under a lock.

    IncompatibleSchema: the database has a breaking migration that is not among them.
    """
    version = _VERSION.format(schema=schema)
    if await connection.fetchval(_HAS_VERSIONS, schema):
        found = await connection.fetchval(version)
        if found > steps[-1].number:
            required = await connection.fetchval(REQUIRED_SCHEMA.format(schema=schema))
            check_schema(required or 0, steps[-1].number)
        if not pending(steps, found):
            return  # needs neither a lock nor the right to create
    async with connection.transaction():
        await connection.execute(_LOCK_SCHEMA, schema)
        if not await connection.fetchval(_HAS_SCHEMA, schema):
            await connection.execute(_CREATE_SCHEMA.format(schema=schema))
        await connection.execute(_CREATE_VERSION.format(schema=schema))
        for step in pending(
            steps, await connection.fetchval(version)
        ):  # another process may have applied some
            await connection.execute(f"SELECT 1; {step.sql}")  # asyncpg fails on a file without a statement
            await connection.execute(_ADD_VERSION, step.number, step.name)
            if not step.breaking:
                await connection.execute(_MARK_COMPATIBLE, step.number)
