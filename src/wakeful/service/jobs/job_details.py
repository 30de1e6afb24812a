"""What a page about one job shows besides its definition."""

from __future__ import annotations

from typing import Final, NamedTuple

from wakeful.engine.metrics import Metrics
from wakeful.engine.rescuer import LEASE_MS
from wakeful.job.capabilities import requirement_of
from wakeful.job.job import JobRecord
from wakeful.job.start_rules import BudgetOwner
from wakeful.service.admin.budgets import Budgets
from wakeful.service.auth.access import Principal
from wakeful.service.jobs.job_blockers import Blocker, JobFacts, blockers
from wakeful.service.jobs.jobs import JobService
from wakeful.service.runs.executors import Executors
from wakeful.service.runs.replicas import Replicas
from wakeful.service.runs.runs import RunService
from wakeful.store.port import Store
from wakeful.store.rows import RunView

#: How many runs are read for the charts.
CHARTED: Final = 60
#: How many jobs of a chain are named, in each direction.
MAX_NAMED: Final = 20


class JobDetails(NamedTuple):
    """What belongs to a job."""

    #: why it does not run
    blockers: list[Blocker]
    #: its newest runs, newest first
    runs: list[RunView]
    has_hook: bool
    #: what it used today: tokens and cost
    tokens: int
    cost: float


class JobChain(NamedTuple):
    """The other jobs of its chain."""

    #: the jobs that run before it, the next one first
    before: list[str]
    #: the jobs that run after it
    after: list[str]


class JobDetailReader:
    """Reads the details of jobs."""

    def __init__(
        self,
        store: Store,
        jobs: JobService,
        runs: RunService,
        budgets: Budgets,
        executors: Executors,
        replicas: Replicas,
        metrics: Metrics,
    ) -> None:
        self._store = store
        self._jobs = jobs
        self._runs = runs
        self._budgets = budgets
        self._executors = executors
        self._replicas = replicas
        self._metrics = metrics

    async def get(self, principal: Principal, job: JobRecord) -> JobDetails:
        """Return the details of a job that the principal may read."""
        spent = await self._budgets.spent(job.workspace, job.agent, job.id)
        tokens, cost = spent["tokens"], spent["cost"]
        assert isinstance(tokens, int)
        assert isinstance(cost, int | float)
        return JobDetails(
            blockers(job, await self._facts(job)),
            await self._runs.list(principal, job.workspace, job.agent, job_id=job.id, limit=CHARTED),
            await self._jobs.hooks.exists(job.id),
            tokens,
            float(cost),
        )

    async def chain(self, job: JobRecord) -> JobChain:
        """Return the other jobs of its chain."""
        followers = await self._store.followers(job.workspace, job.agent, job.name, MAX_NAMED)
        return JobChain(await self._before(job), followers)

    async def _facts(self, job: JobRecord) -> JobFacts:
        work, now_ms = job.definition.work, self._store.clock.now_ms()
        decision = (await self._budgets.may_request(job.workspace))(
            BudgetOwner(job.workspace, job.agent, job.id), job.name
        )
        requirement = requirement_of(work, job.workspace, job.agent)
        after = job.definition.after
        named = None if after is None else after.job
        if named is not None and await self._store.job(job.workspace, job.agent, named) is not None:
            named = None
        executor = True
        if work.pulled:
            seen_ms = await self._executors.last_seen_ms(job.workspace, job.agent, work.lane)
            executor = seen_ms is not None
        return JobFacts(
            now_ms,
            None if decision else decision.message,
            requirement if await self._replicas.lack(requirement) else None,
            bool(await self._store.workers(now_ms - LEASE_MS)),
            executor,
            self._metrics.lanes().get(work.lane),
            named,
        )

    async def _before(self, job: JobRecord) -> list[str]:
        """Return the names of the jobs that run before this one, as far as they exist."""
        names: list[str] = []
        after = job.definition.after
        named = None if after is None else after.job
        while named is not None and named not in names and len(names) < MAX_NAMED:
            names.append(named)
            row = await self._store.job(job.workspace, job.agent, named)
            named = None if row is None else row.after_job
        return names
