"""Send signals to instances of agents. A signal is a run: it is recorded when `send` returns.

Concurrent sends to an agent are written in one transaction.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from wakeful.errors import FailedPrecondition, InvalidArgument, NotFound
from wakeful.job.self_scheduling import ChargeRule
from wakeful.job.start_rules import BudgetOwner
from wakeful.run.instances import AgentClass, InstanceLimits
from wakeful.run.signal_rules import Arrival, signal_run
from wakeful.service.admin.limits import Budgets
from wakeful.service.auth.access import Principal
from wakeful.service.auth.accounts import Accounts
from wakeful.service.batcher import Batcher
from wakeful.service.jobs.run_origin import AgentCall, RunOrigins
from wakeful.service.recent_values import RecentValues
from wakeful.service.runs.telemetry import RunTelemetry
from wakeful.signal.requests import MAX_BATCH
from wakeful.signal.signals import Signal
from wakeful.store.idempotency import Keyed, is_claiming
from wakeful.store.instances import Received
from wakeful.store.port import Store
from wakeful.values.bounded_cache import MB
from wakeful.values.instance_names import check_instance
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


class _Send(NamedTuple):
    """Signals that are stored all or none, and the size of the mailbox."""

    arrivals: Sequence[Arrival]
    mailbox: int


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
        self._batchers: WeakValueDictionary[tuple[str, str], Batcher[_Send, list[Received]]] = (
            WeakValueDictionary()
        )
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
        instance = check_instance(instance)
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
        at = utc_datetime(now_ms)
        arrivals = [_arrival(principal, agent_class, instance, signal, at, now_ms) for signal in signals]
        charge: ChargeRule | None = None
        if call is not None and call.unattended:
            charge, runs = call.charge, call.triggered([each.run for each in arrivals])
            arrivals = [each._replace(run=run) for each, run in zip(arrivals, runs, strict=True)]
        if keyed is None and charge is None and not is_claiming():
            return await self._batcher(workspace, agent).add(_Send(arrivals, agent_class.mailbox))
        await self._budgets.check(BudgetOwner(workspace, agent))
        return await self._store.send(arrivals, agent_class.mailbox, self._limits, (), keyed, charge)

    def _batcher(self, workspace: str, agent: str) -> Batcher[_Send, list[Received]]:
        new = Batcher(
            "wakeful-sends",
            self._write_sends,
            most=_LARGEST_BATCH,
            weigh=lambda send: len(send.arrivals),
            group=lambda send: send.mailbox,
        )
        return self._batchers.setdefault((workspace, agent), new)

    async def _write_sends(self, batch: Sequence[_Send]) -> Sequence[list[Received]]:
        arrivals = [arrival for send in batch for arrival in send.arrivals]
        run = arrivals[0].run
        await self._budgets.check(BudgetOwner(run.workspace, run.agent))
        received = iter(await self._store.send(arrivals, batch[0].mailbox, self._limits))
        return [list(islice(received, len(send.arrivals))) for send in batch]


def _arrival(
    principal: Principal, agent_class: AgentClass, instance: str, signal: Signal, at: datetime, now_ms: int
) -> Arrival:
    sent = signal.sent(principal.actor, at)
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
