"""Events, API keys, audit entries, quotas and workflow versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from wakeful.model.incident import Incident
from wakeful.model.run import Run
from wakeful.model.suggestion import Suggestion
from wakeful.values.json_value import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A change of a run, a job, an incident or a suggestion, or the signals of a run, as it is published."""

    seq: int
    #: `run.started`, `run.finished`, `job.changed`, `incident.opened`, `incident.acknowledged`,
    #: `incident.recovered`, `incident.closed`, `suggestion.changed`, `signal.emitted`; `reset`: older events
    #: are no longer stored
    type: str
    at: datetime
    workspace: str
    agent: str | None
    job_id: str | None
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """An API key."""

    id: str
    #: None: it is valid in all workspaces
    workspace: str | None
    name: str
    #: `admin`, `member` or `agent`
    role: str
    #: the agent of an agent's key
    agent: str | None
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None
    #: the key itself, shown once; only in `create`
    key: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """An entry of the audit log."""

    #: its number in the workspace, without gaps
    seq: int
    at: datetime
    #: the user or key
    actor: str
    action: str
    subject: str
    details: Json
    #: the address of the caller
    address: str | None
    #: the hash of the previous entry
    before: str
    hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """A limit of a workspace or an agent, and how much of it is used."""

    #: None: it is the limit of the whole workspace
    agent: str | None
    bucket: str
    #: None: unlimited
    limit: int | None
    used: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowVersion:
    """A version of a workflow. It never changes."""

    id: str
    version: int
    dag: Mapping[str, Json]
    created_at: datetime
