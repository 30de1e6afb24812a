"""The writer: writes how attempts ended, in batches: whatever has come together while the last was written.

What could not be written stays and is tried again: an outcome is lost only with its process, and then
the run is, which the rescuer sees to. An outcome with a value that the database refuses is told apart from
those that came with it and written without its output. Any other error is taken for one that passes: the
batch is tried again several times, then divided until the outcome is found that causes it; this one is tried
again behind the others, and loses its output only when that has failed too.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from wakeful.clock import Clock
from wakeful.consequences import Consequences
from wakeful.engine.loop import Loop
from wakeful.errors import DatabaseFault, InvalidArgument, Unavailable
from wakeful.logs import get_logger
from wakeful.outcome import Finished
from wakeful.store.port import Store

_LARGEST_BATCH: Final = 2_000
_UNSTORABLE: Final = "what it said could not be stored"
_REASON: Final = "unstorable"
#: How often a batch is tried again as a whole after a fault of the database.
_SAME_BATCH: Final = 3
#: How often that happens to one outcome alone before it is written without its output.
_ALONE: Final = 3

log = get_logger("wakeful.completer")


class Completer(Loop):
    """Takes outcomes in and writes them out."""

    name = "completer"

    def __init__(
        self, worker: str, store: Store, clock: Clock, max_sleep_ms: int, consequences: Consequences
    ) -> None:
        super().__init__(clock, max_sleep_ms)
        self._worker = worker
        self._store = store
        self._consequences = consequences
        self._finished: list[Finished] = []
        self._most = _LARGEST_BATCH
        #: faults since a batch was last written, and how often an outcome alone met with them, by its run
        self._faults = 0
        self._faulty: Counter[str] = Counter()
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
                written = await self._store.finish(self._worker, batch, self._consequences)
            except InvalidArgument as error:
                if not self._divide(batch):
                    self._drop_output(batch[0], error)
                continue
            except Exception as error:
                if isinstance(error, Unavailable) and not isinstance(error, DatabaseFault):
                    raise
                if not isinstance(error, Unavailable):
                    log.exception("outcomes.fault", count=len(batch))
                    error = DatabaseFault(f"outcomes cannot be written: {type(error).__name__}: {error}")
                self._faults += 1
                if self._faults <= _SAME_BATCH:
                    raise error from None
                if not self._divide(batch):
                    self._set_back(batch[0], error)
                continue
            self._faults = 0
            self._most = min(self._most * 2, _LARGEST_BATCH)
            if self._faulty:
                for each in batch:
                    del self._faulty[each.run_id]
            del self._finished[: len(batch)]
            if len(written) < len(batch):
                for each in batch:
                    if each.run_id not in written:
                        # Not a fault: the run was stopped, or completed from outside. One that was lost has
                        # been reported as such.
                        log.info("run.fenced", run=each.run_id, attempt=each.attempt, would_be=each.state)
            self.on_written(batch, written)

    def _divide(self, batch: Sequence[Finished]) -> bool:
        """Continue with half of this batch; False: it is one outcome already."""
        if len(batch) > 1:
            self._most = len(batch) // 2
        return len(batch) > 1

    def _set_back(self, one: Finished, error: Exception) -> None:
        """Try this one again behind the others; at last without its output. Raises the error."""
        self._faulty[one.run_id] += 1
        if self._faulty[one.run_id] >= _ALONE and one.reason != _REASON:
            self._drop_output(one, error)
        self._finished.append(self._finished.pop(0))
        raise error

    def _drop_output(self, one: Finished, error: Exception) -> None:
        """Write the first outcome without its output. Raises the error where that is gone already."""
        log.error("run.unwritable", run=one.run_id, attempt=one.attempt, exc_info=error)
        if one.reason == _REASON:
            self._finished.append(self._finished.pop(0))
            raise error
        said = f"{_UNSTORABLE} ({type(error).__name__})"
        self._finished[0] = one._replace(output=None, usage=None, error=said, reason=_REASON)
