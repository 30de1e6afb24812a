"""The instances of agents, in the interface that `Wakeful` and `AsyncClient` share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from wakeful.job import DEFAULT_INSTANCE
from wakeful.model import InstanceInfo, InstanceStatus, Page, Run

if TYPE_CHECKING:
    from wakeful.json_value import Json
    from wakeful.signals import Signal


class InstancesApi(Protocol):
    """The instances of the agents of a workspace: each has its own state, mailbox and schedules.

    `name` is the agent, `id` the instance. Each method raises NotFound for an unknown agent or instance, and
    FailedPrecondition for an agent without a class.
    """

    async def start(
        self, name: str, id: str = DEFAULT_INSTANCE, *, state: Mapping[str, object] | None = None
    ) -> InstanceInfo:
        """Start an instance. A new one, or one that was stopped, begins with its initial state.

        `state` changes keys of the initial state. An instance that is not stopped keeps its state, and gets
        the schedules that its class declares: also those that it cancelled itself.
        """
        ...

    async def stop(self, name: str, id: str = DEFAULT_INSTANCE) -> InstanceInfo:
        """Stop an instance: delete its schedules and cancel its runs. It accepts no signal until `start`."""
        ...

    async def pause(self, name: str, id: str = DEFAULT_INSTANCE, *, note: str | None = None) -> InstanceInfo:
        """Pause an instance: its signals wait. A run that is running ends."""
        ...

    async def resume(self, name: str, id: str = DEFAULT_INSTANCE) -> InstanceInfo:
        """Resume an instance that is paused or blocked."""
        ...

    async def hibernate(self, name: str, id: str = DEFAULT_INSTANCE) -> InstanceInfo:
        """Remove an instance from the memory of every process. Its next signal loads it again."""
        ...

    async def send(self, name: str, id: str, signal: Signal) -> Run:
        """Send a signal to an instance, which is created if it does not exist; return its run.

        The run is recorded when this returns; `runs.wait(run.id)` waits for its end. A signal with an `id`
        that the instance has received before is not handled again: the first run is returned, with
        `duplicate`. ResourceExhausted: the mailbox is full. FailedPrecondition: the instance is stopped.
        """
        ...

    async def send_many(self, name: str, id: str, signals: Sequence[Signal]) -> Sequence[Run]:
        """Send up to 1,000 signals to an instance, all or none, in this order; return their runs."""
        ...

    async def instance(self, name: str, id: str = DEFAULT_INSTANCE) -> InstanceInfo:
        """Return an instance with its state and its schedules."""
        ...

    async def state(self, name: str, id: str = DEFAULT_INSTANCE) -> Mapping[str, Json]:
        """Return the state of an instance. It requires the role admin."""
        ...

    async def instances(
        self,
        name: str | None = None,
        *,
        status: InstanceStatus | str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[InstanceInfo]:
        """Return instances by agent and id, without their state: of one agent, or of all.

        `cursor` is that of the previous page.
        """
        ...
