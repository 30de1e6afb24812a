"""The engine: starts the loops of a replica, wakes them on notifications, and stops them in order."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from wakeful.engine.alerter import Alerter
from wakeful.engine.completer import Completer
from wakeful.engine.dispatcher import Dispatcher, give_back
from wakeful.engine.event_feeder import EndRule, EventFeeder
from wakeful.engine.history import AuditAppender, Pruner, RunCounter
from wakeful.engine.launcher_registry import LauncherRegistry
from wakeful.engine.loop import Loop
from wakeful.engine.metrics import Metrics
from wakeful.engine.planner import BATCH, Planner
from wakeful.engine.rescuer import HEARTBEAT_MS, LEASE_MS, HeldRunChecker, Rescuer
from wakeful.engine.tracing import Tracing
from wakeful.engine.verifier import Verifier
from wakeful.engine.worker import Worker
from wakeful.errors import IncompatibleSchema, Unavailable
from wakeful.job.policy import Backoff
from wakeful.launch.budgets import BudgetCache, BudgetGate
from wakeful.launch.event_callback import KIND, EventLauncher
from wakeful.launch.precheck import recorder
from wakeful.logs import get_logger
from wakeful.run.consequences import consequences
from wakeful.run.planning import Limits
from wakeful.store.port import Store
from wakeful.values.ids import new_id

LANES: Final = {"main": 30, "subagent": 50, "team": 100, "cron": 30}
#: How long before its instant a run is recorded.
LEAD_MS: Final = 50
#: The last write at a stop has at least so many seconds, whatever is left of the grace period.
_LAST_WRITE_S: Final = 3.0
_RETRY_BACKOFF: Final = Backoff(base_ms=100, max_ms=1_000)

log = get_logger("wakeful.engine")


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """The intervals and limits of an engine. The defaults suit every deployment; tests use shorter ones."""

    tick_ms: int = 1_000
    lanes: dict[str, int] = field(default_factory=lambda: dict(LANES))
    limits: Limits = field(default_factory=lambda: Limits(lead_ms=LEAD_MS))
    batch: int = BATCH
    heartbeat_ms: int = HEARTBEAT_MS
    lease_ms: int = LEASE_MS
    retention_days: int = 30


class Engine:
    """The engine of one replica. Any number of replicas share a database; there is no leader.

    `extra_loops` start and stop with the engine.
    """

    def __init__(
        self,
        store: Store,
        launchers: LauncherRegistry,
        config: EngineConfig,
        metrics: Metrics,
        extra_loops: Sequence[Loop],
        tracing: Tracing | None = None,
    ) -> None:
        clock = store.clock
        self._store = store
        self._launchers = launchers
        self.worker_name = f"{socket.gethostname()}:{os.getpid()}:{new_id(clock.now_ms())[-8:]}"
        name, tick_ms = self.worker_name, config.tick_ms
        launchers.record_check = recorder(store, name)
        self._completer = Completer(name, store, clock, tick_ms, consequences)
        self._budgets = BudgetCache(store, tick_ms)
        gate = BudgetGate(store, clock)
        self._worker = Worker(
            clock,
            self._completer,
            self._budgets,
            gate,
            config.lanes,
            metrics.record_finished,
            launchers,
            lease_ms=config.lease_ms,
            lead_ms=config.limits.lead_ms,
            tracing=tracing,
        )
        self._planner = Planner(
            name,
            store,
            clock,
            self._worker,
            launchers,
            self._budgets,
            config.limits,
            metrics.record_planned,
            max_sleep_ms=tick_ms,
            batch=config.batch,
            tracing=tracing,
        )
        self._dispatcher = Dispatcher(
            name, store, clock, self._worker, launchers, self._budgets, max_sleep_ms=tick_ms
        )
        self._rescuer = Rescuer(
            name,
            store,
            clock,
            self._worker,
            launchers,
            consequences,
            heartbeat_ms=config.heartbeat_ms,
            lease_ms=config.lease_ms,
        )
        self._alerter = Alerter(store, clock, 2 * config.heartbeat_ms)
        self._verifier = Verifier(
            name,
            store,
            clock,
            launchers,
            consequences,
            metrics.record_finished,
            metrics.record_verification,
            self._budgets,
            gate,
            max_sleep_ms=2 * config.heartbeat_ms,
            lease_ms=config.lease_ms,
        )
        self._worker.on_slot_free = self._dispatcher.wake
        self._worker.on_lease_expired = self._rescuer.wake
        metrics.lanes = self._worker.lanes
        self._loops: list[Loop] = [
            self._completer,
            self._rescuer,
            self._planner,
            self._dispatcher,
            Pruner(store, clock, retention_days=config.retention_days, log_every_ms=12 * config.heartbeat_ms),
            self._alerter,
            self._verifier,
            RunCounter(store, clock, max_sleep_ms=config.heartbeat_ms),
            AuditAppender(store, clock, max_sleep_ms=config.heartbeat_ms),
            EventFeeder(store, clock, max_sleep_ms=tick_ms, end=_end_rule(launchers)),
            *extra_loops,
        ]
        metrics.loops = lambda: {loop.name: loop.stalled for loop in self._loops}
        if not store.notifies_other_processes:
            self._loops.append(HeldRunChecker(name, store, clock, self._worker, tick_ms))
        self._tasks: list[asyncio.Task[None]] = []
        #: the grace period when the engine stops by itself
        self.grace_ms = 10_000
        #: why the engine stops by itself: the database has a schema that this code does not support
        self.incompatible: IncompatibleSchema | None = None
        self.on_incompatible: Callable[[], None] = lambda: None
        self._drain: asyncio.Task[None] | None = None
        self._rescuer.on_incompatible = self._stop_incompatible

    @property
    def alive(self) -> bool:
        """Whether the engine has started and all its loops are running."""
        return bool(self._tasks) and not any(task.done() for task in self._tasks)

    def stalled(self) -> list[str]:
        """Return the names of the loops that hang or fail each time."""
        return [loop.name for loop in self._loops if loop.stalled]

    def hanging(self) -> list[str]:
        """Return the names of the loops that hang, or have ended although they must not."""
        ended = [task.get_name().removeprefix("wakeful-") for task in self._tasks if task.done()]
        return [*(loop.name for loop in self._loops if loop.hanging), *ended]

    @property
    def is_idle(self) -> bool:
        """Whether no attempt runs, no outcome is unwritten, and all loops sleep and have no work."""
        busy = self._worker.in_flight or self._completer.unwritten
        return not busy and all(loop.is_asleep and not loop.is_busy for loop in self._loops)

    @property
    def due_ms(self) -> int | None:
        """When the next tick, attempt, verification or delivery is due, as far as the loops know."""
        known = (loop.due_ms for loop in self._loops if loop.follows_time)
        return min((each for each in known if each is not None), default=None)

    def wake(self) -> None:
        """Wake all loops: the time has changed."""
        for loop in self._loops:
            loop.wake()

    async def start(self) -> None:
        """Open the launchers, send the first heartbeat, then start the loops."""
        loop = asyncio.get_running_loop()
        wake: Callable[[], object] = partial(loop.call_soon_threadsafe, self._capabilities_changed)
        self._launchers.on_capabilities_changed(wake)
        await self._launchers.open()
        self._store.listen(self._on_notify)
        await self._rescuer.heartbeat()
        if self.incompatible is not None:
            raise self.incompatible
        self._tasks = [asyncio.create_task(loop.run(), name=f"wakeful-{loop.name}") for loop in self._loops]
        log.info("engine.started", worker=self.worker_name)

    async def stop(self, grace_ms: int = 10_000) -> None:
        """Launch nothing new, let running attempts end within the grace period, release the rest.

        Released runs are due at once. The last outcomes are retried until the grace period ends; Unavailable
        means that they were not written. Another replica takes their runs after the lease. A cancellation
        ends the grace period.
        """
        if self._drain is not None:  # it stops by itself already
            await self._drain
        else:
            await self._stop(grace_ms)

    def _stop_incompatible(self, error: IncompatibleSchema) -> None:
        """Stop because a newer version of Wakeful has changed the schema."""
        if self.incompatible is not None:
            return
        self.incompatible = error
        if self._tasks:
            log.error("engine.incompatible_schema", error=error.message, grace_ms=self.grace_ms)
            self._drain = asyncio.create_task(self._stop_by_itself(), name="wakeful-drain")
            self.on_incompatible()

    async def _stop_by_itself(self) -> None:
        try:
            await self._stop(self.grace_ms)
        except Exception:  # the newer schema may lack what the last statements name
            log.exception("engine.stop_failed")

    async def _stop(self, grace_ms: int) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + grace_ms / 1000
        completing, heartbeats, *others = self._tasks
        try:
            try:
                self._worker.close()  # before the loops end, which may take seconds
                await _cancel(others)
                await self._give_back()
                await self._worker.drain(grace_ms)  # may take longer than a lease, so heartbeats continue
            except asyncio.CancelledError:  # the caller waits no longer: the grace period is over
                self._worker.stop_all()
                self._worker.abandon_failed()
                until = loop.time()
                raise
            finally:
                await _cancel([*others, heartbeats, completing])
                released = await self._write_last(until)
        finally:  # also if the database is unavailable
            self._launchers.on_capabilities_changed(lambda: None)
            self._tasks = []
            await self._launchers.close()
        log.info("engine.stopped", worker=self.worker_name, released=released)

    async def _give_back(self) -> None:
        """Give back prefetched runs at once, so that they do not wait for the grace period."""
        self._worker.close()
        try:
            # After a claim under way: it may return more of them.
            async with asyncio.timeout(_LAST_WRITE_S), self._worker.taking:
                await give_back(self._store, self.worker_name, self._worker)
        except (Unavailable, TimeoutError) as error:  # they are released at the end
            log.warning("engine.not_given_back", error=str(error) or "the database did not answer")

    async def _write_last(self, until: float) -> int:
        """Write the remaining outcomes and release all runs. Returns the number of released runs."""
        loop = asyncio.get_running_loop()
        for tries in itertools.count(1):
            try:
                async with asyncio.timeout(max(until - loop.time(), _LAST_WRITE_S)):
                    await self._completer.step()
                    return await self._store.release(self.worker_name, self._store.clock.now_ms())
            except (Unavailable, TimeoutError) as error:
                message = error.message if isinstance(error, Unavailable) else "the database did not answer"
                unwritten, left = self._completer.unwritten, until - loop.time()
                if left <= 0:
                    log.error("engine.outcomes_lost", count=unwritten, error=message)
                    raise Unavailable(f"stopped without writing {unwritten} outcomes: {message}") from error
                log.warning(
                    "engine.stopping", unwritten=unwritten, error=message, seconds_left=round(left, 1)
                )
                await asyncio.sleep(min(_RETRY_BACKOFF.delay_ms(tries, "stop") / 1000, left))
        raise AssertionError("not reached")

    def _capabilities_changed(self) -> None:
        """Take runs that this process can launch now, and publish its capabilities."""
        self._dispatcher.wake()
        self._verifier.wake()
        self._rescuer.wake()

    def _on_notify(self, topic: str) -> None:
        if topic == "jobs":
            self._planner.wake()
        elif topic == "runs":
            self._dispatcher.wake()
        elif topic == "verifications":
            self._verifier.wake()
        elif topic == "incidents":
            self._alerter.wake()
        elif topic == "budget_blocks":
            self._budgets.invalidate()
            self._dispatcher.wake()  # it reads them
        elif topic.startswith("stop:"):
            run_id, _, attempt = topic.removeprefix("stop:").partition(":")
            if attempt:
                self._worker.stop_completed(run_id, int(attempt))
            else:
                self._worker.stop(run_id, "stopped")
                self._verifier.stop_run(run_id)
                self._launchers.run_stopped(run_id)


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel tasks, each once, and wait until they have ended."""
    for task in tasks:
        if not task.cancelling():
            task.cancel()
    await asyncio.shield(asyncio.gather(*tasks, return_exceptions=True))


def _end_rule(launchers: LauncherRegistry) -> EndRule | None:
    """Return what ends subscriptions and tells their callbacks; None: this process has no services."""
    launcher = launchers.launcher(KIND)
    return launcher.end if isinstance(launcher, EventLauncher) and hasattr(launcher, "end") else None
