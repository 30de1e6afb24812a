"""What the list of jobs shows of each job: last outcomes, cost per day, open incidents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from wakeful.errors import InvalidArgument
from wakeful.job.job import JobRecord
from wakeful.run.usage import day_of
from wakeful.service.auth.access import Principal
from wakeful.service.auth.accounts import Accounts
from wakeful.store.overviews import JobOverview, RunOutcome
from wakeful.store.port import Store

#: The interfaces import the type of runs from here: they do not use the store.
__all__ = ["DAYS", "MAX_JOBS", "RUNS", "JobOverviews", "JobSummary", "RunOutcome"]

#: The most jobs of one call.
MAX_JOBS: Final = 100
RUNS: Final = 20
DAYS: Final = 7


@dataclass(frozen=True, slots=True)
class JobSummary:
    """What a list shows of a job besides its fields."""

    #: its last runs, oldest first
    runs: Sequence[RunOutcome]
    #: the cost of each of the last `DAYS` days (UTC), today last
    costs: Sequence[float]
    #: the tokens of these days
    tokens: Sequence[int]
    #: the ids of its open incidents, oldest first
    incidents: Sequence[str]

    @property
    def last_run(self) -> RunOutcome | None:
        """Its newest run."""
        return self.runs[-1] if self.runs else None


class JobOverviews:
    """Reads summaries of jobs, a few statements for all of a page."""

    def __init__(self, store: Store, accounts: Accounts) -> None:
        self._store = store
        self._accounts = accounts

    async def of(
        self, principal: Principal, workspace: str, jobs: Sequence[JobRecord]
    ) -> dict[str, JobSummary]:
        """Return the summaries of jobs that were listed for the principal, by id."""
        await self._accounts.authorize(principal, "read", workspace)
        if len(jobs) > MAX_JOBS:
            raise InvalidArgument(f"at most {MAX_JOBS} jobs at once, not {len(jobs)}")
        if not jobs:
            return {}
        today = day_of(self._store.clock.now_ms())
        first = today - DAYS + 1
        found = await self._store.job_overviews([job.id for job in jobs], RUNS, first)
        return {job_id: _summary(overview, first) for job_id, overview in found.items()}


def _summary(overview: JobOverview, first_day: int) -> JobSummary:
    by_day = {each.day: each for each in overview.costs}
    days = [by_day.get(day) for day in range(first_day, first_day + DAYS)]
    return JobSummary(
        overview.runs,
        [day.cost if day else 0.0 for day in days],
        [day.tokens if day else 0 for day in days],
        overview.incidents,
    )
