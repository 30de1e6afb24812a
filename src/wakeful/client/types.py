"""What a server answers, for a type checker: the JSON of jobs, runs and the rest, as every face shows it."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from wakeful.job import Json


class TickShape(TypedDict):
    """A tick to come."""

    at: str
    atMs: int


class JobShape(TypedDict):
    """A job: its document, whose it is, and where it stands."""

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
    #: the role and the name of the key or person, as in `admin:key:1f`; None: not recorded
    createdBy: str | None
    updatedAt: str
    nextTicks: NotRequired[list[TickShape]]
    #: its last runs, newest first, where one job was read
    lastRuns: NotRequired[list[RunShape]]
    #: only when it is made, and never again
    secret: NotRequired[str | None]


class SkippedShape(JobShape):
    """A job after its next tick was skipped."""

    #: the run that records the tick
    skipped: RunShape


class AttemptShape(TypedDict):
    """One try at a run."""

    attempt: int
    worker: str | None
    startedAt: str | None
    finishedAt: str | None
    responseCode: int | None
    error: str | None


class RunShape(TypedDict):
    """A run: everything that is known of it."""

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
    covers: int
    #: ticks missed since the one before it that became a run
    missed: int
    untilAt: str | None
    attempt: int
    #: how many attempts failed and count towards `maxAttempts`
    failedAttempts: int
    worker: str | None
    lane: str
    dueAt: str | None
    startedAt: str | None
    finishedAt: str | None
    idempotencyKey: str
    replayOf: str | None
    payload: Json
    #: the HTTP status with which a webhook answered
    responseCode: int | None
    output: str | None
    error: str | None
    usage: Json
    dead: bool
    delivery: str
    deliveryError: str | None
    createdAt: str
    attempts: NotRequired[list[AttemptShape]]


class HeartbeatsShape(TypedDict):
    """What a heartbeat of several runs did, by their ids."""

    renewed: list[str]
    #: not the caller's any more: work on them should stop
    lost: list[str]


class EventShape(TypedDict):
    """Something that happened."""

    seq: int
    #: `run.started`, `run.finished`, `job.changed`; `reset`: what came before is not kept any more
    type: str
    at: str
    workspace: str
    agentId: str | None
    jobId: str | None
    job: str | None
    run: RunShape | None
    #: of a job that changed: whether it is gone
    deleted: bool


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
    version: int
    createdAt: str
    updatedAt: str
    #: only when it is made, and never again
    secret: NotRequired[str]


class ReceiptShape(TypedDict):
    """What became of something that was said to an agent."""

    #: the message's own; None: it was an order
    id: str | None
    session: str
    #: `waiting`, `started`, `dropped`; `stopped`: it was an order
    state: str
    runId: str | None
    dueAt: str | None
    waiting: int
    stopped: list[str]
    dropped: int


class SessionShape(TypedDict):
    """A conversation of an agent."""

    name: str
    messages: int
    turns: list[str]
    context: float | None
    dueAt: str | None
    createdAt: str
    updatedAt: str


class KeyShape(TypedDict):
    """An API key, without the key but when it is made."""

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
    """An entry of the audit."""

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
