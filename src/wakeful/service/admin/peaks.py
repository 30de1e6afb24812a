"""Load peaks of the coming week: computed in a thread, kept for a minute.

Saving a job only reads what is kept. If that is old or missing, saving starts a computation for later saves
and does not wait for it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Hashable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, Generic, NamedTuple, TypeVar

from wakeful.errors import WakefulError
from wakeful.forecast.peaks import WEEK_MINUTES, Week, compute_week
from wakeful.logs import get_logger
from wakeful.service.auth.access import LOCAL, Principal, visible_agent
from wakeful.service.auth.accounts import Accounts
from wakeful.store.port import Store
from wakeful.values.bounded_cache import MB, BoundedCache

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

#: How long a computed week is returned.
KEPT_MS: Final = 60_000
#: How long a page shows a week that is computed quickly.
_FRESH_MS: Final = 2_000
#: How old the week may be by which a saved job is judged: schedules change slowly.
_USABLE_MS: Final = 60 * 60_000
#: Seconds from the first saved job to the first computation, so that a batch of jobs is in it.
_FIRST_S: Final = 60.0
#: Computations that saved jobs start take at most this part of the time.
_SHARE: Final = 1 / 20
#: Computations that open pages start take at most this part of the time.
PAGES_SHARE: Final = 1 / 100
#: How many workspaces wait for a computation at once.
_MOST_WAITING: Final = 100
_BUDGET: Final = 8 * MB
_WEIGHT: Final = 8 * WEEK_MINUTES + 16 * 1024

#: One thread, and not the one for calendars: a computation must not delay a job that excludes days.
peak_thread: Final = ThreadPoolExecutor(1, "peaks")
log = get_logger("wakeful.peaks")

#: a workspace, and an agent or None for all
_Key = tuple[str, str | None]


class ComputedWeek(NamedTuple):
    """The load of a week, when it was computed, and how long that took."""

    week: Week
    computed_ms: int
    took_ms: float


class _Stopped(Exception):
    pass


class Computations(Generic[K, T]):
    """Computes values in the thread of load peaks, each once at a time."""

    #: the pause after each timing
    pause_s = 0.0

    def __init__(self) -> None:
        self._computing: dict[K, asyncio.Task[T]] = {}
        #: set when the scheduler stops; it may start again
        self._stopped = threading.Event()

    async def close(self) -> None:
        """Stop computing."""
        self._stopped.set()
        tasks = [*self._computing.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._stopped = threading.Event()

    def start(self, key: K, compute: Callable[[], Coroutine[Any, Any, T]]) -> asyncio.Task[T]:
        """Start a computation, or return the one in progress. A later request starts a failed one again."""
        task = self._computing.get(key)
        if task is None:
            task = self._computing[key] = asyncio.get_running_loop().create_task(compute())
            task.add_done_callback(partial(self._done, key))
        return task

    @property
    def pause(self) -> Callable[[], None]:
        """What the thread calls to let the event loop run, until the scheduler stops."""
        stopped = self._stopped

        def pause() -> None:
            if stopped.is_set():
                raise _Stopped
            time.sleep(self.pause_s)

        return pause

    def _done(self, key: K, task: asyncio.Task[T]) -> None:
        self._computing.pop(key, None)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, WakefulError):
            log.debug("peaks.unavailable", error=error.message)
        elif error is not None and not isinstance(error, _Stopped):
            log.error("peaks.failed", exc_info=error)


class WeekCache(Computations[_Key, ComputedWeek]):
    """Computes and keeps the load of the coming week, per workspace and agent."""

    #: A shorter one often ends before another thread runs.
    pause_s = 0.000_2

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = store
        self._kept: BoundedCache[_Key, ComputedWeek] = BoundedCache(_BUDGET)
        self._timers: dict[str, asyncio.TimerHandle] = {}

    async def get(self, workspace: str, agent: str | None) -> ComputedWeek:
        """Return the week, at most a minute old."""
        kept = self._kept.get((workspace, agent))
        if kept is not None and self._age_ms(kept) < KEPT_MS:
            return kept
        return await asyncio.shield(self._compute((workspace, agent)))

    async def recent(self, workspace: str, agent: str | None, wait_s: float) -> ComputedWeek | None:
        """Return the week for a page: at most an hour old, or None if there is none within `wait_s`.

        A week that takes little time is computed again after seconds, so that new jobs are in it. One that
        takes longer is computed less often, in the background.
        """
        key = workspace, agent
        kept = self._kept.get(key)
        if kept is not None:
            age_ms = self._age_ms(kept)
            if age_ms < max(_FRESH_MS, kept.took_ms / PAGES_SHARE):
                return kept
            if age_ms >= _USABLE_MS:
                kept = None
        task = self._compute(key)
        if kept is None or kept.took_ms < 1_000 * wait_s:
            await asyncio.wait([task], timeout=wait_s)
        return task.result() if task.done() else kept

    def known(self, workspace: str) -> Week | None:
        """Return the week of a workspace if one is kept. Never waits, and never computes."""
        kept = self._kept.get((workspace, None))
        if kept is None:
            self._compute_later(workspace, _FIRST_S)
            return None
        age_ms = self._age_ms(kept)
        if age_ms >= KEPT_MS and age_ms * _SHARE >= kept.took_ms:
            self._compute_later(workspace, 0)
        return kept.week if age_ms < _USABLE_MS else None

    async def close(self) -> None:
        """Stop computing."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        await super().close()

    def _age_ms(self, kept: ComputedWeek) -> int:
        return abs(self._store.clock.now_ms() - kept.computed_ms)

    def _compute_later(self, workspace: str, delay_s: float) -> None:
        waiting = workspace in self._timers or (workspace, None) in self._computing
        if waiting or self._stopped.is_set() or len(self._timers) >= _MOST_WAITING:
            return
        loop = asyncio.get_running_loop()
        self._timers[workspace] = loop.call_later(delay_s, self._compute_now, workspace)

    def _compute_now(self, workspace: str) -> None:
        del self._timers[workspace]
        kept = self._kept.get((workspace, None))
        is_recent = kept is not None and self._age_ms(kept) < KEPT_MS  # a page needed it meanwhile
        if not self._stopped.is_set() and not is_recent:
            self._compute((workspace, None))

    def _compute(self, key: _Key) -> asyncio.Task[ComputedWeek]:
        return self.start(key, partial(self._computed, key))

    async def _computed(self, key: _Key) -> ComputedWeek:
        began = time.monotonic()
        now_ms = self._store.clock.now_ms()
        counts = await self._store.timings(*key)
        compute = partial(compute_week, counts, now_ms, self.pause)
        week = await asyncio.get_running_loop().run_in_executor(peak_thread, compute)
        computed = ComputedWeek(week, now_ms, (time.monotonic() - began) * 1_000)
        self._kept.put(key, computed, _WEIGHT)
        log.debug(
            "peaks.computed", workspace=key[0], agent=key[1], jobs=week.jobs, timings=week.timings,
            ms=round(computed.took_ms),
        )  # fmt: skip
        return computed


class PeakService:
    """Reads the load of the coming week."""

    def __init__(self, store: Store, accounts: Accounts, weeks: WeekCache) -> None:
        self._store = store
        self._accounts = accounts
        self._weeks = weeks

    async def get(self, principal: Principal, workspace: str, agent: str | None = None) -> ComputedWeek:
        """Return the week of a workspace, or of an agent; a key of the role `agent` sees its own agent."""
        await self._accounts.authorize(principal, "read", workspace, agent)
        visible = visible_agent(principal, agent)
        if visible is not None and principal is not LOCAL:
            await self._accounts.agent(workspace, visible)
        return await self._weeks.get(workspace, visible)

    async def recent(
        self, principal: Principal, workspace: str, agent: str | None = None, wait_s: float = 0.05
    ) -> ComputedWeek | None:
        """Return the week for a page, without a long wait: at most an hour old, or None.

        None: it is being computed. The page shows it when it is loaded again.
        """
        await self._accounts.authorize(principal, "read", workspace, agent)
        return await self._weeks.recent(workspace, visible_agent(principal, agent), wait_s)
