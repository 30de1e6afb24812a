"""Jobs that are created at the same time are written at the same time.

A commit costs the same for one job as for a hundred. Whoever comes while the last batch is being written
waits for it and goes with the next; one that comes alone goes at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from wakeful.errors import AlreadyExists, ResourceExhausted
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
    """New jobs on their way into the store."""

    def __init__(self, store: Store, allowance: Allowance | None) -> None:
        self._store = store
        self._allowance = allowance
        self._waiting: list[_PendingCreate] = []
        self._writing: asyncio.Task[None] | None = None

    async def add(self, job: JobRow, entry: AuditEntry, agent: Inherited) -> None:
        """Write this job, made for such an agent; raises what the store says to it, and to no other."""
        loop = asyncio.get_running_loop()
        written: asyncio.Future[None] = loop.create_future()
        self._waiting.append(_PendingCreate(job, entry, agent, written))
        if self._writing is None or self._writing.done():
            self._writing = loop.create_task(self._write(), name="wakeful-arrivals")
        await written

    async def _write(self) -> None:
        while batch := self._waiting[:_LARGEST_BATCH]:
            del self._waiting[: len(batch)]
            try:
                await self._create(batch)
            except (AlreadyExists, ResourceExhausted, AgentChanged) as error:
                await self._one_by_one(batch, error)
            except BaseException as error:
                _settle(batch, error)
                if not isinstance(error, Exception):
                    raise
            else:
                _settle(batch)

    async def _create(self, batch: Sequence[_PendingCreate]) -> None:
        agents: dict[tuple[str, str], Inherited] = {}
        for job, _, agent, _ in batch:
            if agents.setdefault((job.workspace, job.agent), agent) != agent:
                raise AgentChanged(job.agent)  # one of the two was made for an agent as it was before
        await self._store.create_jobs(
            [each.job for each in batch], [each.entry for each in batch], self._allowance, agents=agents
        )

    async def _one_by_one(self, batch: Sequence[_PendingCreate], error: Exception) -> None:
        """One of them cannot be, and nothing is written: the others do not suffer for it."""
        if len(batch) == 1:
            _settle(batch, error)
            return
        for arrival in batch:
            try:
                await self._create([arrival])
            except Exception as own:
                _settle([arrival], own)
            else:
                _settle([arrival])


def _settle(batch: Sequence[_PendingCreate], error: BaseException | None = None) -> None:
    for *_, written in batch:
        if written.done():  # whoever waited for it has gone
            continue
        if error is None:
            written.set_result(None)
        elif isinstance(error, asyncio.CancelledError):
            written.cancel()
        else:
            written.set_exception(error)
