"""Instances of agent classes: their identity, their status, and the directives of handlers. Pure.

An agent class is registered for one agent of a workspace. An *instance* is one agent of that class, with its
own state and mailbox. The instance `default` receives what does not name another one. What follows from the
directives of a handler is decided in `wakeful.run.signal_rules`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Final, Literal, NamedTuple
from urllib.parse import quote
from uuid import UUID

from wakeful.job.job import DEFAULT_INSTANCE as DEFAULT_INSTANCE
from wakeful.job.job import MAX_NAME, Definition, ScheduleOrigin, is_slug
from wakeful.values.json_value import Json

InstanceStatus = Literal[
    "active",  # it handles signals
    "paused",  # an operator paused it: signals wait
    "blocked",  # its state cannot be read or migrated: signals wait
    "stopped",  # it has no schedules and accepts no signal until it is started
    "deleting",  # it accepts nothing; its history is being erased, and then it does not exist
]

#: The types of signals that Wakeful itself creates for what is not a signal.
JOB_SIGNAL: Final = "wakeful.job"
WAKE_SIGNAL: Final = "wakeful.wake"
MESSAGE_SIGNAL: Final = "wakeful.message"
HEARTBEAT_SIGNAL: Final = "wakeful.heartbeat"
#: How many dynamic schedules an instance can have.
MAX_SCHEDULES: Final = 100
#: How many delays of an instance may wait until they are due. Then they count towards its mailbox.
MAX_DELAYS: Final = 10_000
#: The longest id of a delay.
MAX_DELAY_ID: Final = 128
#: The longest id of a schedule.
MAX_SCHEDULE_ID: Final = 128
#: The reason of runs that end because their instance was stopped.
STOPPED: Final = "stopped"
#: The reason of runs that end because their instance was deleted.
INSTANCE_DELETED: Final = "instance_deleted"
#: The states in which an instance accepts no signal.
CLOSED: Final[Mapping[InstanceStatus, str]] = {
    "stopped": "is stopped; start it",
    "deleting": "is being deleted; send it again in a moment, to a new instance of this name",
}
#: The reasons of a delay that another one with its id replaced, or that its instance cancelled.
DELAY_REPLACED: Final = "delay_replaced"
DELAY_CANCELLED: Final = "delay_cancelled"
#: The reason of a tick that is skipped because the mailbox is full.
MAILBOX_FULL: Final = "mailbox_full"
#: The reason of a failed attempt whose directives could not be stored.
DIRECTIVE_REFUSED: Final = "directive_refused"
#: The reason of an attempt that could not read or migrate the state of its instance.
BLOCKED: Final = "blocked"

#: The id of the instance whose handler runs in this context.
current_instance: ContextVar[str | None] = ContextVar("current_instance", default=None)

_NAMESPACE: Final = UUID("8c1f6a52-5d0e-5e53-9f2e-3c9d7d1b5a10")
_NOT_SLUG: Final = re.compile(r"[^a-z0-9]+")


def instance_id(workspace: str, agent: str, name: str) -> str:
    """Return the id of an instance. It follows from the names, so no transaction has to look it up.

    It is a UUID of version 5. It is not cached: instances that are not in use need no memory.

    >>> from uuid import uuid5
    >>> instance_id("default", "daily-report", "eu") == str(uuid5(_NAMESPACE, "default/daily-report/eu"))
    True
    """
    digest = hashlib.sha1(_NAMESPACE.bytes + f"{workspace}/{agent}/{name}".encode()).hexdigest()
    variant = "89ab"[int(digest[16], 16) & 3]
    return f"{digest[:8]}-{digest[8:12]}-5{digest[13:16]}-{variant}{digest[17:20]}-{digest[20:32]}"


def schedule_job_name(instance: str, origin: ScheduleOrigin, schedule_id: str) -> str:
    """Return the name of the job of a schedule: readable, and unique by its last part.

    >>> schedule_job_name("eu", "declared", "daily")
    'eu-daily-3d7134e8'
    """
    text = _NOT_SLUG.sub("-", f"{instance}-{schedule_id}".lower()).strip("-") or "schedule"
    # A name that is no slug leaves less of itself in the text, so the digest has to be longer.
    length = 8 if is_slug(instance) else 20
    digest = hashlib.sha256(f"{quote(instance, safe='')}/{origin}/{schedule_id}".encode()).hexdigest()
    return f"{text[: MAX_NAME - 1 - length].strip('-')}-{digest[:length]}"


class DeclaredSchedule(NamedTuple):
    """A schedule in the definition of a class."""

    schedule_id: str
    #: the fields of a job document, without `name`; its target has the type of the signal
    document: Mapping[str, Json]


class AgentClass(NamedTuple):
    """What the database knows of an agent class, so that every process can create its instances."""

    workspace: str
    agent: str
    version: int
    #: the retry policy and the timeout of its signals, as `jobs.policy`
    policy: str
    #: how many signals may wait in a mailbox
    mailbox: int
    #: how long the ids of signals are remembered
    dedupe_ms: int
    lane: str
    schedules: tuple[DeclaredSchedule, ...] = ()
    #: the patterns of its handlers
    handles: tuple[str, ...] = ()
    #: changes with the declared schedules
    hash: str = ""


class InstanceLimits(NamedTuple):
    """How many instances may exist; None is no limit. A limit in the table `quotas` takes precedence."""

    per_workspace: int | None = None
    per_agent: int | None = None
    #: whether an instance that does not exist is added at all
    may_add: bool = True


class Send(NamedTuple):
    """A signal to an instance of the same workspace: from `Emit` with a recipient, or from `Delay`."""

    agent: str
    instance: str
    type: str
    #: the CloudEvent as compact JSON
    text: str
    #: where the signal comes from, and its id; an id that Wakeful generated needs no deduplication: None
    source: str = ""
    id: str | None = None
    #: counted from the commit
    delay_ms: int = 0
    #: the id of the delay
    delay_id: str | None = None


class ScheduleChange(NamedTuple):
    """A schedule to set, or to cancel if there is no definition."""

    schedule_id: str
    definition: Definition | None = None
    #: cancel the declared schedule of this id, not the dynamic one. Its definition is used if the instance
    #: does not have the schedule yet
    declared: bool = False
