"""What a run requires of the process that takes it, and what a process has. Pure.

A requirement is a name and the lowest version: `function:digest` for a function, `agent:WORKSPACE/AGENT` for
the class of an agent, `celery` for any Celery app, `celery:APP` for the app of that name, and '' for a target
that every process can launch. A process may take a run if it has the requirement's name in at least that
version.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple

from wakeful.job.job import Work

#: What a process can launch: the name of each requirement, and the highest version. '' is always included.
Capabilities = Mapping[str, int]

_FUNCTION: Final = "function:"
_AGENT: Final = "agent:"
#: The requirement of runs with Celery targets that name no app.
CELERY: Final = "celery"
_CELERY_APP: Final = f"{CELERY}:"
#: Names are part of an index, whose entries are limited.
_MAX_BYTES: Final = 200


class Requirement(NamedTuple):
    """What a process must have to launch a run."""

    name: str
    version: int = 0

    @property
    def description(self) -> str:
        """What is missing in a process that does not meet it.

        >>> Requirement("function:digest").description
        "the function 'digest'"
        >>> Requirement("agent:default/report", 3).description
        "version 3 of the class of agent 'report'"
        """
        if self.name == CELERY:
            return "a Celery app"
        if self.name.startswith(_CELERY_APP):
            return f"the Celery app '{self.name.removeprefix(_CELERY_APP)}'"
        if self.name.startswith(_FUNCTION):
            return f"the function '{self.name.removeprefix(_FUNCTION)}'"
        workspace, _, agent = self.name.removeprefix(_AGENT).partition("/")
        version = f"version {self.version} of " if self.version > 1 else ""
        return f"{version}the class of agent '{agent or workspace}'"

    @property
    def advice(self) -> str:
        """What to do if no running replica meets it.

        >>> Requirement("function:digest").advice
        "no running replica has the function 'digest'; start a process that registers it"
        """
        if is_celery(self.name):
            return f"no running replica has {self.description}; start one with WAKEFUL_CELERY_APP"
        return f"no running replica has {self.description}; start a process that registers it"


NOTHING: Final = Requirement("")
_CELERY: Final = Requirement(CELERY)
#: The capabilities of a process without functions and agents.
NO_CAPABILITIES: Final[Capabilities] = MappingProxyType({"": 0})


def function_requirement(name: str) -> str:
    """Return the requirement's name for a function. A name that cannot be stored in an index becomes a hash.

    >>> function_requirement("digest")
    'function:digest'
    >>> function_requirement("d" * 1000)[:22]
    'function:sha256-e8cec1'
    """
    return _requirement(_FUNCTION, name)


def celery_requirement(app: str) -> str:
    """Return the requirement's name for the Celery app of that name.

    >>> celery_requirement("shop")
    'celery:shop'
    """
    return _requirement(_CELERY_APP, app)


def is_celery(requirement: str) -> bool:
    """Return whether this is the name of a requirement of Celery targets.

    >>> is_celery("celery"), is_celery("celery:shop"), is_celery("function:celery")
    (True, True, False)
    """
    return requirement == CELERY or requirement.startswith(_CELERY_APP)


def _requirement(kind: str, name: str) -> str:
    if not name.isprintable() or len(name.encode()) > _MAX_BYTES:
        return f"{kind}sha256-{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()}"
    return kind + name


def agent_requirement(workspace: str, agent: str) -> str:
    """Return the requirement's name for the class of an agent.

    >>> agent_requirement("default", "report")
    'agent:default/report'
    """
    return f"{_AGENT}{workspace}/{agent}"


def requirement_of(work: Work, workspace: str, agent: str) -> Requirement:
    """Return what the runs of a job require.

    >>> requirement_of(Work({"kind": "function", "name": "digest"}), "default", "default")
    Requirement(name='function:digest', version=0)
    >>> requirement_of(Work({"kind": "celery", "task": "add", "app": "shop"}), "default", "default")
    Requirement(name='celery:shop', version=0)
    >>> requirement_of(Work({"kind": "webhook", "url": "https://a.example"}), "default", "default")
    Requirement(name='', version=0)
    """
    target = work.target  # not `final_target`: this is called for each run of a storm
    if target is None:
        return NOTHING
    kind = target.get("kind")
    if kind == "workflow":
        to = target.get("to")
        target = to if isinstance(to, dict) else {}
        kind = target.get("kind")
    if kind == "function":
        name = target.get("name")
        return _function(name) if isinstance(name, str) else NOTHING
    if kind == CELERY:
        app = target.get("app")
        return _celery(app) if isinstance(app, str) else _CELERY
    return Requirement(agent_requirement(workspace, agent)) if kind == "agent" else NOTHING


@lru_cache(maxsize=4096)
def _function(name: str) -> Requirement:
    return Requirement(function_requirement(name))


@lru_cache(maxsize=256)
def _celery(app: str) -> Requirement:
    return Requirement(celery_requirement(app))


def can_take(capabilities: Capabilities, requirement: Requirement) -> bool:
    """Return whether a process may take a run with this requirement.

    >>> can_take({"": 0, "agent:default/report": 2}, Requirement("agent:default/report", 3))
    False
    """
    return capabilities.get(requirement.name, -1) >= requirement.version


def capabilities_to_text(capabilities: Capabilities) -> str:
    """Return capabilities as stored text; equal ones have equal texts.

    >>> capabilities_to_text({"function:digest": 0, "": 0})
    '{"":0,"function:digest":0}'
    """
    return json.dumps(dict(capabilities), separators=(",", ":"), sort_keys=True)


def capabilities_from_text(text: str) -> Capabilities:
    """Return the capabilities that `capabilities_to_text` wrote."""
    found: dict[str, int] = json.loads(text)
    return found
