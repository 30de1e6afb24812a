"""Incidents."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from wakeful.model.enums import IncidentState


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """Failures of one job with one cause."""

    id: str
    workspace: str
    agent: str
    job_id: str
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
    first_run_id: str
    last_run_id: str
    #: how often it was opened again soon after a recovery
    reopened: int
    acknowledged_at: datetime | None
    #: the user or key
    acknowledged_by: str | None
    note: str | None
    #: when the alert and the reminder were sent, if they were
    alerted_at: datetime | None
    reminded_at: datetime | None
    #: when the job recovered, and the run that succeeded
    recovered_at: datetime | None
    recovered_by_run_id: str | None
    #: when and why it was closed without a recovery: `job_deleted`, `job_disabled`
    closed_at: datetime | None
    closed_reason: str | None
