"""The history of runs: the run counter adds finished runs to the counts, the pruner deletes what is too old.

The run counter reads the changelog some seconds after the fact, so finishing a run costs nothing more. All
replicas have one; the store lets one of them count at a time, and counts each run once
(`wakeful.store.sql.run_counts`).
"""

from __future__ import annotations

import asyncio
from typing import Final

from wakeful.engine.loop import Loop
from wakeful.job.policy import DAY_MS
from wakeful.logs import get_logger
from wakeful.store.instances import ERASE_BATCH
from wakeful.store.port import Store
from wakeful.values.clock import Clock

#: How many runs one transaction counts, and the pause until the next while there are more: 20,000 runs in a
#: second, and never a long transaction.
BATCH: Final = 2_000
_PAUSE_MS: Final = 100
_EVERY_MS: Final = 3_600_000
#: How long the changelog is kept.
LOG_KEPT_MS: Final = 3_600_000
#: Usage and alert cool-downs are kept at least this long: longer than any cool-down.
_GUARDS_KEPT_MS: Final = 31 * DAY_MS
#: Counts of runs are kept so much longer than the runs.
_COUNTS_KEPT_MS: Final = 60 * DAY_MS
_PRUNE_BATCH: Final = 5_000
#: A clock that is set by more than this may be wrong, and be set again. Nothing is deleted for a while then.
_STEP_MS: Final = 60_000
_SETTLED_S: Final = 600.0

_counter_log = get_logger("wakeful.run_counter")
log = get_logger("wakeful.pruner")


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
            _counter_log.debug("runs.counted", count=counted.runs, more=counted.more)
        return now_ms + _PAUSE_MS if counted.more else None


class AuditAppender(Loop):
    """Appends audit entries that transactions of callers left (`Store.append_waiting_audit`)."""

    name = "audit_appender"

    def __init__(self, store: Store, clock: Clock, *, max_sleep_ms: int) -> None:
        super().__init__(clock, max_sleep_ms)
        self._store = store

    async def step(self) -> int | None:
        """Append all of them."""
        await self._store.append_waiting_audit()
        return None


class Pruner(Loop):
    """Deletes what is too old, in batches: finished runs, signal ids, incidents, sessions, trigger URLs,
    subscriptions, sign-in sessions, usage, counts of runs, changes. It also erases the history of deleted
    instances.

    The changelog is pruned every `log_every_ms`, everything else every hour of the event loop's time: the
    clock may be set.
    """

    name = "pruner"

    def __init__(self, store: Store, clock: Clock, *, retention_days: int, log_every_ms: int) -> None:
        super().__init__(clock, log_every_ms)
        self._log_every_ms = log_every_ms
        self._store = store
        self._retention_ms = retention_days * DAY_MS
        #: when pruning is due, by the clock of the event loop
        self._due = 0.0
        #: how far the clock is ahead of that of the event loop
        self._ahead_ms: float | None = None

    async def step(self) -> int | None:
        """Delete one batch. Returns a near time while there is more."""
        now_ms, now = self.clock.now_ms(), asyncio.get_running_loop().time()
        before_ms, self._ahead_ms = self._ahead_ms, now_ms - 1000 * now
        if before_ms is not None and abs(self._ahead_ms - before_ms) > _STEP_MS:
            log.warning("pruner.clock_set", by_ms=round(self._ahead_ms - before_ms))
            self._due = max(self._due, now + _SETTLED_S)
        if now >= self._due:
            oldest_ms = max(0, now_ms - self._retention_ms)  # 100 years are longer than since 1970
            pruned = await self._store.prune(oldest_ms, _PRUNE_BATCH)
            if pruned:
                log.info("runs.pruned", count=pruned)
            ids = await self._store.prune_signal_ids(now_ms, _PRUNE_BATCH)
            counts = await self._store.prune_run_counts(max(0, oldest_ms - _COUNTS_KEPT_MS), _PRUNE_BATCH)
            is_more = max(pruned, ids, counts) >= _PRUNE_BATCH
            # These read whole tables, so they wait until nothing is left of the others.
            if not is_more:
                is_more = await self._prune_tables(now_ms)
            self._due = now + (100 if is_more else _EVERY_MS) / 1000
        more = await self._store.prune_changes(now_ms - LOG_KEPT_MS, _PRUNE_BATCH) >= _PRUNE_BATCH
        erases = await self._erase()  # last: it may take long, or fail each time
        wait_ms = max(1, round(1000 * (self._due - now)))
        return now_ms + min(wait_ms, 100 if more or erases else self._log_every_ms)

    async def _erase(self) -> bool:
        """Erase a part of the history of a deleted instance: who deleted it may have stopped to do so."""
        for instance in await self._store.deleting_instances(1):
            await self._store.erase_instance(instance, ERASE_BATCH)
            return True
        return False

    async def _prune_tables(self, now_ms: int) -> bool:
        """Delete what is too old of small tables, and a batch of conversations. Returns if there is more."""
        before_ms = max(0, now_ms - self._retention_ms)
        guarded_ms = max(0, min(before_ms, now_ms - _GUARDS_KEPT_MS))
        if await self._store.prune_sessions(before_ms, _PRUNE_BATCH) >= _PRUNE_BATCH:
            return True
        await self._store.prune_budgets(guarded_ms)
        await self._store.prune_incidents(before_ms)
        await self._store.prune_suggestions(before_ms)
        await self._store.prune_hooks(now_ms)
        await self._store.prune_subscriptions(before_ms)
        await self._store.prune_event_sources(guarded_ms)
        await self._store.prune_web_sessions(now_ms)
        await self._store.prune_oauth(now_ms)
        return False
