"""The instances of agents, a part of `agents`: their methods, implemented by requests to a server."""

from __future__ import annotations

import asyncio
import builtins
import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, cast, overload

from wakeful.errors import FailedPrecondition, InvalidArgument, NotFound, PermissionDenied, Unavailable
from wakeful.job.job import DEFAULT_INSTANCE
from wakeful.model import InstanceInfo, InstanceStatus, Page, Run, StartedInstances
from wakeful.model.codec import from_json, page_from_json
from wakeful.run.instances import InstanceStatus as StatusName
from wakeful.run.instances import current_instance, instance_id
from wakeful.signal.signals import Signal
from wakeful.values.instance_names import check_instance
from wakeful.values.json_value import Json, quote

if TYPE_CHECKING:
    from wakeful.client.rest import RestClient

#: A signal, or a CloudEvent as JSON.
EventLike: TypeAlias = "Signal | Mapping[str, object]"
#: The same, or the text of a type.
SignalLike: TypeAlias = "Signal | str | Mapping[str, object]"
#: The source of signals that have none.
SOURCE: Final = "/client"
_PAGE: Final = 500


class DeleteInstance(Protocol):
    """Deletes an instance. Returns whether its history is still being erased."""

    async def __call__(self, name: str, id: str, *, erase: bool) -> bool: ...


class RestPart:
    """A part of a client."""

    def __init__(self, rest: RestClient) -> None:
        self._rest = rest


class Instances(RestPart):
    """The part of `client.agents` for instances. `name` is the agent, `id` the name of an instance."""

    async def start(
        self,
        name: str,
        id: str = DEFAULT_INSTANCE,
        *,
        state: Mapping[str, object] | None = None,
        replace: bool = False,
    ) -> InstanceInfo:
        """Start an instance. A new one, or one that was stopped, begins with its initial state.

        `state` changes keys of that initial state. An instance that is not stopped keeps its state, and gets
        the declared schedules of its class again. FailedPrecondition: it has another state than `state` asks
        for, and is not to `replace` it; or the agent has no class.
        """
        check_state(state)
        given = await self._rest.start_instance(name, id, state=state, replace=replace or None)
        return from_json(InstanceInfo, given)

    async def start_many(
        self,
        name: str,
        ids: Iterable[str] | Mapping[str, Mapping[str, object] | None],
        *,
        replace: bool = False,
    ) -> StartedInstances:
        """Start up to 1,000 instances in one transaction, each as `start` does.

        `ids` are their names, or their states by name. Those that cannot be started are in `errors`, by
        their ids; the others are started.
        """
        states: list[Mapping[str, object]] = [
            {"id": id, "state": state} for id, state in read_states(ids).items()
        ]
        started = await self._rest.start_instances(name, instances=states, replace=replace or None)
        return from_json(StartedInstances, started)

    async def delete_instance(self, name: str, id: str, *, erase: bool = False) -> None:
        """Delete an instance: its state, mailbox and schedules. Runs that have not ended are cancelled.

        With `erase`, all its runs are deleted too, with what they contain: signals, outputs, errors,
        conversations. That may take some time; it continues if this call is cancelled. NotFound: there is
        no such instance; with `erase` also no run of it.
        """
        await delete_all(self._delete_instance, name, id, erase=erase)

    async def _delete_instance(self, name: str, id: str, *, erase: bool) -> bool:
        """Delete an instance. Returns whether its history is still being erased; the server waits itself."""
        left = await self._rest.delete_instance(name, id, erase=erase or None)
        if left is not None and (not erase or left.get("status") != "deleting"):
            raise Unavailable("the server responded, but not as Wakeful does: it deleted nothing")
        return left is not None

    async def stop(self, name: str, id: str = DEFAULT_INSTANCE) -> InstanceInfo:
        """Stop an instance: delete its schedules, and cancel its signals, also the one that is handled.

        Later signals are refused until it is started again.
        """
        return from_json(InstanceInfo, await self._rest.stop_instance(name, id))

    async def pause(self, name: str, id: str = DEFAULT_INSTANCE, *, note: str | None = None) -> InstanceInfo:
        """Pause an instance: its signals wait."""
        return from_json(InstanceInfo, await self._rest.pause_instance(name, id, note=note))

    async def resume(self, name: str, id: str = DEFAULT_INSTANCE) -> InstanceInfo:
        """Resume an instance that is paused, or blocked because its state could not be read."""
        return from_json(InstanceInfo, await self._rest.resume_instance(name, id))

    async def hibernate(self, name: str, id: str = DEFAULT_INSTANCE) -> InstanceInfo:
        """Remove an instance from the memory of every process. Its next signal loads it again."""
        return from_json(InstanceInfo, await self._rest.hibernate_instance(name, id))

    @overload
    async def send(self, name: str, id: str, signal: SignalLike) -> Run: ...
    @overload
    async def send(self, name: str, id: str, signal: Sequence[EventLike]) -> builtins.list[Run]: ...
    async def send(
        self, name: str, id: str, signal: SignalLike | Sequence[EventLike]
    ) -> Run | builtins.list[Run]:
        """Send a signal to an instance, or several at once: all or none of them are stored, in their order.

        Returns its run. The first signal creates the instance. A signal with an id that the instance has
        received before returns the first run, as a `duplicate`. FailedPrecondition: it is stopped.
        ResourceExhausted: its mailbox is full.
        """
        if isinstance(signal, Signal | str | Mapping):
            return (await self._send(name, id, [signal]))[0]
        check_signals(signal)
        return await self._send(name, id, signal)

    async def ask(
        self,
        name: str,
        id: str,
        signal: SignalLike,
        *,
        timeout: float | None = 60.0,  # noqa: ASYNC109
    ) -> str | None:
        """Send a signal to an instance, and return the text that its handler returns; None: it returns none.

        Raises TimeoutError after `timeout` seconds (None: never); the signal stays and is handled later.
        FailedPrecondition: the run ended without success; or a handler asks its own instance, which handles
        one signal at a time.
        """
        workspace = self._current_workspace
        check_instance(id)
        own = current_instance.get()
        if own is not None and own == instance_id(workspace, name, id):
            raise FailedPrecondition(
                f"a handler of instance '{id}' of agent '{name}' asks its own instance, which handles one "
                "signal at a time: it would wait for itself; call the method, or return Emit(signal, to=SELF)"
            )
        if not isinstance(signal, Signal | str | Mapping):
            raise InvalidArgument(f"{quote(signal)} is not one signal; ask with one")
        run = await self.send(name, id, signal)
        try:
            async with asyncio.timeout(timeout):
                ended = await self._wait(name, run.id)
        except TimeoutError:
            if timeout is None:
                raise
            raise TimeoutError(
                f"instance '{id}' of agent '{name}' has not handled '{run.signal}' within {timeout:g} s; "
                f"the signal stays: wait for its run {run.id} with runs.wait"
            ) from None
        if ended.state != "succeeded":
            why = ended.error or ended.reason or "no reason is known"
            raise FailedPrecondition(
                f"instance '{id}' of agent '{name}': run {ended.id} of '{ended.signal}' ended as "
                f"{ended.state}: {why}"
            )
        return ended.output

    @property
    def _current_workspace(self) -> str:
        return self._rest.workspace

    async def _wait(self, name: str, run_id: str) -> Run:
        """Return a run once it has ended."""
        from wakeful.client.runs import Runs  # the embedded API needs nothing else of it

        return await Runs(self._rest, name).wait(run_id)

    async def _send(self, name: str, id: str, signals: Sequence[SignalLike]) -> builtins.list[Run]:
        sent = await self._rest.send_events(name, id, [to_event(signal) for signal in signals])
        return [from_json(Run, run) for run in sent]

    async def state(self, name: str, id: str = DEFAULT_INSTANCE) -> dict[str, Any]:
        """Return the state of an instance as a JSON object, or raise NotFound."""
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
        """Return an instance with its state and schedules, or raise NotFound."""
        return from_json(InstanceInfo, await self._rest.get_instance(name, id))

    async def instances(
        self,
        name: str | None = None,
        *,
        status: InstanceStatus | StatusName | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[InstanceInfo]:
        """Return the instances of an agent, or of all agents, by name; `cursor` is that of the last page."""
        page = await self._rest.list_all_instances(agent=name, status=status, limit=limit, cursor=cursor)
        return page_from_json(InstanceInfo, page)

    async def _all_instances(self, name: str) -> builtins.list[InstanceInfo]:
        """Return all instances of an agent."""
        from wakeful.client.connection import check_next  # the embedded API needs nothing else of it

        found: builtins.list[InstanceInfo] = []
        cursor: str | None = None
        while True:
            page = await self.instances(name, limit=_PAGE, cursor=cursor)
            found += page
            if page.cursor is None:
                return found
            cursor = check_next(cursor, page.cursor)


async def delete_all(delete: DeleteInstance, name: str, id: str, *, erase: bool) -> None:
    """Call `delete` until nothing is left. Once it has begun, other processes may complete the erasure."""
    left = await delete(name, id, erase=erase)
    with contextlib.suppress(NotFound):
        while left:
            left = await delete(name, id, erase=erase)


def to_event(signal: SignalLike) -> dict[str, Json]:
    """Return the CloudEvent of a signal, the text of its type, or a CloudEvent as JSON.

    >>> to_event(Signal("report.generate", id="7"))
    {'specversion': '1.0', 'id': '7', 'type': 'report.generate', 'source': '/client'}
    """
    if isinstance(signal, str):
        signal = Signal(signal)
    elif not isinstance(signal, Signal):
        signal = Signal.from_json({"source": SOURCE, **signal})
    event = signal.to_json()
    return event if "source" in event else cast(dict[str, Json], {**event, "source": SOURCE})


def check_signals(value: object) -> None:
    """Raise InvalidArgument for what `send` cannot send."""
    if not isinstance(value, Sequence) or isinstance(value, bytes):
        raise InvalidArgument(
            f"{quote(value)} is not a signal; give a Signal, the text of its type, a CloudEvent as a "
            "mapping, or a list of them"
        )


def read_states(
    ids: Iterable[str] | Mapping[str, Mapping[str, object] | None],
) -> dict[str, Mapping[str, object] | None]:
    """Return the states by the ids of instances, or raise InvalidArgument.

    >>> read_states(["eu", "us"]), read_states({"eu": {"region": "eu"}})
    ({'eu': None, 'us': None}, {'eu': {'region': 'eu'}})
    """
    if isinstance(ids, Mapping):
        states = dict(ids)
    elif isinstance(ids, str) or not isinstance(ids, Iterable):
        raise InvalidArgument(f"ids: {quote(ids)} is not a list of ids, or a mapping of ids to states")
    else:
        states = dict.fromkeys(ids)
    for each, state in states.items():
        if not isinstance(each, str):
            raise InvalidArgument(f"ids: {quote(each)} is not text; give the id of an instance")
        check_state(state)
    return states


def check_state(value: object) -> None:
    """Raise InvalidArgument for what `start` cannot use as a state."""
    if not isinstance(value, Mapping | None):
        raise InvalidArgument(
            f"state: {quote(value)} is not a mapping; give the keys of the initial state to change"
        )
