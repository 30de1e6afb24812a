"""Write concurrent creates of jobs in one transaction.

A commit costs the same for one job as for a hundred. A create that arrives while a batch is being written
goes into the next batch; a single create is written at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from wakeful.errors import Unavailable
from wakeful.store.accounts import AgentChanged, Inherited
from wakeful.store.audit import AuditEntry
from wakeful.store.port import Store
from wakeful.store.quotas import Allowance
from wakeful.store.rows import JobRow

_LARGEST_BATCH: Final = 500


class _PendingCreate(NamedTuple):
    job: JobRow
    entry: AuditEntry
    agent: Inherited
    written: asyncio.Future[None]


class CreateBatcher:
    """Writes new jobs in batches."""

    def __init__(self, store: Store, allowance: Allowance | None) -> None:
        self._store = store
        self._allowance = allowance
        self._waiting: list[_PendingCreate] = []
        self._writing: asyncio.Task[None] | None = None

    async def add(self, job: JobRow, entry: AuditEntry, agent: Inherited) -> None:
        """Write a job; `agent` is what it inherits. Raise only the error of this job."""
        loop = asyncio.get_running_loop()
        written: asyncio.Future[None] = loop.create_future()
        self._waiting.append(_PendingCreate(job, entry, agent, written))
        if self._writing is None or self._writing.done():
            self._writing = loop.create_task(self._write(), name="wakeful-create-batcher")
        await written

    async def _write(self) -> None:
        while batch := self._waiting[:_LARGEST_BATCH]:
            del self._waiting[: len(batch)]
            try:
                await self._create(batch)
            except Exception as error:
                if _is_of_all(error):
                    _settle(batch, error)
                else:
                    await self._one_by_one(batch, error)
            except BaseException as error:
                _settle(batch, error)
                raise
            else:
                _settle(batch)

    async def _create(self, batch: Sequence[_PendingCreate]) -> None:
        agents: dict[tuple[str, str], Inherited] = {}
        for job, _, agent, _ in batch:
            if agents.setdefault((job.workspace, job.agent), agent) != agent:
                raise AgentChanged(job.agent)  # one of the two has an outdated agent
        await self._store.create_jobs(
            [each.job for each in batch], [each.entry for each in batch], self._allowance, agents=agents
        )

    async def _one_by_one(self, batch: Sequence[_PendingCreate], error: Exception) -> None:
        """Write each job alone after a batch failed because of one of them."""
        if len(batch) == 1:
            _settle(batch, error)
            return
        for number, pending in enumerate(batch):
            try:
                await self._create([pending])
            except Exception as failure:
                if _is_of_all(failure):
                    _settle(batch[number:], failure)
                    return
                _settle([pending], failure)
            else:
                _settle([pending])


def _is_of_all(error: Exception) -> bool:
    """Return whether no job of a batch is the cause of its error."""
    return isinstance(error, Unavailable) and not isinstance(error, AgentChanged)


def _settle(batch: Sequence[_PendingCreate], error: BaseException | None = None) -> None:
    for *_, written in batch:
        if written.done():  # the caller was cancelled
            continue
        if error is None:
            written.set_result(None)
        elif isinstance(error, asyncio.CancelledError):
            written.cancel()
        else:
            written.set_exception(error)
