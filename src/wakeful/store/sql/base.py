"""What all parts of the facade share: the driver, the operations, and audited transactions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Concatenate, Final, Generic, ParamSpec, TypeVar

from wakeful.errors import Unavailable
from wakeful.job.self_scheduling import ChargeRule
from wakeful.logs import get_logger
from wakeful.store.audit import AuditEntry
from wakeful.store.changelog import TransactionEvents
from wakeful.store.idempotency import Keyed, current_claim
from wakeful.store.sql import idempotency
from wakeful.store.sql.calling_runs import charge_run
from wakeful.store.sql.decided_ticks import TicksTaken, note_decided
from wakeful.store.sql.driver import Driver, Pending, Session
from wakeful.store.sql.operations import Operations
from wakeful.values.clock import Clock

D = TypeVar("D")
P = ParamSpec("P")
T = TypeVar("T")

#: How often a transaction is tried whose ticks have runs of which its job does not know.
_TRIES: Final = 5

log = get_logger("wakeful.store")


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


class SqlBase(Generic[D]):
    """A driver and the operations of its database."""

    def __init__(self, driver: Driver[D], operations: Operations[D], clock: Clock) -> None:
        self.clock = clock
        self._driver = driver
        self._operations = operations

    async def _read(
        self, query: Callable[Concatenate[Session, P], Pending[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a shared operation that writes nothing."""
        return await self._driver.read(lambda db: query(self._driver.session(db), *args, **kwargs))

    def _shared(
        self, operation: Callable[Concatenate[Session, P], Pending[T]], topic: str | None = None
    ) -> Callable[Concatenate[D, TransactionEvents, P], Pending[T]]:
        """Return a shared operation as one for a write transaction, which publishes the topic."""

        def run(db: D, events: TransactionEvents, /, *args: P.args, **kwargs: P.kwargs) -> Pending[T]:
            if topic is not None:
                events.publish(topic)
            return operation(self._driver.session(db), *args, **kwargs)

        return run

    async def _write(
        self,
        operation: Callable[Concatenate[D, TransactionEvents, P], Pending[T]],
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
        operation: Callable[Concatenate[D, TransactionEvents, P], Pending[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run an operation in a transaction, with its charge, its idempotency key and its audit entries."""
        keyed, entries = recorded.keyed, recorded.entries
        claim = current_claim.get() if keyed is None else None
        claim = claim if claim is not None and claim.is_open else None
        written: Sequence[AuditEntry] = ()

        async def run(db: D, events: TransactionEvents) -> T:
            nonlocal written
            used: Keyed[T] | None = keyed if claim is None else claim.keyed
            if used is None:
                result = await operation(db, events, *args, **kwargs)
            else:
                session, now_ms = self._driver.session(db), self.clock.now_ms()
                await idempotency.claim_key(session, used, now_ms)
                result = await operation(db, events, *args, **kwargs)
                await idempotency.store_response(session, used, result, now_ms)
            charge = recorded.charge() if recorded.charge and recorded.changed(result) else None
            if charge is not None:
                await charge_run(self._driver.session(db), charge)
            if entries and recorded.changed(result):
                written = entries(result) if callable(entries) else entries
                await self._operations.audit.append(db, self.clock, written)
            return result

        result = await self._write(run)
        if claim is not None:
            claim.is_open = False
        for entry in written:
            log.info(
                "audit.recorded", action=entry.action, subject=entry.subject, actor=entry.actor,
                workspace=entry.workspace, address=entry.address,
            )  # fmt: skip
        return result
