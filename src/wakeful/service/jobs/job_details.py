"""What pages show of jobs: of one job besides its definition, and of each job of a list.

For one job, also why it does not run, or its runs do not start, with what to do about it. For a list: last
outcomes, cost per day, open incidents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from wakeful.engine.metrics import Metrics
from wakeful.engine.rescuer import LEASE_MS
from wakeful.errors import InvalidArgument
from wakeful.job.job import AGENT_INACTIVE, JobRecord
from wakeful.job.self_scheduling import APPROVAL
from wakeful.job.start_rules import BudgetOwner, Requirement, find_requirement
from wakeful.run.usage import utc_day
from wakeful.service.admin.limits import Budgets
from wakeful.service.auth.access import Principal
from wakeful.service.auth.accounts import Accounts
from wakeful.service.jobs.jobs import JobService
from wakeful.service.row_codec import instant
from wakeful.service.runs.executors import RECENTLY, Executors, Replicas
from wakeful.service.runs.runs import RunService
from wakeful.store.port import Store
from wakeful.store.rows import RunView
from wakeful.store.sql.event_sources import EventSource
from wakeful.store.stats import JobOverview, RunOutcome

#: What a person can do about it on the page of the job.
Remedy = Literal["resume", "edit", "agent", "budget", ""]

_DISABLED: Final[Mapping[str, tuple[str, str, Remedy]]] = {
    "paused": ("The job is paused", "Resume it to start its ticks again.", "resume"),
    AGENT_INACTIVE: ("Its agent is not active", "Activate the agent to resume its jobs.", "agent"),
    APPROVAL: (
        "It waits for approval",
        "An agent made this job. Check it, then approve it.",
        "resume",
    ),
    "failed": (
        "It was disabled because it failed (disableAfter, or a one-time job)",
        "Correct the cause, replay the dead letter, then resume the job.",
        "resume",
    ),
    "gone": (
        "It is paused: its receiver answered 410 (gone)",
        "Set another URL, then resume it.",
        "edit",
    ),
    "max_runs": ("It ran as often as maxRuns allows", "Raise maxRuns to let it run again.", "edit"),
    "no_more_ticks": ("Its schedule has no more ticks", "Give it another schedule.", "edit"),
    "once": ("Its precheck ended it (once)", "Resume it to watch again.", "resume"),
    "evolution_off": ("The evolution of its agent is off", "Turn it on at the agent.", "agent"),
}

#: How many runs are read for the charts.
CHARTED: Final = 60
#: How many jobs of a chain are named, in each direction.
MAX_NAMED: Final = 20

#: The interfaces import the type of runs from here: they do not use the store.
__all__ = ["DAYS", "MAX_JOBS", "RUNS", "JobOverviews", "JobSummary", "RunOutcome"]

#: The most jobs of one call.
MAX_JOBS: Final = 100
RUNS: Final = 20
DAYS: Final = 7


class Blocker(NamedTuple):
    """A reason, and what to do."""

    text: str
    advice: str
    remedy: Remedy = ""
    #: whether no run starts at all; else runs start late, or only on request
    blocks: bool = True


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What the reasons depend on besides the job."""

    now_ms: int
    #: the message of the budget that is used up
    budget: str | None = None
    #: what its runs require and no live replica has
    unmet: Requirement | None = None
    #: whether any process that starts runs is alive
    workers: bool = True
    #: of a pull job: whether an executor asked for runs lately
    executor: bool = True
    #: used and total slots of its lane in this process; None: this process has no workers
    slots: tuple[int, int] | None = None
    #: the job that it comes after, if there is no such job
    missing_upstream: str | None = None


def blockers(job: JobRecord, facts: JobFacts) -> list[Blocker]:
    """Return why a job does not run; the most important reason first."""
    found: list[Blocker] = []
    definition = job.definition
    if not job.enabled:
        found.append(_disabled(job))
    elif definition.timing is None and definition.after is None and definition.work.on is None:
        advice = "Run it by hand or by its trigger URL, or give it a schedule."
        found.append(Blocker("It has no schedule", advice, "edit", blocks=False))
    elif definition.timing is not None and job.next_ms is None:
        found.append(Blocker("It has no next tick", "Give it another schedule.", "edit"))
    if facts.missing_upstream is not None:
        advice = "Create that job, or let this one come after another one."
        found.append(
            Blocker(f"It comes after {facts.missing_upstream}, which does not exist", advice, "edit")
        )
    if facts.budget is not None:
        advice = "Runs start again tomorrow (UTC), or when the budget is raised."
        found.append(Blocker(f"A budget is used up: {facts.budget}", advice, "budget"))
    if facts.unmet is not None:
        found.append(Blocker("No running process can launch it", facts.unmet.advice))
    if definition.work.pulled:
        if not facts.executor:
            advice = "Start an executor that claims runs, or give the job a target."
            text = f"No executor has asked for runs of agent {job.agent} in the last {RECENTLY}"
            found.append(Blocker(text, advice, "edit"))
    elif not facts.workers:
        advice = "Start wakeful serve or wakeful worker."
        found.append(Blocker("No process that starts runs is alive", advice))
    elif facts.slots is not None and facts.slots[0] >= facts.slots[1]:
        lane, (used, total) = definition.work.lane, facts.slots
        advice = f"Runs wait for a free slot. Raise WAKEFUL_LANE_{lane.upper()}, or use another lane."
        found.append(Blocker(f"Lane {lane} is full ({used} of {total})", advice, blocks=False))
    return found


def _disabled(job: JobRecord) -> Blocker:
    reason = job.disabled_reason or "paused"
    other: tuple[str, str, Remedy] = (
        f"It is disabled: {reason.replace('_', ' ')}",
        "Resume it to start its ticks again.",
        "resume",
    )
    text, advice, remedy = _DISABLED.get(reason, other)
    if job.pause_note:
        text = f"{text}: {job.pause_note}"
    if job.pause_until_ms is not None:
        advice = f"It resumes by itself at {instant(job.pause_until_ms)}. {advice}"
    return Blocker(text, advice, remedy)


class JobDetails(NamedTuple):
    """What belongs to a job."""

    #: why it does not run
    blockers: list[Blocker]
    #: its newest runs, newest first
    runs: list[RunView]
    has_hook: bool
    #: its subscription to the event in `on`
    subscription: EventSource | None
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
            None if job.definition.work.on is None else await self._store.event_source_of_job(job.id),
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
        requirement = find_requirement(work, job.workspace, job.agent)
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
        today = utc_day(self._store.clock.now_ms())
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
