"""What all parts of the facade share: the driver, the operations, and audited transactions.

A transaction may carry an idempotency key (`store/idempotency.py`), and a charge to the run that calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeVar

from wakeful.errors import Unavailable
from wakeful.job.self_scheduling import CallingRun, ChargeRule, RunCharge, refused_charge
from wakeful.logs import get_logger
from wakeful.store.audit import AuditEntry
from wakeful.store.changelog import TransactionEvents
from wakeful.store.columns import column_list, insert
from wakeful.store.idempotency import (
    ABANDONED_MS,
    KEPT_MS,
    InProgress,
    Keyed,
    StoredResponse,
    conflict,
    current_claim,
)
from wakeful.store.sql.driver import Driver, LockTimeout, Pending, SqlSession
from wakeful.store.sql.new_runs import TicksTaken, note_decided
from wakeful.store.sql.operations import Operations
from wakeful.values.clock import Clock
from wakeful.values.ids import is_id

T = TypeVar("T")
D = TypeVar("D")
P = ParamSpec("P")
log = get_logger("wakeful.store")


#: the primary key
KEY_ROW: Final = (
    f"SELECT {column_list(StoredResponse._fields)} FROM idempotency_keys WHERE workspace = $1 AND key = $2"
)
#: the primary key
RESPONSE: Final = f"{KEY_ROW} AND status IS NOT NULL AND created_at >= $3"
#: idempotency_keys_created: a range of it, in its order; then the primary key. Rows that another transaction
#: is deleting are skipped
EXPIRE_KEYS: Final = """
    DELETE FROM idempotency_keys WHERE (workspace, key) IN (
        SELECT workspace, key FROM idempotency_keys WHERE created_at < $1 ORDER BY created_at LIMIT 1000
        FOR UPDATE SKIP LOCKED)"""
#: the primary key; an expired or abandoned row is taken over
CLAIM_KEY: Final = f"""
    {insert("idempotency_keys AS a", StoredResponse._fields)}
    ON CONFLICT (workspace, key) DO UPDATE SET fingerprint = EXCLUDED.fingerprint, status = EXCLUDED.status,
        body = EXCLUDED.body, created_at = EXCLUDED.created_at
    WHERE a.created_at < $7 OR a.status IS NULL AND a.created_at < $8"""
#: the primary key
STORE_RESPONSE: Final = "UPDATE idempotency_keys SET status = $3, body = $4 WHERE workspace = $1 AND key = $2"


async def response(session: SqlSession, now_ms: int, workspace: str, key: str) -> StoredResponse | None:
    """Return the response that was stored with that key, unless it has expired."""
    row = await session.row(RESPONSE, workspace, key, now_ms - KEPT_MS)
    return None if row is None else StoredResponse(*row)


async def claim_key(session: SqlSession, keyed: Keyed[T], now_ms: int) -> None:
    """Insert the key, or raise AlreadyPerformed, InProgress or InvalidArgument, as its row says.

    Waits while another transaction holds the same key.
    """
    expired_ms = now_ms - KEPT_MS
    await session.execute(EXPIRE_KEYS, expired_ms)
    claim = (*keyed.claim(now_ms), expired_ms, now_ms - ABANDONED_MS)
    while True:
        try:
            if await session.execute(CLAIM_KEY, *claim):
                return
        except LockTimeout as error:
            raise InProgress from error
        row = await session.row(KEY_ROW, keyed.workspace, keyed.key)
        if row is not None:  # otherwise it was deleted between the two statements
            raise conflict(StoredResponse(*row), keyed.fingerprint)


async def store_response(session: SqlSession, keyed: Keyed[T], result: T, now_ms: int) -> None:
    """Write the response beside the key.

    Outcomes in SQLite may undo their transaction, with the key, and begin it again.
    """
    response = keyed.workspace, keyed.key, *keyed.render(result)
    if not await session.execute(STORE_RESPONSE, *response):
        await claim_key(session, keyed, now_ms)
        await session.execute(STORE_RESPONSE, *response)


#: the primary keys of runs, sessions and jobs
CALLING_RUN: Final = """
    SELECT r.workspace, r.agent, r.state, r.trigger, r.session, s.channel, s.send_to, r.depth, j.work
    FROM runs r
    LEFT JOIN sessions s ON s.workspace = r.workspace AND s.agent = r.agent AND s.name = r.session
    LEFT JOIN jobs j ON j.id = r.job_id
    WHERE r.id = $1"""
#: the primary key
CHARGE_RUN: Final = """
    UPDATE runs SET jobs_made = jobs_made + $2
    WHERE id = $1 AND state = 'running' AND jobs_made + $2 <= $3"""
#: the primary key
RUN_CHARGED: Final = "SELECT state, jobs_made FROM runs WHERE id = $1"


async def calling_run(session: SqlSession, run_id: str) -> CallingRun | None:
    """Return the run in which a call is made, with its conversation and the work of its job."""
    row = await session.row(CALLING_RUN, run_id) if is_id(run_id) else None
    return None if row is None else CallingRun(run_id, *row)


async def charge_run(session: SqlSession, charge: RunCharge) -> None:
    """Count what is made in a run; raise an error if the run is not running, or its limit is reached."""
    if await session.execute(CHARGE_RUN, charge.run_id, charge.jobs, charge.limit):
        return
    state, made = await session.row(RUN_CHARGED, charge.run_id) or (None, 0)
    raise refused_charge(charge, state, int(made))


#: How often a transaction is tried whose ticks have runs of which its job does not know.
_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class Recorded(Generic[T]):
    """What is recorded with an operation: audit entries and the response of its idempotency key."""

    #: the entries, which may depend on the result
    entries: Sequence[AuditEntry] | Callable[[T], Sequence[AuditEntry]]
    #: whether the operation changed anything, by its result; only then are entries written
    changed: Callable[[T], bool] = bool
    keyed: Keyed[T] | None = None
    #: what the operation makes in a run; only charged if it changed anything
    charge: ChargeRule | None = None


class SqlBase:
    """A driver and the operations of its database. Only these know the type of its connections."""

    def __init__(self, driver: Driver[D], operations: Operations[D], clock: Clock) -> None:
        self.clock = clock
        self._driver: Driver[Any] = driver
        self._operations: Operations[Any] = operations

    async def _read(
        self, query: Callable[Concatenate[SqlSession, P], Pending[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a shared operation that writes nothing."""
        return await self._driver.read(lambda db: query(self._driver.session(db), *args, **kwargs))

    def _shared(
        self, operation: Callable[Concatenate[SqlSession, P], Pending[T]], topic: str | None = None
    ) -> Callable[Concatenate[Any, TransactionEvents, P], Pending[T]]:
        """Return a shared operation as one for a write transaction, which publishes the topic."""

        def run(db: Any, events: TransactionEvents, /, *args: P.args, **kwargs: P.kwargs) -> Pending[T]:
            if topic is not None:
                events.publish(topic)
            return operation(self._driver.session(db), *args, **kwargs)

        return run

    def _with_events(
        self, operation: Callable[Concatenate[SqlSession, TransactionEvents, P], Pending[T]]
    ) -> Callable[Concatenate[Any, TransactionEvents, P], Pending[T]]:
        """Return a shared operation that publishes events as one for a write transaction."""

        def run(db: Any, events: TransactionEvents, /, *args: P.args, **kwargs: P.kwargs) -> Pending[T]:
            return operation(self._driver.session(db), events, *args, **kwargs)

        return run

    async def _write(
        self,
        operation: Callable[Concatenate[Any, TransactionEvents, P], Pending[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run an operation in a transaction; again if a tick that it records as missed has a run already."""
        for _ in range(_TRIES):
            try:
                return await self._driver.write(operation, *args, **kwargs)
            except TicksTaken as taken:
                await self._driver.write(self._shared(note_decided), taken.runs)
        raise Unavailable("the ticks of a job are being recorded at this moment; try again")

    async def _record(
        self,
        recorded: Recorded[T],
        operation: Callable[Concatenate[Any, TransactionEvents, P], Pending[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run an operation in a transaction, with its charge, its idempotency key and its audit entries."""
        keyed, entries = recorded.keyed, recorded.entries
        claim = current_claim.get() if keyed is None else None
        claim = claim if claim is not None and claim.is_open else None
        written: Sequence[AuditEntry] = ()

        async def run(db: Any, events: TransactionEvents) -> T:
            nonlocal written
            used: Keyed[T] | None = keyed if claim is None else claim.keyed
            if used is None:
                result = await operation(db, events, *args, **kwargs)
            else:
                session, now_ms = self._driver.session(db), self.clock.now_ms()
                await claim_key(session, used, now_ms)
                result = await operation(db, events, *args, **kwargs)
                await store_response(session, used, result, now_ms)
            charge = recorded.charge() if recorded.charge and recorded.changed(result) else None
            if charge is not None:
                await charge_run(self._driver.session(db), charge)
            if entries and recorded.changed(result):
                written = entries(result) if callable(entries) else entries
                await self._operations.changelog.append(db, events, self.clock, written)
            return result

        result = await self._write(run)
        if claim is not None:
            claim.is_open = False
        log_entries(written)
        return result


def log_entries(entries: Sequence[AuditEntry]) -> None:
    """Log audit entries that are written."""
    for entry in entries:
        log.info(
            "audit.recorded", action=entry.action, subject=entry.subject, actor=entry.actor,
            workspace=entry.workspace, address=entry.address,
        )  # fmt: skip


def reads(
    query: Callable[Concatenate[SqlSession, P], Pending[T]],
) -> Callable[Concatenate[SqlBase, P], Pending[T]]:
    """Return a shared operation that writes nothing as a method of the facade, with its parameters."""

    @wraps(query)
    async def method(facade: SqlBase, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await facade._read(query, *args, **kwargs)

    return method


def writes(
    operation: Callable[Concatenate[SqlSession, P], Pending[T]],
) -> Callable[Concatenate[SqlBase, P], Pending[T]]:
    """Return a shared operation as a method of the facade that runs it in a write transaction."""

    @wraps(operation)
    async def method(facade: SqlBase, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await facade._driver.write(facade._shared(operation), *args, **kwargs)

    return method


def reads_now(
    query: Callable[Concatenate[SqlSession, int, P], Pending[T]],
) -> Callable[Concatenate[SqlBase, P], Pending[T]]:
    """Do the same as `reads`, with a query whose first parameter is the current time."""

    @wraps(query)
    async def method(facade: SqlBase, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await facade._read(query, facade.clock.now_ms(), *args, **kwargs)

    return method


def publishes(
    operation: Callable[Concatenate[SqlSession, TransactionEvents, P], Pending[T]],
) -> Callable[Concatenate[SqlBase, P], Pending[T]]:
    """Do the same as `writes`, with an operation that publishes events."""

    @wraps(operation)
    async def method(facade: SqlBase, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await facade._driver.write(facade._with_events(operation), *args, **kwargs)

    return method
