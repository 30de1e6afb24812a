"""Processes: workers with their heartbeats, and executors that hold runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from wakeful.engine.metrics import Metrics
from wakeful.engine.rescuer import LEASE_MS
from wakeful.job.capabilities import capabilities_from_text
from wakeful.service.admin.status import Status
from wakeful.service.auth.access import Principal, may_operate
from wakeful.service.auth.accounts import Accounts
from wakeful.store.port import Store

_MOST: Final = 500


class WorkerState(NamedTuple):
    """A process that takes runs."""

    name: str
    started_ms: int
    beat_ms: int
    #: whether its last heartbeat is recent
    alive: bool
    #: the running runs that it holds, of the workspace or, for operators, of all
    runs: int
    #: the functions and agent classes that it can launch, as far as the caller may see them
    capabilities: Mapping[str, int]
    #: whether it is the process that answers
    is_this: bool
    #: of this process: its version, and by lane the used slots and all slots
    version: str | None
    lanes: Mapping[str, tuple[int, int]]


class ExecutorState(NamedTuple):
    """A program outside that holds claimed runs."""

    name: str
    runs: int
    beat_ms: int | None


class Processes(NamedTuple):
    """The processes of an installation."""

    workers: list[WorkerState]
    executors: list[ExecutorState]


class WorkerService:
    """Lists processes."""

    def __init__(self, store: Store, accounts: Accounts, metrics: Metrics, status: Status) -> None:
        self._store = store
        self._accounts = accounts
        self._metrics = metrics
        self._status = status

    async def list(self, principal: Principal, workspace: str) -> Processes:
        """List workers and executors.

        The admin of one workspace sees the runs and agent classes of that workspace only.
        """
        await self._accounts.authorize(principal, "diagnose", workspace)
        operator = may_operate(principal)
        holders = await self._store.holders(None if operator else workspace, _MOST)
        held = {holder.name: holder.runs for holder in holders if not holder.is_executor}
        since_ms = self._store.clock.now_ms() - LEASE_MS
        engine = self._status.engine
        this = engine.worker_name if engine is not None else None
        workers = [
            WorkerState(
                row.name,
                row.started_ms,
                row.beat_ms,
                row.beat_ms >= since_ms,
                held.get(row.name, 0),
                _visible(capabilities_from_text(row.capabilities), None if operator else workspace),
                row.name == this,
                self._status.version if row.name == this else None,
                self._metrics.lanes() if row.name == this else {},
            )
            for row in await self._store.worker_rows(_MOST)
        ]
        executors = [
            ExecutorState(holder.name, holder.runs, holder.beat_ms)
            for holder in holders
            if holder.is_executor
        ]
        return Processes(workers, executors)


def _visible(capabilities: Mapping[str, int], workspace: str | None) -> dict[str, int]:
    """Return the capabilities that the admin of a workspace may see; None: all.

    >>> _visible({"": 0, "agent:acme/writer": 2, "agent:other/x": 1}, "acme")
    {'agent:acme/writer': 2}
    """
    return {
        name: version
        for name, version in sorted(capabilities.items())
        if name and (workspace is None or name.startswith(f"agent:{workspace}/"))
    }
