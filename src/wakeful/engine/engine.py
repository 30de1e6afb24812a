"""The engine: starts the loops of a replica, hears what changed, and stops them without losing anything."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from wakeful.engine.alerter import Alerter
from wakeful.engine.budget_cache import BudgetCache
from wakeful.engine.completer import Completer
from wakeful.engine.dispatcher import Dispatcher
from wakeful.engine.held_run_checker import HeldRunChecker
from wakeful.engine.launcher_registry import LauncherRegistry
from wakeful.engine.loop import Loop
from wakeful.engine.metrics import Metrics
from wakeful.engine.planner import BATCH, Planner
from wakeful.engine.pruner import Pruner
from wakeful.engine.rescuer import BEAT_MS, LEASE_MS, Rescuer
from wakeful.engine.worker import Worker
from wakeful.errors import Unavailable
from wakeful.ids import new_id
from wakeful.logs import get_logger
from wakeful.planning import Limits
from wakeful.policy import Backoff
from wakeful.run_factory import follow_up_run
from wakeful.store.port import Store

LANES: Final = {"main": 30, "subagent": 50, "team": 100, "cron": 30}
#: long enough to record a run before its instant, short enough that nobody minds
LEAD_MS: Final = 50
#: Seconds that the last write at a stop has, if less is left of the grace period.
_LAST_WRITE_S: Final = 3.0
_AFTER_ERRORS: Final = Backoff(base_ms=100, max_ms=1_000)

log = get_logger("wakeful.engine")


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """How an engine goes about its work; the defaults suit everybody but tests."""

    tick_ms: int = 1_000
    lanes: dict[str, int] = field(default_factory=lambda: dict(LANES))
    limits: Limits = field(default_factory=lambda: Limits(lead_ms=LEAD_MS))
    batch: int = BATCH
    beat_ms: int = BEAT_MS
    lease_ms: int = LEASE_MS
    retention_days: int = 30


class Engine:
    """One replica's engine. Any number of them share a database, and none of them leads.

    `more` are loops of others that live as long as it does.
    """

    def __init__(
        self,
        store: Store,
        targets: LauncherRegistry,
        config: EngineConfig | None = None,
        meters: Metrics | None = None,
        more: Sequence[Loop] = (),
    ) -> None:
        config = config or EngineConfig()
        meters = meters or Metrics()
        clock = store.clock
        self._store = store
        self._targets = targets
        self.worker_name = f"{socket.gethostname()}:{os.getpid()}:{new_id(clock.now_ms())[-8:]}"
        name, tick_ms = self.worker_name, config.tick_ms
        self._writer = Completer(name, store, clock, tick_ms, follow_up_run)
        self._budgets = BudgetCache(store, tick_ms)
        self._worker = Worker(clock, self._writer, self._budgets, config.lanes, lease_ms=config.lease_ms)
        self._planner = Planner(
            name,
            store,
            clock,
            self._worker,
            targets,
            config.limits,
            longest_ms=tick_ms,
            batch=config.batch,
            budgets=self._budgets,
        )
        self._dispatcher = Dispatcher(
            name, store, clock, self._worker, targets, longest_ms=tick_ms, budgets=self._budgets
        )
        self._rescuer = Rescuer(
            name, store, clock, self._worker, follow_up_run, beat_ms=config.beat_ms, lease_ms=config.lease_ms
        )
        self._pruner = Pruner(
            store, clock, retention_days=config.retention_days, log_every_ms=12 * config.beat_ms
        )
        self._alerter = Alerter(store, clock, 2 * config.beat_ms)
        self._worker.on_free = self._dispatcher.wake
        self._worker.on_lease_over = self._rescuer.wake
        targets.may_start = lambda: self._worker.lease.valid
        self._planner.on_planned = meters.planned
        self._worker.on_ended = meters.ended
        meters.lanes = self._worker.lanes
        self._loops: list[Loop] = [
            self._writer, self._rescuer, self._planner, self._dispatcher, self._pruner, self._alerter, *more,
        ]  # fmt: skip
        if not store.notifies_other_processes:
            self._loops.append(HeldRunChecker(name, store, clock, self._worker, tick_ms))
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def alive(self) -> bool:
        """Whether it has started, and every loop of it goes on."""
        return bool(self._tasks) and not any(task.done() for task in self._tasks)

    def stalled(self) -> list[str]:
        """The loops that have not gone round lately: they hang, or fail each time."""
        return [loop.name for loop in self._loops if loop.stalled]

    async def start(self) -> None:
        """Say that we live, then begin."""
        await self._targets.open()
        self._store.listen(self._heard)
        await self._rescuer.beat()
        self._tasks = [asyncio.create_task(loop.run(), name=f"wakeful-{loop.name}") for loop in self._loops]
        log.info("engine.started", worker=self.worker_name)

    async def stop(self, grace_ms: int = 10_000) -> None:
        """No new launches; what runs has a grace period; what is left is due again at once.

        The last outcomes are tried again until the grace period ends; Unavailable says that they were not
        written. Their runs are lost with the process: another one takes them after the lease.
        """
        until = asyncio.get_running_loop().time() + grace_ms / 1000
        writing, beating, *others = self._tasks
        try:
            await _end(others)
            await self._worker.drain(grace_ms)  # which may be longer than a lease: so the heart beats on
            await _end([beating, writing])
            released = await self._write_last(until)
        finally:  # also where the database is not to be had any more
            self._tasks = []
            await self._targets.close()
        log.info("engine.stopped", worker=self.worker_name, released=released)

    async def _write_last(self, until: float) -> int:
        """Write the outcomes that are left and release the held runs. Returns how many were released."""
        loop = asyncio.get_running_loop()
        for tried in itertools.count(1):
            try:
                async with asyncio.timeout(max(until - loop.time(), _LAST_WRITE_S)):
                    await self._writer.step()
                    return await self._store.release(self.worker_name, self._store.clock.now_ms())
            except (Unavailable, TimeoutError) as error:
                message = error.message if isinstance(error, Unavailable) else "the database did not answer"
                unwritten, left = self._writer.unwritten, until - loop.time()
                if left <= 0:
                    log.error("engine.outcomes_lost", count=unwritten, error=message)
                    raise Unavailable(f"stopped without writing {unwritten} outcomes: {message}") from error
                log.warning(
                    "engine.stopping", unwritten=unwritten, error=message, seconds_left=round(left, 1)
                )
                await asyncio.sleep(min(_AFTER_ERRORS.delay_ms(tried, "stop") / 1000, left))
        raise AssertionError("not reached")

    def _heard(self, topic: str) -> None:
        if topic == "jobs":
            self._planner.wake()
        elif topic == "runs":
            self._dispatcher.wake()
        elif topic == "incidents":
            self._alerter.wake()
        elif topic == "holds":
            self._budgets.invalidate()
        elif topic.startswith("stop:"):
            run_id, _, attempt = topic.removeprefix("stop:").partition(":")
            if attempt:
                self._worker.completed(run_id, int(attempt))
            else:
                self._worker.stop(run_id, "stopped")


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
