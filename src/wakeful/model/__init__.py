"""The public model: jobs, runs, attempts and agents as the embedded API and the clients return them.

All types are frozen dataclasses. Instants are aware datetimes in UTC, durations are timedeltas. The fields
are those of the JSON in the HTTP API, in Python spelling: `jobId` is `job_id`, `agentId` is `agent`, and
`timeoutMs` is `timeout`. A value that the JSON holds twice (`nextAt`, `nextAtMs`) is here once.
"""

from typing import TYPE_CHECKING

from wakeful.values.package import lazy_names

if TYPE_CHECKING:
    from wakeful.model.admin import (
        ApiKey,
        AuditEntry,
        Event,
        EventSubscription,
        Incident,
        Quota,
        Suggestion,
        WorkflowVersion,
        Workspace,
    )
    from wakeful.model.agent import (
        AgentInfo,
        HistoryEntry,
        InstanceDelay,
        InstanceFailure,
        InstanceInfo,
        MessageReceipt,
        SessionInfo,
        StartedInstances,
    )
    from wakeful.model.enums import (
        CatchupPolicy,
        DeliveryState,
        InboxKind,
        IncidentState,
        InstanceStatus,
        OverlapPolicy,
        RunState,
        SuggestionStatus,
        Trigger,
    )
    from wakeful.model.inbox import InboxCounts, InboxDecision, InboxItem
    from wakeful.model.job import BulkResult, FieldChange, Hook, Job, JobFailure, JobRef, Revision
    from wakeful.model.page import Page
    from wakeful.model.run import Attempt, HeartbeatResult, ReleaseResult, Run

__all__ = [
    "AgentInfo",
    "ApiKey",
    "Attempt",
    "AuditEntry",
    "BulkResult",
    "CatchupPolicy",
    "DeliveryState",
    "Event",
    "EventSubscription",
    "FieldChange",
    "HeartbeatResult",
    "HistoryEntry",
    "Hook",
    "InboxCounts",
    "InboxDecision",
    "InboxItem",
    "InboxKind",
    "Incident",
    "IncidentState",
    "InstanceDelay",
    "InstanceFailure",
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
    "StartedInstances",
    "Suggestion",
    "SuggestionStatus",
    "Trigger",
    "WorkflowVersion",
    "Workspace",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "wakeful.model.admin": [
                "ApiKey",
                "EventSubscription",
                "AuditEntry",
                "Event",
                "Incident",
                "Quota",
                "Suggestion",
                "WorkflowVersion",
                "Workspace",
            ],
            "wakeful.model.agent": [
                "AgentInfo",
                "HistoryEntry",
                "InstanceDelay",
                "InstanceFailure",
                "InstanceInfo",
                "MessageReceipt",
                "SessionInfo",
                "StartedInstances",
            ],
            "wakeful.model.enums": [
                "CatchupPolicy",
                "DeliveryState",
                "InboxKind",
                "IncidentState",
                "InstanceStatus",
                "OverlapPolicy",
                "RunState",
                "SuggestionStatus",
                "Trigger",
            ],
            "wakeful.model.inbox": ["InboxCounts", "InboxDecision", "InboxItem"],
            "wakeful.model.job": [
                "BulkResult",
                "FieldChange",
                "Hook",
                "Job",
                "JobFailure",
                "JobRef",
                "Revision",
            ],
            "wakeful.model.page": ["Page"],
            "wakeful.model.run": ["Attempt", "HeartbeatResult", "ReleaseResult", "Run"],
        },
    )
