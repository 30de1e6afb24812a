"""The JSON of the HTTP API, as the REST client returns it. The public types are in `wakeful.model`."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from wakeful.values.json_value import Json


class TickShape(TypedDict):
    """A future tick."""

    at: str
    atMs: int


class ChainShape(TypedDict):
    """The job that a job comes after, and after which of its ends."""

    job: str
    on: str


class JobShape(TypedDict):
    """A job: its document, its owner and its state."""

    id: str
    workspace: str
    agentId: str
    name: str
    enabled: bool
    disabledReason: str | None
    #: why it is paused, and when it resumes by itself
    pauseNote: str | None
    pausedUntil: str | None
    schedule: dict[str, Json] | None
    after: ChainShape | None
    tz: str | None
    target: dict[str, Json] | None
    payload: Json
    message: str | None
    description: str
    labels: dict[str, str]
    nextAt: str | None
    nextAtMs: int | None
    explain: str
    runCount: int
    failures: int
    revision: int
    createdAt: str
    #: role and name of the creator, such as `admin:key:1f`; None: not recorded
    createdBy: str | None
    #: the conversation in which it was made: session, channel, to
    origin: dict[str, str | None] | None
    #: how many jobs in a row an agent made for itself; 0: a person made it
    depth: int
    updatedAt: str
    #: of a schedule of an instance: `declared` or `dynamic`, and its `job_id`
    scheduleOrigin: NotRequired[str]
    scheduleId: NotRequired[str]
    nextTicks: NotRequired[list[TickShape]]
    #: its last runs, newest first; only where one job is read
    lastRuns: NotRequired[list[RunShape]]
    #: whether it has a trigger URL; only where one job is read
    hook: NotRequired[bool]
    #: the state that its last precheck left; only where one job is read
    precheckState: NotRequired[Json]
    #: only when it is created
    secret: NotRequired[str | None]
    #: only when it is saved
    warnings: NotRequired[list[str]]


class HookShape(TypedDict):
    """The trigger URL of a job."""

    id: str
    createdAt: str
    createdBy: str
    #: the URL before it, and until when that one works
    previousId: str | None
    previousUntil: str | None
    #: only when it is created
    url: NotRequired[str]
    token: NotRequired[str]


class FieldChangeShape(TypedDict):
    """A changed field of a job."""

    field: str
    before: Json
    after: Json
    #: only credentials changed, which are not kept
    hidden: bool


class RevisionShape(TypedDict):
    """A change of the definition of a job, or its creation."""

    revision: int
    at: str
    by: str | None
    changes: list[FieldChangeShape]


class BusyScheduleShape(TypedDict):
    """A schedule that ticks in a minute, and its number of jobs."""

    explain: str
    jobs: int


class DaySpentShape(TypedDict):
    """What was used on a day (UTC)."""

    date: str
    tokens: int
    cost: float


class AgentCostShape(TypedDict):
    """What an agent used; `days` has the days with use."""

    agentId: str
    tokens: int
    cost: float
    days: list[DaySpentShape]


class JobCostShape(AgentCostShape):
    """What a job used."""

    jobId: str
    #: its name; None: the job is gone
    job: str | None
    deleted: bool


class BudgetShape(TypedDict):
    """A cap of a budget, and what is left of it today."""

    #: None: of the whole workspace
    agentId: str | None
    jobId: str | None
    job: str | None
    #: `tokensPerDay` or `costPerDay`
    cap: str
    limit: float
    used: float
    remaining: float
    exhausted: bool


CostShape = TypedDict(
    "CostShape",
    {
        "workspace": str,
        "agentId": str | None,
        "from": str,
        "to": str,
        "tokens": int,
        "cost": float,
        "days": list[DaySpentShape],
        "agents": list[AgentCostShape],
        "jobs": list[JobCostShape],
        "budgets": list[BudgetShape],
    },
)


class PeakShape(TypedDict):
    """A busy minute."""

    at: str
    atMs: int
    starts: int
    schedules: list[BusyScheduleShape]
    #: the quietest minute nearby, if moving a job there helps
    quietAt: str | None
    quietStarts: int | None


class HourShape(TypedDict):
    """An hour, and its busiest minute."""

    at: str
    starts: int
    peakAt: str
    peakStarts: int


# "from" is a keyword of Python, so this type is written as a call.
PeaksShape = TypedDict(
    "PeaksShape",
    {
        "workspace": str,
        "agentId": str | None,
        "computedAt": str,
        "ageMs": int,
        "from": str,
        "until": str,
        "jobs": int,
        "timings": int,
        "starts": int,
        "peaks": list[PeakShape],
        "hours": list[HourShape],
    },
)


class JobIdShape(TypedDict):
    """A job by its names."""

    id: str
    agentId: str
    name: str


class JobRefShape(JobIdShape):
    """A job that was changed with others."""

    nextAt: str | None
    pausedUntil: str | None


class JobFailureShape(TypedDict):
    """A job that could not be changed or run."""

    id: str
    agentId: str
    name: str
    code: str
    message: str


class BulkShape(TypedDict):
    """The result of changing or deleting several jobs."""

    dryRun: bool
    count: int
    jobs: list[JobRefShape]
    unchanged: int
    errors: list[JobFailureShape]
    warnings: NotRequired[list[str]]


class BulkRunsShape(TypedDict):
    """The result of running several jobs."""

    dryRun: bool
    count: int
    jobs: list[JobIdShape]
    runs: list[RunShape]
    notDue: list[JobIdShape]
    errors: list[JobFailureShape]


class SkippedShape(JobShape):
    """A job after its next tick was skipped."""

    #: the run that records the tick
    skipped: RunShape


class AttemptShape(TypedDict):
    """An attempt of a run."""

    attempt: int
    worker: str | None
    startedAt: str | None
    finishedAt: str | None
    responseCode: int | None
    error: str | None
    #: the beginning of what its target answered, if it failed
    output: NotRequired[str | None]


class RunShape(TypedDict):
    """A run."""

    id: str
    jobId: str | None
    workspace: str
    agentId: str
    job: str | None
    scheduledAt: str
    scheduledAtMs: int
    fireAt: str
    trigger: str
    triggeredBy: str | None
    state: str
    reason: str | None
    verifying: bool
    covers: int
    #: ticks missed since the previous run of the job
    missed: int
    untilAt: str | None
    attempt: int
    #: attempts that failed and count towards `maxAttempts`
    failedAttempts: int
    worker: str | None
    lane: str
    dueAt: str | None
    startedAt: str | None
    finishedAt: str | None
    idempotencyKey: str
    replayOf: str | None
    payload: Json
    #: of a turn: its session
    session: str | None
    #: how many jobs in a row an agent made for itself, up to the job of this run
    depth: int
    #: of a signal: the instance of the agent that handles it, and its type
    instance: str | None
    signal: str | None
    #: what its precheck found, and with `after.output` the run before it
    context: Json
    #: the signals that its handler sent out, as CloudEvents
    emitted: list[dict[str, Json]] | None
    #: what a process must have to take it, and the lowest version; None: every process can take it
    requires: str | None
    requiresVersion: int
    #: the HTTP status of a webhook
    responseCode: int | None
    output: str | None
    error: str | None
    usage: Json
    evidence: dict[str, Json] | None
    dead: bool
    delivery: str
    deliveryError: str | None
    createdAt: str
    attempts: NotRequired[list[AttemptShape]]
    #: what it waits for, in words; None: it is over; only where one run is read
    waitingFor: NotRequired[str | None]
    #: whether the instance had received the signal before; only when it is sent
    duplicate: NotRequired[bool]


class InstanceShape(TypedDict):
    """An instance of an agent."""

    #: its name, unique for the agent
    id: str
    agentId: str
    workspace: str
    #: `active`, `paused`, `blocked`, `stopped`
    status: str
    #: why it is paused or blocked
    note: str | None
    version: int
    revision: int
    #: how many of its signals wait, and its run that is running or retrying
    waiting: int
    runId: str | None
    handledAt: str | None
    hibernatedAt: str | None
    createdAt: str
    updatedAt: str
    #: only for an admin, where one instance is read
    state: NotRequired[dict[str, Json] | None]
    stateError: NotRequired[str | None]
    #: only where one instance is read
    schedules: NotRequired[list[JobShape]]


class HeartbeatsShape(TypedDict):
    """The result of a heartbeat of several runs, by their ids."""

    renewed: list[str]
    #: no longer claimed by the caller: stop working on them
    lost: list[str]


class ReleasedShape(TypedDict):
    """The result of returning claimed runs, by their ids."""

    released: list[str]
    #: not claimed by the caller in that attempt
    lost: list[str]


class ReportShape(TypedDict):
    """The result of the report of one run among several."""

    id: str
    #: its new state; None: the report was refused
    state: str | None
    code: str | None
    message: str | None


class EventShape(TypedDict):
    """An event."""

    seq: int
    #: `run.started`, `run.finished`, `job.changed`, `incident.opened`, `incident.acknowledged`,
    #: `incident.recovered`, `incident.closed`, `suggestion.changed`, `signal.emitted`; `reset`: older events
    #: are no longer stored
    type: str
    at: str
    workspace: str
    agentId: str | None
    jobId: str | None
    job: str | None
    run: RunShape | None
    #: in `job.changed`: whether the job was deleted
    deleted: bool
    incident: IncidentShape | None
    suggestion: SuggestionShape | None


class AgentShape(TypedDict):
    """An agent."""

    workspace: str
    name: str
    target: dict[str, Json] | None
    tz: str | None
    active: bool
    channel: str | None
    to: str | None
    description: str
    heartbeat: dict[str, Json] | None
    deliverTo: list[dict[str, Json]]
    approval: str | None
    selfScheduling: dict[str, Json] | None
    #: `off` or `suggest`
    evolution: str
    version: int
    createdAt: str
    updatedAt: str
    #: only when it is created
    secret: NotRequired[str]
    #: only when it is saved
    warnings: NotRequired[list[str]]


class ReceiptShape(TypedDict):
    """The result of sending a message to an agent."""

    #: the id of the message; None for a command such as `/stop`
    id: str | None
    session: str
    #: `waiting`, `started`, `dropped`; `stopped` for a command
    state: str
    runId: str | None
    dueAt: str | None
    waiting: int
    stopped: list[str]
    dropped: int


class SessionShape(TypedDict):
    """A session of an agent."""

    name: str
    messages: int
    turns: list[str]
    context: float | None
    dueAt: str | None
    channel: str | None
    to: str | None
    createdAt: str
    updatedAt: str


class HistoryShape(TypedDict):
    """What was said to an agent in a session, or what it answered."""

    sequence: int
    role: str
    content: str
    tokens: int
    runId: str
    job: str | None
    at: str


class SessionHistoryShape(SessionShape):
    """A session with a page of its history, newest first."""

    history: list[HistoryShape]
    cursor: str | None


class SuggestionShape(TypedDict):
    """Better settings for a job, with the figures that speak for them."""

    id: str
    workspace: str
    agentId: str
    jobId: str
    job: str
    rule: str
    status: str
    summary: str
    figures: dict[str, Json]
    change: dict[str, Json]
    before: dict[str, Json]
    jobVersion: int
    createdAt: str
    updatedAt: str
    decidedAt: str | None
    decidedBy: str | None
    evaluatedAt: str | None
    evaluation: dict[str, Json] | None


class IncidentShape(TypedDict):
    """Failures of one job with one cause."""

    id: str
    workspace: str
    agentId: str
    jobId: str
    job: str
    cause: str
    #: `open`, `acknowledged`, `recovered`, `closed`
    state: str
    error: str | None
    openedAt: str
    lastFailedAt: str
    failedRuns: int
    firstRunId: str
    lastRunId: str
    reopened: int
    acknowledgedAt: str | None
    acknowledgedBy: str | None
    note: str | None
    alertedAt: str | None
    remindedAt: str | None
    recoveredAt: str | None
    recoveredByRunId: str | None
    closedAt: str | None
    closedReason: str | None


class KeyShape(TypedDict):
    """An API key; the key itself only when it is created."""

    id: str
    workspace: str | None
    name: str
    role: str
    agent: str | None
    createdAt: str
    createdBy: str
    expiresAt: str | None
    lastUsedAt: str | None
    revokedAt: str | None
    key: NotRequired[str]


class AuditShape(TypedDict):
    """An entry of the audit log."""

    seq: int
    at: str
    atMs: int
    actor: str
    action: str
    subject: str
    details: Json
    address: str | None
    before: str
    hash: str
