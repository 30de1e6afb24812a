"""Instances of agent classes, their mailboxes and schedules: rows, and what a store does with them.

The *mailbox* of an instance is all its runs that are not over, in the order (`fire_at`, `sequence`). A
pending run is *exposed* if it has a `due_at`; then it can be taken. Otherwise it is hidden. At most one run
of an instance runs, retries or is exposed: a unique index makes sure of that. Each transaction that adds or
ends runs of an instance locks the row of the instance before the rows of runs, and exposes the next run at
its end, if the instance is active. Lock order: cursors, jobs, instances by id, runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from wakeful.run.instances import InstanceStatus
from wakeful.store.rows import JobRow, RunView

#: The topic that is published when a signal has added an instance.
INSTANCES_TOPIC: Final = "instances"
#: How many runs of an instance one transaction erases.
ERASE_BATCH: Final = 500
#: The beginning of the topic that makes processes remove an instance from memory; its id follows.
UNLOAD_TOPIC: Final = "hibernate:"


class InstanceRow(NamedTuple):
    """An instance."""

    id: str
    workspace: str
    agent: str
    name: str
    status: InstanceStatus
    #: why it is paused or blocked
    note: str | None
    #: the state as compact JSON; None: the initial state of the class
    data: str | None
    #: the version of the class that wrote the state; 0: none did
    version: int
    #: one higher with each change of the state
    revision: int
    #: compact JSON of when it handled each type of signal last, and of the keys that it has seen
    memory: str | None
    #: the last number that a signal got
    sequence: int
    #: of the declared schedules that it has, and the version of their class
    schedules_hash: str
    schedules_version: int
    handled_ms: int | None
    hibernated_ms: int | None
    created_ms: int
    updated_ms: int


class InstanceView(NamedTuple):
    """An instance, to show it."""

    row: InstanceRow
    #: how many of its runs are pending
    waiting: int
    #: its run that is running or retrying
    active_run: str | None
    #: how many of the pending runs are not due yet
    delays: int = 0


class DelayRow(NamedTuple):
    """A delay of an instance that is not due yet."""

    run_id: str
    signal: str
    fire_ms: int
    id: str | None = None


class InstanceFilter(NamedTuple):
    """Which instances to list; None does not filter."""

    workspace: str
    agent: str | None = None
    status: InstanceStatus | None = None
    #: only instances that come after this (agent, name)
    after: tuple[str, str] | None = None
    limit: int = 50


class InstanceChange(NamedTuple):
    """A change of an instance and its schedules."""

    #: the row afterwards; `sequence` is not written
    row: InstanceRow
    #: new schedules
    created: tuple[JobRow, ...] = ()
    #: schedules with their new definition; ticks that have not started and no longer match are withdrawn
    changed: tuple[JobRow, ...] = ()
    #: ids of schedules to delete
    deleted: tuple[str, ...] = ()
    #: cancel its pending and retrying runs for this reason; `cancel_running` also the one that is running
    cancel: str | None = None
    cancel_running: bool = False
    #: delete the row, and the ids of the signals that the instance has received
    delete: bool = False
    #: whether the schedules were decided for an active agent: AgentChanged if it is not so; None: in any case
    active: bool | None = None


#: Decides how an instance changes, given the instance (None: there is none) and the jobs of its schedules,
#: both locked. None: nothing changes.
InstanceRule = Callable[[InstanceRow | None, Sequence[JobRow]], InstanceChange | None]


class ChangedInstance(NamedTuple):
    """An instance after a rule has decided about it."""

    #: None: there is none, or it was deleted
    row: InstanceRow | None
    #: whether anything was written
    changed: bool = False


class Received(NamedTuple):
    """What became of a signal."""

    run: RunView
    #: the instance has received the same (source, id) before; `run` is the first run
    duplicate: bool = False
