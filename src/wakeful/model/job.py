"""Jobs, their revisions and their trigger URLs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from wakeful.job.job import Chain, Origin
from wakeful.job.policy import Backoff
from wakeful.model.codec import (
    AgentName,
    EpochMs,
    Form,
    Id,
    InstantWithMs,
    LocalInstantWithMs,
    May,
    NewSecret,
    Slug,
    SpentToday,
    Warnings,
    from_ms,
    resource,
)
from wakeful.model.enums import CatchupPolicy, OverlapPolicy, RunState, Trigger
from wakeful.model.run import Run
from wakeful.schedule.schedules import Schedule, schedule_from_json
from wakeful.values.json_value import Json


@dataclass(frozen=True, slots=True)
class Tick:
    """A tick, in the job's zone."""

    at: LocalInstantWithMs


def _read_origin(json: Mapping[str, Any] | None) -> Origin | None:
    return None if json is None else Origin(json["session"], json["channel"], json["to"])


def _read_ticks(ticks: Iterable[Mapping[str, Any]]) -> tuple[datetime, ...]:
    return tuple(from_ms(tick["atMs"]) for tick in ticks)


NextTicks = Annotated[tuple[datetime, ...], Form(json=tuple[Tick, ...], read=_read_ticks)]
#: Days and hours without ticks; null in the JSON of a job without a schedule.
Excluded = Annotated[tuple[str, ...], Form(nullable=True)]
#: A schedule in its normal form.
NormalSchedule = Annotated[Schedule, Form("schedule", read=schedule_from_json)]


@resource()
@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job: its definition and its state.

    The fields from `next_ticks` on depend on the call that returns the job. Comparisons ignore them.
    """

    id: Id
    workspace: Slug
    agent: AgentName
    name: Slug
    #: False: it is paused, or it ended; see `disabled_reason`
    enabled: bool
    #: why it is not enabled: `paused`, `max_runs`, `failed`, `gone` …
    disabled_reason: str | None
    #: why it is paused
    pause_note: str | None
    #: when it resumes by itself
    paused_until: datetime | None

    #: the IANA zone of the schedule
    tz: str | None
    #: the schedule in words
    explain: str
    payload: Json

    # generated: model-job
    #: When the job fires: any of these forms.
    schedule: NormalSchedule | None
    #: No tick before this time: ISO 8601, or milliseconds since 1970.
    start_at: EpochMs | None
    #: No tick after this time.
    end_at: EpochMs | None
    #: Days and hours without ticks, such as `2027-12-24`, `2027-12-24/2028-01-01` or `holidays:DE-BY`.
    exclude: Excluded
    #: What happens to a fixed time in the hour that DST skips in spring.
    dst_gap: Literal["run_after", "skip"] | None
    #: When a fixed time fires in the hour that DST repeats in autumn.
    dst_overlap: Literal["first", "second", "both"] | None
    #: Where its runs go: an object with a `kind`, `webhook`, `function`, `agent`, `command`, `chat`,
    #: `queue`, `celery`, `workflow`, `echo` or `pull`.
    target: Mapping[str, Json] | None
    #: The text for the agent.
    message: str | None
    #: Start each run without a conversation, as with `continuity: none`; a function target reads it as
    #: `run.stateless`.
    stateless: bool
    #: What a `chat` run continues: the previous answer of the job, its history, or nothing.
    continuity: Literal["output", "session", "none"] | None
    #: Send the output of each successful run to a channel.
    deliver: bool
    #: The channel.
    channel: str | None
    #: The recipient, if the channel takes one.
    to: str | None
    #: Trigger the heartbeat of the agent when a run succeeds.
    wake_heartbeat: bool
    #: The concurrency limit that its runs count towards.
    lane: str
    #: Its runs start only within these hours of `tz`: `08:00-22:00`, or `22:00-06:00` over midnight.
    active_hours: str | None
    #: A check before each launch whether there is work: `{"kind": "function", "name": …}`, `{"kind":
    #: "webhook", "url": …}` or `{"kind": "command", "argv": […]}`.
    precheck: Mapping[str, Json] | None
    #: A check after each launch whether the work was done: an object with a `kind`, `http`, `function`,
    #: `webhook`, `command` or `manual`.
    verify: Mapping[str, Json] | None
    #: Fields that a success must bring, such as `["external_id", "result_url"]`.
    evidence: tuple[str, ...]
    #: How much its runs may use per day (UTC), and each run: `{"tokensPerDay": …, "costPerDay": …,
    #: "tokensPerRun": …, "costPerRun": …}`.
    budget: Mapping[str, Json] | None
    #: `true`: the job needs no `schedule` and no `after`; its trigger URL and manual runs start it.
    trigger_url: bool
    #: Fire for each event of an MCP server that the operator has configured: `{"server": "crm", "event":
    #: "ticket.created", "arguments": {"queue": "billing"}}`.
    on: Mapping[str, Json] | None
    #: What happens to a tick while an earlier run is active.
    overlap_policy: OverlapPolicy
    #: How many runs may wait with the overlap policy `queue`.
    max_queued: int
    #: What happens to ticks that were missed.
    catchup_policy: CatchupPolicy
    #: Ticks that are older than this are not caught up.
    catchup_window: timedelta
    #: How late a tick may start before it counts as missed.
    misfire_grace: timedelta
    #: Each start moves by a random time up to this, earlier or later.
    jitter: timedelta
    #: After this number of failed attempts a run has failed.
    max_attempts: int
    #: The first and the longest delay between attempts; `base` and `max` take durations.
    backoff: Backoff
    #: How long an attempt may take.
    timeout: timedelta | None
    #: After this number of scheduled runs the job is disabled.
    max_runs: int | None
    #: What happens to a run whose worker died.
    on_lost: Literal["retry", "fail"]
    #: How often a run may be lost together with other runs before each further loss counts as a failed
    #: attempt.
    lost_limit: int
    #: After this number of consecutive failed runs the job is disabled.
    disable_after: int | None
    #: Delete the job when a run succeeds.
    delete_after_run: bool
    #: How long a `pull` run waits for a claim before it fails.
    claim_timeout: timedelta
    #: Fire after another job of the same agent: its name, or `{"job": …, "on": "succeeded" | "failed" |
    #: "finished", "output": true}`.
    after: Chain | None
    #: What the job is for.
    description: str
    #: Up to 32 names with text values.
    labels: Mapping[str, str]
    # generated: end

    #: its next tick; None: there is none, or it is paused
    next_at: InstantWithMs | None
    #: how many ticks became runs
    run_count: int
    #: how many runs in a row failed
    failures: int
    #: increases with each edit; `update` takes it as `if_version`
    revision: int
    created_at: datetime
    #: role and id of its creator, such as `admin:key:1f`; None: not recorded
    created_by: str | None
    #: the name of that user or key; None: it has none
    created_by_name: Annotated[str | None, Form(name_of="created_by")] = None
    #: the conversation in which it was made: its session, channel and recipient; None: outside of one
    origin: Annotated[Origin | None, Form(read=_read_origin)]
    #: how many jobs in a row an agent made for itself, each in a run of the one before; 0: a person made it
    depth: int
    updated_at: datetime

    #: of a workflow job: the workflow, its version and its user
    workflow_id: Annotated[str | None, Form(optional=True)] = None
    version: Annotated[int | None, Form(optional=True)] = None
    user_id: Annotated[str | None, Form(optional=True, nullable=True)] = None
    #: of a schedule of an instance: `declared` or `dynamic`, and its `job_id`
    schedule_origin: Annotated[str | None, Form("ScheduleOrigin", optional=True)] = None
    schedule_id: Annotated[str | None, Form(optional=True)] = None

    #: its next 5 ticks; not in lists
    next_ticks: NextTicks = field(default=(), compare=False)
    #: its last 5 runs, newest first; only in `get`
    last_runs: tuple[Run, ...] = field(default=(), compare=False)
    #: what its runs used today, such as tokens and cost; only in `get`
    spent: SpentToday | None = field(default=None, compare=False)
    #: the run that records the skipped tick; only in `skip_next`
    skipped: Run | None = field(default=None, compare=False)
    #: whether it has a trigger URL; only in `get`
    hook: bool | None = field(default=None, compare=False)
    #: the state that its last precheck left; only in `get`
    precheck_state: Json = field(default=None, compare=False)
    #: the state of its subscription to the event in `on`; only in `get`
    subscription: Json = field(default=None, compare=False)
    #: its new webhook secret, shown once; only in `create`, `upsert`, `update` and `rotate_secret`
    secret: NewSecret | None = field(default=None, repr=False, compare=False)
    #: why it may not do what is expected: its runs wait for an executor, and none is known; only in
    #: `create`, `upsert` and `update`
    warnings: Warnings = field(default=(), compare=False)
    #: whether this call created it; only in `create` and `upsert`
    created: bool = field(default=False, compare=False)
    #: what the caller may do with it, such as `pause`; only where it is read
    may: May = field(default=(), compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobId:
    """A job by its names."""

    id: Id
    agent: AgentName
    name: Slug


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRef:
    """A job that was paused or resumed with others."""

    id: Id
    agent: AgentName
    name: Slug
    next_at: datetime | None
    #: when it resumes by itself
    paused_until: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFailure:
    """A job that could not be paused or resumed, and why."""

    id: Id
    agent: AgentName
    name: Slug
    #: the code of the error, such as `failed-precondition`
    code: str
    message: str


@resource()
@dataclass(frozen=True, slots=True, kw_only=True)
class BulkResult:
    """The jobs that were paused or resumed together; with `dry_run`, that would be."""

    dry_run: bool
    count: int
    jobs: tuple[JobRef, ...]
    #: how many selected jobs need no change
    unchanged: int
    errors: tuple[JobFailure, ...]
    #: what the change means for other jobs
    warnings: Warnings = field(default=(), compare=False)


@resource()
@dataclass(frozen=True, slots=True, kw_only=True)
class BulkRuns:
    """The runs that were started, and the jobs that could not be run."""

    dry_run: bool
    #: how many jobs were run, or would be
    count: int
    jobs: tuple[JobId, ...]
    runs: tuple[Run, ...]
    #: with the mode `due`: no tick is due
    not_due: tuple[JobId, ...]
    errors: tuple[JobFailure, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldChange:
    """A changed field of a job, in the spelling of the API, with its values before and after."""

    field: str
    before: Json
    after: Json
    #: only credentials changed, which are not kept
    hidden: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """A change of the definition of a job, or its creation."""

    #: the `revision` of the job after the change
    revision: int
    at: datetime
    #: role and id of who made it, such as `admin:key:1f`; None: not recorded
    by: str | None
    #: the name of that user or key; None: it has none
    by_name: Annotated[str | None, Form(name_of="by")] = None
    #: empty for the creation
    changes: tuple[FieldChange, ...]


@resource()
@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """The trigger URL of a job."""

    #: names the URL in runs (`triggered_by` is `hook:ID`) and logs
    id: str
    created_at: datetime
    #: role and id of its creator, such as `admin:key:1f`
    created_by: str
    #: the name of that user or key; None: it has none
    created_by_name: Annotated[str | None, Form(name_of="created_by")] = None
    #: the URL before it, and until when that one works
    previous_id: str | None
    previous_until: datetime | None
    #: the URL; only in `create_hook`, and None in an embedded app without `WAKEFUL_PUBLIC_URL`
    url: str | None = field(default=None, repr=False, compare=False)
    #: the last part of the URL; only in `create_hook`
    token: str | None = field(default=None, repr=False, compare=False)


@resource()
@dataclass(frozen=True, slots=True, kw_only=True)
class HookRun:
    """The run that a request to a trigger URL has started."""

    id: Id
    job: Slug
    state: RunState
    trigger: Trigger


@resource()
@dataclass(frozen=True, slots=True, kw_only=True)
class JobSnippets:
    """Texts that create a job. The key is not in them."""

    #: a file for `wakeful apply`
    yaml: str
    curl: str
    #: `wakeful add`
    cli: str
    python: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundJob:
    """A job that a search found."""

    id: Id
    agent: AgentName
    name: Slug
    enabled: bool
    #: what the caller may do with it, such as `pause`
    may: May = field(default=(), compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRun:
    """A run that a search found."""

    id: Id
    agent: AgentName
    job: Slug | None
    state: RunState


@resource()
@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """What a search found: a few of each kind."""

    jobs: tuple[FoundJob, ...]
    agents: tuple[Slug, ...]
    runs: tuple[FoundRun, ...]
