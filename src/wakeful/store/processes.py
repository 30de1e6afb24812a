"""Processes: the workers with their heartbeats, and the executors that hold runs."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class WorkerRow(NamedTuple):
    """A process that takes runs."""

    name: str
    beat_ms: int
    started_ms: int
    #: what it can launch, as JSON (`wakeful.job.capabilities`)
    capabilities: str


class HolderRow(NamedTuple):
    """A worker or an executor, and the runs that it holds."""

    name: str
    #: whether it is an executor, which claims runs over HTTP
    is_executor: bool
    runs: int
    #: of an executor: its latest heartbeat for one of these runs
    beat_ms: int | None


class ProcessStore(Protocol):
    """The part of a store that reads processes, for observers."""

    async def worker_rows(self, limit: int) -> list[WorkerRow]:
        """Return the processes that the database knows, newest start first.

        One that stopped is removed; one that ended without notice, when another takes its runs.
        """
        ...

    async def holders(self, workspace: str | None, limit: int) -> list[HolderRow]:
        """Return who holds running runs of a workspace, or of all (None), most runs first."""
        ...
