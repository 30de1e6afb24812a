"""The writer: writes how attempts ended, in batches: whatever has come together while the last was written.

What could not be written stays and is tried again: an outcome is lost only with its process, and then
the run is, which the rescuer sees to. One that cannot be stored, whatever the database is, is told apart
from those that came with it, and written without what it said.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from wakeful.clock import Clock
from wakeful.engine.loop import Loop
from wakeful.errors import Unavailable
from wakeful.logs import get_logger
from wakeful.store.port import Store
from wakeful.store.rows import Finished, Follower, RunRow

_LARGEST_BATCH: Final = 2_000
_UNSTORABLE: Final = "what it said could not be stored"

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
        self._most = _LARGEST_BATCH
        #: called with each batch that has been sent, and the ids of the runs that were written
        self.on_written: Callable[[Sequence[Finished], set[str]], None] = lambda batch, written: None

    def add(self, finished: Finished) -> None:
        """Have this written."""
        self._finished.append(finished)
        if len(self._finished) == 1:
            self.wake()

    @property
    def unwritten(self) -> int:
        """How many outcomes wait to be written."""
        return len(self._finished)

    async def step(self) -> None:
        """Write all there is."""
        await asyncio.sleep(0)  # let those that end together be written together
        while self._finished:
            batch = self._finished[: self._most]
            try:
                written = await self._store.finish(self._worker, batch, self._follow)
            except Unavailable:
                raise
            except Exception as error:
                self._sort_out(batch, error)
                continue
            self._most = min(self._most * 2, _LARGEST_BATCH)
            del self._finished[: len(batch)]
            if len(written) < len(batch):
                for each in batch:
                    if each.run_id not in written:
                        # Not a fault: the run was stopped, or completed from outside. One that was lost has
                        # been reported as such.
                        log.info("run.fenced", run=each.run_id, attempt=each.attempt, would_be=each.state)
            self.on_written(batch, written)

    def _sort_out(self, batch: Sequence[Finished], error: Exception) -> None:
        """Look for the outcome that cannot be written: it holds up no other. Raises what cannot be helped."""
        if len(batch) > 1:
            self._most = len(batch) // 2
            return
        one = batch[0]
        log.error("run.unwritable", run=one.run_id, attempt=one.attempt, exc_info=error)
        silent = one._replace(
            output=None, usage=None, error=f"{_UNSTORABLE} ({type(error).__name__})", reason="unstorable"
        )
        if one.reason == silent.reason:
            self._finished.append(self._finished.pop(0))
            raise error
        self._finished[0] = silent
