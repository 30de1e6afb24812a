"""The planner: turns due ticks into runs. `planning.decide` decides what each becomes; this loop writes it.

It looks `lead_ms` ahead, so that a run is recorded before its instant and starts on it: the tick of an idle
job is recorded early and fired on time. Overlap is never decided early: a busy job is left alone until its
tick is due.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from wakeful.document import policy_from_text, timing_from_text, work_from_text
from wakeful.engine import calendar_loader
from wakeful.engine.completer import log_decisions
from wakeful.engine.in_flight import InFlight, Lease
from wakeful.engine.launcher_registry import LauncherRegistry
from wakeful.engine.loop import Loop
from wakeful.engine.tracing import Tracing
from wakeful.engine.worker import Worker
from wakeful.errors import InvalidArgument, Unavailable
from wakeful.job.job import AGENT_INACTIVE, Work
from wakeful.job.policy import Policy
from wakeful.job.start_rules import BlockReason, can_take, find_requirement, may_start
from wakeful.launch.budgets import BudgetCache
from wakeful.logs import get_logger
from wakeful.run.factory import tick_run
from wakeful.run.planning import (
    Becomes,
    JobState,
    Limits,
    Plan,
    PlanningFacts,
    Spread,
    TickVerdict,
    decide,
    fire_ms,
)
from wakeful.run.run import NewRun
from wakeful.schedule.schedules import Every
from wakeful.schedule.ticks import Ticks
from wakeful.store.plans import CatchupState, DueJob, JobPlan, Planned
from wakeful.store.port import Store
from wakeful.store.row_mapping import ticks_from_text, ticks_to_text
from wakeful.values.bounded_cache import MB, bounded_cache, text_size
from wakeful.values.clock import Clock

BATCH: Final = 1_000
#: How long a job is deferred whose calendar is not available.
_DEFER_MS: Final = 1_000
#: After so many seconds of decisions a pass leaves the other jobs to the next. The ticks of a job may take
#: a tenth of a second to compute, and PostgreSQL ends a transaction without a statement for 15 seconds.
_LONGEST_S: Final = 3.0
#: For so many seconds holidays are loaded before the next pass: other jobs must not wait for all of them.
_LOADING_S: Final = 0.5
#: How long a job is deferred whose planning raises an unexpected error.
_DEFER_UNEXPECTED_MS: Final = 10_000

log = get_logger("wakeful.planner")


class Planner(Loop):
    """Plans due jobs, and submits runs that can start at once to the worker of this process."""

    name = "planner"
    follows_time = True

    def __init__(
        self,
        worker_name: str,
        store: Store,
        clock: Clock,
        worker: Worker,
        launchers: LauncherRegistry,
        budgets: BudgetCache,
        limits: Limits,
        on_planned: Callable[[Planned], None],
        *,
        max_sleep_ms: int,
        batch: int = BATCH,
        tracing: Tracing | None = None,
    ) -> None:
        super().__init__(clock, max_sleep_ms)
        self._tracing = tracing
        self._worker_name = worker_name
        self._store = store
        self._worker = worker
        self._launchers = launchers
        self._budgets = budgets
        self._limits = limits
        self._batch = batch
        #: called with the result of each pass
        self._on_planned = on_planned

    async def step(self) -> int | None:
        """Plan one batch of due jobs. Returns when the next job is due."""
        await self._budgets.refresh(self.clock.now_ms())
        async with self._worker.reserve_slots() as reserved:
            now_ms = self.clock.now_ms()
            batch = PlanningBatch(
                self._worker_name,
                self._worker.lease,
                self._launchers,
                self._budgets,
                self._limits,
                now_ms,
                reserved.free,
            )
            began_ns = None if self._tracing is None else self._tracing.now_ns()
            planned = await self._store.plan(now_ms + self._limits.lead_ms, self._batch, batch.decide)
            batch.keep(planned.runs)
            if planned.repeat:
                return now_ms
        if self._tracing is not None and began_ns is not None and planned.claimed:
            self._tracing.record_plan(
                began_ns, self._worker_name, planned.claimed, planned.runs, len(batch.started)
            )
        self._worker.submit(batch.started)
        if batch.decided or batch.ended:
            log_decisions(log, batch.decided, batch.ended, {run.id for run in planned.runs})
        self._on_planned(planned)
        if batch.unloaded:
            await calendar_loader.load_some(batch.unloaded, now_ms, _LOADING_S)
            return now_ms
        if batch.is_cut or (planned.claimed > batch.deferred and planned.claimed >= self._batch):
            return now_ms
        wake_ms = await self._store.next_wake_ms()
        if wake_ms is not None and batch.deferred_until_ms is not None:
            return max(batch.deferred_until_ms, wake_ms - self._limits.lead_ms)
        return None if wake_ms is None else wake_ms - self._limits.lead_ms


class PlanningBatch:
    """The decisions for one batch of due jobs, and the worker slots that its runs take."""

    def __init__(
        self,
        worker: str,
        lease: Lease,
        launchers: LauncherRegistry,
        budgets: BudgetCache,
        limits: Limits,
        now_ms: int,
        free: dict[str, int],
    ) -> None:
        self._worker = worker
        self._lease = lease
        self._launchers = launchers
        self._capabilities = launchers.capabilities()
        #: whether this process can launch runs with this work, by its identity
        self._launchable: dict[int, tuple[bool, Work]] = {}
        self._budgets = budgets
        self._limits = limits
        self._now_ms = now_ms
        self._free = free
        #: how many runs were decided
        self._made = 0
        #: the runs that start in this process
        self.started: list[InFlight] = []
        #: the runs that do not start on their tick, to be logged
        self.decided: list[tuple[NewRun, TickVerdict]] = []
        #: the jobs that this pass disables
        self.ended: list[tuple[DueJob, str]] = []
        #: how many jobs were deferred to their tick, and the earliest of these ticks
        self.deferred = 0
        self.deferred_until_ms: int | None = None
        #: the timings of jobs that wait until their holidays are loaded
        self.unloaded: list[str | None] = []
        #: when to stop deciding, by the monotonic clock, and whether jobs were left to the next pass
        self._stop_at: float | None = None
        self.is_cut = False

    def keep(self, written: Sequence[NewRun]) -> None:
        """Keep the runs that were written, and return the slots of the others.

        A transaction that was repeated has decided twice, and another replica may have planned a job between.
        """
        if self._made == len(written):
            return
        ids = {run.id for run in written}
        for run in self.started:
            if run.launch.id not in ids:
                self._free[run.lane] += 1
        self.started = [run for run in self.started if run.launch.id in ids]

    def decide(self, job: DueJob) -> JobPlan | None:
        """Return the plan of one due job; None leaves it as it is. A job that cannot be read is disabled."""
        if self._stop_at is None:
            self._stop_at = time.monotonic() + _LONGEST_S
        elif time.monotonic() >= self._stop_at:
            self.is_cut = True
            return None
        if not calendar_loader.is_loaded(job.timing, self._now_ms):
            self.unloaded.append(job.timing)
            return None
        try:
            return self._decide(job) if job.pause_until_ms is None else self._resume(job, job.pause_until_ms)
        except Unavailable as error:
            # Move its wake time, so that the jobs behind it are planned.
            log.warning("job.deferred", **job.log_fields, error=error.message)
            wake_ms = self._now_ms + _DEFER_MS
            return JobPlan(job.id, job.next_ms, wake_ms, job.run_count, True, None, ())
        except InvalidArgument as error:
            log.exception("job.set_aside", **job.log_fields)
            return JobPlan(job.id, None, None, job.run_count, False, f"cannot be read: {error}", ())
        except Exception as error:  # such as a MemoryError, which says nothing about the job
            log.exception("job.deferred", **job.log_fields, error=f"{type(error).__name__}: {error}")
            wake_ms = self._now_ms + _DEFER_UNEXPECTED_MS
            return JobPlan(job.id, job.next_ms, wake_ms, job.run_count, True, None, ())

    def _resume(self, job: DueJob, until_ms: int) -> JobPlan | None:
        """End a pause that is over, and plan the ticks from its end on. Earlier ticks do not count."""
        log.info("job.resumed", **job.log_fields, reason="its pause ended")
        resumed = JobPlan(job.id, None, None, job.run_count, True, None, (), resumed=True)
        if job.agent_active is not None and not job.agent_active:
            return resumed._replace(enabled=False, disabled_reason=AGENT_INACTIVE)
        if job.timing is None:
            return resumed
        first = _open_ticks(job, until_ms).next(until_ms - 1)
        if first is None:
            return resumed._replace(enabled=False, disabled_reason="no_more_ticks")
        planned = self._decide(job._replace(next_ms=first))
        return None if planned is None else planned._replace(resumed=True)

    def _decide(self, job: DueJob) -> JobPlan | None:
        next_ms = job.next_ms
        policy = policy_from_text(job.policy)
        ticks = _open_ticks(job, next_ms)
        spread = None if job.spread_from_ms is None else _spread(job)
        work = work_from_text(job.work)
        state = JobState(job.id, ticks, policy, next_ms, job.run_count, job.missed, spread, work)
        facts = PlanningFacts(job.running, job.waiting, self._block_reason(job, state))
        plan = decide(state, facts, self._now_ms, self._limits)
        if not plan.verdicts and plan.next_ms == next_ms and job.pause_until_ms is None:
            if plan.wake_ms is not None:
                self._defer(plan.wake_ms)
            return None
        runs = tuple([self._new_run(job, policy, work, verdict) for verdict in plan.verdicts])
        # A job that is deleted after its run stays enabled, without ticks, until its last run succeeds.
        over = plan.finished is not None and not (
            policy.delete_after_run and plan.finished == "no_more_ticks" and not _is_skipped(facts, plan)
        )
        plan_for_job = JobPlan(
            job.id,
            plan.next_ms,
            plan.wake_ms,
            plan.run_count,
            not over,
            plan.finished if over else None,
            runs,
        )
        if over and plan.finished is not None:
            self.ended.append((job, plan.finished))
            if runs:
                decided = {*ticks.taken, runs[-1].until_ms or runs[-1].scheduled_ms}
                plan_for_job = plan_for_job._replace(decided_ticks=ticks_to_text(sorted(decided)))
        if plan.missed or plan.spread or job.missed or spread or len(runs) > 1:
            plan_for_job = _with_catchup(plan_for_job, job, plan)
        if plan.replaced or plan.superseded:
            replaced = [(run, "replaced") for run in plan.replaced]
            superseded = [(run, "superseded") for run in plan.superseded]
            return plan_for_job._replace(cancelled=(*replaced, *superseded))
        return plan_for_job

    def _block_reason(self, job: DueJob, state: JobState) -> BlockReason | None:
        """Return why a run of this job may not start when its tick fires, or now; None if it may."""
        tick = job.next_ms
        if state.policy.jitter_ms:
            tick = fire_ms(job.id, state.ticks, state.policy, tick, state.work)
        start_ms = max(self._now_ms, min(tick, self._now_ms + self._limits.lead_ms))
        block = self._budgets.find(job.workspace, job.agent, job.id, start_ms)
        return may_start("schedule", 1, state.work, start_ms, block).reason

    def _new_run(self, job: DueJob, policy: Policy, work: Work, verdict: TickVerdict) -> NewRun:
        """Return the run of a verdict; one that can start here takes a slot."""
        self._made += 1
        if (
            verdict.becomes is Becomes.STARTED
            and self._free.get(work.lane, 0) > 0
            and self._can_launch(job, work)
        ):
            run = tick_run(job, policy, work, verdict, self._now_ms, self._worker)
            in_flight = self._launchers.prepare(run, policy, work, job.payload, job, self._lease)
            self._free[work.lane] -= 1  # not before: `prepare` may raise an error
            if verdict.missed:
                in_flight.launch.missed = verdict.missed
            self.started.append(in_flight)
            return run
        run = tick_run(job, policy, work, verdict, self._now_ms, None)
        if run.instance_id is not None:  # a signal is recorded with its data
            run = run._replace(payload=job.payload)
        if verdict.reason is not None or verdict.becomes is Becomes.QUEUED:
            self.decided.append((run, verdict))
        return run

    def _can_launch(self, job: DueJob, work: Work) -> bool:
        """Return whether this process can launch runs of the job. A signal waits for its turn."""
        known = self._launchable.get(id(work))  # similar jobs have the same object
        if known is None:
            launchable = (
                not work.pulled
                and work.instance is None
                and can_take(self._capabilities, find_requirement(work, job.workspace, job.agent))
            )
            known = self._launchable[id(work)] = launchable, work
        return known[0]

    def _defer(self, until_ms: int) -> None:
        self.deferred += 1
        before_ms = self.deferred_until_ms
        self.deferred_until_ms = until_ms if before_ms is None else min(before_ms, until_ms)


def _spread(job: DueJob) -> Spread | None:
    if job.spread_from_ms is None or job.spread_until_ms is None:
        return None
    return Spread(job.spread_from_ms, job.spread_until_ms)


def _with_catchup(planned: JobPlan, job: DueJob, plan: Plan) -> JobPlan:
    """Return the plan with the catch-up state for the next pass, if that changes."""
    state = CatchupState(plan.missed, *(plan.spread or (None, None)))
    missed = [(run.id, verdict.missed) for run, verdict in zip(planned.runs, plan.verdicts, strict=True)]
    counted = tuple(pair for pair in missed if pair[1])
    if not counted and state == (job.missed, job.spread_from_ms, job.spread_until_ms):
        return planned
    return planned._replace(catchup=state, missed=counted)


def _is_skipped(facts: PlanningFacts, plan: Plan) -> bool:
    """Return whether no run is left that could succeed: the last tick has a record, or a block skips it."""
    if not plan.verdicts:
        return not facts.running and not facts.waiting
    return facts.blocked is not None and not facts.running and plan.verdicts[-1].becomes is Becomes.SKIPPED


def _open_ticks(job: DueJob, from_ms: int) -> Ticks:
    """Return the ticks of a job without those from `from_ms` on that have a record already."""
    timing = job.timing or ""
    ticks = _unanchored_ticks(timing) or timing_from_text(timing).ticks(job.anchor_ms)
    if job.decided_ticks is None:
        return ticks
    return ticks.without([tick for tick in ticks_from_text(job.decided_ticks) if tick >= from_ms])


@bounded_cache(32 * MB, lambda ticks, timing: text_size(timing) + (ticks.size if ticks else 0))
def _unanchored_ticks(timing: str) -> Ticks | None:
    """Return the ticks of a stored timing that needs no anchor; None for an interval."""
    definition = timing_from_text(timing)
    return None if isinstance(definition.schedule, Every) else definition.ticks(0)
