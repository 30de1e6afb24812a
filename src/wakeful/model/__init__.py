"""The public model: jobs, runs, attempts and agents as the embedded API and the clients return them.

All types are frozen dataclasses. Instants are aware datetimes in UTC, durations are timedeltas. The fields
are those of the JSON in the HTTP API, in Python spelling: `jobId` is `job_id`, `agentId` is `agent`, and
`timeoutMs` is `timeout`. A value that the JSON holds twice (`nextAt`, `nextAtMs`) is here once.
"""

from typing import TYPE_CHECKING

from wakeful.values.package import lazy_names

if TYPE_CHECKING:
    from wakeful.model.admin import ApiKey, AuditEntry, Event, Quota, WorkflowVersion
    from wakeful.model.agent import AgentInfo, HistoryEntry, MessageReceipt, SessionInfo
    from wakeful.model.enums import (
        CatchupPolicy,
        DeliveryState,
        IncidentState,
        InstanceStatus,
        OverlapPolicy,
        RunState,
        SuggestionStatus,
        Trigger,
    )
    from wakeful.model.hook import Hook
    from wakeful.model.incident import Incident
    from wakeful.model.instance import InstanceInfo
    from wakeful.model.job import BulkResult, Job, JobFailure, JobRef
    from wakeful.model.page import Page
    from wakeful.model.revision import FieldChange, Revision
    from wakeful.model.run import Attempt, HeartbeatResult, ReleaseResult, Run
    from wakeful.model.suggestion import Suggestion

__all__ = [
    "AgentInfo",
    "ApiKey",
    "Attempt",
    "AuditEntry",
    "BulkResult",
    "CatchupPolicy",
    "DeliveryState",
    "Event",
    "FieldChange",
    "HeartbeatResult",
    "HistoryEntry",
    "Hook",
    "Incident",
    "IncidentState",
    "InstanceInfo",
    "InstanceStatus",
    "Job",
    "JobFailure",
    "JobRef",
    "MessageReceipt",
    "OverlapPolicy",
    "Page",
    "Quota",
    "ReleaseResult",
    "Revision",
    "Run",
    "RunState",
    "SessionInfo",
    "Suggestion",
    "SuggestionStatus",
    "Trigger",
    "WorkflowVersion",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "wakeful.model.admin": ["ApiKey", "AuditEntry", "Event", "Quota", "WorkflowVersion"],
            "wakeful.model.agent": ["AgentInfo", "HistoryEntry", "MessageReceipt", "SessionInfo"],
            "wakeful.model.enums": [
                "CatchupPolicy",
                "DeliveryState",
                "IncidentState",
                "InstanceStatus",
                "OverlapPolicy",
                "RunState",
                "SuggestionStatus",
                "Trigger",
            ],
            "wakeful.model.hook": ["Hook"],
            "wakeful.model.incident": ["Incident"],
            "wakeful.model.instance": ["InstanceInfo"],
            "wakeful.model.job": ["BulkResult", "Job", "JobFailure", "JobRef"],
            "wakeful.model.page": ["Page"],
            "wakeful.model.revision": ["FieldChange", "Revision"],
            "wakeful.model.run": ["Attempt", "HeartbeatResult", "ReleaseResult", "Run"],
            "wakeful.model.suggestion": ["Suggestion"],
        },
    )
