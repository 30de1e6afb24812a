"""The worker: launches runs, as many at once as its lanes allow, and passes on their outcomes.

A run is *in flight* from when it is marked running under this worker's name until its outcome is written. It
takes a slot of its lane from when it is submitted until its attempt ends. Attempts run in *runners*, tasks
that run one attempt after another. A runner is added only while runs are ready and all runners wait, so that
a storm of fast functions does not need one task per run.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import copy_context
from logging import DEBUG
from typing import Final

from wakeful.clock import Clock
from wakeful.conversations import with_history
from wakeful.engine.budget_cache import BudgetCache
from wakeful.engine.completer import Completer
from wakeful.engine.in_flight import InFlight
from wakeful.engine.launcher_registry import LauncherRegistry
from wakeful.engine.lease import Lease
from wakeful.engine.next_signals import NextSignals
from wakeful.engine.outcome_log import log_outcome
from wakeful.engine.tracing import Tracing
from wakeful.errors import Unavailable
from wakeful.launch.port import Launch
from wakeful.logs import get_logger
from wakeful.outcome import Failed, Finished, Outcome, Skipped, conclude
from wakeful.start_rules import may_start
from wakeful.store.port import TakeNext
from wakeful.store.rows import TakenRun

#: After so many runs a runner yields to the event loop.
_RUNS_PER_TURN: Final = 50
#: Seconds that a stopped attempt has to end; then its outcome is written while it still runs.
_STOP_TIMEOUT_S: Final = 10
#: Seconds that stopped attempts have to end at shutdown: as long as a command has to exit.
_DRAIN_STOP_S: Final = 3
_PROCESS_ENDED: Final = Failed("its process ended in the middle of it", permanent=True, reason="lost")

log = get_logger("wakeful.worker")


class Worker:
    """Launches runs and passes their outcomes to the completer."""

    def __init__(
        self,
        clock: Clock,
        completer: Completer,
        budgets: BudgetCache,
        lanes: Mapping[str, int],
        on_finished: Callable[[Sequence[Finished], list[int], list[tuple[str, str, str]]], None],
        launchers: LauncherRegistry,
        *,
        lease_ms: int,
        tracing: Tracing | None = None,
    ) -> None:
        self._tracing = completer.tracing = tracing
        self._clock = clock
        self._completer = completer
        self._budgets = budgets
        self.lease = Lease(lease_ms)
        self._next_signals = NextSignals(
            self.lease, lease_ms, launchers.prepare_taken, launchers.capabilities
        )
        self._lease_s = lease_ms / 1000
        completer.on_written = self._outcomes_written
        completer.take_next = self._take_next
        completer.on_uncertain = self._set_uncertain
        #: held while outcomes are written and the next signals of their instances are taken
        self.taking = completer.taking
        #: called with each batch of written outcomes, the start delays of first attempts in ms, and the
        #: workspace, agent and state of each run
        self._on_finished = on_finished
        self._lanes = dict(lanes)
        self._free = dict(lanes)
        self._claiming = asyncio.Lock()
        self._in_flight: dict[str, InFlight] = {}
        self._ready: deque[InFlight] = deque()
        self._runners: set[asyncio.Task[None]] = set()
        self._adding_runners = False
        #: runs that are not due yet, by when they fire
        self._scheduled: dict[int, list[InFlight]] = {}
        self._deadline_timer: asyncio.TimerHandle | None = None
        #: runs (with attempt, or None for any) stopped during a claim that may still return them
        self._stopped_during_claim: set[tuple[str, int | None]] = set()
        #: whether a claim failed or was answered too late: the database may have more runs under our name
        self.claims_uncertain = False
        #: set by the engine: called when the lease has expired, and a heartbeat must renew it
        self.on_lease_expired: Callable[[], None] = lambda: None
        #: set by the engine: called when a slot, or the turn of a waiting run, may be free
        self.on_slot_free: Callable[[], None] = lambda: None

    # --- slots and submission --------------------------------------------------------------------

    @property
    def in_flight(self) -> dict[str, InFlight]:
        """The runs in flight, by run id: a copy."""
        return dict(self._in_flight)

    def lanes(self) -> dict[str, tuple[int, int]]:
        """Return the used and the total slots of each lane."""
        used = Counter(run.lane for run in self._in_flight.values() if not run.ended)
        return {lane: (used[lane], size) for lane, size in self._lanes.items()}

    @asynccontextmanager
    async def reserve_slots(self) -> AsyncIterator[dict[str, int]]:
        """Reserve all free slots, by lane. The caller counts down those it uses; the rest return on exit.

        On an error all of them return. Only one caller at a time has the slots. Runs are claimed only inside:
        a claim that fails may have been written nevertheless, and the runs of one that takes longer than the
        lease may belong to another worker already. Both set `claims_uncertain`. Raises Unavailable if the
        lease has expired: another worker could take what is claimed now.
        """
        loop = asyncio.get_running_loop()
        async with self._claiming:
            if not self.lease.valid:
                self.on_lease_expired()
                raise Unavailable("no heartbeat within the lease; nothing is claimed until there is one")
            if not self.taking.locked():
                self._stopped_during_claim.clear()
            free = {lane: count for lane, count in self._free.items() if count > 0}
            for lane in free:
                self._free[lane] = 0
            slots, began = dict(free), loop.time()
            try:
                yield slots
                if loop.time() - began >= self._lease_s:
                    raise Unavailable("the database answered after the lease had expired")
            except BaseException:
                # Do not call `on_slot_free`: a claim that fails would be repeated without a pause.
                slots, self.claims_uncertain = free, True
                raise
            finally:
                for lane, count in slots.items():
                    self._free[lane] += count

    def submit(self, runs: Iterable[InFlight]) -> None:
        """Launch these runs, each when it is due. The caller has taken their slots already."""
        now_ms = self._clock.now_ms()
        loop = asyncio.get_running_loop()
        for run in runs:
            if self._stopped_during_claim and self._was_stopped(run.launch):
                self._free[run.lane] += 1
                continue
            earlier = self._in_flight.get(run.launch.id)
            if earlier is not None:  # an attempt that was lost and does not know it
                self.stop(run.launch.id, "lost")
                self._release_slot(earlier)
            self._in_flight[run.launch.id] = run
            fire_ms = run.launch.fire_ms
            if fire_ms <= now_ms:
                self._ready.append(run)
            elif fire_ms in self._scheduled:
                self._scheduled[fire_ms].append(run)
            else:
                self._scheduled[fire_ms] = [run]
                loop.call_later((fire_ms - now_ms) / 1000, self._fire, fire_ms)
        self._add_runners()

    def stop(self, run_id: str, reason: Failed | str, only: InFlight | None = None) -> bool:
        """Stop a run. A failure is recorded; a word is the reason why this worker writes nothing.

        With `only`, stop that attempt and no later one. A run that has not started does not start after this
        returns. Returns False if there is nothing to stop: the attempt is over, or not in flight here.
        """
        run = self._in_flight.get(run_id)
        if run is None and (self._claiming.locked() or self.taking.locked()):
            # A claim under way may return its next attempt. Stopping one attempt does not stop later ones.
            self._stopped_during_claim.add((run_id, only.launch.attempt if only else None))
        if run is None or run.ended or run.stopped or run is not (only or run):
            return False
        run.stop_reason = reason
        if run.task is not None:
            run.task.cancel()
            self._set_deadline(run, _STOP_TIMEOUT_S)
        else:
            self._end(run, Failed("stopped"))
        return True

    def completed(self, run_id: str, attempt: int) -> None:
        """Stop this attempt: its outcome was reported from outside, and nothing is left to write.

        An attempt whose launch is over stays in flight until the store has refused its own outcome.
        """
        run = self._in_flight.get(run_id)
        if run is not None and run.launch.attempt == attempt:
            self.stop(run_id, "completed", run)
        elif self._claiming.locked() or self.taking.locked():
            self._stopped_during_claim.add((run_id, attempt))

    def _was_stopped(self, launch: Launch) -> bool:
        """Return whether the run was stopped before its claim returned."""
        return not self._stopped_during_claim.isdisjoint({(launch.id, None), (launch.id, launch.attempt)})

    # --- launching -------------------------------------------------------------------------------

    def _fire(self, fire_ms: int) -> None:
        early_ms = fire_ms - self._clock.now_ms()
        if early_ms > 0:  # a timer may be slightly early; a tick never is
            asyncio.get_running_loop().call_later(early_ms / 1000, self._fire, fire_ms)
            return
        self._ready.extend(self._scheduled.pop(fire_ms))
        self._add_runners()

    def _add_runners(self) -> None:
        """Add runners for what is ready. Their number at most doubles per call."""
        self._adding_runners = False
        loop = asyncio.get_running_loop()
        for _ in range(min(len(self._ready), max(1, len(self._runners)))):
            runner = loop.create_task(self._run_ready(), name="wakeful-runner")
            self._runners.add(runner)
            runner.add_done_callback(self._runners.discard)

    def _drop_unstarted(self) -> None:
        """Drop all runs that have not started: the lease expired, and another replica may have them.

        The dispatcher releases those that are still under our name once the lease is renewed.
        """
        unstarted = [run for run in self._in_flight.values() if run.task is None and not run.ended]
        self.claims_uncertain = True
        for run in unstarted:
            self.stop(run.launch.id, "lost", run)
        log.warning("runs.dropped", reason="lease expired", count=len(unstarted))
        self.on_lease_expired()

    async def _run_ready(self) -> None:
        """Run one ready attempt after another until none is ready."""
        me = asyncio.current_task()
        assert me is not None
        loop = asyncio.get_running_loop()
        clean = copy_context()
        tracing, worker_name = self._tracing, self._completer.worker_name
        runs = 0
        while self._ready:
            run = self._ready.popleft()
            if run.ended:  # stopped before it started
                pass
            elif not self.lease.valid:
                self._drop_unstarted()
            else:
                run.task = me
                launch = run.launch
                run.started_ms = self._clock.now_ms()
                self._set_deadline(run, self._timeout_ms(run) / 1000)
                if self._ready and not self._adding_runners:
                    self._adding_runners = True
                    loop.call_soon(self._add_runners)  # called only if this run waits for something
                try:
                    outcome: Outcome = self._blocked(run) or await (
                        run.launcher.start(launch) if tracing is None else tracing.launch(run, worker_name)
                    )
                except asyncio.CancelledError:
                    if me.cancelling() > run.stopped:
                        raise  # the process is stopping
                    outcome = Failed("stopped" if run.stopped else "what it waited for was cancelled")
                except Exception as error:
                    log.exception("launcher.error", **launch.log_fields, kind=run.launcher.kind)
                    outcome = Failed(f"{type(error).__name__}: {error}")
                run.task = None
                if run.stopped:
                    me.uncancel()  # the runner continues, also if the run ignored the cancellation
                if not run.ended:  # else it was abandoned before
                    self._end(run, outcome)
            runs += 1
            if runs >= _RUNS_PER_TURN:
                runs = 0
                await asyncio.sleep(0)
            if copy_context() != clean:
                break  # the run changed the context of this task: do not use it for another one
        if self._ready and not self._adding_runners:
            self._adding_runners = True
            loop.call_soon(self._add_runners)

    def _blocked(self, run: InFlight) -> Skipped | None:
        """Return the outcome of an attempt that may not start now; None if it may."""
        launch = run.launch
        block = self._budgets.find(launch.workspace, launch.agent, launch.job_id)
        decision = may_start(launch.trigger, launch.attempt, run.work, run.started_ms, block, launch.job)
        return None if decision.reason is None else Skipped(decision.message, decision.reason)

    def _end(self, run: InFlight, outcome: Outcome) -> None:
        launch = run.launch
        run.ended = True
        # A signal keeps its slot until its outcome is written: then the next one of its instance has it.
        run.holds_slot = launch.instance_id is not None and not isinstance(run.stop_reason, str)
        if not run.holds_slot:
            self._free[run.lane] += 1
        if self._tracing is not None:
            self._tracing.end_launch(run, run.stop_reason or outcome)
        if isinstance(run.stop_reason, str):
            if self._in_flight.get(launch.id) is run:
                del self._in_flight[launch.id]
            self.on_slot_free()
            return
        if run.stop_reason is not None:
            outcome = run.stop_reason
        now_ms = self._clock.now_ms()
        finished = conclude(
            launch.id, launch.job_id, launch.attempt, run.policy, outcome, run.started_ms, now_ms,
            run.work, failed_attempts=run.failed_attempts, instance_id=launch.instance_id,
            checked=None if launch.watch is None else launch.watch.checked,
        )  # fmt: skip
        finished = with_history(finished, launch, launch.job, run.work, launch.payload_text)
        self._completer.add(finished)

    # --- timeouts --------------------------------------------------------------------------------

    def _set_deadline(self, run: InFlight, seconds: float) -> None:
        """Set the deadline of an attempt. One timer serves all attempts: it waits for the earliest."""
        loop = asyncio.get_running_loop()
        run.deadline = loop.time() + seconds
        if self._deadline_timer is None or run.deadline < self._deadline_timer.when():
            if self._deadline_timer is not None:
                self._deadline_timer.cancel()
            self._deadline_timer = loop.call_at(run.deadline, self._check_deadlines)

    def _check_deadlines(self) -> None:
        """Stop attempts that timed out, abandon those that did not stop in time, set the next timer."""
        self._deadline_timer = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        for run in list(self._in_flight.values()):
            if run.task is None or run.ended or run.deadline > now:
                continue
            if run.stop_reason is None:
                limit_ms = self._timeout_ms(run)
                self.stop(run.launch.id, Failed(f"timed out after {limit_ms / 1000:g} s", reason="timeout"))
            else:
                log.warning("run.abandoned", **run.launch.log_fields, reason="it does not stop")
                if isinstance(run.stop_reason, Failed) and run.policy.on_lost == "fail":
                    # It may still be running, so another attempt would be a second start.
                    run.stop_reason = run.stop_reason._replace(permanent=True)
                self._end(run, Failed("stopped"))
        deadlines = [
            run.deadline for run in self._in_flight.values() if run.task is not None and not run.ended
        ]
        if deadlines and self._deadline_timer is None:
            self._deadline_timer = loop.call_at(min(deadlines), self._check_deadlines)

    @staticmethod
    def _timeout_ms(run: InFlight) -> int:
        return run.policy.timeout_ms or run.launcher.default_timeout_ms

    # --- outcomes and shutdown -------------------------------------------------------------------

    def _take_next(self, batch: Sequence[Finished]) -> TakeNext | None:
        """Return which signals to take with these outcomes."""
        request = None if self.claims_uncertain else self._next_signals.request(batch, self._in_flight)
        if request is not None and not self._claiming.locked():
            self._stopped_during_claim.clear()
        return request

    def _set_uncertain(self) -> None:
        self.claims_uncertain = True

    def _follow(self, ended: Sequence[InFlight], written: set[str], taken: Sequence[TakenRun]) -> None:
        """Submit the signals that follow those that ended, and free the other slots."""
        runs = self._next_signals.follow(ended, written, taken) if taken else ()
        if runs is None:
            self.claims_uncertain, runs = True, ()
        for run in ended:
            self._release_slot(run)
        if runs:
            self.submit(runs)

    def _release_slot(self, run: InFlight) -> None:
        """Free the slot that an ended run holds, if it holds one."""
        if run.holds_slot:
            run.holds_slot = False
            self._free[run.lane] += 1

    def _outcomes_written(
        self, finished: Sequence[Finished], written: set[str], taken: Sequence[TakenRun]
    ) -> None:
        ended: list[InFlight] = []
        reported = len(finished)
        delays_ms: list[int] = []
        owners: list[tuple[str, str, str]] = []
        logs_all = log.isEnabledFor(DEBUG)
        launches: list[Launch] = []
        for each in finished:
            run = self._in_flight.get(each.run_id)
            if run is not None and run.launch.attempt == each.attempt:  # not the next one, already claimed
                del self._in_flight[each.run_id]
                if run.holds_slot:
                    ended.append(run)
                if self._tracing is not None:
                    launches.append(run.launch)
                if each.run_id in written:
                    owners.append((run.launch.workspace, run.launch.agent, each.state))
                    if logs_all or each.state != "succeeded":
                        log_outcome(log, each, run.launch.log_fields, self._completer.worker_name)
                    if each.attempt == 1:
                        delays_ms.append(each.started_ms - run.launch.fire_ms)
        if self._tracing is not None and self._completer.began_ns is not None:
            self._tracing.finished(
                self._completer.began_ns, self._completer.worker_name, launches, len(finished), len(written)
            )
        if len(written) < len(finished):
            finished = [each for each in finished if each.run_id in written]
        if ended:
            self._follow(ended, written, taken)
        self._on_finished(finished, delays_ms, owners)
        if len(taken) < reported or self.claims_uncertain:
            self.on_slot_free()

    async def drain(self, grace_ms: int) -> None:
        """Let running attempts end within the grace period, then stop the rest. Submit nothing after this."""
        loop = asyncio.get_running_loop()
        until = loop.time() + grace_ms / 1000
        self._next_signals.closed = True
        for run_id in [run.launch.id for runs in self._scheduled.values() for run in runs]:
            self.stop(run_id, "released")
        while self._runners and loop.time() < until:
            await asyncio.wait(self._runners, timeout=until - loop.time())
        for run in list(self._in_flight.values()):
            # A started run of `on_lost: fail` must not start again elsewhere: it fails here.
            fails_here = run.task is not None and run.policy.on_lost == "fail"
            self.stop(run.launch.id, _PROCESS_ENDED if fails_here else "released")
        if self._runners:
            await asyncio.wait(self._runners, timeout=_DRAIN_STOP_S)
        for run in [run for run in self._in_flight.values() if run.task is not None and not run.ended]:
            if run.stop_reason is _PROCESS_ENDED:  # it did not stop; the process ends it
                self._end(run, _PROCESS_ENDED)
