"""The writer: writes how attempts ended, in batches: whatever has come together while the last was written.

What could not be written stays and is tried again: an outcome is lost only with its process, and then
the run is, which the rescuer sees to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from wakeful.clock import Clock
from wakeful.engine.loop import Loop
from wakeful.logs import get_logger
from wakeful.store.port import Store
from wakeful.store.rows import Finished, Follower, RunRow

_LARGEST_BATCH: Final = 2_000

log = get_logger("wakeful.writer")


class Writer(Loop):
    """Takes outcomes in and writes them out."""

    name = "writer"

    def __init__(
        self, worker: str, store: Store, clock: Clock, longest_ms: int, follow: Callable[[Follower], RunRow]
    ) -> None:
        super().__init__(clock, longest_ms)
        self._worker = worker
        self._store = store
        self._follow = follow
        self._finished: list[Finished] = []
        #: called with each batch that has been written
        self.on_written: Callable[[Sequence[Finished]], None] = lambda batch: None

    def add(self, finished: Finished) -> None:
        """Have this written."""
        self._finished.append(finished)
        if len(self._finished) == 1:
            self.wake()

    async def step(self) -> None:
        """Write all there is."""
        await asyncio.sleep(0)  # let those that end together be written together
        while self._finished:
            batch = self._finished[:_LARGEST_BATCH]
            written = await self._store.finish(self._worker, batch, self._follow)
            del self._finished[: len(batch)]
            if len(written) < len(batch):
                for each in batch:
                    if each.run_id not in written:
                        log.warning("run.fenced", run=each.run_id, attempt=each.attempt, would_be=each.state)
            self.on_written(batch)
