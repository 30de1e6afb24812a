"""Workspaces and agents over HTTP."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from wakeful.api.http.dependencies import SECURED, CurrentPrincipal, ServiceDocument, ServicesDep
from wakeful.api.http.responses import BODY, JsonAnswer, nothing, place, takes, told
from wakeful.service.serializers import Shape, agent_shape, saved_agent_shape, workspace_shape

router = APIRouter(prefix="/api/workspaces", dependencies=SECURED)


@router.get("", tags=["workspaces"], summary="List workspaces", responses=told({200: "Workspaces"}))
async def list_workspaces(here: ServicesDep, who: CurrentPrincipal) -> Response:
    """Those that the key belongs to."""
    return JsonAnswer({"workspaces": [workspace_shape(who, row) for row in await here.workspaces.list(who)]})


@router.get(
    "/{workspace}", tags=["workspaces"], summary="Read a workspace", responses=told({200: "Workspace"})
)
async def get_workspace(workspace: str, here: ServicesDep, who: CurrentPrincipal) -> Response:
    """A tenant: its zone, what it is for, and what it has used today."""
    shape = workspace_shape(who, await here.workspaces.get(who, workspace))
    return JsonAnswer({**shape, "spent": await here.budgets.spent(workspace)})


@router.put(
    "/{workspace}",
    tags=["workspaces"],
    summary="Create or change a workspace",
    responses=told({200: "Workspace", 201: "Workspace"}, *BODY, headers=("Location",)),
    openapi_extra=takes("WorkspaceDocument", {"tz": "Europe/Berlin", "description": "ACME"}),
)
async def put_workspace(
    workspace: str, here: ServicesDep, who: CurrentPrincipal, document: ServiceDocument
) -> Response:
    """It takes a key for all workspaces, such as the one of the first start."""
    row, created = await here.workspaces.put(who, workspace, document)
    shape: Shape = {**workspace_shape(who, row), "spent": await here.budgets.spent(workspace)}
    return _put(shape, created, place(workspace))


@router.get("/{workspace}/agents", tags=["agents"], summary="List agents", responses=told({200: "Agents"}))
async def list_agents(workspace: str, here: ServicesDep, who: CurrentPrincipal) -> Response:
    """All of a workspace, by name; an agent sees itself."""
    return JsonAnswer({"agents": [agent_shape(who, row) for row in await here.agents.list(who, workspace)]})


@router.get(
    "/{workspace}/agents/{agent}", tags=["agents"], summary="Read an agent", responses=told({200: "Agent"})
)
async def get_agent(workspace: str, agent: str, here: ServicesDep, who: CurrentPrincipal) -> Response:
    """Who is woken, and where, and what it has used today."""
    shape = agent_shape(who, await here.agents.get(who, workspace, agent))
    return JsonAnswer({**shape, "spent": await here.budgets.spent(workspace, agent)})


@router.put(
    "/{workspace}/agents/{agent}",
    tags=["agents"],
    summary="Create or change an agent",
    responses=told({200: "SavedAgent", 201: "SavedAgent"}, *BODY, 409, headers=("Location",)),
    openapi_extra=takes(
        "AgentDocument", {"target": {"kind": "pull"}, "tz": "Europe/Berlin", "description": "writes"}
    ),
)
async def put_agent(
    workspace: str, agent: str, here: ServicesDep, who: CurrentPrincipal, document: ServiceDocument
) -> Response:
    """Make it what the document says; what that leaves out is at its default.

    An agent that is given a webhook gets a `secret`, which is shown here and never again.
    """
    saved = await here.agents.put(who, workspace, agent, document)
    shape = {**saved_agent_shape(who, saved), "spent": await here.budgets.spent(workspace, agent)}
    return _put(shape, saved.created, place(workspace, "agents", agent))


@router.post(
    "/{workspace}/agents/{agent}/rotate-secret",
    tags=["agents"],
    summary="Give an agent a new webhook secret",
    responses=told({200: "SavedAgent"}, 409),
)
async def rotate_agent_secret(
    workspace: str, agent: str, here: ServicesDep, who: CurrentPrincipal
) -> Response:
    """It signs the webhooks that its jobs inherit, for a day beside the old one. It is not shown again."""
    saved = await here.agents.rotate_secret(who, workspace, agent)
    return JsonAnswer({**saved_agent_shape(who, saved), "spent": await here.budgets.spent(workspace, agent)})


@router.delete(
    "/{workspace}/agents/{agent}",
    tags=["agents"],
    summary="Delete an agent",
    status_code=204,
    responses=told({204: None}, 409),
)
async def delete_agent(workspace: str, agent: str, here: ServicesDep, who: CurrentPrincipal) -> Response:
    """One that has no jobs; its runs can still be seen."""
    await here.agents.delete(who, workspace, agent)
    return nothing()


def _put(shape: Shape, created: bool, location: str) -> Response:
    return JsonAnswer(shape, 201, {"Location": location}) if created else JsonAnswer(shape)
