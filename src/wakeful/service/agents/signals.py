"""Send signals to instances of agents. A signal is a run: it is recorded when `send` returns.

Concurrent sends are written in one transaction: a commit costs the same for one signal as for a hundred. A
send that arrives while a batch is being written goes into the next batch; a single send is written at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from wakeful.errors import FailedPrecondition, InvalidArgument, NotFound, ResourceExhausted
from wakeful.job.job import check_slug
from wakeful.job.self_scheduling import ChargeRule
from wakeful.job.start_rules import BudgetOwner
from wakeful.run.instances import AgentClass, InstanceLimits
from wakeful.run.signal_rules import Arrival, signal_run
from wakeful.service.admin.limits import Budgets
from wakeful.service.auth.access import Principal
from wakeful.service.auth.accounts import Accounts
from wakeful.service.jobs.run_origin import AgentCall, RunOrigins
from wakeful.service.recent_values import RecentValues
from wakeful.service.runs.telemetry import RunTelemetry
from wakeful.signal.requests import MAX_BATCH
from wakeful.signal.signals import Signal
from wakeful.store.idempotency import Keyed, current_claim, is_claiming
from wakeful.store.instances import Received
from wakeful.store.port import Store
from wakeful.values.bounded_cache import MB
from wakeful.values.instants import utc_datetime

#: The size of a class without schedules, in bytes.
_SIZE: Final = 2_000

#: how many signals a batch has, at most; a larger send is a batch of its own
_LARGEST_BATCH: Final = 500


def no_class(agent: str) -> FailedPrecondition:
    """Return the error for an agent that has no class."""
    return FailedPrecondition(
        f"agent '{agent[:64]}' has no class, so it has no instances; register one with app.agent(Class) in "
        "a Python program and run the program"
    )


async def _nothing() -> None: ...


class AgentClasses:
    """Reads the classes of agents, with a cache."""

    def __init__(self, store: Store, accounts: Accounts) -> None:
        self._store = store
        self._accounts = accounts
        self._known: RecentValues[tuple[str, str], AgentClass] = RecentValues(
            store, 4 * MB, lambda found: _SIZE + 1_000 * len(found.schedules)
        )
        #: writes classes that this process has registered a moment ago
        self.before_read: Callable[[], Awaitable[None]] = _nothing

    async def get(self, workspace: str, agent: str) -> AgentClass:
        """Return the class of an agent. NotFound: there is no agent; FailedPrecondition: it has no class."""
        await self.before_read()
        return await self._known.get((workspace, agent), partial(self._read, workspace, agent))

    async def _read(self, workspace: str, agent: str) -> AgentClass:
        found = await self._store.agent_class(workspace, agent)
        if found is None:
            await self._accounts.agent(workspace, agent)
            raise no_class(agent)
        return found

    async def check(self, workspace: str, agent: str) -> None:
        """Raise the errors of `get` for the class as it is stored now: the store has just found none."""
        self.forget()
        await self.get(workspace, agent)

    def forget(self) -> None:
        """Drop the cache: a class was registered, or an agent deleted."""
        self._known.forget_all()


class SignalService:
    """Sends signals."""

    def __init__(
        self,
        store: Store,
        accounts: Accounts,
        budgets: Budgets,
        classes: AgentClasses,
        limits: InstanceLimits,
        origins: RunOrigins,
        telemetry: RunTelemetry,
    ) -> None:
        self._store = store
        self._accounts = accounts
        self._budgets = budgets
        self._classes = classes
        self._limits = limits
        self._origins = origins
        #: by workspace and agent: one that waits for a lock holds up no other
        self._batchers: WeakValueDictionary[tuple[str, str], SendBatcher] = WeakValueDictionary()
        self._telemetry = telemetry

    async def send(
        self,
        principal: Principal,
        workspace: str,
        agent: str,
        instance: str,
        signals: Sequence[Signal],
        *,
        keyed: Keyed[list[Received]] | None = None,
    ) -> list[Received]:
        """Store signals in the mailbox of an instance, all or none, in this order.

        The first signal creates the instance. A signal with an id that the instance has received before is a
        duplicate: it is answered with the first run. The source of a signal that has none is the caller.
        FailedPrecondition: the agent has no class or is not active, or the instance is stopped.
        ResourceExhausted: the mailbox is full, a quota or budget is used up, or the run that sends them has
        started enough.
        """
        await self._accounts.authorize(principal, "signal", workspace, agent)
        check_slug(instance, "instance")
        if not signals:
            raise InvalidArgument("signals: there is none; send at least one")
        if len(signals) > MAX_BATCH:
            raise InvalidArgument(f"signals: there are {len(signals)}; send at most {MAX_BATCH} at once")
        agent_class = await self._classes.get(workspace, agent)
        if not (await self._accounts.context(workspace, agent)).active:
            raise FailedPrecondition(f"agent '{agent}' is not active; activate it to send signals")
        call = await self._origins.call(principal, workspace, agent)
        try:
            received = await self._store_signals(
                principal, workspace, agent, agent_class, instance, signals, keyed, call
            )
        except NotFound:
            await self._classes.check(workspace, agent)
            raise
        for each in received:
            if not each.duplicate:
                self._telemetry.record_trigger(each.run)
        return received

    async def _store_signals(
        self,
        principal: Principal,
        workspace: str,
        agent: str,
        agent_class: AgentClass,
        instance: str,
        signals: Sequence[Signal],
        keyed: Keyed[list[Received]] | None,
        call: AgentCall | None,
    ) -> list[Received]:
        now_ms = self._store.clock.now_ms()
        arrivals = [_arrival(principal, agent_class, instance, signal, now_ms) for signal in signals]
        charge: ChargeRule | None = None
        if call is not None and call.unattended:
            charge, runs = call.charge, call.triggered([each.run for each in arrivals])
            arrivals = [each._replace(run=run) for each, run in zip(arrivals, runs, strict=True)]
        if keyed is None and charge is None and not is_claiming():
            new = SendBatcher(self._store, self._budgets, self._limits)
            batcher = self._batchers.setdefault((workspace, agent), new)
            return await batcher.add(arrivals, agent_class.mailbox)
        await self._budgets.check(BudgetOwner(workspace, agent))
        return await self._store.send(arrivals, agent_class.mailbox, self._limits, (), keyed, charge)


def _arrival(
    principal: Principal, agent_class: AgentClass, instance: str, signal: Signal, now_ms: int
) -> Arrival:
    sent = signal.sent(principal.actor, utc_datetime(now_ms))
    return signal_run(
        agent_class,
        instance,
        sent.type,
        sent.to_text(),
        now_ms,
        source=sent.source or principal.actor,
        signal_id=None if sent.generated_id else sent.id,
        triggered_by=principal.actor,
    )


class _PendingSend(NamedTuple):
    arrivals: Sequence[Arrival]
    mailbox: int
    received: asyncio.Future[list[Received]]

    @property
    def owner(self) -> tuple[str, str, int]:
        """Workspace, agent and mailbox: sends with the same owner can share a transaction."""
        run = self.arrivals[0].run
        return run.workspace, run.agent, self.mailbox


class SendBatcher:
    """Stores signals in batches."""

    def __init__(self, store: Store, budgets: Budgets, limits: InstanceLimits) -> None:
        self._store = store
        self._budgets = budgets
        self._limits = limits
        self._waiting: list[_PendingSend] = []
        self._writing: asyncio.Task[None] | None = None

    async def add(self, arrivals: Sequence[Arrival], mailbox: int) -> list[Received]:
        """Store the signals of one send, all or none. Raise only the error of this send.

        ResourceExhausted: also if the budget of the agent or its workspace is used up.
        """
        loop = asyncio.get_running_loop()
        received: asyncio.Future[list[Received]] = loop.create_future()
        self._waiting.append(_PendingSend(arrivals, mailbox, received))
        if self._writing is None or self._writing.done():
            self._writing = loop.create_task(self._write(), name="wakeful-send-batcher")
        return await received

    async def _write(self) -> None:
        current_claim.set(None)  # of the request that started this task
        while batch := self._next_batch():
            try:
                _settle(batch, await self._send(batch))
            except (FailedPrecondition, InvalidArgument, ResourceExhausted) as error:
                await self._one_by_one(batch, error)
            except BaseException as error:
                _fail(batch, error)
                if not isinstance(error, Exception):
                    raise

    def _next_batch(self) -> list[_PendingSend]:
        """Return the sends that wait for the same agent as the first, in their order."""
        batch: list[_PendingSend] = []
        rest: list[_PendingSend] = []
        size = 0
        for each in self._waiting:
            if each.received.done():  # the caller was cancelled
                continue
            size += len(each.arrivals) if not batch or each.owner == batch[0].owner else 0
            if not batch or (each.owner == batch[0].owner and size <= _LARGEST_BATCH):
                batch.append(each)
            else:
                rest.append(each)
        self._waiting = rest
        return batch

    async def _send(self, batch: Sequence[_PendingSend]) -> list[Received]:
        arrivals = [arrival for each in batch for arrival in each.arrivals]
        workspace, agent, _ = batch[0].owner
        await self._budgets.check(BudgetOwner(workspace, agent))
        return await self._store.send(arrivals, batch[0].mailbox, self._limits)

    async def _one_by_one(self, batch: Sequence[_PendingSend], error: Exception) -> None:
        """Store each send alone after a batch failed because of one of them."""
        if len(batch) == 1:
            _fail(batch, error)
            return
        for pending in batch:
            try:
                _settle([pending], await self._send([pending]))
            except Exception as own_error:
                _fail([pending], own_error)


def _settle(batch: Sequence[_PendingSend], received: Sequence[Received]) -> None:
    start = 0
    for arrivals, _, future in batch:
        own = list(received[start : start + len(arrivals)])
        start += len(arrivals)
        if not future.done():
            future.set_result(own)


def _fail(batch: Sequence[_PendingSend], error: BaseException) -> None:
    for *_, future in batch:
        if future.done():  # the caller was cancelled
            continue
        if isinstance(error, asyncio.CancelledError):
            future.cancel()
        else:
            future.set_exception(error)
