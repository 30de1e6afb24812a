"""Instances of agents over HTTP: list, read, start, stop, pause, resume, hibernate, delete, send signals.

Signals are CloudEvents 1.0 in structured, binary or batch mode.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Final

from fastapi import Query, Request
from starlette.responses import Response

from wakeful.api.http.dependencies import (
    Document,
    OptionalDocument,
    WorkspaceDep,
    WorkspaceRequest,
)
from wakeful.api.http.idempotency import Once
from wakeful.api.http.operations import WORKSPACE, ApiRouter
from wakeful.api.http.paging import Cursor, Limit, OfAgent, page, read_cursor
from wakeful.api.http.paths import INSTANCE
from wakeful.api.http.problems import Malformed
from wakeful.api.http.responses import JsonResponse, ref
from wakeful.errors import InvalidArgument
from wakeful.job.job import DEFAULT_INSTANCE
from wakeful.run.instances import InstanceStatus
from wakeful.service.agents.instances import MAX_STARTED
from wakeful.service.serializers import (
    serialize_instance,
    serialize_instance_details,
    serialize_sent,
    serialize_started,
)
from wakeful.signal.requests import BATCH, STRUCTURED, SignalRequest, read_request
from wakeful.signal.signals import NotJson
from wakeful.values.json_value import Json

router = ApiRouter("instances")
signals_router = ApiRouter("instances", prefix=f"{WORKSPACE}/agents/{{agent}}")

_OF_AGENT = "/agents/{agent}/instances"
_ONE = f"{_OF_AGENT}/{INSTANCE}"

OfStatus = Annotated[InstanceStatus | None, Query(description="Only instances with this status.")]

_EXAMPLE: Final[Json] = {
    "specversion": "1.0",
    "id": "invoice-17",
    "source": "/billing",
    "type": "invoice.paid",
    "data": {"amount": 120},
}


@router.operation("GET /instances", "List the instances of all agents", "Instances")
async def list_all_instances(
    about: WorkspaceDep,
    agent: OfAgent = None,
    status: OfStatus = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """The instances of a workspace by agent and id, without their state."""
    return await _page(about, agent, status, limit, cursor)


@router.operation(f"GET {_OF_AGENT}", "List the instances of an agent", "Instances")
async def list_instances(
    agent: str, about: WorkspaceDep, status: OfStatus = None, limit: Limit = 50, cursor: Cursor = None
) -> Response:
    """The instances of an agent by id, without their state."""
    return await _page(about, agent, status, limit, cursor)


@router.operation(f"GET {_ONE}", "Read an instance", "InstanceWithState")
async def get_instance(agent: str, instance: str, about: WorkspaceDep) -> Response:
    """An instance with its schedules; for an admin with its state.

    `GET /agents/{agent}/runs?instance=` lists its signals.
    """
    details = await about.services.agents.instances.get(*about.caller, agent, instance)
    rights = await about.services.rights.load(*about.caller, (agent,))
    return JsonResponse(serialize_instance_details(about.principal, details, rights))


@router.operation(
    f"POST {_ONE}/start",
    "Start an instance",
    "Instance",
    409,
    body=("StartInstance", {"state": {"region": "eu"}}),
)
async def start_instance(agent: str, instance: str, once: Once, body: OptionalDocument) -> Response:
    """A new instance, and one that was stopped, begins with its initial state; `state` changes keys of it.

    An instance that is not stopped keeps its state, and gets the schedules that its class declares. Another
    state is refused, unless it is to `replace` the one that the instance has.
    """
    start = partial(
        once.services.agents.instances.start, *once.caller, agent, instance,
        state=_read_state(body), replace=_read_replace(body),
    )  # fmt: skip
    return await once.respond(start, lambda view: JsonResponse(serialize_instance(view)))


@router.operation(
    f"POST {_OF_AGENT}/start",
    "Start several instances",
    "StartedInstances",
    409,
    body=("StartInstances", {"instances": [{"id": "eu"}, {"id": "us", "state": {"region": "us"}}]}),
)
async def start_instances(agent: str, once: Once, body: Document) -> Response:
    """Start up to 1,000 instances in one transaction, each as where one is started.

    Those that cannot be started are in `errors`, by their `id`; the others are started.
    """
    states = _read_states(body)
    start = partial(
        once.services.agents.instances.start_many, *once.caller, agent, states, replace=_read_replace(body)
    )
    return await once.respond(start, lambda started: JsonResponse(serialize_started(started)))


@router.operation(f"DELETE {_ONE}", "Delete an instance", {204: None, 202: "Instance"}, 409)
async def delete_instance(
    agent: str,
    instance: str,
    about: WorkspaceDep,
    erase: Annotated[bool, Query(description="Delete its runs too, with all that they contain.")] = False,
) -> Response:
    """Its state, mailbox and schedules are deleted, and its runs are cancelled; ended runs stay.

    With `erase` they do not stay, and neither does what they contain: signals, outputs, errors, attempts,
    conversations. If that takes more than some seconds, the response is 202 and the instance is `deleting`;
    the erasure continues, and the same request waits on.
    """
    left = await about.services.agents.instances.delete(*about.caller, agent, instance, erase=erase)
    return Response(status_code=204) if left is None else JsonResponse(serialize_instance(left), 202)


@router.operation(f"POST {_ONE}/stop", "Stop an instance", "Instance", 409)
async def stop_instance(agent: str, instance: str, once: Once) -> Response:
    """Its schedules are deleted and its runs are cancelled. It accepts no signal until it is started."""
    stop = partial(once.services.agents.instances.stop, *once.caller, agent, instance)
    return await once.respond(stop, lambda view: JsonResponse(serialize_instance(view)))


@router.operation(
    f"POST {_ONE}/pause",
    "Pause an instance",
    "Instance",
    409,
    body=("PauseInstance", {"note": "maintenance"}),
)
async def pause_instance(agent: str, instance: str, once: Once, body: OptionalDocument) -> Response:
    """Its signals wait until it is resumed. A run that is running ends."""
    note = body.get("note")
    pause = partial(once.services.agents.instances.pause, *once.caller, agent, instance, note=note)
    return await once.respond(pause, lambda view: JsonResponse(serialize_instance(view)))


@router.operation(f"POST {_ONE}/resume", "Resume an instance", "Instance", 409)
async def resume_instance(agent: str, instance: str, once: Once) -> Response:
    """An instance that is paused or blocked handles its signals again."""
    resume = partial(once.services.agents.instances.resume, *once.caller, agent, instance)
    return await once.respond(resume, lambda view: JsonResponse(serialize_instance(view)))


@router.operation(f"POST {_ONE}/hibernate", "Hibernate an instance", "Instance", 409)
async def hibernate_instance(agent: str, instance: str, once: Once) -> Response:
    """Every process removes it from its memory. Its next signal loads it again."""
    hibernate = partial(once.services.agents.instances.hibernate, *once.caller, agent, instance)
    return await once.respond(hibernate, lambda view: JsonResponse(serialize_instance(view)))


def _read_state(document: Mapping[str, object]) -> dict[str, object] | None:
    state = document.get("state")
    if not isinstance(state, dict | None):
        raise InvalidArgument("state: give an object with the keys of the initial state to change")
    return state


def _read_replace(document: Mapping[str, object]) -> bool:
    replace = document.get("replace")
    if not isinstance(replace, bool | None):
        raise InvalidArgument("replace: write true or false")
    return bool(replace)


def _read_states(document: Mapping[str, object]) -> dict[str, Mapping[str, object] | None]:
    """Return the states of the instances to start, by their names."""
    given = document.get("instances")
    if not isinstance(given, list) or not 1 <= len(given) <= MAX_STARTED:
        raise InvalidArgument(f"instances: write a list of 1 to {MAX_STARTED} instances, each with its id")
    states: dict[str, Mapping[str, object] | None] = {}
    for each in given:
        name = each.get("id") if isinstance(each, dict) else None
        if not isinstance(name, str):
            raise InvalidArgument('instances: write each as an object with its id, such as {"id": "eu"}')
        if name in states:
            raise InvalidArgument(f"instances: '{name[:64]}' is there twice")
        states[name] = _read_state(each)
    return states


async def _page(
    about: WorkspaceRequest,
    agent: str | None,
    status: InstanceStatus | None,
    limit: int,
    cursor: str | None,
) -> Response:
    scope = ("instances", about.workspace, agent, status)
    after = None
    if cursor is not None:
        of_agent, name = read_cursor(cursor, scope, str, str)
        after = str(of_agent), str(name)
    found = await about.services.agents.instances.list(
        *about.caller, agent, status=status, after=after, limit=limit + 1
    )
    shown, following = page(found, limit, scope, lambda view: (view.row.agent, view.row.name))
    rights = await about.services.rights.load(*about.caller)
    instances: list[Json] = [serialize_instance(view, rights) for view in shown]
    return JsonResponse({"instances": instances, "cursor": following})


def _body() -> dict[str, Any]:
    """Return the content of a request by media type. In binary mode it is the data alone."""
    one = {"schema": ref("Signal"), "example": _EXAMPLE}
    batch = {"schema": ref("SignalBatch"), "example": [_EXAMPLE]}
    return {"application/json": one, STRUCTURED: one, BATCH: batch}


@signals_router.operation("POST /signals", "Send signals to an instance", {202: "Sent"}, 409, body=_body())
async def send_signals(
    agent: str,
    once: Once,
    instance: Annotated[
        str,
        Query(description="The instance; it is created if it does not exist."),
    ] = DEFAULT_INSTANCE,
) -> Response:
    """A CloudEvent: structured, binary (attributes in `ce-` headers, data in the body), or a batch of them.

    Each signal becomes a run, which is the response; the response to a batch has the `runs`. All signals of a
    batch are stored, or none. If the instance has received the `source` and `id` of a signal before, the
    response has the first run and `duplicate` is true.
    """
    received = await _read(once.request)
    send = partial(once.services.agents.signals.send, *once.caller, agent, instance, received.signals)
    return await once.respond_keyed(
        send,
        lambda sent: JsonResponse(serialize_sent(sent, batch=received.batch), 202),
    )


async def _read(request: Request) -> SignalRequest:
    try:
        return read_request(request.headers, await request.body())
    except NotJson as error:
        raise Malformed(error.message) from None
