"""Writes in a transaction that the caller of Wakeful has begun on a connection of its own.

They are planned first, with reads on the connections of the store (`app.in_transaction`), and then written on
the connection of the caller. That connection may block or be awaited, and belongs to another thread or event
loop. So what is done with it is a coroutine that awaits steps: whoever drives it executes each step where the
connection lives, and sends the result back.
"""

from __future__ import annotations

import sqlite3
import types
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from wakeful.run.run import NewRun
from wakeful.store.accounts import Inherited
from wakeful.store.audit import AuditEntry
from wakeful.store.idempotency import Keyed
from wakeful.store.quotas import Allowance
from wakeful.store.rows import JobRow, RunView

T = TypeVar("T")


class Sql(NamedTuple):
    """A statement of PostgreSQL. Its arguments and the columns of its result are texts."""

    text: str
    args: tuple[str | None, ...] = ()
    #: whether it undoes what a failed step has left; it may fail, too
    undoes: bool = False


#: A statement, which returns rows; or, for SQLite, a function of the connection.
Step: TypeAlias = Sql | Callable[[sqlite3.Connection], Any]


@types.coroutine
def perform(step: T) -> Generator[T, Any, Any]:
    """Have a step executed where it belongs, and return its result."""
    return (yield step)


#: Workspace, agent and name of a job.
JobKey: TypeAlias = tuple[str, str, str]


class PlannedRun(NamedTuple):
    """A run to add, of a job at this version."""

    run: NewRun
    version: int | None
    entries: Sequence[AuditEntry]
    keyed: Keyed[list[RunView]] | None


class PlannedJob(NamedTuple):
    """A job to create."""

    row: JobRow
    entries: Sequence[AuditEntry]
    allowance: Allowance | None
    agent: Inherited


PlannedWrite: TypeAlias = PlannedRun | PlannedJob


class CallerTransaction(Protocol):
    """What a store does on the connection of the caller: `check`, `find_job` and `write` await only steps."""

    #: Whether other connections can write while the transaction of the caller is open.
    allows_other_writers: bool

    @property
    def is_prepared(self) -> bool:
        """Whether `prepare` was called."""
        ...

    async def prepare(self) -> None:
        """Read what `check` compares, on a connection of the store."""
        ...

    async def check_planned(self, planned: Sequence[PlannedWrite]) -> None:
        """Check, on a connection of the store, what `write` does not."""
        ...

    async def check(self) -> bool:
        """Return whether the connection is one to the database of the store; raise if it cannot be used."""
        ...

    async def find_job(self, key: JobKey) -> JobRow | None:
        """Return a job as the transaction sees it; its name may be its id."""
        ...

    async def write(self, planned: Sequence[PlannedWrite]) -> None:
        """Write what is planned. After an error the transaction is as before."""
        ...
