"""Figures about jobs and runs: cost, load, previews of schedules, checks of the installation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Annotated, Literal

from wakeful.model.codec import (
    AgentName,
    Amount,
    Form,
    Id,
    InstantWithMs,
    LocalInstant,
    LocalInstantWithMs,
    Slug,
    resource,
)
from wakeful.values.json_value import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class DaySpent:
    """What was used on a day (UTC)."""

    day: Annotated[date, Form(key="date")]
    tokens: int
    cost: Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCost:
    """What an agent used; `days` has the days with use."""

    agent: AgentName
    tokens: int
    cost: Amount
    days: tuple[DaySpent, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCost:
    """What a job used; `days` has the days with use."""

    agent: AgentName
    job_id: Id
    #: its name; None: the job is gone
    job: str | None
    deleted: bool
    tokens: int
    cost: Amount
    days: tuple[DaySpent, ...]


@resource()
@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetState:
    """A cap of a budget, and what is left of it today."""

    #: None: of the whole workspace
    agent: AgentName | None
    job_id: Id | None
    job: str | None
    cap: Annotated[str, Form("BudgetCap")]
    limit: Amount
    #: what was used today (UTC)
    used: Amount
    remaining: Amount
    #: nothing is started any more today
    exhausted: bool


@resource()
@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What runs used: by day, by agent and by job, most expensive first. Days are in UTC."""

    workspace: Slug
    agent: AgentName | None
    first: Annotated[date, Form(key="from")]
    last: Annotated[date, Form(key="to")]
    tokens: int
    cost: Amount
    days: tuple[DaySpent, ...]
    agents: tuple[AgentCost, ...]
    jobs: tuple[JobCost, ...]
    budgets: tuple[BudgetState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BusySchedule:
    """A schedule that ticks in a minute, and its number of jobs."""

    explain: str
    jobs: int


@resource()
@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """A minute with many starts, and the schedules with the most jobs in it."""

    at: InstantWithMs
    starts: int
    schedules: tuple[BusySchedule, ...]
    #: the quietest minute nearby, if that helps
    quiet_at: datetime | None
    quiet_starts: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hour:
    """The starts of an hour, and those of its busiest minute."""

    at: datetime
    starts: int
    peak_at: datetime
    peak_starts: int


@resource()
@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """The load of the coming week: its busiest minutes, busiest first, and its 168 hours."""

    workspace: Slug
    agent: AgentName | None
    computed_at: datetime
    age: timedelta
    first: Annotated[datetime, Form(key="from")]
    until: datetime
    #: how many enabled jobs have a schedule
    jobs: int
    #: how many different timings they have
    timings: int
    #: how many runs the schedules start in the week
    starts: int
    peaks: tuple[Peak, ...]
    hours: tuple[Hour, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewTick:
    """One of the next ticks of a schedule."""

    at: LocalInstantWithMs
    offset: Annotated[str, Form("offset")]
    #: `moved`: its time is in a gap; `first`, `second`: there are two
    dst: Annotated[str, Form("DstEffect")] | None
    #: what the clock change does to it
    note: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockChange:
    """A clock change between two ticks."""

    at: LocalInstantWithMs
    before: Annotated[str, Form("offset")]
    after: Annotated[str, Form("offset")]
    #: the time of day that does not exist then and does not fire
    skipped: str | None
    note: str


@resource()
@dataclass(frozen=True, slots=True, kw_only=True)
class PeakAdvice:
    """Many other jobs start at the next tick, and few at a minute nearby."""

    message: str
    at: LocalInstant
    starts: int
    quiet_at: LocalInstant
    quiet_starts: int
    #: the schedule at the quieter minute
    schedule: str | None
    #: a jitter that spreads the starts
    jitter: str


@resource()
@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulePreview:
    """The next ticks of a schedule, and the clock changes between them."""

    #: the normal form; None with `after`
    schedule: Annotated[Mapping[str, Json], Form("schedule")] | None
    #: the schedule as people write it
    text: Json
    tz: str
    #: the schedule in words
    explain: str
    ticks: tuple[PreviewTick, ...]
    clock_changes: tuple[ClockChange, ...]
    peak: PeakAdvice | None


CheckState = Literal["ok", "warning", "error", "unknown"]


@resource()
@dataclass(frozen=True, slots=True)
class Check:
    """The result of a check of the installation or a workspace."""

    name: str
    state: Annotated[CheckState, Form("CheckState")]
    message: str
    #: what to do; None if nothing
    action: str | None = None
    #: the section of the runbooks that says more
    runbook: str | None = None


@resource("Doctor")
@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorReport:
    """All checks that the caller may see."""

    workspace: Slug
    scope: Annotated[str, Form("DoctorScope")]
    now: InstantWithMs
    state: Annotated[str, Form("CheckState")]
    checks: tuple[Check, ...]
