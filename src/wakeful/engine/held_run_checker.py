"""The held run checker: finds runs of this worker that another process has ended, without notifications.

`stop` and the overlap policy `replace` end a run in the database. PostgreSQL notifies the process that holds
the run. SQLite notifies only its own process, so other processes on the same file must poll.
"""

from __future__ import annotations

from wakeful.engine.loop import Loop
from wakeful.engine.worker import Worker
from wakeful.logs import get_logger
from wakeful.store.port import Store
from wakeful.values.clock import Clock

log = get_logger("wakeful.worker")


class HeldRunChecker(Loop):
    """Stops runs in flight that no longer belong to this worker."""

    name = "held_run_checker"

    def __init__(
        self, worker_name: str, store: Store, clock: Clock, worker: Worker, max_sleep_ms: int
    ) -> None:
        super().__init__(clock, max_sleep_ms)
        self._worker_name = worker_name
        self._store = store
        self._worker = worker

    async def step(self) -> int | None:
        """Read once, and not at all if nothing is in flight."""
        in_flight = self._worker.in_flight
        if in_flight:
            for run_id in await self._store.lost(self._worker_name, list(in_flight)):
                if self._worker.stop(run_id, "lost", in_flight[run_id]):
                    log.info(
                        "run.stopped",
                        **in_flight[run_id].launch.log_fields,
                        reason="another process ended it",
                    )
        return None
