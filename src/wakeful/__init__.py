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
from wakeful.lazy_names import lazy_names

if TYPE_CHECKING:
    from wakeful.app import Wakeful
    from wakeful.client import AsyncClient, Client
    from wakeful.document import Defaults
    from wakeful.engine.engine import EngineConfig
    from wakeful.launch.port import Launch
    from wakeful.launch.precheck import Skip
    from wakeful.model import (
        AgentInfo,
        Attempt,
        CatchupPolicy,
        DeliveryState,
        Incident,
        IncidentState,
        Job,
        OverlapPolicy,
        Page,
        Run,
        RunState,
        Trigger,
    )
    from wakeful.scheduler import AgentsApi, IncidentsApi, JobsApi, RunsApi, Scheduler
    from wakeful.target import Command, Echo, Function, Webhook

__version__ = "0.1.0"

__all__ = [
    "AgentInfo",
    "AgentsApi",
    "AlreadyExists",
    "AsyncClient",
    "Attempt",
    "CatchupPolicy",
    "Client",
    "Command",
    "Defaults",
    "DeliveryState",
    "Echo",
    "EngineConfig",
    "FailedPrecondition",
    "Function",
    "Incident",
    "IncidentState",
    "IncidentsApi",
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
    "ResourceExhausted",
    "Run",
    "RunState",
    "RunsApi",
    "Scheduler",
    "Skip",
    "Trigger",
    "Unauthenticated",
    "Unavailable",
    "Wakeful",
    "WakefulError",
    "Webhook",
    "__version__",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
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
                "DeliveryState",
                "Incident",
                "IncidentState",
                "Job",
                "OverlapPolicy",
                "Page",
                "Run",
                "RunState",
                "Trigger",
            ],
            "wakeful.scheduler": ["AgentsApi", "IncidentsApi", "JobsApi", "RunsApi", "Scheduler"],
            "wakeful.target": ["Command", "Echo", "Function", "Webhook"],
        },
    )
