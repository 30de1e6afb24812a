"""The instances of agents on a server. `wakeful.client.instances_api` documents the methods."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast, overload

from wakeful.client.connection import check_next
from wakeful.client.instances_api import EventLike, InstancesApi, SignalLike, check_signals, check_state
from wakeful.errors import FailedPrecondition, PermissionDenied
from wakeful.job.job import DEFAULT_INSTANCE
from wakeful.model import InstanceInfo, InstanceStatus, Page, Run
from wakeful.model.codec import from_json, page_from_json
from wakeful.run.instances import InstanceStatus as StatusName
from wakeful.signal.signals import Signal
from wakeful.values.json_value import Json

if TYPE_CHECKING:
    from wakeful.client.rest import RestClient

#: The source of signals that have none.
SOURCE: Final = "/client"
_PAGE: Final = 500


class Instances(InstancesApi):
    """The part of `client.agents` for instances."""

    def __init__(self, rest: RestClient) -> None:
        self._rest = rest

    async def start(
        self, name: str, id: str = DEFAULT_INSTANCE, *, state: Mapping[str, object] | None = None
    ) -> InstanceInfo:
        check_state(state)
        return from_json(InstanceInfo, await self._rest.start_instance(name, id, state=state))

    async def stop(self, name: str, id: str = DEFAULT_INSTANCE) -> InstanceInfo:
        return from_json(InstanceInfo, await self._rest.stop_instance(name, id))

    async def pause(self, name: str, id: str = DEFAULT_INSTANCE, *, note: str | None = None) -> InstanceInfo:
        return from_json(InstanceInfo, await self._rest.pause_instance(name, id, note=note))

    async def resume(self, name: str, id: str = DEFAULT_INSTANCE) -> InstanceInfo:
        return from_json(InstanceInfo, await self._rest.resume_instance(name, id))

    async def hibernate(self, name: str, id: str = DEFAULT_INSTANCE) -> InstanceInfo:
        return from_json(InstanceInfo, await self._rest.hibernate_instance(name, id))

    @overload
    async def send(self, name: str, id: str, signal: SignalLike) -> Run: ...
    @overload
    async def send(self, name: str, id: str, signal: Sequence[EventLike]) -> builtins.list[Run]: ...
    async def send(
        self, name: str, id: str, signal: SignalLike | Sequence[EventLike]
    ) -> Run | builtins.list[Run]:
        if isinstance(signal, Signal | str | Mapping):
            return (await self._send(name, id, [signal]))[0]
        check_signals(signal)
        return await self._send(name, id, signal)

    async def _send(self, name: str, id: str, signals: Sequence[SignalLike]) -> builtins.list[Run]:
        sent = await self._rest.send_events(name, id, [event_of(signal) for signal in signals])
        return [from_json(Run, run) for run in sent]

    async def state(self, name: str, id: str = DEFAULT_INSTANCE) -> dict[str, Any]:
        found = await self._rest.get_instance(name, id)
        if "state" not in found:
            raise PermissionDenied("only an admin may read the state of an instance; use an admin's key")
        state = found["state"]
        if state is None:
            raise FailedPrecondition(
                found.get("stateError")
                or f"instance '{id}' has the initial state of its class, which the server does not have"
            )
        return state

    async def instance(self, name: str, id: str = DEFAULT_INSTANCE) -> InstanceInfo:
        return from_json(InstanceInfo, await self._rest.get_instance(name, id))

    async def instances(
        self,
        name: str | None = None,
        *,
        status: InstanceStatus | StatusName | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[InstanceInfo]:
        page = await self._rest.list_all_instances(agent=name, status=status, limit=limit, cursor=cursor)
        return page_from_json(InstanceInfo, page)

    async def _all_instances(self, name: str) -> builtins.list[InstanceInfo]:
        """Return all instances of an agent."""
        found: builtins.list[InstanceInfo] = []
        cursor: str | None = None
        while True:
            page = await self.instances(name, limit=_PAGE, cursor=cursor)
            found += page
            if page.cursor is None:
                return found
            cursor = check_next(cursor, page.cursor)


def event_of(signal: SignalLike) -> dict[str, Json]:
    """Return the CloudEvent of a signal, the text of its type, or a CloudEvent as JSON.

    >>> event_of(Signal("report.generate", id="7"))
    {'specversion': '1.0', 'id': '7', 'type': 'report.generate', 'source': '/client'}
    """
    if isinstance(signal, str):
        signal = Signal(signal)
    elif not isinstance(signal, Signal):
        signal = Signal.from_json({"source": SOURCE, **signal})
    event = signal.to_json()
    return event if "source" in event else cast(dict[str, Json], {**event, "source": SOURCE})
