"""Values that are computed in a thread from the counts per distinct timing, and kept.

A page that finds nothing kept waits a moment only: it shows that the value is being computed, and is loaded
again. A value that is older than a minute is used once more while it is computed again. The longer that
takes, the less often it happens.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Final, Generic, NamedTuple, TypeVar

from wakeful.errors import WakefulError
from wakeful.forecast.peaks import TimingCount
from wakeful.logs import get_logger
from wakeful.service.admin.peaks import PAGES_SHARE, peak_thread
from wakeful.store.port import Store
from wakeful.values.bounded_cache import MB, BoundedCache

#: How long a value is used, and how long while it is computed again, in seconds.
KEPT_S: Final = 60.0
USABLE_S: Final = 3_600.0
#: How long a page waits for a computation, in seconds.
WAIT_S: Final = 0.04
_BUDGET: Final = 8 * MB

T = TypeVar("T")
#: workspace, agent, first instant, last instant
Key = tuple[str, str | None, int, int]
#: Computes a value from counts; it calls the second argument often.
Compute = Callable[[list[TimingCount], Callable[[], object]], T]

log = get_logger("wakeful.peaks")


class _Stopped(Exception):
    pass


class _Kept(NamedTuple, Generic[T]):
    value: T
    at: float
    took_s: float


class TimingCache(Generic[T]):
    """Computes values in the thread of load peaks, and keeps them."""

    def __init__(self, store: Store, weight: int) -> None:
        self._store = store
        self._weight = weight
        self._kept: BoundedCache[Key, _Kept[T]] = BoundedCache(_BUDGET)
        self._computing: dict[Key, asyncio.Task[T]] = {}
        self._closed = False

    async def get(self, key: Key, compute: Compute[T]) -> T | None:
        """Return a value that is kept, or computed within a moment; None: it is being computed."""
        kept = self._kept.get(key)
        age = USABLE_S if kept is None else time.monotonic() - kept.at
        if kept is not None and age < max(KEPT_S, kept.took_s / PAGES_SHARE):
            return kept.value
        task = self._computing.get(key)
        if task is None:
            task = self._computing[key] = asyncio.create_task(self._compute(key, compute))
            task.add_done_callback(partial(self._done, key))
        if kept is not None and age < USABLE_S:
            return kept.value
        done, _ = await asyncio.wait([task], timeout=WAIT_S)
        return task.result() if done else None

    async def close(self) -> None:
        """Stop computing."""
        self._closed = True
        tasks = [*self._computing.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _compute(self, key: Key, compute: Compute[T]) -> T:
        began = time.monotonic()
        counts = await self._store.timings(key[0], key[1])
        value = await asyncio.get_running_loop().run_in_executor(peak_thread, compute, counts, self._pause)
        ended = time.monotonic()
        self._kept.put(key, _Kept(value, ended, ended - began), self._weight)
        return value

    def _pause(self) -> None:
        """Let the event loop run. Called in the thread."""
        if self._closed:
            raise _Stopped
        time.sleep(0)

    def _done(self, key: Key, task: asyncio.Task[T]) -> None:
        self._computing.pop(key, None)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, WakefulError):
            log.debug("peaks.unavailable", error=error.message)
        elif error is not None and not isinstance(error, _Stopped):
            log.error("peaks.failed", exc_info=error)
