"""The worker: launches runs, as many at once as its lanes allow, and passes on their outcomes.

A run is *in flight* from when it is marked running under this worker's name until its outcome is written. It
takes a slot of its lane from when it is submitted until its attempt ends; a *prefetched* run waits for a slot
first (`Slots`). `Runners` run the attempts.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import chain
from logging import DEBUG
from typing import Final

from wakeful.engine.completer import Completer, log_outcome
from wakeful.engine.in_flight import Deadlines, InFlight, Lease, Runners
from wakeful.engine.launcher_registry import LauncherRegistry
from wakeful.engine.slots import LaneUsage, ReservedSlots, Slots, following, slots_to_follow
from wakeful.engine.tracing import Tracing
from wakeful.errors import Unavailable
from wakeful.job.start_rules import BUDGET, UNBUDGETED, may_start
from wakeful.launch.budgets import BudgetCache, BudgetGate
from wakeful.launch.port import Launch
from wakeful.launch.precheck import PRECHECK_FAILED
from wakeful.logs import get_logger
from wakeful.run.outcome import Failed, Finished, Outcome, Skipped, conclude, with_history
from wakeful.store.lane_shares import UNKNOWN_USE, LaneOccupancy
from wakeful.store.plans import TakeNext
from wakeful.store.rows import TakenRun
from wakeful.values.clock import Clock

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
        gate: BudgetGate,
        lanes: Mapping[str, int],
        on_finished: Callable[[Sequence[Finished], list[int], list[tuple[str, str, str]]], None],
        launchers: LauncherRegistry,
        *,
        lease_ms: int,
        lead_ms: int,
        tracing: Tracing | None = None,
    ) -> None:
        self._tracing = completer.tracing = tracing
        self._clock = clock
        self._completer = completer
        self._budgets = budgets
        self._gate = gate
        self.lease = Lease(lease_ms)
        self._launchers = launchers
        self._lease_s = lease_ms / 1000
        completer.on_written = self._outcomes_written
        completer.take_next = self._take_next
        completer.on_uncertain = self._claim_failed
        #: held while outcomes are written and runs are claimed in the same transaction
        self.taking = completer.taking
        #: called with each batch of written outcomes, the start delays of first attempts in ms, and the
        #: workspace, agent and state of each run
        self._on_finished = on_finished
        self._slots = Slots(lanes, self._start_prefetched, self._drop, self._running_in)
        self._usage = LaneUsage(lanes)
        #: what the claim with outcomes under way may use, and when it began
        self._reserved = ReservedSlots({}, {})
        self._claim_began = 0.0
        #: whether the dispatcher has left lanes to the next claim with outcomes
        self._deferred = False
        #: the lanes in which suspects may be due: runs that were lost together with others of their worker
        self._unsearched = set(lanes)
        #: nothing is claimed any more: the process stops
        self._closed = False
        #: prefetched runs (with attempt) that have not started and are to be given back
        self._dropped: list[tuple[str, int]] = []
        self._claiming = asyncio.Lock()
        self._in_flight: dict[str, InFlight] = {}
        #: lost attempts that have not ended yet, while a later attempt of the same run is in flight
        self._superseded: set[InFlight] = set()
        self._runners = Runners(
            clock, self.lease, self._begin, self._launch, self._end, self._drop_unstarted, lead_ms=lead_ms
        )
        self._deadlines = Deadlines(self._running, self._deadline_passed)
        #: runs (with attempt, or None for any) stopped during a claim that may still return them
        self._stopped_during_claim: set[tuple[str, int | None]] = set()
        #: how many claims failed or were answered too late: the database may have more runs under our name
        self.uncertain_claims = 0
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
        runs = (*self._in_flight.values(), *self._superseded)
        used = Counter(run.lane for run in runs if not run.ended and not run.waiting)
        return {lane: (used[lane], size) for lane, size in self._slots.sizes.items()}

    def lane_usage(self, lanes: Iterable[str]) -> dict[str, LaneOccupancy]:
        """Return who uses these lanes, so that those who want their slots can share them.

        Of a lane without a backlog nothing is counted: mostly it has slots for all due runs.
        """
        lanes = set(lanes)
        full = lanes & self._slots.backlog
        usage = dict.fromkeys(lanes - full, UNKNOWN_USE)
        return usage | self._measure(full, waiting=True) if full else usage

    def _measure(self, lanes: Iterable[str], *, waiting: bool) -> dict[str, LaneOccupancy]:
        runs = (*self._in_flight.values(), *self._superseded)
        return self._usage.measure(runs, lanes, asyncio.get_running_loop().time(), waiting=waiting)

    def _running_in(self, lane: str) -> LaneOccupancy:
        return self._measure([lane], waiting=False)[lane]

    def look_for_suspects(self) -> None:
        """Look for suspects in all lanes before other runs are claimed there."""
        self._unsearched = set(self._slots.sizes)

    def record_no_suspects(self, lanes: Iterable[str]) -> None:
        """Note that none are due in these lanes."""
        self._unsearched.difference_update(lanes)

    @property
    def suspect_lanes(self) -> set[str]:
        """The lanes in which to look for suspects: none until those that run here have ended."""
        runs = (*self._in_flight.values(), *self._superseded)
        if not self._unsearched or any(run.suspect and not run.ended for run in runs):
            return set()
        return self._unsearched

    @asynccontextmanager
    async def reserve_slots(self, *, prefetch: bool = False) -> AsyncIterator[ReservedSlots]:
        """Reserve all free slots, by lane. The caller counts down those it uses; the rest return on exit.

        With `prefetch`, also reserve room to prefetch, and leave lanes for which the next write of outcomes
        claims runs. On an error all slots return. Only one caller at a time has the slots. Runs are claimed
        only inside, or with outcomes: a claim that fails may have been written nevertheless, and the runs of
        one that takes longer than the lease may belong to another worker already. Both count as
        `uncertain_claims`. Raises Unavailable if the lease has expired: another worker could take what is
        claimed now.
        """
        loop = asyncio.get_running_loop()
        async with self._claiming:
            if not self.lease.valid:
                self.on_lease_expired()
                raise Unavailable("no heartbeat within the lease; nothing is claimed until there is one")
            if not self.taking.locked():
                self._stopped_during_claim.clear()
            # The planner leaves lanes in which runs wait: new ticks do not overtake them.
            without = self._slots.backlog
            if prefetch:  # a lane without an outcome to write would wait for as long as others have some
                will_write = self._completer.will_write
                without = without & self._unwritten_lanes() - self.suspect_lanes if will_write else set()
                self._deferred = bool(without)
            reserved = self._slots.reserve(prefetch=prefetch, without=without)
            slots, began = reserved.copy(), loop.time()
            try:
                yield slots
                if loop.time() - began >= self._lease_s:
                    raise Unavailable("the database answered after the lease had expired")
            except BaseException:
                # Do not call `on_slot_free`: a claim that fails would be repeated without a pause.
                slots = reserved
                self.uncertain_claims += 1
                raise
            finally:
                self._slots.settle(slots)

    def _unwritten_lanes(self) -> set[str]:
        """Return the lanes of attempts that have ended and whose outcome is not written yet."""
        return {run.lane for run in self._in_flight.values() if run.ended}

    def accept(self, reserved: ReservedSlots, taken: Sequence[TakenRun]) -> list[InFlight]:
        """Return claimed runs, ready to submit, and count down the slots that they use."""
        self._slots.count_claimed(reserved, taken)
        runs = []
        for each in taken:
            run = self._launchers.prepare_taken(each, self.lease)
            run.prefetched = each.slot == "later"
            run.weight = each.weight
            runs.append(run)
        return runs

    def submit(self, runs: Iterable[InFlight]) -> None:
        """Launch these runs, each when it is due. The caller has taken their slots already."""
        now_ms = self._clock.now_ms()
        for run in runs:
            if self._stopped_during_claim and self._was_stopped(run.launch):
                if not run.prefetched:
                    self._slots.release(run.lane)
                continue
            earlier = self._in_flight.get(run.launch.id)
            if earlier is not None:  # an attempt that was lost and does not know it
                self.stop(run.launch.id, "lost")
                self._release_slot(earlier)
                if not earlier.ended:
                    self._superseded.add(earlier)
            self._in_flight[run.launch.id] = run
            if run.lane in self._slots.backlog:
                self._usage.record_start(run)
            if run.prefetched:
                self._slots.wait(run)
            else:
                self._runners.schedule(run, now_ms)
        self._runners.add()

    def _start_prefetched(self, run: InFlight) -> None:
        """Make a prefetched run ready: it has a slot now."""
        self._runners.schedule(run, self._clock.now_ms())
        self._runners.request()

    def _drop(self, runs: Sequence[InFlight]) -> None:
        """Drop prefetched runs that have not started, so that they are given back."""
        for run in runs:
            if self.stop(run.launch.id, "released", run):
                self._dropped.append((run.launch.id, run.launch.attempt))
        if runs:
            self.on_slot_free()

    def pop_dropped(self) -> list[tuple[str, int]]:
        """Return the prefetched runs (with attempt) to give back, which this worker does not start."""
        dropped, self._dropped = self._dropped, []
        return dropped

    def unrecorded_starts(self) -> list[InFlight]:
        """Return the running attempts of prefetched runs whose start is not recorded yet."""
        return [run for run in self._running() if run.prefetched]

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
            self._deadlines.set(run, _STOP_TIMEOUT_S)
        else:
            self._end(run, Failed("stopped"))
        return True

    def stop_completed(self, run_id: str, attempt: int) -> None:
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

    def _drop_unstarted(self) -> None:
        """Drop all runs that have not started: the lease expired, and another replica may have them.

        The dispatcher releases those that are still under our name once the lease is renewed.
        """
        unstarted = [run for run in self._in_flight.values() if run.task is None and not run.ended]
        self.uncertain_claims += 1
        for run in unstarted:
            self.stop(run.launch.id, "lost", run)
        log.warning("runs.dropped", reason="lease expired", count=len(unstarted))
        self.on_lease_expired()

    def _begin(self, run: InFlight) -> Skipped | None:
        """Set the deadline of an attempt. Returns the outcome of one that may not start now."""
        self._deadlines.set(run, self._timeout_ms(run) / 1000)
        return self._find_block(run)

    def _launch(self, run: InFlight) -> Awaitable[Outcome]:
        launch = run.launch
        if run.work.budget is not None or self._budgets.apply_to(launch.workspace, launch.agent):
            launch.budgeted = launch.trigger not in UNBUDGETED
        return self._launch_reserved(run) if launch.budgeted else self._start(run)

    async def _launch_reserved(self, run: InFlight) -> Outcome:
        """Launch an attempt under a budget, if it gets a reservation."""
        refused = await self._gate.start(run.launch)
        if refused is not None:
            return refused
        if not self.lease.valid:
            reason = PRECHECK_FAILED if run.launch.unchecked else BUDGET
            return Failed("the lease ended before the launch", reason=reason, counted=False)
        return await self._start(run)

    def _start(self, run: InFlight) -> Awaitable[Outcome]:
        if self._tracing is None:
            return run.launcher.start(run.launch)
        return self._tracing.launch(run, self._completer.worker_name)

    def _find_block(self, run: InFlight) -> Skipped | None:
        """Return the outcome of an attempt outside its active hours; None if it may start."""
        launch = run.launch
        decision = may_start(launch.trigger, launch.attempt, run.work, run.started_ms, None)
        return None if decision.reason is None else Skipped(decision.message, decision.reason)

    def _end(self, run: InFlight, outcome: Outcome) -> None:
        launch = run.launch
        run.ended = True
        self._superseded.discard(run)
        if run.suspect:
            self.look_for_suspects()
        # A signal keeps its slot until its outcome is written: then the next one of its instance has it. That
        # of an attempt that was lost meanwhile is not written.
        held = self._in_flight.get(launch.id) is run and not isinstance(run.stop_reason, str)
        run.holds_slot = held and launch.instance_id is not None
        if run.waiting:
            run.holds_slot = False
            self._slots.discard(run)
        elif not run.holds_slot:
            self._slots.release(run.lane)
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
        self._slots.record_duration(run.lane, now_ms - run.started_ms)
        try:
            finished = self._conclude(run, outcome, now_ms)
        except Exception as error:  # user code may return an outcome with values of any type
            log.exception("launcher.error", **launch.log_fields, kind=run.launcher.kind)
            invalid = Failed(f"its outcome is not valid: {type(error).__name__}: {error}")
            finished = self._conclude(run, invalid, now_ms)
        self._completer.add(finished)

    @staticmethod
    def _conclude(run: InFlight, outcome: Outcome, now_ms: int) -> Finished:
        launch = run.launch
        finished = conclude(
            launch.id, launch.job_id, launch.attempt, run.policy, outcome, run.started_ms, now_ms,
            run.work, failed_attempts=run.failed_attempts, instance_id=launch.instance_id,
            checked=None if launch.watch is None else launch.watch.checked,
        )  # fmt: skip
        if run.suspect and finished.state == "retrying":
            finished = finished._replace(suspect=False)
        return with_history(finished, launch, launch.job, run.work, launch.payload_text)

    # --- timeouts --------------------------------------------------------------------------------

    def _running(self) -> Iterator[InFlight]:
        runs = chain(self._in_flight.values(), self._superseded)
        return (run for run in runs if run.task is not None and not run.ended)

    def _deadline_passed(self, run: InFlight) -> None:
        """Stop an attempt that timed out; abandon one that did not stop in time."""
        if run.stop_reason is None:
            limit_ms = self._timeout_ms(run)
            self.stop(run.launch.id, Failed(f"timed out after {limit_ms / 1000:g} s", reason="timeout"))
        else:
            self._abandon(run)

    def _abandon(self, run: InFlight) -> None:
        """End an attempt that was stopped and still runs."""
        log.warning("run.abandoned", **run.launch.log_fields, reason="it does not stop")
        if isinstance(run.stop_reason, Failed) and run.policy.on_lost == "fail":
            # It may still be running, so another attempt would be a second start.
            run.stop_reason = run.stop_reason._replace(permanent=True)
        self._end(run, Failed("stopped"))

    @staticmethod
    def _timeout_ms(run: InFlight) -> int:
        return run.policy.timeout_ms or run.launcher.default_timeout_ms

    # --- outcomes and shutdown -------------------------------------------------------------------

    def _take_next(self, batch: Sequence[Finished]) -> TakeNext | None:
        """Return which runs to claim with these outcomes: next signals, and runs of lanes with a backlog."""
        if self.uncertain_claims or self._closed or not self.lease.valid:
            return None
        ended = [run for each in batch if (run := self._in_flight.get(each.run_id)) is not None]
        signals = slots_to_follow(ended, self._slots.most_in_a_row)
        if self._slots.backlog:
            self._reserved = self._slots.reserve_after({run.lane for run in ended} - self.suspect_lanes)
        if not (signals or self._reserved.free or self._reserved.prefetch):
            return None
        if not self._claiming.locked():
            self._stopped_during_claim.clear()
        self._claim_began = asyncio.get_running_loop().time()
        free, prefetch = self._reserved
        usage = self.lane_usage({**free, **prefetch})
        return TakeNext(signals, self._launchers.capabilities(), free, prefetch, usage)

    def _claim_failed(self) -> None:
        """Return the slots of a claim with outcomes, which may have been written nevertheless."""
        self.uncertain_claims += 1
        self._settle_claim()

    def _settle_claim(self) -> None:
        reserved, self._reserved = self._reserved, ReservedSlots({}, {})
        self._slots.settle(reserved)

    def _follow(self, ended: Sequence[InFlight], written: set[str], taken: Sequence[TakenRun]) -> None:
        """Submit the runs that were claimed with outcomes, and free the slots that are left."""
        late = asyncio.get_running_loop().time() - self._claim_began >= self._lease_s
        runs: list[InFlight] = []
        if taken and late:  # they may belong to another worker already
            self.uncertain_claims += 1
        elif self._closed:
            self._dropped += [(run.id, run.attempt) for run in taken if run.slot == "later"]
        else:
            runs += following(ended, written, taken, self._launchers.prepare_taken, self.lease)
            runs += self.accept(self._reserved, [run for run in taken if run.slot != "previous"])
        for run in ended:
            self._release_slot(run)
        self._settle_claim()
        if runs:
            self.submit(runs)

    def _release_slot(self, run: InFlight) -> None:
        """Free the slot that an ended run holds, if it holds one."""
        if run.holds_slot:
            run.holds_slot = False
            self._slots.release(run.lane)

    def _outcomes_written(
        self, finished: Sequence[Finished], written: set[str], taken: Sequence[TakenRun]
    ) -> None:
        ended: list[InFlight] = []
        lanes: set[str] = set()
        delays_ms: list[int] = []
        owners: list[tuple[str, str, str]] = []
        logs_all = log.isEnabledFor(DEBUG)
        launches: list[Launch] = []
        any_suspect = False
        for each in finished:
            run = self._in_flight.get(each.run_id)
            if run is not None and run.launch.attempt == each.attempt:  # not the next one, already claimed
                del self._in_flight[each.run_id]
                lanes.add(run.lane)
                any_suspect = any_suspect or run.suspect
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
            self._tracing.record_finish(
                self._completer.began_ns, self._completer.worker_name, launches, len(finished), len(written)
            )
        if len(written) < len(finished):
            finished = [each for each in finished if each.run_id in written]
        self._follow(ended, written, taken)
        self._on_finished(finished, delays_ms, owners)
        needs_claim = self.uncertain_claims or self._deferred or any_suspect or self._dropped
        if needs_claim or self._slots.any_claimable(lanes, reserved=self._claiming.locked()):
            self._deferred = False
            self.on_slot_free()

    def close(self) -> None:
        """Claim nothing any more, and drop the prefetched runs that wait: the process stops."""
        self._closed = True
        self._drop(self._slots.waiting())

    async def drain(self, grace_ms: int) -> None:
        """Let running attempts end within the grace period, then stop the rest. Submit nothing after this."""
        loop = asyncio.get_running_loop()
        until = loop.time() + grace_ms / 1000
        self.close()
        for run in self._runners.list_scheduled():
            self.stop(run.launch.id, "released")
        runners = self._runners.tasks
        while runners and loop.time() < until:
            await asyncio.wait(runners, timeout=until - loop.time())
        self.stop_all()
        if runners:
            await asyncio.wait(runners, timeout=_DRAIN_STOP_S)
        self.abandon_failed()

    def abandon_failed(self) -> None:
        """End the attempts that were stopped with a failure and still run: the process ends them.

        Otherwise they would be released, and those of `on_lost: fail` would start a second time.
        """
        for run in list(self._running()):
            if isinstance(run.stop_reason, Failed):
                self._abandon(run)

    def stop_all(self) -> None:
        """Stop all attempts: the process ends, and another one starts them again."""
        for run in list(self._in_flight.values()):
            # A started run of `on_lost: fail` must not start again elsewhere: it fails here.
            fails_here = run.task is not None and run.policy.on_lost == "fail"
            self.stop(run.launch.id, _PROCESS_ENDED if fails_here else "released")
