"""The rescuer: sends the heartbeats of this worker, and takes over the runs of dead ones.

A heartbeat renews the lease on all runs of a worker. A worker without a heartbeat for `lease_ms` is dead: its
runs are retried elsewhere, or fail if they must not start twice (`on_lost: fail`). The same applies to each
run of an executor. A pull run that is not claimed in time fails too. A run for a broker is launched again in
the same attempt, so that a message that its broker has already is adopted. If that launch is lost too, the
attempt is lost, and the next one has a new message.

A run that kills its process must end, and the runs beside it must not end with it. So a loss counts as a
failed attempt only if the worker held no other run, or if the run was lost with others `lost_limit` times
before. Runs that were lost together are suspects: a process runs few of them at once, beside its other work,
and alone those that were lost more than once. A suspect whose attempt ends while its process lives is none
any more, and a run that only sends a request never is one.

If this worker could not send heartbeats for about a lease, the database was unavailable, and other workers
could not either. So after such an outage it waits for one lease before it declares any of them dead.

Executors could not send heartbeats while all servers were down, and receivers of callbacks and workers of
brokers could not report. So a rescuer that has just started, or was without the database, spares their runs
for one lease: finished work can still be reported.

A clock that is set forward looks like an outage. If it is set back, heartbeats of the past are in the future;
they then count from now. How long others are spared does not depend on the clock.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final

from wakeful.document import policy_or_default, work_from_text
from wakeful.engine.completer import LoggedConsequences
from wakeful.engine.launcher_registry import LauncherRegistry
from wakeful.engine.loop import Loop
from wakeful.engine.worker import Worker
from wakeful.errors import IncompatibleSchema, InvalidArgument, TooManyFollowUps, WakefulError
from wakeful.job.policy import Policy
from wakeful.job.start_rules import Capabilities
from wakeful.logs import get_logger
from wakeful.run.consequences import Consequences
from wakeful.run.outcome import TAKEN_OVER, Failed, Finished, conclude, take_over
from wakeful.store.port import Store
from wakeful.store.rows import UnfinishedRun
from wakeful.values.clock import Clock

HEARTBEAT_MS: Final = 5_000
LEASE_MS: Final = 30_000
_BATCH: Final = 1_000

log = get_logger("wakeful.rescuer")
_worker_log = get_logger("wakeful.worker")


class Rescuer(Loop):
    """Sends heartbeats, and rescues runs."""

    name = "rescuer"

    def __init__(
        self,
        worker_name: str,
        store: Store,
        clock: Clock,
        worker: Worker,
        launchers: LauncherRegistry,
        consequences: Consequences,
        *,
        heartbeat_ms: int,
        lease_ms: int,
    ) -> None:
        super().__init__(clock, heartbeat_ms)
        self._worker_name = worker_name
        self._store = store
        self._worker = worker
        self._launchers = launchers
        #: what the database has of the capabilities of this process; None: unknown
        self._published: Capabilities | None = None
        self._consequences = LoggedConsequences(consequences)
        #: the outcomes that the last pass decided, by run, with the worker that had the run
        self._decided: dict[str, tuple[Finished, str | None]] = {}
        #: the runs of each worker that this step has judged: those of one worker may be in several batches
        self._judged: dict[str | None, set[str]] = {}
        #: whether the last step left some for the next, because its heartbeat was due
        self._interrupted = False
        #: called when the database has a schema that this code does not support
        self.on_incompatible: Callable[[IncompatibleSchema], None] = lambda error: None
        self._heartbeat_ms = heartbeat_ms
        self._lease_ms = lease_ms
        #: the last heartbeat; after an outage: until when other workers are spared, by the clock of the event
        #: loop, and when it began
        self._last_heartbeat_ms: int | None = None
        self._spared_until = 0.0
        self._outage_from_ms = 0
        #: likewise, until when runs of executors and with callbacks are spared that started before the start
        #: of this process, or the end of the outage, and that instant
        self._reports_awaited_until = 0.0
        self._reachable_from_ms = 0

    async def step(self) -> int | None:
        """Send a heartbeat, stop runs that are lost, rescue runs of dead workers, expire unclaimed runs."""
        # Use the time of our own heartbeat: if the call takes longer than a lease, we are not dead ourselves.
        now_ms = await self.heartbeat()
        dead_before_ms = self._dead_before_ms(now_ms)
        spared = asyncio.get_running_loop().time() < self._reports_awaited_until
        spared_before_ms = self._reachable_from_ms if spared else 0
        if not self._interrupted:
            self._judged.clear()
        self._interrupted = False

        async def rescue(limit: int) -> list[str]:
            return await self._store.rescue(
                now_ms, dead_before_ms, limit, self._judge, self._consequences, spared_before_ms
            )

        async def expire(limit: int) -> list[str]:
            return await self._store.expire(now_ms, limit, self._expire, self._consequences)

        until = asyncio.get_running_loop().time() + self._heartbeat_ms / 1000
        async for rescued in self._in_batches(rescue, until):
            log.warning("runs.rescued", count=len(rescued))
            self._log_decided("run.rescued", rescued)
        self._worker.look_for_suspects()
        async for expired in self._in_batches(expire, until):
            log.warning("runs.expired", count=len(expired))
            self._log_decided("run.expired", expired)
        return now_ms + self._heartbeat_ms

    async def _in_batches(
        self, end: Callable[[int], Awaitable[list[str]]], until: float
    ) -> AsyncIterator[list[str]]:
        """Yield the ids of the runs that `end` ends, batch by batch, until the next heartbeat is due."""
        limit = _BATCH
        while True:
            try:
                ended = await end(limit)
            except TooManyFollowUps:  # not of one run
                limit = max(1, limit // 8)
                continue
            if ended:
                yield ended
            if len(ended) < limit:
                return
            if asyncio.get_running_loop().time() > until:
                self._interrupted = True
                return
            self.report_progress()

    async def heartbeat(self) -> int:
        """Send a heartbeat and renew the lease. Returns the time from which the lease counts."""
        now_ms, in_flight = self.clock.now_ms(), self._worker.in_flight
        sent = self._worker.lease.now()
        before_ms = self._last_heartbeat_ms
        # Other workers may have sent their last heartbeat a little earlier, and send the next a little later.
        outage = before_ms is not None and now_ms - before_ms > self._lease_ms - 2 * self._heartbeat_ms
        if outage:  # another replica may have deleted this worker
            self._published = None
        capabilities = self._launchers.capabilities()
        changed = capabilities if capabilities != self._published else None
        try:
            if before_ms is None or now_ms < before_ms:
                await self._store.limit_heartbeats(now_ms)
            result = await self._store.beat(self._worker_name, now_ms, list(in_flight), changed)
        except WakefulError:
            raise
        except Exception:  # a newer schema may lack what the statement names
            await self._check_schema()
            raise
        if result.incompatible is not None:
            self.on_incompatible(result.incompatible)
        for run_id in result.lost:
            if self._worker.stop(run_id, "lost", in_flight[run_id]):
                log.warning(
                    "run.lost", **in_flight[run_id].launch.log_fields, worker=self._worker_name,
                    reason="another worker has it, or it was ended",
                )  # fmt: skip
        self._worker.lease.renew(sent)
        self._published = capabilities
        await self._record_starts()
        time = asyncio.get_running_loop().time()
        if before_ms is not None and outage:
            log.warning("rescuer.outage", without_heartbeat_ms=now_ms - before_ms)
            if time >= self._spared_until:
                self._outage_from_ms = before_ms
            # From when the call returned: other workers waited for the database until then, too.
            self._spared_until = time + self._lease_ms / 1000
        if before_ms is None or outage:
            self._reachable_from_ms = now_ms
            self._reports_awaited_until = time + self._lease_ms / 1000
        self._last_heartbeat_ms = now_ms
        return now_ms

    async def _record_starts(self) -> None:
        """Record when prefetched runs started that are still running."""
        started = self._worker.unrecorded_starts()
        if started:
            starts = [(run.launch.id, run.launch.attempt, run.started_ms) for run in started]
            await self._store.record_starts(self._worker_name, starts)
            for run in started:
                run.prefetched = False

    async def _check_schema(self) -> None:
        try:
            await self._store.check_schema()
        except IncompatibleSchema as error:
            self.on_incompatible(error)

    def _dead_before_ms(self, now_ms: int) -> int:
        """Return since when a worker without a heartbeat is dead; after an outage, as of its beginning."""
        spared = asyncio.get_running_loop().time() < self._spared_until
        return min(now_ms, self._outage_from_ms if spared else now_ms) - self._lease_ms

    def _judge(self, run: UnfinishedRun) -> Finished:
        """Return the outcome of a run whose worker, executor or callback is late."""
        policy = policy_or_default(run.policy)
        if run.awaiting_callback:
            return self._conclude(run, policy, Failed("not completed in time", reason="timeout"))
        again = not run.is_pull and policy.on_lost != "fail" and _broker(run) is not None
        if again and run.reason != TAKEN_OVER:  # once: a run that kills its processes must end
            return self._take_over(run)
        error = (
            f"its executor '{run.worker}' sent no heartbeat in time"
            if run.is_pull
            else f"its worker {run.worker} died"
        )
        # Without a recorded start it was prefetched, and mostly has not started. Its next attempt is not
        # prefetched, so a run that kills its process is counted from then on.
        started = run.started_ms is not None
        # Any of the runs that were lost together may have killed the process, so none counts at first.
        judged = self._judged.setdefault(run.worker, set())
        judged.add(run.id)
        together = started and (run.companions > 0 or len(judged) > 1) and not run.is_pull
        counted = run.is_pull or (started and (not together or run.losses >= policy.lost_limit))
        if together:
            error += " with other runs"
        lost = Failed(error, permanent=policy.on_lost == "fail", reason="lost", counted=counted)
        finished = self._conclude(run, policy, lost)
        if together and finished.state == "retrying" and not _only_sends(run):
            return finished._replace(suspect=True)
        return finished

    def _take_over(self, run: UnfinishedRun) -> Finished:
        """Launch the same attempt of a run again: its broker may have its message already."""
        now_ms = self.clock.now_ms()
        finished = take_over(
            run.id,
            run.job_id,
            run.attempt,
            f"its worker {run.worker} died while it sent the run",
            run.started_ms or now_ms,
            now_ms,
            run.failed_attempts,
        )
        self._decided[run.id] = finished, run.worker
        return finished

    def _expire(self, run: UnfinishedRun) -> Finished:
        """Return the outcome of a run that no executor claimed."""
        unclaimed = Failed("not claimed in time", permanent=True, reason="expired")
        return self._conclude(run, policy_or_default(run.policy), unclaimed)

    def _conclude(self, run: UnfinishedRun, policy: Policy, verdict: Failed) -> Finished:
        now_ms = self.clock.now_ms()
        finished = conclude(
            run.id,
            run.job_id,
            run.attempt,
            policy,
            verdict._replace(response_code=run.response_code),
            run.started_ms or now_ms,
            now_ms,
            failed_attempts=run.failed_attempts,
            instance_id=run.instance_id,
        )
        if finished.state == "retrying":  # at once: the lease was delay enough
            finished = finished._replace(due_ms=now_ms)
        self._decided[run.id] = finished, run.worker
        return finished

    def _log_decided(self, event: str, written: Sequence[str]) -> None:
        """Log the outcomes that were written, each with its reason, and what follows from them."""
        for run_id in written:
            finished, worker = self._decided[run_id]
            log.info(
                event, run_id=run_id, job_id=finished.job_id, attempt=finished.attempt, worker=worker,
                reason=finished.reason, error=finished.error, state=finished.state,
            )  # fmt: skip
        self._decided.clear()
        self._consequences.log(log)


def _only_sends(run: UnfinishedRun) -> bool:
    """Return whether the run cannot have killed its process."""
    with contextlib.suppress(InvalidArgument):
        return work_from_text(run.work).only_sends
    return False


def _broker(run: UnfinishedRun) -> str | None:
    """Return the kind of broker that the run's job has as its target; None: it has another target."""
    with contextlib.suppress(InvalidArgument):
        return work_from_text(run.work).broker
    return None


class HeldRunChecker(Loop):
    """Stops runs in flight that another process has ended, without notifications.

    `stop` and the overlap policy `replace` end a run in the database. PostgreSQL notifies the process that
    holds the run. SQLite notifies only its own process, so other processes on the same file must poll.
    """

    name = "held_run_checker"

    def __init__(
        self, worker_name: str, store: Store, clock: Clock, worker: Worker, max_sleep_ms: int
    ) -> None:
        super().__init__(clock, max_sleep_ms)
        self._worker_name = worker_name
        self._store = store
        self._worker = worker

    async def step(self) -> int | None:
        """Read once, and not at all if nothing is in flight."""
        in_flight = self._worker.in_flight
        if in_flight:
            for run_id in await self._store.find_lost(self._worker_name, list(in_flight)):
                if self._worker.stop(run_id, "lost", in_flight[run_id]):
                    _worker_log.info(
                        "run.stopped",
                        **in_flight[run_id].launch.log_fields,
                        reason="another process ended it",
                    )
        return None
