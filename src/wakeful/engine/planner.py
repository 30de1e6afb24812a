"""The planner: turns due ticks into runs. `planning.decide` says what each becomes; this loop has it written.

It looks `lead_ms` ahead, so that a run is recorded before its instant and starts on it: a tick whose job
is idle is written down a moment early and fired on time. Overlap is never judged early: a job that is
busy is left alone until its tick is really due.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from wakeful.bounded_cache import MB, bounded_cache, text_size
from wakeful.clock import Clock
from wakeful.document import policy_from_text, timing_from_text, work_from_text
from wakeful.engine import calendar_loader
from wakeful.engine.budget_cache import BudgetCache
from wakeful.engine.in_flight import InFlight
from wakeful.engine.launcher_registry import LauncherRegistry
from wakeful.engine.loop import Loop
from wakeful.engine.worker import Worker
from wakeful.errors import Unavailable
from wakeful.job import AGENT_INACTIVE, Work
from wakeful.logs import get_logger
from wakeful.planning import Becomes, Facts, JobState, Limits, Plan, Spread, Verdict, decide
from wakeful.policy import Policy
from wakeful.run import NewRun
from wakeful.run_factory import claim_timeout_ms, lane_of, tick_run
from wakeful.schedule import Every
from wakeful.start_rules import BlockReason, may_start
from wakeful.store.port import Planned, Store
from wakeful.store.rows import CatchupState, DueJob, JobPlan
from wakeful.ticks import Ticks

BATCH: Final = 1_000

log = get_logger("wakeful.planner")


class Planner(Loop):
    """Plans, and hands what can start at once to the worker of this process."""

    name = "planner"

    def __init__(
        self,
        worker_name: str,
        store: Store,
        clock: Clock,
        worker: Worker,
        targets: LauncherRegistry,
        limits: Limits,
        *,
        longest_ms: int,
        batch: int = BATCH,
        budgets: BudgetCache,
    ) -> None:
        super().__init__(clock, longest_ms)
        self._budgets = budgets
        self._worker_name = worker_name
        self._store = store
        self._worker = worker
        self._targets = targets
        self._limits = limits
        self._batch = batch
        #: called with what each pass did
        self.on_planned: Callable[[Planned], None] = lambda planned: None

    async def step(self) -> int | None:
        """One pass. Returns when the next job is to be planned."""
        await self._budgets.refresh(self.clock.now_ms())
        async with self._worker.places() as free:
            now_ms = self.clock.now_ms()
            this = _Pass(self._worker_name, self._targets, self._limits, self._budgets, now_ms, free)
            planned = await self._store.plan(now_ms + self._limits.lead_ms, self._batch, this.decide)
            # Some ticks may have had their run already: those are not ours to launch.
            if len(planned.born) < this.runs:
                born = {run.id for run in planned.born}
                this.release([held for held in this.started if held.launch.id not in born])
                this.started = [held for held in this.started if held.launch.id in born]
        self._worker.hold(this.started)
        self.on_planned(planned)
        if this.unloaded:  # jobs whose holidays are not worked out yet: only they wait for that
            await calendar_loader.load(this.unloaded, now_ms)
            return now_ms
        if planned.claimed > this.left and planned.claimed >= self._batch:
            return now_ms
        wake_ms = await self._store.next_wake_ms()
        if wake_ms is not None and this.deferred_ms is not None:
            return max(this.deferred_ms, wake_ms - self._limits.lead_ms)
        return None if wake_ms is None else wake_ms - self._limits.lead_ms


class _Pass:
    """One planning pass: what `decide` is to the store, with the places that runs may take in our worker."""

    def __init__(
        self,
        worker: str,
        targets: LauncherRegistry,
        limits: Limits,
        budgets: BudgetCache,
        now_ms: int,
        free: dict[str, int],
    ) -> None:
        self._worker = worker
        self._targets = targets
        self._limits = limits
        self._budgets = budgets
        self._now_ms = now_ms
        self.free = free
        #: the runs that were decided, and of these the ones that start here
        self.runs = 0
        self.started: list[InFlight] = []
        #: how many jobs were left alone, and when the first of them is really due
        self.left = 0
        self.deferred_ms: int | None = None
        #: the timings of jobs that were left alone because their holidays are not worked out yet
        self.unloaded: list[str | None] = []

    def release(self, unborn: list[InFlight]) -> None:
        """These did not come to be: their places are free."""
        for held in unborn:
            self.free[held.lane] += 1

    def decide(self, job: DueJob) -> JobPlan | None:
        """What becomes of one due job. A job that cannot be read is set aside, and its siblings go on."""
        if not calendar_loader.is_loaded(job.timing, self._now_ms):
            self.unloaded.append(job.timing)
            return None
        try:
            return self._decide(job) if job.pause_until_ms is None else self._resume(job, job.pause_until_ms)
        except Unavailable as error:
            # It steps back a little, so that those behind it in the row have their turn.
            log.warning("job.deferred", job=job.name, agent=job.agent, error=error.message)
            return JobPlan(job.id, job.next_ms, self._now_ms + 1_000, job.run_count, True, None, ())
        except Exception as error:
            log.exception("job.set_aside", job=job.name, agent=job.agent, workspace=job.workspace, id=job.id)
            return JobPlan(job.id, None, None, job.run_count, False, f"cannot be read: {error}", ())

    def _resume(self, job: DueJob, until_ms: int) -> JobPlan | None:
        """End a pause that is over, and plan the ticks from its end on: those before it do not count."""
        log.info("job.resumed", job=job.name, agent=job.agent, workspace=job.workspace)
        ended = JobPlan(job.id, None, None, job.run_count, True, None, (), resumed=True)
        if job.agent_active is not None and not job.agent_active:
            return ended._replace(enabled=False, disabled_reason=AGENT_INACTIVE)
        if job.timing is None:
            return ended
        first = timing_from_text(job.timing).ticks(job.anchor_ms).next(until_ms - 1)
        if first is None:
            return ended._replace(enabled=False, disabled_reason="no_more_ticks")
        planned = self._decide(job._replace(next_ms=first))
        return None if planned is None else planned._replace(resumed=True)

    def _decide(self, job: DueJob) -> JobPlan | None:
        timing, next_ms = job.timing or "", job.next_ms
        policy = policy_from_text(job.policy)
        ticks = _unanchored_ticks(timing) or timing_from_text(timing).ticks(job.anchor_ms)
        spread = None if job.spread_from_ms is None else _spread(job)
        standing = JobState(job.id, ticks, policy, next_ms, job.run_count, job.missed, spread)
        work = work_from_text(job.work)
        facts = Facts(job.running, job.waiting, self._block_reason(job, work))
        plan = decide(standing, facts, self._now_ms, self._limits)
        if not plan.verdicts and plan.next_ms == next_ms and job.pause_until_ms is None:
            if plan.wake_ms is not None:
                self._defer(plan.wake_ms)
            return None
        lane = lane_of(work)
        runs = tuple([self._born(job, policy, work, lane, verdict) for verdict in plan.verdicts])
        self.runs += len(runs)
        # A job that goes when its run succeeds waits for that, with nothing left to plan, if it has one.
        over = plan.finished is not None and not (
            policy.delete_after_run and plan.finished == "no_more_ticks" and not _skipped(facts, plan)
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
        if plan.missed or plan.spread or job.missed or spread or len(runs) > 1:
            plan_for_job = _with_catchup(plan_for_job, job, plan)
        if plan.replaced or plan.superseded:
            replaced = [(run, "replaced") for run in plan.replaced]
            superseded = [(run, "superseded") for run in plan.superseded]
            return plan_for_job._replace(cancelled=(*replaced, *superseded))
        return plan_for_job

    def _block_reason(self, job: DueJob, work: Work) -> BlockReason | None:
        """Return why a run of this job may not start; None if it may. It would start on its tick, or now."""
        start_ms = max(self._now_ms, min(job.next_ms, self._now_ms + self._limits.lead_ms))
        block = self._budgets.find(job.workspace, job.agent, job.id)
        return may_start("schedule", 1, work, start_ms, block).reason

    def _born(self, job: DueJob, policy: Policy, work: Work, lane: str, verdict: Verdict) -> NewRun:
        if verdict.becomes is Becomes.STARTED and self.free.get(lane, 0) > 0:
            self.free[lane] -= 1
            run = tick_run(job, policy, lane, verdict, self._now_ms, self._worker)
            held = self._targets.held(run, policy, work, job.payload, job)
            if verdict.missed:
                held.launch.missed = verdict.missed
            self.started.append(held)
            return run
        if verdict.reason is not None:
            log.info(
                f"tick.{verdict.becomes}", reason=verdict.reason, job=job.name, agent=job.agent,
                workspace=job.workspace, ticks=verdict.covers,
            )  # fmt: skip
        return tick_run(job, policy, lane, verdict, self._now_ms, None, claim_timeout_ms(work, policy))

    def _defer(self, until_ms: int) -> None:
        self.left += 1
        self.deferred_ms = until_ms if self.deferred_ms is None else min(self.deferred_ms, until_ms)


def _spread(job: DueJob) -> Spread | None:
    if job.spread_from_ms is None or job.spread_until_ms is None:
        return None
    return Spread(job.spread_from_ms, job.spread_until_ms)


def _with_catchup(planned: JobPlan, job: DueJob, plan: Plan) -> JobPlan:
    """The plan with what it leaves for the next pass, where that is not what was there."""
    left = CatchupState(plan.missed, *(plan.spread or (None, None)))
    missed = [(run.id, verdict.missed) for run, verdict in zip(planned.runs, plan.verdicts, strict=True)]
    counted = tuple(pair for pair in missed if pair[1])
    if not counted and left == (job.missed, job.spread_from_ms, job.spread_until_ms):
        return planned
    return planned._replace(catchup=left, missed=counted)


def _skipped(facts: Facts, plan: Plan) -> bool:
    """Whether nothing is under way or to come that could succeed: the last of its ticks was not to run."""
    return facts.blocked is not None and not facts.running and plan.verdicts[-1].becomes is Becomes.SKIPPED


@bounded_cache(32 * MB, lambda ticks, timing: text_size(timing) + (ticks.size if ticks else 0))
def _unanchored_ticks(timing: str) -> Ticks | None:
    """The ticks of a timing that has no anchor, found by its text; None for an interval."""
    read = timing_from_text(timing)
    return None if isinstance(read.schedule, Every) else read.ticks(0)
