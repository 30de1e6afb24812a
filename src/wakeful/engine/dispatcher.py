"""The dispatcher: takes runs that are due and waiting (retries, queues, full lanes, triggers by hand)."""

from __future__ import annotations

from wakeful.clock import Clock
from wakeful.engine.budget_cache import BudgetCache
from wakeful.engine.in_flight import InFlight
from wakeful.engine.launcher_registry import LauncherRegistry
from wakeful.engine.loop import Loop
from wakeful.engine.worker import Worker
from wakeful.logs import get_logger
from wakeful.store.port import Store
from wakeful.store.rows import TakenRun

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
        holds: BudgetCache | None = None,
    ) -> None:
        super().__init__(clock, longest_ms)
        self._holds = BudgetCache(store, longest_ms) if holds is None else holds
        self._worker_name = worker_name
        self._store = store
        self._worker = worker
        self._targets = targets

    async def step(self) -> int | None:
        """Take what can be taken. Returns when the next run is due; a place that falls free wakes us too."""
        if self._worker.unsure:
            await self._give_back()
        await self._holds.refresh(self.clock.now_ms())
        async with self._worker.places() as free:
            if not free:
                return None
            lanes = list(free)
            now_ms = self.clock.now_ms()
            taken = [self._held(run) for run in await self._store.take(now_ms, self._worker_name, free)]
            for held in taken:
                free[held.lane] -= 1
        self._worker.hold(taken)
        if taken:
            return now_ms
        return await self._store.next_due_ms(now_ms, lanes)

    def _held(self, run: TakenRun) -> InFlight:
        held = self._targets.taken(run)
        if self._holds and self._holds.stop(run):
            log.info("run.skipped", reason="budget", run=run.id, job=run.job_name, workspace=run.workspace)
            self._targets.hold(held)
        return held

    async def _give_back(self) -> None:
        """Let go of what the database says is ours, and we were never told that it is."""
        async with self._worker.places():  # and nobody claims anything meanwhile
            holding = list(self._worker.holding)
            released = await self._store.release(self._worker_name, self.clock.now_ms(), holding)
            self._worker.unsure = False
        if released:
            log.warning("runs.given_back", count=released)
