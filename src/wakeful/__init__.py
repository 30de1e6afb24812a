"""Wakeful: a durable scheduler for AI agents. Schedules are stored in a database.

Names that need a database or a network are imported on first use: `import wakeful.cron` stays light.
"""

from importlib import import_module
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
        Job,
        OverlapPolicy,
        Page,
        Run,
        RunState,
        Trigger,
    )
    from wakeful.scheduler import AgentsApi, JobsApi, RunsApi, Scheduler
    from wakeful.target import Command, Function, Webhook

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
    "EngineConfig",
    "FailedPrecondition",
    "Function",
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
    _HOME = {
        "AgentInfo": "wakeful.model",
        "AgentsApi": "wakeful.scheduler",
        "AsyncClient": "wakeful.client",
        "Attempt": "wakeful.model",
        "CatchupPolicy": "wakeful.model",
        "Client": "wakeful.client",
        "Command": "wakeful.target",
        "Defaults": "wakeful.document",
        "DeliveryState": "wakeful.model",
        "EngineConfig": "wakeful.engine.engine",
        "Function": "wakeful.target",
        "Job": "wakeful.model",
        "JobsApi": "wakeful.scheduler",
        "Launch": "wakeful.launch.port",
        "OverlapPolicy": "wakeful.model",
        "Page": "wakeful.model",
        "Run": "wakeful.model",
        "RunState": "wakeful.model",
        "RunsApi": "wakeful.scheduler",
        "Scheduler": "wakeful.scheduler",
        "Skip": "wakeful.launch.precheck",
        "Trigger": "wakeful.model",
        "Wakeful": "wakeful.app",
        "Webhook": "wakeful.target",
    }

    def __getattr__(name: str) -> object:
        if name not in _HOME:
            raise AttributeError(f"module 'wakeful' has no attribute '{name}'")
        value = getattr(import_module(_HOME[name]), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *_HOME})
