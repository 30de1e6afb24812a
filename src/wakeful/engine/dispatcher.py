"""The dispatcher: claims due runs that wait (retries, queued runs, full lanes, manual runs)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from wakeful.engine.launcher_registry import LauncherRegistry
from wakeful.engine.loop import Loop
from wakeful.engine.worker import Worker
from wakeful.job.start_rules import Capabilities
from wakeful.launch.budgets import BudgetCache
from wakeful.logs import get_logger
from wakeful.store.port import Store
from wakeful.store.rows import TakenRun
from wakeful.values.clock import Clock

log = get_logger("wakeful.dispatcher")

#: The suspects that run at once have at most one in so many free slots of a lane.
_SHARE_OF_SUSPECTS: Final = 4


async def give_back(store: Store, worker_name: str, worker: Worker) -> None:
    """Give back the prefetched runs that the worker has dropped."""
    dropped = worker.pop_dropped()
    if not dropped:
        return
    try:
        count = await store.give_back(worker_name, store.clock.now_ms(), dropped)
    except BaseException:
        worker.uncertain_claims += 1  # so that they are released later
        raise
    log.info("runs.given_back", count=count)


class Dispatcher(Loop):
    """Claims as many due runs as there are free slots, and submits them to the worker of this process."""

    name = "dispatcher"
    follows_time = True

    def __init__(
        self,
        worker_name: str,
        store: Store,
        clock: Clock,
        worker: Worker,
        launchers: LauncherRegistry,
        budgets: BudgetCache,
        *,
        max_sleep_ms: int,
    ) -> None:
        super().__init__(clock, max_sleep_ms)
        self._worker_name = worker_name
        self._store = store
        self._worker = worker
        self._launchers = launchers
        self._budgets = budgets
        #: whether the last suspects were several
        self._took_some = False

    async def step(self) -> int | None:
        """Claim due runs. Returns when the next run is due; a free slot wakes the loop too.

        While runs wait for slots, the transactions that write outcomes claim most of them.
        """
        await give_back(self._store, self._worker_name, self._worker)
        if self._worker.uncertain_claims:
            await self._release_unknown()
        await self._budgets.refresh(self.clock.now_ms())
        async with self._worker.reserve_slots(prefetch=True) as reserved:
            free, prefetch = reserved
            if not free:
                return None
            lanes = list(free)
            now_ms, capabilities = self.clock.now_ms(), self._launchers.capabilities()
            suspects = await self._take_suspects(now_ms, free, capabilities)
            used = Counter(run.lane for run in suspects)
            left = {lane: count - used[lane] for lane, count in free.items() if count > used[lane]}
            taken: Sequence[TakenRun] = ()
            if left or prefetch:
                usage = self._worker.lane_usage({**left, **prefetch})
                taken = await self._store.take(now_ms, self._worker_name, left, capabilities, prefetch, usage)
            runs = self._worker.accept(reserved, [*suspects, *taken])
            for run in runs[: len(suspects)]:
                run.suspect = True
        self._worker.submit(runs)
        if runs:
            return now_ms
        return await self._store.next_due_ms(now_ms, lanes, capabilities)

    async def _take_suspects(
        self, now_ms: int, free: Mapping[str, int], capabilities: Capabilities
    ) -> list[TakenRun]:
        """Claim runs that were lost together with others, if this process runs none of them.

        In turns, some that were lost once, and a single one that may have been lost more often.
        """
        lanes = [lane for lane in free if lane in self._worker.suspect_lanes]
        if not lanes:
            return []
        roomy = [lane for lane in lanes if free[lane] >= 2 * _SHARE_OF_SUSPECTS]
        ways = [(lanes, 1)]
        if roomy:
            some = min(free[lane] for lane in roomy) // _SHARE_OF_SUSPECTS
            ways.insert(self._took_some, (roomy, some))
        for where, limit in ways:
            taken = await self._store.take_suspects(now_ms, self._worker_name, where, capabilities, limit)
            if taken:
                self._took_some = limit > 1
                return taken
        self._worker.record_no_suspects(lanes)
        return []

    async def _release_unknown(self) -> None:
        """Release runs claimed for us whose claim response was lost."""
        # So that nothing is claimed meanwhile. While claims are uncertain, no outcome takes another run.
        async with self._worker.taking, self._worker.reserve_slots():
            # By attempt: the outcome of an earlier one may still have to be written, or be refused.
            uncertain = self._worker.uncertain_claims
            known = [(run_id, run.launch.attempt) for run_id, run in self._worker.in_flight.items()]
            released = await self._store.release(self._worker_name, self.clock.now_ms(), known)
            self._worker.uncertain_claims -= uncertain  # not those that were added meanwhile
        if released:
            log.warning("runs.released", count=released)
