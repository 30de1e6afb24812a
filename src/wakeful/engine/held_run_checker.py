"""Checks every tick which held runs another process has ended, where no notification says so.

`stop` and the overlap policy `replace` end a run in the database. PostgreSQL notifies the process that holds
the run. SQLite notifies only its own process, so that others on the same file must look.
"""

from __future__ import annotations

from wakeful.clock import Clock
from wakeful.engine.loop import Loop
from wakeful.engine.worker import Worker
from wakeful.logs import get_logger
from wakeful.store.port import Store

log = get_logger("wakeful.worker")


class HeldRunChecker(Loop):
    """Stops held runs that are not this worker's any more."""

    name = "held_run_checker"

    def __init__(self, worker_name: str, store: Store, clock: Clock, worker: Worker, longest_ms: int) -> None:
        super().__init__(clock, longest_ms)
        self._worker_name = worker_name
        self._store = store
        self._worker = worker

    async def step(self) -> int | None:
        """One read, and none while nothing is held."""
        holding = self._worker.holding
        if holding:
            for run_id in await self._store.lost(self._worker_name, list(holding)):
                if self._worker.stop(run_id, "lost", holding[run_id]):
                    log.info("run.stopped", run=run_id, reason="another process ended it")
        return None
