"""Instances of agents over HTTP: list, read, start, stop, pause, resume, hibernate."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final

from fastapi import APIRouter, Query
from starlette.responses import Response

from wakeful.api.http.dependencies import SECURED, CurrentPrincipal, OptionalDocument, ServicesDep
from wakeful.api.http.idempotency import Once
from wakeful.api.http.paging import Cursor, Limit, page, read_cursor
from wakeful.api.http.responses import BODY, JsonResponse, request_body, responses
from wakeful.errors import InvalidArgument
from wakeful.run.instances import InstanceStatus
from wakeful.service.auth.access import Principal
from wakeful.service.instance_serializers import serialize_instance, serialize_instance_details
from wakeful.service.services import Services

router = APIRouter(prefix="/api/workspaces/{workspace}", tags=["instances"], dependencies=SECURED)

_KEPT: Final = ("Idempotency-Replayed",)
_OF_AGENT = "/agents/{agent}/instances"
_ONE = _OF_AGENT + "/{instance}"

OfStatus = Annotated[InstanceStatus | None, Query(description="Only instances with this status.")]


@router.get("/instances", summary="List the instances of all agents", responses=responses({200: "Instances"}))
async def list_all_instances(
    workspace: str,
    services: ServicesDep,
    principal: CurrentPrincipal,
    agent: Annotated[str | None, Query(description="Only of this agent.")] = None,
    status: OfStatus = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """The instances of a workspace by agent and id, without their state."""
    return await _page(services, principal, workspace, agent, status, limit, cursor)


@router.get(_OF_AGENT, summary="List the instances of an agent", responses=responses({200: "Instances"}))
async def list_instances(
    workspace: str,
    agent: str,
    services: ServicesDep,
    principal: CurrentPrincipal,
    status: OfStatus = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """The instances of an agent by id, without their state."""
    return await _page(services, principal, workspace, agent, status, limit, cursor)


@router.get(_ONE, summary="Read an instance", responses=responses({200: "InstanceWithState"}))
async def get_instance(
    workspace: str, agent: str, instance: str, services: ServicesDep, principal: CurrentPrincipal
) -> Response:
    """An instance with its schedules; for an admin with its state.

    `GET /agents/{agent}/runs?instance=` lists its signals.
    """
    details = await services.instances.get(principal, workspace, agent, instance)
    return JsonResponse(serialize_instance_details(principal, details))


@router.post(
    f"{_ONE}/start",
    summary="Start an instance",
    responses=responses({200: "Instance"}, *BODY, 409, 429, headers=_KEPT),
    openapi_extra=request_body("StartInstance", {"state": {"region": "eu"}}, required=False),
)
async def start_instance(
    workspace: str,
    agent: str,
    instance: str,
    services: ServicesDep,
    principal: CurrentPrincipal,
    once: Once,
    body: OptionalDocument,
) -> Response:
    """A new instance, and one that was stopped, begins with its initial state; `state` changes keys of it.

    An instance that is not stopped keeps its state, and gets the schedules that its class declares.
    """
    state = body.get("state")
    if not isinstance(state, dict | None):
        raise InvalidArgument("state: give an object with the keys of the initial state to change")
    start = partial(services.instances.start, principal, workspace, agent, instance, state=state)
    return await once.respond(start, lambda view: JsonResponse(serialize_instance(view)))


@router.post(
    f"{_ONE}/stop", summary="Stop an instance", responses=responses({200: "Instance"}, 409, headers=_KEPT)
)
async def stop_instance(
    workspace: str, agent: str, instance: str, services: ServicesDep, principal: CurrentPrincipal, once: Once
) -> Response:
    """Its schedules are deleted and its runs are cancelled. It accepts no signal until it is started."""
    stop = partial(services.instances.stop, principal, workspace, agent, instance)
    return await once.respond(stop, lambda view: JsonResponse(serialize_instance(view)))


@router.post(
    f"{_ONE}/pause",
    summary="Pause an instance",
    responses=responses({200: "Instance"}, *BODY, 409, headers=_KEPT),
    openapi_extra=request_body("PauseInstance", {"note": "maintenance"}, required=False),
)
async def pause_instance(
    workspace: str,
    agent: str,
    instance: str,
    services: ServicesDep,
    principal: CurrentPrincipal,
    once: Once,
    body: OptionalDocument,
) -> Response:
    """Its signals wait until it is resumed. A run that is running ends."""
    note = body.get("note")
    pause = partial(services.instances.pause, principal, workspace, agent, instance, note=note)
    return await once.respond(pause, lambda view: JsonResponse(serialize_instance(view)))


@router.post(
    f"{_ONE}/resume", summary="Resume an instance", responses=responses({200: "Instance"}, 409, headers=_KEPT)
)
async def resume_instance(
    workspace: str, agent: str, instance: str, services: ServicesDep, principal: CurrentPrincipal, once: Once
) -> Response:
    """An instance that is paused or blocked handles its signals again."""
    resume = partial(services.instances.resume, principal, workspace, agent, instance)
    return await once.respond(resume, lambda view: JsonResponse(serialize_instance(view)))


@router.post(
    f"{_ONE}/hibernate",
    summary="Hibernate an instance",
    responses=responses({200: "Instance"}, 409, headers=_KEPT),
)
async def hibernate_instance(
    workspace: str, agent: str, instance: str, services: ServicesDep, principal: CurrentPrincipal, once: Once
) -> Response:
    """Every process removes it from its memory. Its next signal loads it again."""
    hibernate = partial(services.instances.hibernate, principal, workspace, agent, instance)
    return await once.respond(hibernate, lambda view: JsonResponse(serialize_instance(view)))


async def _page(
    services: Services,
    principal: Principal,
    workspace: str,
    agent: str | None,
    status: InstanceStatus | None,
    limit: int,
    cursor: str | None,
) -> Response:
    scope = ("instances", workspace, agent, status)
    after = None
    if cursor is not None:
        of_agent, name = read_cursor(cursor, scope, str, str)
        after = str(of_agent), str(name)
    found = await services.instances.list(
        principal, workspace, agent, status=status, after=after, limit=limit + 1
    )
    shown, following = page(found, limit, scope, lambda view: (view.row.agent, view.row.name))
    return JsonResponse({"instances": [serialize_instance(view) for view in shown], "cursor": following})
