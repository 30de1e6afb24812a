"""Wakeful: cron for agents. It keeps time in a database and wakes the agent.

What needs a database or a network is imported when it is first used: `wakeful.cron` alone stays light.
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
    from wakeful.target import Command, Function, Webhook

__version__ = "0.1.0"

__all__ = [
    "AlreadyExists",
    "AsyncClient",
    "Client",
    "Command",
    "Defaults",
    "EngineConfig",
    "FailedPrecondition",
    "Function",
    "InvalidArgument",
    "InvalidSchedule",
    "Launch",
    "NotFound",
    "Permanent",
    "PermissionDenied",
    "ResourceExhausted",
    "Skip",
    "Unauthenticated",
    "Unavailable",
    "Wakeful",
    "WakefulError",
    "Webhook",
    "__version__",
]

if not TYPE_CHECKING:
    _HOME = {
        "AsyncClient": "wakeful.client",
        "Client": "wakeful.client",
        "Command": "wakeful.target",
        "Defaults": "wakeful.document",
        "Function": "wakeful.target",
        "Launch": "wakeful.launch.port",
        "EngineConfig": "wakeful.engine.engine",
        "Skip": "wakeful.launch.precheck",
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
