"""Incidents over HTTP: list, read, acknowledge."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final

from fastapi import APIRouter, Query
from starlette.responses import Response

from wakeful.api.http.dependencies import SECURED, CurrentPrincipal, OptionalDocument, ServicesDep
from wakeful.api.http.idempotency import Once
from wakeful.api.http.paging import Cursor, Limit, page, read_cursor
from wakeful.api.http.responses import BODY, JsonResponse, request_body, responses
from wakeful.run.incidents import INCIDENT_STATES
from wakeful.service.serializers import serialize_incident

router: Final = APIRouter(
    prefix="/api/workspaces/{workspace}/incidents", tags=["incidents"], dependencies=SECURED
)

States = Annotated[
    str | None,
    Query(
        description=f"Only in these states, with commas: some of {', '.join(INCIDENT_STATES)}.",
    ),
]


@router.get("", summary="List incidents", responses=responses({200: "Incidents"}))
async def list_incidents(
    workspace: str,
    services: ServicesDep,
    principal: CurrentPrincipal,
    state: States = None,
    agent: Annotated[str | None, Query(description="Only of this agent.")] = None,
    job: Annotated[
        str | None, Query(max_length=64, description="Only of this job: its id, or its name.")
    ] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """Failures of one job with one cause are one incident. Newest first."""
    states = [each.strip() for each in state.split(",") if each.strip()] if state else []
    scope = ["incidents", workspace, principal.agent, agent, job, sorted(states)]
    before = str(read_cursor(cursor, scope, str)[0]) if cursor else None
    found = await services.incidents.list(
        principal, workspace, agent=agent, job=job, states=states, before=before, limit=limit + 1
    )
    shown, following = page(found, limit, scope, lambda incident: [incident.id])
    return JsonResponse({"incidents": list(map(serialize_incident, shown)), "cursor": following})


@router.get("/{incident_id}", summary="Get an incident", responses=responses({200: "Incident"}))
async def get_incident(
    workspace: str, incident_id: str, services: ServicesDep, principal: CurrentPrincipal
) -> Response:
    """An incident stays readable after its job was deleted."""
    return JsonResponse(serialize_incident(await services.incidents.get(principal, workspace, incident_id)))


@router.post(
    "/{incident_id}/ack",
    summary="Acknowledge an incident",
    responses=responses({200: "Incident"}, *BODY, 409, headers=("Idempotency-Replayed",)),
    openapi_extra=request_body("Acknowledgement", {"note": "the database is being moved"}, required=False),
)
async def acknowledge_incident(
    workspace: str,
    incident_id: str,
    services: ServicesDep,
    principal: CurrentPrincipal,
    once: Once,
    body: OptionalDocument,
) -> Response:
    """No reminder follows. Acknowledging it again changes nothing. Requires the role admin or member."""
    acknowledge = partial(services.incidents.acknowledge, principal, workspace, incident_id, body.get("note"))
    return await once.respond(acknowledge, lambda found: JsonResponse(serialize_incident(found)))
