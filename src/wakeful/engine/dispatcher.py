"""The dispatcher: takes runs that are due and waiting (retries, queues, full lanes, triggers by hand)."""

from __future__ import annotations

from wakeful.clock import Clock
from wakeful.engine.budget_cache import BudgetCache
from wakeful.engine.launcher_registry import LauncherRegistry
from wakeful.engine.loop import Loop
from wakeful.engine.worker import Worker
from wakeful.logs import get_logger
from wakeful.store.port import Store

log = get_logger("wakeful.dispatcher")


class Dispatcher(Loop):
    """Takes as many due runs as there are places, and hands them to the worker of this process."""

    name = "dispatcher"

    def __init__(
        self,
        worker_name: str,
        store: Store,
        clock: Clock,
        worker: Worker,
        targets: LauncherRegistry,
        *,
        longest_ms: int,
        budgets: BudgetCache,
    ) -> None:
        super().__init__(clock, longest_ms)
        self._budgets = budgets
        self._worker_name = worker_name
        self._store = store
        self._worker = worker
        self._targets = targets

    async def step(self) -> int | None:
        """Take what can be taken. Returns when the next run is due; a place that falls free wakes us too."""
        if self._worker.unsure:
            await self._give_back()
        await self._budgets.refresh(self.clock.now_ms())
        async with self._worker.places() as free:
            if not free:
                return None
            lanes = list(free)
            now_ms = self.clock.now_ms()
            due = await self._store.take(now_ms, self._worker_name, free)
            taken = [self._targets.taken(run) for run in due]
            for held in taken:
                free[held.lane] -= 1
        self._worker.hold(taken)
        if taken:
            return now_ms
        return await self._store.next_due_ms(now_ms, lanes)

    async def _give_back(self) -> None:
        """Let go of what the database says is ours, and we were never told that it is."""
        async with self._worker.places():  # and nobody claims anything meanwhile
            holding = list(self._worker.holding)
            released = await self._store.release(self._worker_name, self.clock.now_ms(), holding)
            self._worker.unsure = False
        if released:
            log.warning("runs.given_back", count=released)
