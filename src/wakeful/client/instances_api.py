"""The instances of agents, as `Wakeful` and its clients offer them: a part of `agents`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, overload

from wakeful.errors import InvalidArgument
from wakeful.model import InstanceInfo, InstanceStatus, Page, Run
from wakeful.run.instances import DEFAULT_INSTANCE
from wakeful.run.instances import InstanceStatus as StatusName
from wakeful.values.json_value import shown

if TYPE_CHECKING:
    from wakeful.signal.signals import Signal

#: A signal, or a CloudEvent as JSON.
EventLike: TypeAlias = "Signal | Mapping[str, object]"
#: The same, or the text of a type.
SignalLike: TypeAlias = "Signal | str | Mapping[str, object]"


def check_signals(value: object) -> None:
    """Raise InvalidArgument for what `send` cannot send."""
    if not isinstance(value, Sequence) or isinstance(value, bytes):
        raise InvalidArgument(
            f"{shown(value)} is not a signal; give a Signal, the text of its type, a CloudEvent as a "
            "mapping, or a list of them"
        )


def check_state(value: object) -> None:
    """Raise InvalidArgument for what `start` cannot use as a state."""
    if not isinstance(value, Mapping | None):
        raise InvalidArgument(
            f"state: {shown(value)} is not a mapping; give the keys of the initial state to change"
        )


class InstancesApi(Protocol):
    """The instances of agents. `name` is the agent, `id` the name of an instance."""

    async def start(
        self, name: str, id: str = DEFAULT_INSTANCE, *, state: Mapping[str, object] | None = None
    ) -> InstanceInfo:
        """Start an instance. A new one, or one that was stopped, begins with its initial state.

        `state` changes keys of that initial state. An instance that is not stopped keeps its state, and gets
        the declared schedules of its class again. FailedPrecondition: the agent has no class.
        """
        ...

    async def stop(self, name: str, id: str = DEFAULT_INSTANCE) -> InstanceInfo:
        """Stop an instance: delete its schedules, and cancel its signals, also the one that is handled.

        Later signals are refused until it is started again.
        """
        ...

    async def pause(self, name: str, id: str = DEFAULT_INSTANCE, *, note: str | None = None) -> InstanceInfo:
        """Pause an instance: its signals wait."""
        ...

    async def resume(self, name: str, id: str = DEFAULT_INSTANCE) -> InstanceInfo:
        """Resume an instance that is paused, or blocked because its state could not be read."""
        ...

    async def hibernate(self, name: str, id: str = DEFAULT_INSTANCE) -> InstanceInfo:
        """Remove an instance from the memory of every process. Its next signal loads it again."""
        ...

    @overload
    async def send(self, name: str, id: str, signal: SignalLike) -> Run: ...
    @overload
    async def send(self, name: str, id: str, signal: Sequence[EventLike]) -> list[Run]: ...
    async def send(self, name: str, id: str, signal: SignalLike | Sequence[EventLike]) -> Run | list[Run]:
        """Send a signal to an instance, or several at once: all or none of them are stored, in their order.

        Returns its run. The first signal creates the instance. A signal with an id that the instance has
        received before returns the first run, as a `duplicate`. FailedPrecondition: it is stopped.
        ResourceExhausted: its mailbox is full.
        """
        ...

    async def state(self, name: str, id: str = DEFAULT_INSTANCE) -> dict[str, Any]:
        """Return the state of an instance as a JSON object, or raise NotFound."""
        ...

    async def instance(self, name: str, id: str = DEFAULT_INSTANCE) -> InstanceInfo:
        """Return an instance with its state and schedules, or raise NotFound."""
        ...

    async def instances(
        self,
        name: str | None = None,
        *,
        status: InstanceStatus | StatusName | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[InstanceInfo]:
        """Return the instances of an agent, or of all agents, by name; `cursor` is that of the last page."""
        ...
