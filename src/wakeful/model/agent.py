"""Agents, their sessions and instances, and the messages to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated

from wakeful.model.codec import (
    AgentName,
    Form,
    Id,
    InstanceName,
    May,
    NewSecret,
    Slug,
    SpentToday,
    Warnings,
    resource,
)
from wakeful.model.enums import InstanceStatus
from wakeful.model.job import Job
from wakeful.values.json_value import Json


@resource("Agent")
@dataclass(frozen=True, slots=True, kw_only=True)
class AgentInfo:
    """An agent: the defaults of its jobs and its state."""

    name: Slug
    workspace: Slug
    #: the target of its jobs that have none; None: they wait for an executor (`pull`)
    target: Mapping[str, Json] | None
    #: the zone of its schedules that name none
    tz: str | None
    #: False: its jobs are paused
    active: bool
    #: the channel of its output, and the recipient there
    channel: str | None
    to: str | None
    description: str
    #: the most that its runs may use in a day
    budget: Mapping[str, Json] | None
    alerts: Mapping[str, Json] | None
    #: how its session queues work
    queue: Mapping[str, Json] | None
    heartbeat: Mapping[str, Json] | None
    #: where its own key may deliver
    deliver_to: tuple[Annotated[Json, Form("address")], ...]
    #: `required`: the jobs that it makes wait until a person enables them
    approval: str | None
    #: the bounds of the jobs that it makes in runs that no person started
    self_scheduling: Mapping[str, Json] | None
    #: whether its jobs are analyzed: `off`, `suggest`
    evolution: Annotated[str, Form("EvolutionMode")]
    #: increases with each edit
    version: int
    created_at: datetime
    updated_at: datetime
    #: what its runs used today, such as tokens and cost; not in lists
    spent: SpentToday | None = field(default=None, compare=False)
    #: its new webhook secret, shown once; only in `put` and `rotate_secret`
    secret: NewSecret | None = field(default=None, repr=False, compare=False)
    #: why its jobs may not do what is expected; only in `put`
    warnings: Warnings = field(default=(), compare=False)
    #: what the caller may do with it, such as `wake`; only where it is read
    may: May = field(default=(), compare=False)


@resource("Receipt")
@dataclass(frozen=True, slots=True, kw_only=True)
class MessageReceipt:
    """The result of sending a message to an agent."""

    #: the id of the message; None for a command such as `/stop`
    id: Id | None
    session: str
    #: `waiting`, `started`, `dropped`; `stopped` for a command
    state: Annotated[str, Form("MessageState")]
    #: the run of its turn, once started
    run_id: Id | None
    #: when its turn starts
    due_at: datetime | None
    #: how many messages wait in the session
    waiting: int
    #: the runs that a command stopped
    stopped: tuple[Id, ...]
    #: how many messages were dropped
    dropped: int


@resource()
@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """What was said to an agent in a session, or what it answered."""

    #: its number in the session, from 1 on
    sequence: int
    #: `user` or `assistant`
    role: Annotated[str, Form("HistoryRole")]
    content: str
    #: an estimate of its length
    tokens: int
    #: the run that added it
    run_id: Id
    #: the job that added the answer to the conversation that it comes from
    job: str | None
    at: datetime


@resource("Session")
@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo:
    """A session of an agent."""

    name: str
    #: how many messages wait
    messages: int
    #: the runs of its live turns
    turns: tuple[Id, ...]
    #: how full the context window is, from 0 to 1
    context: float | None
    #: when its next turn starts
    due_at: datetime | None
    #: where its last message with a channel came from
    channel: str | None
    to: str | None
    created_at: datetime
    updated_at: datetime
    #: what was said and answered, newest first; only in `session`
    history: tuple[HistoryEntry, ...] = field(default=(), compare=False)
    #: of the entries before these; None: there are none
    cursor: str | None = field(default=None, compare=False)


@resource()
@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceDelay:
    """A delay of an instance that is not due yet: a signal that it sends to itself later."""

    #: what `Delay` names it, to replace or cancel it
    id: str | None
    #: the type of the signal
    signal: str
    #: when it is due
    at: datetime
    #: the run of the signal
    run_id: Id


@resource("Instance")
@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceInfo:
    """An instance of an agent: it has its own state, mailbox and schedules.

    The fields from `state` on are set only where one instance is read.
    """

    #: its name, unique for the agent
    id: InstanceName
    agent: AgentName
    workspace: Slug
    status: InstanceStatus
    #: why it is paused or blocked
    note: str | None
    #: the version of the class that wrote its state; 0: it has its initial state
    version: int
    #: one higher with each change of its state
    revision: int
    #: how many of its signals wait, also delays that are not due yet
    waiting: int
    #: its run that is running or retrying
    run_id: Id | None
    #: when it handled a signal last
    handled_at: datetime | None
    #: when it was removed from memory last
    hibernated_at: datetime | None
    created_at: datetime
    updated_at: datetime
    #: None: the caller may not read it, or it is the initial state of a class that the server does not have
    state: Annotated[Mapping[str, Json] | None, Form(nullable=True)] = field(default=None, compare=False)
    #: why the state cannot be shown
    state_error: Annotated[str | None, Form(nullable=True)] = field(default=None, compare=False)
    #: the jobs of its schedules
    schedules: tuple[Job, ...] = field(default=(), compare=False)
    #: the first 100 delays that are not due yet
    delays: tuple[InstanceDelay, ...] = field(default=(), compare=False)
    #: what the caller may do with it, such as `stop`; only where it is read
    may: May = field(default=(), compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceFailure:
    """An instance that could not be started, and why."""

    #: its name
    id: str
    #: the code of the error, such as `failed-precondition`
    code: str
    message: str


@resource()
@dataclass(frozen=True, slots=True, kw_only=True)
class StartedInstances:
    """The instances that were started together, and those that could not be started."""

    instances: tuple[InstanceInfo, ...]
    errors: tuple[InstanceFailure, ...]
