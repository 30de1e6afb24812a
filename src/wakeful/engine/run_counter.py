"""The run counter: adds finished runs to the counts by hour, and by job and day.

It reads the changelog some seconds after the fact, so finishing a run costs nothing more. All replicas have
one; the store lets one of them count at a time, and counts each run once (`wakeful.store.run_counts`).
"""

from __future__ import annotations

from typing import Final

from wakeful.engine.loop import Loop
from wakeful.logs import get_logger
from wakeful.store.port import Store
from wakeful.values.clock import Clock

#: How many runs one transaction counts, and the pause until the next while there are more: 20,000 runs in a
#: second, and never a long transaction.
BATCH: Final = 2_000
_PAUSE_MS: Final = 100

log = get_logger("wakeful.run_counter")


class RunCounter(Loop):
    """Counts finished runs, in batches."""

    name = "run_counter"

    def __init__(self, store: Store, clock: Clock, *, max_sleep_ms: int) -> None:
        super().__init__(clock, max_sleep_ms)
        self._store = store

    async def step(self) -> int | None:
        """Count one batch. Returns a near time while there is more."""
        now_ms = self.clock.now_ms()
        counted = await self._store.count_runs(now_ms, BATCH)
        if counted.runs:
            log.debug("runs.counted", count=counted.runs, more=counted.more)
        return now_ms + _PAUSE_MS if counted.more else None
