"""Wakeful: a durable scheduler for AI agents. Schedules are stored in a database.

Names that need a database or a network are imported on first use: `import wakeful.cron` stays light.
"""

from typing import TYPE_CHECKING

from wakeful.errors import (
    AlreadyExists,
    FailedPrecondition,
    InvalidArgument,
    InvalidSchedule,
    NotFound,
    Permanent,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
    WakefulError,
)
from wakeful.values.package import VERSION as __version__
from wakeful.values.package import lazy_names

if TYPE_CHECKING:
    from wakeful.agents.agent import Agent, on
    from wakeful.agents.context import Context
    from wakeful.agents.directives import SELF, CancelCron, CancelDelay, Delay, Emit, SetCron, SetState, Stop
    from wakeful.agents.schedules import Schedule
    from wakeful.app import Wakeful
    from wakeful.client import AsyncClient, Client
    from wakeful.client.scheduler import (
        AgentsApi,
        InboxApi,
        IncidentsApi,
        JobsApi,
        RunsApi,
        Scheduler,
        SuggestionsApi,
    )
    from wakeful.document import Defaults
    from wakeful.engine.engine import EngineConfig
    from wakeful.job.targets import CeleryTask, Chat, Command, Echo, Function, Queue, Webhook
    from wakeful.launch.port import Launch
    from wakeful.launch.precheck import Skip
    from wakeful.model import (
        AgentInfo,
        Attempt,
        CatchupPolicy,
        DeliveryState,
        Hook,
        InboxItem,
        Incident,
        IncidentState,
        InstanceInfo,
        InstanceStatus,
        Job,
        OverlapPolicy,
        Page,
        Revision,
        Run,
        RunState,
        Suggestion,
        SuggestionStatus,
        Trigger,
    )
    from wakeful.signal.signals import Signal

__all__ = [
    "SELF",
    "Agent",
    "AgentInfo",
    "AgentsApi",
    "AlreadyExists",
    "AsyncClient",
    "Attempt",
    "CancelCron",
    "CancelDelay",
    "CatchupPolicy",
    "CeleryTask",
    "Chat",
    "Client",
    "Command",
    "Context",
    "Defaults",
    "Delay",
    "DeliveryState",
    "Echo",
    "Emit",
    "EngineConfig",
    "FailedPrecondition",
    "Function",
    "Hook",
    "InboxApi",
    "InboxItem",
    "Incident",
    "IncidentState",
    "IncidentsApi",
    "InstanceInfo",
    "InstanceStatus",
    "InvalidArgument",
    "InvalidSchedule",
    "Job",
    "JobsApi",
    "Launch",
    "NotFound",
    "OverlapPolicy",
    "Page",
    "Permanent",
    "PermissionDenied",
    "Queue",
    "ResourceExhausted",
    "Revision",
    "Run",
    "RunState",
    "RunsApi",
    "Schedule",
    "Scheduler",
    "SetCron",
    "SetState",
    "Signal",
    "Skip",
    "Stop",
    "Suggestion",
    "SuggestionStatus",
    "SuggestionsApi",
    "Trigger",
    "Unauthenticated",
    "Unavailable",
    "Wakeful",
    "WakefulError",
    "Webhook",
    "__version__",
    "on",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "wakeful.agents.agent": ["Agent", "on"],
            "wakeful.agents.context": ["Context"],
            "wakeful.agents.directives": [
                "SELF",
                "CancelCron",
                "CancelDelay",
                "Delay",
                "Emit",
                "SetCron",
                "SetState",
                "Stop",
            ],
            "wakeful.agents.schedules": ["Schedule"],
            "wakeful.app": ["Wakeful"],
            "wakeful.client": ["AsyncClient", "Client"],
            "wakeful.document": ["Defaults"],
            "wakeful.engine.engine": ["EngineConfig"],
            "wakeful.launch.port": ["Launch"],
            "wakeful.launch.precheck": ["Skip"],
            "wakeful.model": [
                "AgentInfo",
                "Attempt",
                "CatchupPolicy",
                "Chat",
                "DeliveryState",
                "Hook",
                "InboxItem",
                "Incident",
                "IncidentState",
                "InstanceInfo",
                "InstanceStatus",
                "Job",
                "OverlapPolicy",
                "Page",
                "Revision",
                "Run",
                "RunState",
                "Suggestion",
                "SuggestionStatus",
                "Trigger",
            ],
            "wakeful.client.scheduler": [
                "AgentsApi",
                "InboxApi",
                "IncidentsApi",
                "JobsApi",
                "RunsApi",
                "Scheduler",
                "SuggestionsApi",
            ],
            "wakeful.signal.signals": ["Signal"],
            "wakeful.job.targets": ["CeleryTask", "Chat", "Command", "Echo", "Function", "Queue", "Webhook"],
        },
    )
