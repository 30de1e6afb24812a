"""Incidents, suggestions, events, API keys, audit entries, quotas and workflow versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated

from wakeful.model.codec import AgentName, Form, Id, InstantWithMs, May, Slug, SpentToday, resource
from wakeful.model.enums import IncidentState, SuggestionStatus
from wakeful.model.inbox import InboxItem
from wakeful.model.run import Run
from wakeful.values.json_value import Json


@resource()
@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """Failures of one job with one cause."""

    id: Id
    workspace: Slug
    agent: AgentName
    job_id: Id
    #: the name of the job when the incident opened
    job: str
    #: what failed, without ids, numbers and addresses: `http 503`, `timeout`, `ValueError`
    cause: str
    state: IncidentState
    #: the error of the last failed run
    error: str | None
    opened_at: datetime
    last_failed_at: datetime
    failed_runs: int
    first_run_id: Id
    last_run_id: Id
    #: how often it was opened again soon after a recovery
    reopened: int
    acknowledged_at: datetime | None
    #: the user or key
    acknowledged_by: str | None
    #: the name of that user or key; None: it has none
    acknowledged_by_name: Annotated[str | None, Form(name_of="acknowledged_by")] = None
    note: str | None
    #: when the alert and the reminder were sent, if they were
    alerted_at: datetime | None
    reminded_at: datetime | None
    #: when the job recovered, and the run that succeeded
    recovered_at: datetime | None
    recovered_by_run_id: Id | None
    #: when and why it was closed without a recovery: `job_deleted`, `job_disabled`
    closed_at: datetime | None
    closed_reason: str | None
    #: what the caller may do with it, such as `acknowledge`; only where it is read
    may: May = field(default=(), compare=False)


@resource()
@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """Better settings for a job, with the figures that speak for them."""

    id: Id
    workspace: Slug
    agent: AgentName
    job_id: Id
    #: the name of the job when it was analyzed
    job: str
    #: `stagger_peak`, `widen_interval`, `raise_timeout`, `pause_failing`
    rule: Annotated[str, Form("SuggestionRule")]
    status: SuggestionStatus
    #: the suggestion in a sentence
    summary: str
    #: what the rule measured
    figures: Mapping[str, Json]
    #: the fields of the job to change, and their values before
    change: Mapping[str, Json]
    before: Mapping[str, Json]
    #: the version of the job when it was analyzed, or after it was changed
    job_version: int
    created_at: datetime
    #: when the figures were measured
    updated_at: datetime
    decided_at: datetime | None
    #: the user or key; `wakeful` for an automatic rollback
    decided_by: str | None
    #: the name of that user or key; None: it has none
    decided_by_name: Annotated[str | None, Form(name_of="decided_by")] = None
    evaluated_at: datetime | None
    #: of an applied one: the `verdict`, and the figure `before` and `after`
    evaluation: Mapping[str, Json] | None
    #: what the caller may do with it, such as `apply`; only where it is read
    may: May = field(default=(), compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A change of a run, a job, an incident or a suggestion, or the signals of a run, as it is published."""

    seq: int
    #: `run.started`, `run.finished`, `job.changed`, `incident.opened`, `incident.acknowledged`,
    #: `incident.recovered`, `incident.closed`, `suggestion.changed`, `signal.emitted`, `inbox.item_added`;
    #: `reset`: older events are no longer stored
    type: str
    at: datetime
    workspace: Slug
    agent: AgentName | None
    job_id: Id | None
    #: the name of the job
    job: str | None
    #: the run, in `run.started`, `run.finished` and `signal.emitted`
    run: Run | None
    #: in `job.changed`: whether the job was deleted
    deleted: bool
    #: the incident, in the events of incidents
    incident: Incident | None = None
    #: the suggestion, in `suggestion.changed`
    suggestion: Suggestion | None = None
    #: the item, in `inbox.item_added`
    item: InboxItem | None = None


@resource()
@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """A tenant: its agents, jobs, runs and keys are separate from those of others."""

    name: Slug
    #: the IANA zone of jobs that name none
    tz: str | None
    description: str
    #: the most that its runs may use in a day
    budget: Mapping[str, Json] | None
    alerts: Mapping[str, Json] | None
    #: its share of a full lane, compared with other workspaces; 1 unless set
    lane_weight: Annotated[float, Form("lane_weight")]
    created_at: datetime
    updated_at: datetime
    #: what its runs used today; not in lists
    spent: SpentToday | None = field(default=None, compare=False)
    #: what the caller may do with it, such as `edit`; only where it is read
    may: May = field(default=(), compare=False)


@resource("Key")
@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """An API key."""

    id: Id
    #: None: it is valid in all workspaces
    workspace: Slug | None
    name: str
    #: `admin`, `member` or `agent`
    role: Annotated[str, Form("Role")]
    #: the agent of an agent's key
    agent: Slug | None
    created_at: datetime
    #: the user or key that made it
    created_by: str
    #: the name of that user or key; None: it has none
    created_by_name: Annotated[str | None, Form(name_of="created_by")] = None
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None
    #: the host of the assistant that its creator connected with OAuth; None: the key itself is used
    client: str | None = None
    #: the key itself, shown once; only in `create`
    key: str | None = field(default=None, repr=False, compare=False)
    #: what the caller may do with it, such as `revoke`; only where it is read
    may: May = field(default=(), compare=False)


@resource("Subscription")
@dataclass(frozen=True, slots=True, kw_only=True)
class EventSubscription:
    """A subscription to an MCP event."""

    id: str
    workspace: Slug
    #: the agent that owns the job of its deliveries
    agent: AgentName
    #: the user or key that subscribed
    principal: str
    #: the name of that user or key; None: it has none
    principal_name: Annotated[str | None, Form(name_of="principal")] = None
    event: str
    arguments: Mapping[str, Json]
    #: the callback, without what may be secret in it
    url: str
    #: the job of its deliveries, which are runs of it
    job_id: Id
    created_at: datetime
    refreshed_at: datetime
    #: when it ends unless it is refreshed; None: never
    expires_at: datetime | None
    ended_at: datetime | None
    #: why it ended: `unsubscribed`, `ended`, `gone`, `expired`, `key_ended`, `queue_full`; of an active one
    #: `gap`: it lost events, and its callback will be told
    reason: str | None
    #: the state and the time of its newest delivery
    last_state: Annotated[str | None, Form("RunState")]
    last_at: datetime | None


@resource("Entry")
@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """An entry of the audit log."""

    #: its number in the workspace, without gaps
    seq: int
    at: InstantWithMs
    #: the user or key
    actor: str
    #: the name of that user or key; None: it has none
    actor_name: Annotated[str | None, Form(name_of="actor")] = None
    action: str
    subject: str
    #: the name of a key or person that is the subject
    subject_name: str | None = None
    details: Mapping[str, Json]
    #: the address of the caller
    address: str | None
    #: the hash of the previous entry
    before: str
    hash: str


@resource("Verified")
@dataclass(frozen=True, slots=True, kw_only=True)
class AuditVerification:
    """Whether the entries of the audit log are complete and unchanged."""

    ok: bool
    #: the number of the last entry that was checked
    count: int
    #: what is wrong
    flaw: str | None
    #: whether all entries were checked
    complete: bool
    #: of the last entry that was checked; only of a part
    hash: Annotated[str | None, Form(optional=True)] = None


@resource()
@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """A limit of a workspace or an agent, and how much of it is used."""

    #: None: it is the limit of the whole workspace
    agent: Slug | None
    bucket: str
    #: None: unlimited
    limit: int | None
    used: int


@resource("Workflow")
@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowVersion:
    """A version of a workflow. It never changes."""

    id: str
    version: int
    dag: Mapping[str, Json]
    created_at: datetime
