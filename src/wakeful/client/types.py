"""The JSON of the HTTP API, as the REST client returns it.

The shapes of the public model follow from its classes: change those, and run `make generate`.
"""

from __future__ import annotations

from typing import NotRequired, TypedDict

from wakeful.values.json_value import Json

# generated: shapes


class IncidentShape(TypedDict):
    """Failures of one job with one cause."""

    id: str
    workspace: str
    agentId: str
    jobId: str
    job: str
    cause: str
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
    acknowledgedByName: str | None
    note: str | None
    alertedAt: str | None
    remindedAt: str | None
    recoveredAt: str | None
    recoveredByRunId: str | None
    closedAt: str | None
    closedReason: str | None
    may: NotRequired[list[str]]


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
    decidedByName: str | None
    evaluatedAt: str | None
    evaluation: dict[str, Json] | None
    may: NotRequired[list[str]]


class EventShape(TypedDict):
    """A change of a run, a job, an incident or a suggestion, or the signals of a run, as it is published."""

    seq: int
    type: str
    at: str
    workspace: str
    agentId: str | None
    jobId: str | None
    job: str | None
    run: RunShape | None
    deleted: bool
    incident: IncidentShape | None
    suggestion: SuggestionShape | None
    item: InboxItemShape | None


class WorkspaceShape(TypedDict):
    """A tenant: its agents, jobs, runs and keys are separate from those of others."""

    name: str
    tz: str | None
    description: str
    budget: dict[str, Json] | None
    alerts: dict[str, Json] | None
    laneWeight: float
    createdAt: str
    updatedAt: str
    spent: NotRequired[dict[str, Json] | None]
    may: NotRequired[list[str]]


class KeyShape(TypedDict):
    """An API key."""

    id: str
    workspace: str | None
    name: str
    role: str
    agent: str | None
    createdAt: str
    createdBy: str
    createdByName: str | None
    expiresAt: str | None
    lastUsedAt: str | None
    revokedAt: str | None
    client: str | None
    key: NotRequired[str | None]
    may: NotRequired[list[str]]


class SubscriptionShape(TypedDict):
    """A subscription to an MCP event."""

    id: str
    workspace: str
    agentId: str
    principal: str
    principalName: str | None
    event: str
    arguments: dict[str, Json]
    url: str
    jobId: str
    createdAt: str
    refreshedAt: str
    expiresAt: str | None
    endedAt: str | None
    reason: str | None
    lastState: str | None
    lastAt: str | None


class EntryShape(TypedDict):
    """An entry of the audit log."""

    seq: int
    at: str
    atMs: int
    actor: str
    actorName: str | None
    action: str
    subject: str
    subjectName: str | None
    details: dict[str, Json]
    address: str | None
    before: str
    hash: str


class VerifiedShape(TypedDict):
    """Whether the entries of the audit log are complete and unchanged."""

    ok: bool
    count: int
    flaw: str | None
    complete: bool
    hash: NotRequired[str | None]


class QuotaShape(TypedDict):
    """A limit of a workspace or an agent, and how much of it is used."""

    agent: str | None
    bucket: str
    limit: int | None
    used: int


class WorkflowShape(TypedDict):
    """A version of a workflow. It never changes."""

    id: str
    version: int
    dag: dict[str, Json]
    createdAt: str


class AgentShape(TypedDict):
    """An agent: the defaults of its jobs and its state."""

    name: str
    workspace: str
    target: dict[str, Json] | None
    tz: str | None
    active: bool
    channel: str | None
    to: str | None
    description: str
    budget: dict[str, Json] | None
    alerts: dict[str, Json] | None
    queue: dict[str, Json] | None
    heartbeat: dict[str, Json] | None
    deliverTo: list[Json]
    approval: str | None
    selfScheduling: dict[str, Json] | None
    evolution: str
    version: int
    createdAt: str
    updatedAt: str
    spent: NotRequired[dict[str, Json] | None]
    secret: NotRequired[str | None]
    warnings: NotRequired[list[str]]
    may: NotRequired[list[str]]


class ReceiptShape(TypedDict):
    """The result of sending a message to an agent."""

    id: str | None
    session: str
    state: str
    runId: str | None
    dueAt: str | None
    waiting: int
    stopped: list[str]
    dropped: int


class HistoryEntryShape(TypedDict):
    """What was said to an agent in a session, or what it answered."""

    sequence: int
    role: str
    content: str
    tokens: int
    runId: str
    job: str | None
    at: str


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
    history: NotRequired[list[HistoryEntryShape]]
    cursor: NotRequired[str | None]


class InstanceDelayShape(TypedDict):
    """A delay of an instance that is not due yet: a signal that it sends to itself later."""

    id: str | None
    signal: str
    at: str
    runId: str


class InstanceShape(TypedDict):
    """An instance of an agent: it has its own state, mailbox and schedules."""

    id: str
    agentId: str
    workspace: str
    status: str
    note: str | None
    version: int
    revision: int
    waiting: int
    runId: str | None
    handledAt: str | None
    hibernatedAt: str | None
    createdAt: str
    updatedAt: str
    state: NotRequired[dict[str, Json] | None]
    stateError: NotRequired[str | None]
    schedules: NotRequired[list[JobShape]]
    delays: NotRequired[list[InstanceDelayShape]]
    may: NotRequired[list[str]]


class InstanceFailureShape(TypedDict):
    """An instance that could not be started, and why."""

    id: str
    code: str
    message: str


class StartedInstancesShape(TypedDict):
    """The instances that were started together, and those that could not be started."""

    instances: list[InstanceShape]
    errors: list[InstanceFailureShape]


class InboxItemShape(TypedDict):
    """Something that waits for a person to decide."""

    id: str
    kind: str
    workspace: str
    agentId: str
    jobId: str | None
    job: str | None
    runId: str | None
    title: str
    detail: str | None
    since: str
    until: str | None
    version: int | None
    deciders: list[str]
    may: NotRequired[list[str]]


class InboxCountsShape(TypedDict):
    """How much waits for a person; each kind is counted up to 1,000."""

    total: int
    verification: int
    approval: int
    suggestion: int
    incident: int


class InboxDecisionShape(TypedDict):
    """What a person decided about an item of the inbox."""

    id: str
    kind: str
    action: str
    state: str


class TickShape(TypedDict):
    """A tick, in the job's zone."""

    at: str
    atMs: int


class JobShape(TypedDict):
    """A job: its definition and its state."""

    id: str
    workspace: str
    agentId: str
    name: str
    enabled: bool
    disabledReason: str | None
    pauseNote: str | None
    pausedUntil: str | None
    tz: str | None
    explain: str
    payload: Json
    schedule: dict[str, Json] | None
    startAt: int | None
    endAt: int | None
    exclude: list[str] | None
    dstGap: str | None
    dstOverlap: str | None
    target: dict[str, Json] | None
    message: str | None
    stateless: bool
    continuity: str | None
    deliver: bool
    channel: str | None
    to: str | None
    wakeHeartbeat: bool
    lane: str
    activeHours: str | None
    precheck: dict[str, Json] | None
    verify: dict[str, Json] | None
    evidence: list[str]
    budget: dict[str, Json] | None
    triggerUrl: bool
    on: dict[str, Json] | None
    overlapPolicy: str
    maxQueued: int
    catchupPolicy: str
    catchupWindowMs: int
    misfireGraceMs: int
    jitterMs: int
    maxAttempts: int
    backoff: dict[str, Json]
    timeoutMs: int | None
    maxRuns: int | None
    onLost: str
    lostLimit: int
    disableAfter: int | None
    deleteAfterRun: bool
    claimTimeoutMs: int
    after: dict[str, Json] | None
    description: str
    labels: dict[str, str]
    nextAt: str | None
    nextAtMs: int | None
    runCount: int
    failures: int
    revision: int
    createdAt: str
    createdBy: str | None
    createdByName: str | None
    origin: dict[str, Json] | None
    depth: int
    updatedAt: str
    workflowId: NotRequired[str | None]
    version: NotRequired[int | None]
    userId: NotRequired[str | None]
    scheduleOrigin: NotRequired[str | None]
    scheduleId: NotRequired[str | None]
    nextTicks: NotRequired[list[TickShape]]
    lastRuns: NotRequired[list[RunShape]]
    spent: NotRequired[dict[str, Json] | None]
    skipped: NotRequired[RunShape]
    hook: NotRequired[bool | None]
    precheckState: NotRequired[Json]
    subscription: NotRequired[Json]
    secret: NotRequired[str | None]
    warnings: NotRequired[list[str]]
    created: NotRequired[bool]
    may: NotRequired[list[str]]


class JobIdShape(TypedDict):
    """A job by its names."""

    id: str
    agentId: str
    name: str


class JobRefShape(TypedDict):
    """A job that was paused or resumed with others."""

    id: str
    agentId: str
    name: str
    nextAt: str | None
    pausedUntil: str | None


class JobFailureShape(TypedDict):
    """A job that could not be paused or resumed, and why."""

    id: str
    agentId: str
    name: str
    code: str
    message: str


class BulkResultShape(TypedDict):
    """The jobs that were paused or resumed together; with `dry_run`, that would be."""

    dryRun: bool
    count: int
    jobs: list[JobRefShape]
    unchanged: int
    errors: list[JobFailureShape]
    warnings: NotRequired[list[str]]


class BulkRunsShape(TypedDict):
    """The runs that were started, and the jobs that could not be run."""

    dryRun: bool
    count: int
    jobs: list[JobIdShape]
    runs: list[RunShape]
    notDue: list[JobIdShape]
    errors: list[JobFailureShape]


class FieldChangeShape(TypedDict):
    """A changed field of a job, in the spelling of the API, with its values before and after."""

    field: str
    before: Json
    after: Json
    hidden: bool


class RevisionShape(TypedDict):
    """A change of the definition of a job, or its creation."""

    revision: int
    at: str
    by: str | None
    byName: str | None
    changes: list[FieldChangeShape]


class HookShape(TypedDict):
    """The trigger URL of a job."""

    id: str
    createdAt: str
    createdBy: str
    createdByName: str | None
    previousId: str | None
    previousUntil: str | None
    url: NotRequired[str | None]
    token: NotRequired[str | None]


class HookRunShape(TypedDict):
    """The run that a request to a trigger URL has started."""

    id: str
    job: str
    state: str
    trigger: str


class JobSnippetsShape(TypedDict):
    """Texts that create a job. The key is not in them."""

    yaml: str
    curl: str
    cli: str
    python: str


class FoundJobShape(TypedDict):
    """A job that a search found."""

    id: str
    agentId: str
    name: str
    enabled: bool
    may: NotRequired[list[str]]


class FoundRunShape(TypedDict):
    """A run that a search found."""

    id: str
    agentId: str
    job: str | None
    state: str


class SearchResultShape(TypedDict):
    """What a search found: a few of each kind."""

    jobs: list[FoundJobShape]
    agents: list[str]
    runs: list[FoundRunShape]


class LaneUseShape(TypedDict):
    """The slots of a lane."""

    used: int
    size: int


class WorkerShape(TypedDict):
    """A process that takes runs."""

    name: str
    alive: bool
    startedAt: str
    lastHeartbeatAt: str
    runs: int
    thisProcess: bool
    version: str | None
    lanes: dict[str, LaneUseShape]
    capabilities: dict[str, int]


class ExecutorShape(TypedDict):
    """A program outside that holds claimed runs."""

    name: str
    runs: int
    lastHeartbeatAt: str | None


class WorkersShape(TypedDict):
    """All workers and executors."""

    workers: list[WorkerShape]
    executors: list[ExecutorShape]


class ChannelShape(TypedDict):
    """A channel, without its URL."""

    name: str
    kind: str
    takesRecipient: bool
    deliveries: dict[str, int]


class DeliveryShape(TypedDict):
    """The output of a run on its way to a channel."""

    runId: str
    agentId: str
    jobId: str | None
    job: str | None
    channel: str | None
    to: str | None
    state: str
    attempt: int
    at: str
    error: str | None


class ChannelsShape(TypedDict):
    """All channels, and the recent deliveries of the workspace."""

    channels: list[ChannelShape]
    deliveries: list[DeliveryShape]


class ChannelTestShape(TypedDict):
    """How a test message ended."""

    outcome: str
    error: str | None
    durationMs: int


class SettingShape(TypedDict):
    """A setting."""

    name: str
    value: str | None
    source: str
    secret: bool
    set: bool
    description: str


class SentRequestShape(TypedDict):
    """The request of a test."""

    method: str
    url: str
    headers: dict[str, str]
    body: str


class ReceivedResponseShape(TypedDict):
    """The response to a test."""

    status: int
    headers: list[list[str]]
    body: str


class TargetTestShape(TypedDict):
    """The result of a test of a target."""

    kind: str
    ok: bool
    message: str
    durationMs: int | None
    request: SentRequestShape | None
    response: ReceivedResponseShape | None
    secret: NotRequired[str | None]


class DeadLetterGroupShape(TypedDict):
    """The dead letters of one job with one cause."""

    agentId: str
    jobId: str | None
    job: str | None
    cause: str
    count: int
    firstFailedAt: str
    lastFailedAt: str
    newestRunId: str
    error: str | None


class DeadLetterGroupsShape(TypedDict):
    """The newest dead letters by job and cause."""

    groups: list[DeadLetterGroupShape]
    counted: int
    more: bool


class WebSessionShape(TypedDict):
    """A sign-in session."""

    id: str
    keyId: str
    createdAt: str
    seenAt: str
    expiresAt: str
    address: str | None


class PersonShape(TypedDict):
    """A person who signs in at the issuer."""

    id: str
    name: str
    email: str | None
    issuer: str
    roles: dict[str, Json]
    createdAt: str
    signedInAt: str


class SignInLinkShape(TypedDict):
    """A link that signs a browser in, once."""

    url: str
    expiresAt: str


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


class JobCostShape(TypedDict):
    """What a job used; `days` has the days with use."""

    agentId: str
    jobId: str
    job: str | None
    deleted: bool
    tokens: int
    cost: float
    days: list[DaySpentShape]


class BudgetStateShape(TypedDict):
    """A cap of a budget, and what is left of it today."""

    agentId: str | None
    jobId: str | None
    job: str | None
    cap: str
    limit: float
    used: float
    remaining: float
    exhausted: bool


#: What runs used: by day, by agent and by job, most expensive first. Days are in UTC.
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
        "budgets": list[BudgetStateShape],
    },
)


class BusyScheduleShape(TypedDict):
    """A schedule that ticks in a minute, and its number of jobs."""

    explain: str
    jobs: int


class PeakShape(TypedDict):
    """A minute with many starts, and the schedules with the most jobs in it."""

    at: str
    atMs: int
    starts: int
    schedules: list[BusyScheduleShape]
    quietAt: str | None
    quietStarts: int | None


class HourShape(TypedDict):
    """The starts of an hour, and those of its busiest minute."""

    at: str
    starts: int
    peakAt: str
    peakStarts: int


#: The load of the coming week: its busiest minutes, busiest first, and its 168 hours.
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


class PreviewTickShape(TypedDict):
    """One of the next ticks of a schedule."""

    at: str
    atMs: int
    offset: str
    dst: str | None
    note: str | None


class ClockChangeShape(TypedDict):
    """A clock change between two ticks."""

    at: str
    atMs: int
    before: str
    after: str
    skipped: str | None
    note: str


class PeakAdviceShape(TypedDict):
    """Many other jobs start at the next tick, and few at a minute nearby."""

    message: str
    at: str
    starts: int
    quietAt: str
    quietStarts: int
    schedule: str | None
    jitter: str


class SchedulePreviewShape(TypedDict):
    """The next ticks of a schedule, and the clock changes between them."""

    schedule: dict[str, Json] | None
    text: Json
    tz: str
    explain: str
    ticks: list[PreviewTickShape]
    clockChanges: list[ClockChangeShape]
    peak: PeakAdviceShape | None


class CheckShape(TypedDict):
    """The result of a check of the installation or a workspace."""

    name: str
    state: str
    message: str
    action: str | None
    runbook: str | None


class DoctorShape(TypedDict):
    """All checks that the caller may see."""

    workspace: str
    scope: str
    now: str
    nowMs: int
    state: str
    checks: list[CheckShape]


class AttemptShape(TypedDict):
    """One launch of a run."""

    attempt: int
    worker: str | None
    startedAt: str | None
    finishedAt: str | None
    responseCode: int | None
    error: str | None
    output: str | None


class RunShape(TypedDict):
    """The record of one tick or manual trigger: the public value of the Python API and clients."""

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
    triggeredByName: str | None
    state: str
    reason: str | None
    covers: int
    missed: int
    untilAt: str | None
    attempt: int
    failedAttempts: int
    worker: str | None
    lane: str
    dueAt: str | None
    startedAt: str | None
    finishedAt: str | None
    idempotencyKey: str
    replayOf: str | None
    payload: Json
    responseCode: int | None
    output: str | None
    error: str | None
    usage: Json
    dead: bool
    delivery: str
    deliveryError: str | None
    createdAt: str
    session: str | None
    depth: int
    context: Json
    instance: str | None
    signal: str | None
    emitted: list[dict[str, Json]] | None
    requires: str | None
    requiresVersion: int
    verifying: bool
    evidence: dict[str, Json] | None
    attempts: NotRequired[list[AttemptShape]]
    waitingFor: NotRequired[str | None]
    duplicate: NotRequired[bool]
    target: NotRequired[dict[str, Json] | None]
    timeoutMs: NotRequired[int | None]
    traceparent: NotRequired[str | None]
    may: NotRequired[list[str]]


class ReleasedShape(TypedDict):
    """The result of returning claimed runs, by their ids."""

    released: list[str]
    lost: list[str]


class HeartbeatsShape(TypedDict):
    """The result of a heartbeat, by the ids of the runs."""

    renewed: list[str]
    lost: list[str]


class ReportResultShape(TypedDict):
    """The result of the report of one run among several."""

    id: str
    state: str | None
    code: str | None
    message: str | None


class CompletionsShape(TypedDict):
    """The result of each report, in the order of the request."""

    runs: list[ReportResultShape]


# generated: end
