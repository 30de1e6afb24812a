"""What each database provides: transactions (`Driver`) and plain statements (`SqlSession`).

An operation is an `async` function over the connection of one database. PostgreSQL runs it in the event loop.
SQLite runs it to its end in a thread: it never suspends, because the `sqlite3` module blocks. So both have
the same signature, and one facade calls either.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, Concatenate, Final, NamedTuple, ParamSpec, Protocol, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from wakeful.errors import Unavailable
from wakeful.store.changelog import TransactionEvents

D = TypeVar("D")
P = ParamSpec("P")
T = TypeVar("T")

#: What an operation returns when it is called.
Pending: TypeAlias = Coroutine[Any, Any, T]

#: The workspace whose request makes the calls in this context; None: there is no request, or one with a key
#: for all workspaces. The calls of one workspace leave a part of what they share to others.
current_tenant: Final[ContextVar[str | None]] = ContextVar("current_tenant", default=None)
#: Whether the call is one of the engine, which waits for no requests (`urgent`).
is_urgent: Final[ContextVar[bool]] = ContextVar("is_urgent", default=False)


def run_to_end(operation: Pending[T]) -> T:
    """Run an operation that never suspends to its end, and return its result."""
    try:
        operation.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    operation.close()
    raise AssertionError("an operation that blocks waited for something")


def urgent(method: Callable[P, Pending[T]]) -> Callable[P, Pending[T]]:
    """Return this method of a store, for calls without which the engine plans, starts or keeps no runs.

    A driver with several connections keeps some for them: a thousand requests at once must not cost a lease.
    """

    @wraps(method)
    async def call(*args: P.args, **kwargs: P.kwargs) -> T:
        token = is_urgent.set(True)
        try:
            return await method(*args, **kwargs)
        finally:
            is_urgent.reset(token)

    return call


class TenantTurns:
    """Lets the calls of one tenant have a part of what all share: those of others wait for few of them.

    A call waits while its tenant has as many as it may.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def of_current(self) -> asyncio.Semaphore | None:
        """Return what the calls of the current tenant acquire; None: there is no tenant."""
        tenant = current_tenant.get()
        if tenant is None:
            return None
        taken = self._taken.get(tenant)
        if taken is None:
            taken = self._taken[tenant] = asyncio.Semaphore(self._most)
        return taken

    @asynccontextmanager
    async def next(self) -> AsyncIterator[None]:
        """Wait for the turn of a call, and end it with the block."""
        turn = self.of_current()
        if turn is None:
            yield
            return
        async with turn:
            yield


class Duplicate(Exception):
    """A row with the same unique key exists."""


class LockTimeout(Unavailable):
    """Another transaction held a lock for too long."""


class Row(Protocol):
    """A row of a result. The types of its columns are those of the statement."""

    def __getitem__(self, column: int, /) -> Any:
        """Return the value of a column."""
        ...

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the values of all columns."""
        ...


class Texts(NamedTuple):
    """A statement that has a text for each database, because their tables or indexes differ.

    Both have the same parameters, and are in PostgreSQL's dialect as far as SQLite knows it.
    """

    sqlite: str
    postgresql: str


#: One text for both databases, or one for each.
Statement: TypeAlias = str | Texts


class SqlSession(Protocol):
    """A transaction for statements that both databases run.

    Statements are in PostgreSQL's dialect. SQLite runs them with its own parameter marks, without casts and
    row locks, and with a list as a JSON array: `= ANY($1::type[])`, or lists of the same length as a table,
    `unnest($1::type[], $2::type[]) t (a, b)`. Nothing newer than SQLite 3.33. A hint for SQLite, which has no
    statistics, is a comment: `FROM runs /*+ INDEXED BY runs_dead */ WHERE dead`, `/*+ CROSS */ JOIN`.
    """

    async def rows(self, statement: Statement, *args: object) -> Sequence[Row]:
        """Return all rows."""
        ...

    async def row(self, statement: Statement, *args: object) -> Row | None:
        """Return the first row."""
        ...

    async def column(self, statement: Statement, *args: object) -> list[Any]:
        """Return the first column of all rows."""
        ...

    async def value(self, statement: Statement, *args: object) -> Any:
        """Return the first column of the first row; None: there is no row."""
        ...

    async def execute(self, statement: Statement, *args: object) -> int:
        """Return the number of rows that were written. Raise Duplicate for a unique key that exists."""
        ...

    async def execute_many(self, statement: Statement, rows: Iterable[Sequence[object]]) -> None:
        """Execute the statement once for each row of arguments."""
        ...

    async def lock_table(self, table: str) -> None:
        """Keep other transactions from writing to the table until the end of this one."""
        ...

    async def lock_name(self, name: str) -> None:
        """Wait until no other transaction holds the lock of this name; hold it until the end of this one."""
        ...


class Driver(Protocol[D]):
    """The connections to a database, and how an operation becomes a transaction."""

    #: `sqlite` or `postgresql`
    kind: str
    #: whether listeners also receive what other processes publish
    notifies_other_processes: bool
    #: what is raised for a value that cannot be stored
    unstorable: tuple[type[Exception], ...]
    #: the newest schema that this code supports
    newest_schema: int

    async def open(self) -> None:
        """Connect, and migrate the schema."""
        ...

    async def close(self) -> None:
        """Disconnect."""
        ...

    def listen(self, listener: Callable[[str], None]) -> None:
        """Call `listener` in the event loop with each topic that is published."""
        ...

    async def read(
        self, operation: Callable[Concatenate[D, P], Pending[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run an operation that writes nothing."""
        ...

    async def write(
        self,
        operation: Callable[Concatenate[D, TransactionEvents, P], Pending[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run an operation in a transaction, and publish its events when it commits."""
        ...

    async def write_one(
        self, operation: Callable[Concatenate[D, P], Pending[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run an operation that publishes nothing and can be repeated: it may be several transactions."""
        ...

    def session(self, db: D) -> SqlSession:
        """Return a session in the transaction of this connection."""
        ...
