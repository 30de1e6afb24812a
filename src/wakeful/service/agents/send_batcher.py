"""Write concurrent sends of signals in one transaction.

A commit costs the same for one signal as for a hundred. A send that arrives while a batch is being written
goes into the next batch; a single send is written at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from wakeful.errors import FailedPrecondition, InvalidArgument, ResourceExhausted
from wakeful.job.start_rules import BudgetOwner
from wakeful.run.instances import InstanceLimits
from wakeful.run.signal_rules import Arrival
from wakeful.service.admin.budgets import Budgets
from wakeful.store.instances import Received
from wakeful.store.port import Store

#: how many signals a batch has, at most; a larger send is a batch of its own
_LARGEST_BATCH: Final = 500


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
