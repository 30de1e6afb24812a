"""What a planning pass writes in both databases, beside runs and cursors."""

from __future__ import annotations

from typing import Final

from wakeful.run.run import NewRun
from wakeful.store.changelog import ChangedJob, TransactionEvents
from wakeful.store.plans import DueJob, JobPlan
from wakeful.store.sql.driver import SqlSession

#: the primary key
SET_STATE: Final = "UPDATE jobs SET missed = $2, spread_from = $3, spread_until = $4 WHERE id = $1"
#: the primary key
SET_MISSED: Final = "UPDATE runs SET missed = $2 WHERE id = $1"
#: the primary key, once for each
END_PAUSES: Final = """
    UPDATE jobs SET pause_note = NULL, pause_until = NULL, failures = 0, version = version + 1,
        updated_at = $2
    WHERE id = ANY($1::uuid[])"""


class PlanningPass:
    """What was decided for the jobs of one pass."""

    def __init__(self) -> None:
        self.plans: list[JobPlan] = []
        self.runs: list[NewRun] = []
        #: live runs to cancel, with the reason
        self.cancelled: list[tuple[str, str]] = []
        #: the plans that change more of their jobs than the cursors: the jobs are over, or their pauses
        self.halted: list[JobPlan] = []
        self._changed: list[ChangedJob] = []

    def add(self, job: DueJob, made: JobPlan) -> None:
        """Add the plan of a job."""
        self.plans.append(made)
        self.runs += made.runs
        if made.cancelled:
            self.cancelled += made.cancelled
        if not made.enabled or made.disabled_reason is not None or made.resumed:
            self.halted.append(made)
            self._changed.append(ChangedJob(job.id, job.workspace, job.agent, job.name))

    async def write_states(self, session: SqlSession, events: TransactionEvents, now_ms: int) -> None:
        """Write the catch-up states of jobs, the ticks missed before runs, and the ends of pauses."""
        caught_up = [made for made in self.plans if made.catchup is not None]
        if caught_up:
            states = [(made.job_id, *made.catchup) for made in caught_up if made.catchup is not None]
            await session.execute_many(SET_STATE, states)
            await session.execute_many(SET_MISSED, [pair for made in caught_up for pair in made.missed])
        resumed = [made.job_id for made in self.halted if made.resumed]
        if resumed:
            await session.execute(END_PAUSES, resumed, now_ms)
        events.record_changed_jobs(self._changed)
