"""The driver for PostgreSQL: a pool of connections, and transactions on them.

An exception rolls a transaction back. What it publishes goes out with the commit: directly to listeners of
this process, and as a notification to other processes.

Calls do not hang. A database that cannot be reached, or does not respond in time, raises Unavailable; the
next call connects again. A transaction that was aborted because of another (a deadlock) is repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Concatenate, Final, ParamSpec, TypeVar

import asyncpg

from wakeful.errors import DatabaseFault, InvalidArgument, Unavailable
from wakeful.store.changelog import Listeners, TransactionEvents
from wakeful.store.migrations import load
from wakeful.store.postgres.address import parse_address
from wakeful.store.postgres.changelog import AuditHeads, OneStatement, publish
from wakeful.store.postgres.connect import CONNECT_S, PostgresConnector, Raw, check_version
from wakeful.store.postgres.kept_connections import KeptConnections
from wakeful.store.postgres.schema import has_pending, prepare_schema
from wakeful.store.postgres.session import Db, PostgresSession, transaction
from wakeful.store.postgres.session_check import LOST_STATEMENT, SharedSessions, check_sessions
from wakeful.store.sql.driver import LockTimeout, Pending, SqlSession, TenantTurns, is_urgent
from wakeful.values.clock import Clock, SystemClock
from wakeful.values.stored_text import UNSTORABLE

P = ParamSpec("P")
T = TypeVar("T")

_TRIES: Final = 5
#: One in so many connections is for urgent calls, and one in so many of the others for other tenants.
_RESERVED: Final = 4
#: How long a call waits until its connection is returned, and its transaction rolled back if it failed.
_RETURN_S: Final = 1.0
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
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.ReadOnlySQLTransactionError,  # a former primary
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # the driver lost track of a connection that was cut
)

#: Internal errors of the server (classes 58 and XX), such as an I/O error.
_FAULTS: Final = (asyncpg.PostgresSystemError, asyncpg.InternalServerError)

# Statements for connections and the schema.


class Pool:
    """The connections, and the listeners of this process. Implements `Driver`."""

    kind = "postgresql"
    notifies_other_processes = True
    unstorable: tuple[type[Exception], ...] = (asyncpg.DataError,)

    def __init__(self, url: str, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self.address = parse_address(url)
        self._connector = PostgresConnector(self.address)
        self._pool: KeptConnections | None = None
        #: the connections that calls may use which are not urgent, and how many of them one tenant may use
        self._shared = self._new_semaphore()
        self._tenants = TenantTurns(max(1, self._shared_size - self._shared_size // _RESERVED))
        self._ours: set[int] = set()
        #: the newest schema that this code supports
        self.newest_schema = 0
        #: whether migrations have left indexes for later
        self.has_pending_indexes = False
        self._listeners = Listeners()
        self._audit_heads = AuditHeads()

    async def open(self) -> None:
        """Connect, and migrate the schema."""
        async with self.translate_errors():
            connection = await self.connect()
            try:
                check_version(connection, self.address)
                steps = load("postgres")
                await prepare_schema(connection, self.address, steps)
                self.newest_schema = steps[-1].number
                self.has_pending_indexes = await has_pending(connection, self.address.schema)
            finally:
                await connection.close()
            self._shared = self._new_semaphore()
            self._pool = KeptConnections(
                await asyncpg.create_pool(
                    connect=self._connector.connect,
                    min_size=0,
                    max_size=self.address.pool_size,
                    init=self._prepare,
                    reset=_reset,
                )
            )

    @property
    def _shared_size(self) -> int:
        return self.address.pool_size - self.address.pool_size // _RESERVED

    def _new_semaphore(self) -> asyncio.Semaphore:
        return asyncio.Semaphore(self._shared_size)

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
        return await self._connector.connect()

    async def connect_checked(self) -> Raw:
        """Return a connection outside the pool, after a check that it has a session of its own."""
        connection = await self.connect()
        try:
            other = await self.connect()
            try:
                await check_sessions(connection, other, self.address.masked)
            finally:
                other.terminate()
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def expire(self) -> None:
        """Replace the connections that are idle now, and the others after their transaction."""
        if self._pool is not None:
            await self._pool.expire()

    def listen(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with each topic that is published."""
        self._listeners.add(listener)

    def session(self, db: Db) -> SqlSession:
        """Return a session in the transaction of this connection."""
        return PostgresSession(db)

    def notify(self, topics: Sequence[str]) -> None:
        """Call the listeners of this process."""
        self._listeners.notify(topics)

    def is_ours(self, pid: int) -> bool:
        """Return whether this server process serves the pool."""
        return pid in self._ours

    async def read(
        self, operation: Callable[Concatenate[Db, P], Pending[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run an operation without a transaction: each of its statements sees what is committed by then."""
        async with self._acquire() as db:
            return await operation(db, *args, **kwargs)

    async def write_one(
        self, operation: Callable[Concatenate[Db, P], Pending[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run an operation each of whose statements is a transaction of its own."""
        return await self._repeat(lambda: self.read(operation, *args, **kwargs))

    async def write(
        self,
        operation: Callable[Concatenate[Db, TransactionEvents, P], Pending[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run an operation in one transaction."""
        return await self._repeat(lambda: self._write(operation, *args, **kwargs))

    async def _write(
        self,
        operation: Callable[Concatenate[Db, TransactionEvents, P], Pending[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        events = TransactionEvents()
        async with self._acquire(began=True) as db:
            async with transaction(db):
                result = await operation(db, events, *args, **kwargs)
                topics = await publish(
                    db, events, self._clock.now_ms(), self.address.schema, self._audit_heads
                )
            self._audit_heads.keep(events.audit_heads)
            self.notify(topics)
            events.log_cancelled()
            return result

    async def _repeat(self, work: Callable[[], Pending[T]]) -> T:
        """Do this work, again if a transaction of it is aborted because of another one."""
        for tried in range(1, _TRIES + 1):
            try:
                return await work()
            except _LOST_TO_ANOTHER as error:
                if tried == _TRIES:
                    raise Unavailable(
                        f"the database {self.address.masked} is contended: {tried} tries were "
                        f"aborted because of other transactions ({error}); try again later"
                    ) from error
        raise AssertionError("not reached")

    async def write_at_once(
        self, operation: Callable[[Db, AuditHeads, str], Pending[OneStatement[T] | None]]
    ) -> T | None:
        """Run an operation that is one statement, a transaction of its own, which also publishes.

        None: it has written nothing, and must be written with `write`.
        """
        try:
            async with self._acquire(generic=True) as db:
                done = await operation(db, self._audit_heads, self.address.schema)
        except (*_LOST_TO_ANOTHER, asyncpg.UniqueViolationError):
            return None
        if done is None:
            return None
        self._audit_heads.keep(done.audit_heads)
        self.notify(done.topics)
        return done.result

    @asynccontextmanager
    async def _acquire(self, *, generic: bool = False, began: bool = False) -> AsyncIterator[Db]:
        """Take a connection for one call. `began`: the call begins a transaction."""
        async with self.translate_errors():
            turns = () if is_urgent.get() else await self._wait_for_turn()
            returning: asyncio.Task[None] | None = None
            try:
                pool = self._pool
                if pool is None:  # maybe closed while the call waited
                    raise Unavailable("the store is not open")
                db = await pool.take(generic=generic)
                failed = True
                try:
                    yield db
                    failed = False
                finally:
                    returning = pool.give_back(db, failed=failed, began=began)
                    if returning is not None:  # mostly, what a failed call wrote and locked is undone then
                        await asyncio.wait({returning}, timeout=_RETURN_S)
            except asyncpg.UndefinedTableError as error:
                # The session is not the one that `_prepare` has set up, or the table is gone.
                await self.expire()
                raise Unavailable(
                    f"the database {self.address.masked} lacks a table, or a connection pooler has changed "
                    f"the session: {error}"
                ) from error
            finally:
                if returning is None:
                    _release(turns)
                else:  # until then there is one connection less
                    returning.add_done_callback(lambda _: _release(turns))

    async def _wait_for_turn(self) -> Sequence[asyncio.Semaphore]:
        """Wait until there is a connection for this call, which is not urgent. Returns what it releases."""
        tenant = self._tenants.of_current()
        turns = (self._shared,) if tenant is None else (tenant, self._shared)
        if not any(each.locked() for each in turns):
            for each in turns:
                await each.acquire()  # at once
            return turns
        async with AsyncExitStack() as taken:
            try:
                async with asyncio.timeout(CONNECT_S):
                    for each in turns:
                        await taken.enter_async_context(each)
            except TimeoutError:
                raise Unavailable(
                    f"all connections to the database {self.address.masked} are in use; try again later"
                ) from None
            taken.pop_all()
        return turns

    @asynccontextmanager
    async def translate_errors(self) -> AsyncIterator[None]:
        """Raise errors of the server or the connection as Unavailable."""
        try:
            yield
        except asyncpg.CharacterNotInRepertoireError as error:
            raise InvalidArgument(f"a text: {UNSTORABLE}") from error
        except asyncpg.DataError:
            raise
        except _FAULTS as error:
            raise DatabaseFault(f"the database {self.address.masked} reports a fault: {error}") from error
        except LOST_STATEMENT as error:
            await self.expire()  # in session mode again, the others may keep sessions that are not theirs
            raise Unavailable(SharedSessions(self.address.masked).message) from error
        except asyncpg.LockNotAvailableError as error:  # of another transaction: the connections are well
            raise LockTimeout(f"cannot use the database {self.address.masked}: {error}") from error
        except asyncpg.ClientConfigurationError as error:
            raise InvalidArgument(f"the database address {self.address.masked}: {error}") from error
        except BROKEN as error:
            if not isinstance(error, asyncpg.TooManyConnectionsError):
                await self.expire()  # the others are probably broken too
            what = str(error) or type(error).__name__
            raise Unavailable(f"cannot use the database {self.address.masked}: {what}") from error

    async def _prepare(self, connection: Raw) -> None:
        """Prepare a new connection: its settings, and instants as whole milliseconds."""
        await connection.execute(settings(self.address.schema))
        await connection.set_type_codec(
            "timestamptz", schema="pg_catalog", encoder=_encode_ms, decoder=_decode_ms, format="tuple"
        )
        pid = await connection.fetchval("SELECT pg_backend_pid()")  # a pooler has other numbers
        self._ours.add(pid)
        connection.add_termination_listener(lambda _: self._ours.discard(pid))


def settings(schema: str) -> str:
    """Return the settings of each connection.

    Every statement starts from a few keys and reads an index in its order. The statistics of a queue are
    unreliable (empty a minute ago, full now): with them the planner may scan a table, sort all due rows, or
    join two batches row by row. So other strategies are disabled. Where the join order matters, statements
    fix it: by LATERAL with OFFSET 0, by a list of keys instead of a join, or by a CASE that refers to the
    batch, so that the planner cannot use it as a filter on the table alone.

    Lists are planned for each execution: which index is best depends on the arguments. The statements of
    `transaction` have one good plan each, which is kept.
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
        SET default_transaction_isolation = 'read committed';
        SET idle_session_timeout = 0;
        SET idle_in_transaction_session_timeout = '15s';
        SET lock_timeout = '10s'"""


def _release(turns: Iterable[asyncio.Semaphore]) -> None:
    for turn in turns:
        turn.release()


def _encode_ms(ms: int) -> tuple[int]:
    return ((ms - _EPOCH_MS) * 1000,)


def _decode_ms(microseconds: tuple[int]) -> int:
    return microseconds[0] // 1000 + _EPOCH_MS


async def _reset(connection: Raw) -> None:
    """Check that no transaction is open. Nothing needs a reset, which saves a round trip."""
    if connection.is_in_transaction():
        raise asyncpg.InterfaceError("a transaction was left open")
