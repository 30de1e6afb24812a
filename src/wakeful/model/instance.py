"""Instances of agents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from wakeful.model.enums import InstanceStatus
from wakeful.model.job import Job
from wakeful.values.json_value import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceInfo:
    """An instance of an agent: it has its own state, mailbox and schedules.

    The fields from `state` on are set only where one instance is read.
    """

    #: its name, unique for the agent
    id: str
    agent: str
    workspace: str
    status: InstanceStatus
    #: why it is paused or blocked
    note: str | None
    #: the version of the class that wrote its state; 0: it has its initial state
    version: int
    #: one higher with each change of its state
    revision: int
    #: how many of its signals wait
    waiting: int
    #: its run that is running or retrying
    run_id: str | None
    #: when it handled a signal last
    handled_at: datetime | None
    #: when it was removed from memory last
    hibernated_at: datetime | None
    created_at: datetime
    updated_at: datetime
    #: None: the caller may not read it, or it is the initial state of a class that the server does not have
    state: Mapping[str, Json] | None = field(default=None, compare=False)
    #: why the state cannot be shown
    state_error: str | None = field(default=None, compare=False)
    #: the jobs of its schedules
    schedules: tuple[Job, ...] = field(default=(), compare=False)
