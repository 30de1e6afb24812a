"""A job on a clock that a test moves, with the records that its ticks must have after any operations.

`JobService`, the store and the decisions of the planner are real. The timeline keeps the periods in which the
job was enabled with one timing. From these it knows which ticks need a record, and compares them with the
runs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any

from tests.support.databases import Database
from tests.support.factories import alone
from tests.support.pull_runs import claim_pairs
from tests.support.services import job_service
from wakeful.engine.in_flight import Lease
from wakeful.engine.launcher_registry import LauncherRegistry
from wakeful.engine.planner import PlanningBatch
from wakeful.errors import FailedPrecondition, InvalidArgument, NotFound
from wakeful.job.job import AGENT_INACTIVE, JobRecord
from wakeful.launch.budgets import BudgetCache
from wakeful.run.job_transitions import SKIP_REASON
from wakeful.run.outcome import Finished
from wakeful.run.planning import Limits, fire_ms
from wakeful.run.run import NewRun
from wakeful.schedule.day_rules import within
from wakeful.schedule.ticks import Ticks
from wakeful.service.agents.inheritance import Inheritance
from wakeful.service.auth.access import LOCAL
from wakeful.store.accounts import AgentRow
from wakeful.store.port import Store
from wakeful.store.rows import RunFilter, RunView

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
NAME = "job"
#: The largest jitter of a test.
MOST_JITTER = 2 * HOUR
RUNS = ("pending", "running", "retrying", "succeeded", "failed", "cancelled")


@dataclass
class Period:
    """A time in which the job was enabled with one timing. Ticks count after `start_ms`."""

    ticks: Ticks
    start_ms: int
    end_ms: int | None = None
    #: the job as it was at the end
    job: JobRecord | None = None
    #: the last tick, if the job was over then
    last: int | None = None

    def between(self, first: int, last: int) -> list[int]:
        """Return the ticks in this range, both inclusive."""
        found: list[int] = []
        tick = self.ticks.next(max(self.start_ms, first - 1))
        while tick is not None and tick <= last and len(found) < 20_000:
            found.append(tick)
            tick = self.ticks.next(tick)
        return found

    def owed(self, job: JobRecord, now_ms: int) -> list[int]:
        """Return the ticks that were due in this period, and so have a record."""
        job = self.job or job
        end_ms = now_ms if self.end_ms is None else min(now_ms, self.end_ms)
        work, policy = job.definition.work, job.definition.policy
        return [
            tick
            for tick in self.between(0, end_ms + MOST_JITTER)
            if fire_ms(job.id, self.ticks, policy, tick, work) <= end_ms
            and (self.last is None or tick <= self.last)
        ]


class Timeline:
    """One job, its operations, and the check of its records."""

    def __init__(self, database: Database, store: Store, lead_ms: int = 0, max_catchup: int = 7) -> None:
        self.clock, self.store = database.clock, store
        self.limits = Limits(lead_ms=lead_ms, max_catchup=max_catchup)
        self.launchers = LauncherRegistry([])
        self.jobs = job_service(store, self.launchers)
        self.budgets = BudgetCache(store, 1_000)
        self.periods: list[Period] = []
        self.told: list[str] = []

    # --- operations -------------------------------------------------------------------------------

    async def create(self, **document: object) -> None:
        """Create the job."""
        self._tell(f"create {document}")
        given = {"name": NAME, "target": {"kind": "pull"}, **document}
        await self.jobs.create(LOCAL, "default", "default", given)
        job = await self.job()
        if job.enabled and job.ticks is not None:
            self.periods.append(Period(job.ticks, self.clock.ms))

    async def do(self, name: str, *args: Any, **kwargs: Any) -> bool:
        """Call an operation of the job service. Returns False if it is refused."""
        before = await self.job()
        try:
            await attrgetter(name)(self.jobs)(LOCAL, "default", "default", *args, **kwargs)
        except (FailedPrecondition, InvalidArgument, NotFound) as error:
            self._tell(f"{name} {args} {kwargs} is refused: {error.message}")
            assert await self.job() == before, "a refused request changes nothing"
            return False
        self._tell(f"{name} {args} {kwargs}")
        before = self._end_pause(before, await self.job())
        await self._observe(before, by_planner=False)
        return True

    def _end_pause(self, before: JobRecord, after: JobRecord) -> JobRecord:
        """Begin a period if a request ended a pause that was over, before the planner did."""
        until_ms, ticks = before.pause_until_ms, before.ticks
        if until_ms is None or ticks is None or until_ms > self.clock.ms or after.pause_until_ms == until_ms:
            return before
        self.periods.append(Period(ticks, until_ms - 1))
        return replace(before, enabled=True)

    async def plan(self, *, again: bool = False) -> None:
        """Plan until nothing is due. `again`: the job may have forgotten a tick that has a record."""
        for _ in range(2_000):
            before = await self.job()
            now_ms = self.clock.ms
            await self.budgets.refresh(now_ms)
            batch = PlanningBatch("w", Lease(1_000), self.launchers, self.budgets, self.limits, now_ms, {})
            planned = await self.store.plan(now_ms + self.limits.lead_ms, 10, batch.decide)
            assert again or not planned.repeat, f"a tick with a record was planned again\n{self}"
            if planned.claimed == batch.deferred:
                return
            self._tell(f"planned {[(run.scheduled_ms, run.state, run.reason) for run in planned.runs]}")
            await self._observe(before, by_planner=True)
            for run in planned.runs:
                self._check_hours(before, run)
        raise AssertionError(f"planning does not end\n{self}")

    async def finish(self) -> None:
        """End the runs that wait."""
        for run in await self.records():
            if run.state == "pending":
                await self.store.cancel_run(run.id, self.clock.ms, "tested", running=False)
        self._tell("waiting runs are cancelled")

    async def fail(self) -> None:
        """Let a waiting run fail, which disables the job."""
        before, now_ms = await self.job(), self.clock.ms
        for taken, _ in await claim_pairs(self.store, now_ms, "w", "default", None, None, 1):
            self._tell(f"the run of {taken.scheduled_ms} fails")
            outcome = Finished(taken.id, taken.job_id, taken.attempt, "failed", now_ms, now_ms, error="no")
            assert await self.store.finish("w", [outcome._replace(disable_job="failed")], alone)
            await self._observe(before, by_planner=False)

    async def set_active(self, active: bool) -> None:
        """Activate or deactivate the agent."""
        before = await self.job()

        def change(old: AgentRow | None) -> AgentRow:
            assert old is not None
            return old._replace(active=active)

        await self.store.put_agent("default", "default", change, follow=Inheritance(self.clock.ms, bytes))
        self._tell(f"the agent is {'active' if active else 'inactive'}")
        await self._observe(before, by_planner=False)

    async def job(self) -> JobRecord:
        """Return the job."""
        return await self.jobs.get(LOCAL, "default", "default", NAME)

    async def records(self) -> list[RunView]:
        """Return the runs of its ticks."""
        job = await self.job()
        only = RunFilter("default", job_id=job.id, trigger="schedule", limit=10_000)
        return sorted(await self.store.runs(only), key=lambda run: run.scheduled_ms)

    def _tell(self, what: str) -> None:
        self.told.append(f"{self.clock.ms}: {what}")

    def __str__(self) -> str:
        return "\n".join(self.told)

    async def _observe(self, before: JobRecord, *, by_planner: bool) -> None:
        """End and begin periods as the job changed."""
        job, now_ms = await self.job(), self.clock.ms
        moved = job.definition.timing != before.definition.timing
        woken = not before.enabled and before.pause_until_ms is not None and job.pause_until_ms is None
        if before.enabled and (moved or not job.enabled):
            self._end(before, now_ms)
        woken = woken and job.disabled_reason != AGENT_INACTIVE
        if job.ticks is not None and ((job.enabled and (moved or not before.enabled)) or woken):
            # The planner ends a pause at its end, whenever it does that; a request ends it now.
            ended_ms = before.pause_until_ms if by_planner else None
            self.periods.append(Period(job.ticks, now_ms if ended_ms is None else ended_ms - 1))
            if not job.enabled:  # over in the same pass
                self._end(job, now_ms)
        if self.periods and job.disabled_reason in ("max_runs", "no_more_ticks"):
            ticks = [run.until_ms or run.scheduled_ms for run in await self.records()]
            if self.periods[-1].last is None and self.periods[-1].end_ms == now_ms:
                self.periods[-1].last = max(ticks, default=0)

    def _end(self, job: JobRecord, now_ms: int) -> None:
        self.periods[-1].end_ms, self.periods[-1].job = now_ms, job

    # --- the check --------------------------------------------------------------------------------

    async def check(self, *, planned: bool) -> None:
        """Compare the records with the periods. `planned`: nothing is due that is not planned."""
        job, now_ms, runs = await self.job(), self.clock.ms, await self.records()
        about = f"at {now_ms}, {job}\n{self}\n" + "\n".join(
            f"{run.scheduled_ms} {run.state} {run.reason} x{run.covers} until {run.until_ms}" for run in runs
        )
        owed = {tick for period in self.periods for tick in period.owed(job, now_ms)}
        single = {run.scheduled_ms for run in runs if run.state != "missed"}
        covered: set[int] = set()
        for run in runs:
            if run.state == "missed":
                until_ms = run.until_ms or run.scheduled_ms
                found = {tick for tick in owed if run.scheduled_ms <= tick <= until_ms} - single
                assert run.scheduled_ms in found, f"a missed row begins at {run.scheduled_ms}\n{about}"
                assert len(found) == run.covers, f"{len(found)} ticks, a row covers {run.covers}\n{about}"
                assert not found & covered, f"two records for {found & covered}\n{about}"
                covered |= found
        records = single | covered
        if planned:
            assert owed <= records, f"no record for {sorted(owed - records)}\n{about}"
        for run in runs:
            if run.state != "missed" and run.scheduled_ms not in owed:
                assert run.reason == SKIP_REASON or self._was_early(run.scheduled_ms, now_ms), (
                    f"{run.scheduled_ms} was not to be planned\n{about}"
                )
        ran = [run for run in runs if run.state in RUNS]
        assert job.run_count == len(ran), f"run count {job.run_count}, not {len(ran)}\n{about}"
        max_runs = job.definition.policy.max_runs
        if planned and max_runs is not None and job.enabled:
            assert len(ran) < max_runs, f"it has reached maxRuns\n{about}"
        if job.next_ms is not None:
            assert job.enabled, about
            assert job.has_tick(job.next_ms), f"nextAt {job.next_ms} is no tick\n{about}"
            assert job.next_ms not in records, f"nextAt {job.next_ms} has a record\n{about}"
            passed = set(self.periods[-1].between(0, job.next_ms - 1))
            assert passed <= records, f"nextAt passed {sorted(passed - records)}\n{about}"

    def _check_hours(self, job: JobRecord, run: NewRun) -> None:
        """Check that a tick within the active hours runs, if it is planned in time, and no other one does."""
        work = job.definition.work
        if work.active_hours is None or run.state == "missed":
            return
        active = partial(within, work.active_hours, work.hours_tz or "UTC")
        late = run.scheduled_ms + job.definition.policy.jitter_ms < self.clock.ms - 1
        skipped = run.reason == "outside_hours"
        about = f"{run.scheduled_ms}: {run.reason}, fires at {run.fire_ms}\n{self}"
        if not late:
            assert skipped != active(run.scheduled_ms), about
        assert skipped != active(max(run.fire_ms, self.clock.ms)), about

    def _was_early(self, tick: int, now_ms: int) -> bool:
        """Return whether jitter or the lead can have planned a tick before its period ended."""
        most = MOST_JITTER + self.limits.lead_ms
        return any(
            tick in period.between(tick, tick)
            and tick - most <= (now_ms if period.end_ms is None else period.end_ms)
            for period in self.periods
        )
