"""The worker: launches the runs it holds, as many at once as its lanes allow, and writes how they ended.

A run is *held* from when it is marked running under this worker's name until its outcome is written. It
takes a place in its lane from when it is handed in until its attempt is over. Attempts run in *slots*,
tasks that go from run to run: a new one is added only while runs wait and those there are busy, so
a storm of quick functions needs no task each.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import copy_context
from typing import Final

from wakeful.clock import Clock
from wakeful.engine.budget_cache import BudgetCache
from wakeful.engine.completer import Completer
from wakeful.engine.in_flight import InFlight
from wakeful.engine.lease import Lease
from wakeful.errors import Unavailable
from wakeful.launch.port import Launch
from wakeful.logs import get_logger
from wakeful.outcome import Failed, Finished, Outcome, Skipped, conclude
from wakeful.start_rules import BLOCK_REASONS, may_start

_INLINE_RUNS: Final = 50  # then the loop has a turn
_PATIENCE_S: Final = 10  # for a run that was told to stop; then its outcome is written without it
_CUT_SHORT: Final = Failed("its process ended in the middle of it", permanent=True, reason="lost")

log = get_logger("wakeful.worker")


class Worker:
    """Holds runs, launches them, and hands their outcomes to the store."""

    def __init__(
        self,
        clock: Clock,
        writer: Completer,
        budgets: BudgetCache,
        lanes: Mapping[str, int],
        *,
        lease_ms: int,
    ) -> None:
        self._clock = clock
        self._writer = writer
        self._budgets = budgets
        self.lease = Lease(lease_ms)
        self._lease_s = lease_ms / 1000
        writer.on_written = self._let_go
        self._lanes = dict(lanes)
        self._free = dict(lanes)
        self._placing = asyncio.Lock()
        self._held: dict[str, InFlight] = {}
        self._ready: deque[InFlight] = deque()
        self._slots: set[asyncio.Task[None]] = set()
        self._growing = False
        self._waiting_for: dict[int, list[InFlight]] = {}
        self._watch: asyncio.TimerHandle | None = None
        #: what was stopped while a claim was under way, whose answer may still hand it in: run and attempt
        self._stopped_meanwhile: set[tuple[str, int | None]] = set()
        #: whether a claim failed or was answered too late: the database may say that we hold more than we do
        self.unsure = False
        #: called when runs were let go because the lease is over: a heartbeat is to renew it
        self.on_lease_over: Callable[[], None] = lambda: None
        #: called when a slot may be free again, and when a run that others wait for may have ended
        self.on_free: Callable[[], None] = lambda: None
        #: called with each batch of outcomes that was written, and how late its first attempts began, in ms
        self.on_ended: Callable[[Sequence[Finished], list[int]], None] = lambda batch, late: None

    # --- what it holds ---------------------------------------------------------------------------

    @property
    def holding(self) -> dict[str, InFlight]:
        """What it holds just now, by the ids of the runs."""
        return dict(self._held)

    def lanes(self) -> dict[str, tuple[int, int]]:
        """By lane, how many places are taken, and how many there are."""
        taken = Counter(held.lane for held in self._held.values() if not held.ended)
        return {lane: (taken[lane], size) for lane, size in self._lanes.items()}

    @asynccontextmanager
    async def places(self) -> AsyncIterator[dict[str, int]]:
        """How many more runs each lane takes, for the caller alone: it counts down what it uses.

        What is left goes back at the end; all of it, if that is an error. One at a time: whoever has the
        places need not share them. Runs are claimed in here, and only here: a claim that fails may have been
        written all the same, and one that took as long as a lease may be another's when we hear of it.
        Unavailable: the lease is over, and what would be claimed now could be taken away at once.
        """
        loop = asyncio.get_running_loop()
        async with self._placing:
            if not self.lease.valid:
                self.on_lease_over()
                raise Unavailable("no heartbeat within the lease; nothing is claimed until there is one")
            self._stopped_meanwhile.clear()
            free = {lane: count for lane, count in self._free.items() if count > 0}
            for lane in free:
                self._free[lane] = 0
            places, began = dict(free), loop.time()
            try:
                yield places
                if loop.time() - began >= self._lease_s:
                    raise Unavailable("the database answered when the lease was over")
            except BaseException:
                # Nobody is woken for it: who is told to look again because looking failed never rests.
                places, self.unsure = free, True
                raise
            finally:
                for lane, count in places.items():
                    self._free[lane] += count

    def hold(self, runs: Iterable[InFlight]) -> None:
        """Launch these, each when its time has come. Their places are taken already."""
        now_ms = self._clock.now_ms()
        loop = asyncio.get_running_loop()
        for held in runs:
            if self._stopped_meanwhile and self._was_stopped(held.launch):
                self._free[held.lane] += 1
                continue
            if held.launch.id in self._held:  # an attempt before this one, that was lost and does not know it
                self.stop(held.launch.id, "lost")
            self._held[held.launch.id] = held
            fire_ms = held.launch.fire_ms
            if fire_ms <= now_ms:
                self._ready.append(held)
            elif fire_ms in self._waiting_for:
                self._waiting_for[fire_ms].append(held)
            else:
                self._waiting_for[fire_ms] = [held]
                loop.call_later((fire_ms - now_ms) / 1000, self._time_has_come, fire_ms)
        self._grow()

    def stop(self, run_id: str, verdict: Failed | str, only: InFlight | None = None) -> bool:
        """Cut a run short. A failure is recorded; a word says why nothing is to be written.

        With `only`, this attempt at it and no later one. One that has not started does not start any more
        when this returns. False: there is nothing to cut; it is over, or not held here.
        """
        held = self._held.get(run_id)
        if held is None and self._placing.locked():
            # Its next attempt may be on its way here: one that is stopped takes no later one with it.
            self._stopped_meanwhile.add((run_id, only.launch.attempt if only else None))
        if held is None or held.ended or held.verdict is not None or held is not (only or held):
            return False
        held.verdict = verdict
        if held.task is not None:
            held.task.cancel()
            self._watch_over(held, _PATIENCE_S)
        else:
            self._end(held, Failed("stopped"))
        return True

    def completed(self, run_id: str, attempt: int) -> None:
        """Stop waiting for this attempt: its outcome was reported from outside, and nothing is left to write.

        One whose launch is over stays until its own outcome has been refused by the store.
        """
        held = self._held.get(run_id)
        if held is not None and held.launch.attempt == attempt:
            self.stop(run_id, "completed", held)
        elif self._placing.locked():
            self._stopped_meanwhile.add((run_id, attempt))

    def _was_stopped(self, launch: Launch) -> bool:
        """Whether it was stopped before the answer to its claim came."""
        return not self._stopped_meanwhile.isdisjoint({(launch.id, None), (launch.id, launch.attempt)})

    # --- launching -------------------------------------------------------------------------------

    def _time_has_come(self, fire_ms: int) -> None:
        early_ms = fire_ms - self._clock.now_ms()
        if early_ms > 0:  # a timer may be early by a hair; a tick never is
            asyncio.get_running_loop().call_later(early_ms / 1000, self._time_has_come, fire_ms)
            return
        self._ready.extend(self._waiting_for.pop(fire_ms))
        self._grow()

    def _grow(self) -> None:
        """Add slots for what is ready: as many again as there are, so that a few turns make any number."""
        self._growing = False
        loop = asyncio.get_running_loop()
        for _ in range(min(len(self._ready), max(1, len(self._slots)))):
            slot = loop.create_task(self._slot(), name="wakeful-slot")
            self._slots.add(slot)
            slot.add_done_callback(self._slots.discard)

    def _let_go_unstarted(self) -> None:
        """Start nothing that is held: the lease is over, and another replica may have it or be done with it.

        The dispatcher releases what the database still says is ours, once the lease is renewed.
        """
        unstarted = [held for held in self._held.values() if held.task is None and not held.ended]
        self.unsure = True
        for held in unstarted:
            self.stop(held.launch.id, "lost", held)
        log.warning("runs.let_go", reason="lease over", count=len(unstarted))
        self.on_lease_over()

    async def _slot(self) -> None:
        """Go from run to run until none is ready."""
        me = asyncio.current_task()
        assert me is not None
        loop = asyncio.get_running_loop()
        clean = copy_context()
        inline = 0
        while self._ready:
            held = self._ready.popleft()
            if held.ended:  # stopped before it started
                pass
            elif not self.lease.valid:
                self._let_go_unstarted()
            else:
                held.task = me
                launch = held.launch
                held.started_ms = self._clock.now_ms()
                self._watch_over(held, self._timeout_ms(held) / 1000)
                if self._ready and not self._growing:
                    self._growing = True
                    loop.call_soon(self._grow)  # has its turn only if this run waits for something
                try:
                    outcome: Outcome = self._blocked(held) or await held.launcher.start(launch)
                except asyncio.CancelledError:
                    if me.cancelling() > held.cut_short():
                        raise  # it is the process that ends
                    outcome = Failed("stopped" if held.cut_short() else "what it waited for was cancelled")
                except Exception as error:
                    log.exception("launcher.error", run=launch.id, kind=held.launcher.kind)
                    outcome = Failed(f"{type(error).__name__}: {error}")
                held.task = None
                if held.cut_short():
                    me.uncancel()  # the slot goes on, also where the run took no notice
                if not held.ended:  # or else it was given up long ago
                    self._end(held, outcome)
            inline += 1
            if inline >= _INLINE_RUNS:
                inline = 0
                await asyncio.sleep(0)
            if copy_context() != clean:
                break  # a run that changed its context takes the slot with it
        if self._ready and not self._growing:
            self._growing = True
            loop.call_soon(self._grow)

    def _blocked(self, held: InFlight) -> Skipped | None:
        """Return the outcome of an attempt that may not start now; None if it may."""
        launch = held.launch
        block = self._budgets.find(launch.workspace, launch.agent, launch.job_id)
        decision = may_start(launch.trigger, launch.attempt, held.work, held.started_ms, block, launch.job)
        return None if decision.reason is None else Skipped(decision.message, decision.reason)

    def _end(self, held: InFlight, outcome: Outcome) -> None:
        launch = held.launch
        held.ended = True
        self._free[held.lane] += 1
        if isinstance(held.verdict, str):
            if self._held.get(launch.id) is held:
                del self._held[launch.id]
            self.on_free()
            return
        if held.verdict is not None:
            outcome = held.verdict
        now_ms = self._clock.now_ms()
        finished = conclude(
            launch.id, launch.job_id, launch.attempt, held.policy, outcome, held.started_ms, now_ms,
            held.work, failed_attempts=held.failed_attempts,
        )  # fmt: skip
        self._writer.add(finished)

    # --- timeouts --------------------------------------------------------------------------------

    def _watch_over(self, held: InFlight, seconds: float) -> None:
        """See to it that somebody looks when this run has had so much time."""
        loop = asyncio.get_running_loop()
        held.deadline = loop.time() + seconds
        if self._watch is None or held.deadline < self._watch.when():
            if self._watch is not None:
                self._watch.cancel()
            self._watch = loop.call_at(held.deadline, self._look)

    def _look(self) -> None:
        """Stop what has had its time, give up what took no notice of that; come back for the next."""
        self._watch = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        for held in list(self._held.values()):
            if held.task is None or held.ended or held.deadline > now:
                continue
            if held.verdict is None:
                limit_ms = self._timeout_ms(held)
                verdict = Failed(f"timed out after {limit_ms / 1000:g} s", reason="timeout")
                self.stop(held.launch.id, verdict)
            else:
                log.warning(
                    "run.abandoned", run=held.launch.id, job=held.launch.job, reason="it does not stop"
                )
                if isinstance(held.verdict, Failed) and held.policy.on_lost == "fail":
                    # It may still be at work, so another attempt would be a second start.
                    held.verdict = held.verdict._replace(permanent=True)
                self._end(held, Failed("stopped"))
        watched = [held.deadline for held in self._held.values() if held.task is not None and not held.ended]
        if watched and self._watch is None:
            self._watch = loop.call_at(min(watched), self._look)

    @staticmethod
    def _timeout_ms(held: InFlight) -> int:
        return held.policy.timeout_ms or held.launcher.default_timeout_ms

    # --- the end ---------------------------------------------------------------------------------

    def _let_go(self, finished: Sequence[Finished], written: set[str]) -> None:
        late = []
        for each in finished:
            held = self._held.get(each.run_id)
            if held is not None and held.launch.attempt == each.attempt:  # and not the next, already taken
                del self._held[each.run_id]
                if each.run_id in written:
                    _log_outcome(each, held.launch.job)
                    if each.attempt == 1:
                        late.append(each.started_ms - held.launch.fire_ms)
        if len(written) < len(finished):
            finished = [each for each in finished if each.run_id in written]
        self.on_ended(finished, late)
        self.on_free()

    async def drain(self, grace_ms: int) -> None:
        """Give what runs a while to end, then cut short what does not. Nothing may be handed in any more."""
        loop = asyncio.get_running_loop()
        until = loop.time() + grace_ms / 1000
        for run_id in [held.launch.id for due in self._waiting_for.values() for held in due]:
            self.stop(run_id, "released")
        while self._slots and loop.time() < until:
            await asyncio.wait(self._slots, timeout=until - loop.time())
        for held in list(self._held.values()):
            # What must not start twice is not handed on once it has started.
            ends_here = held.task is not None and held.policy.on_lost == "fail"
            self.stop(held.launch.id, _CUT_SHORT if ends_here else "released")
        if self._slots:
            # As long as a program has that is asked to end: it is not handed on while it is still at it.
            await asyncio.wait(self._slots, timeout=3)
        for held in [held for held in self._held.values() if held.task is not None and not held.ended]:
            if held.verdict is _CUT_SHORT:  # it will not be stopped; that it was is true all the same
                self._end(held, _CUT_SHORT)


def _log_outcome(finished: Finished, job: str | None) -> None:
    """Log what a person may want to know of an outcome that was written."""
    run, attempt, error = finished.run_id, finished.attempt, finished.error
    if finished.state == "retrying":
        log.info("run.retrying", run=run, job=job, attempt=attempt, error=error)
    elif finished.state == "failed":
        log.warning("run.failed", run=run, job=job, attempt=attempt, error=error)
    elif finished.reason in BLOCK_REASONS:
        log.info("run.skipped", reason=finished.reason, run=run, job=job)
