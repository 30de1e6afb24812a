"""Cost over HTTP."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Query
from starlette.responses import Response

from wakeful.api.http.dependencies import SECURED, CurrentPrincipal, ServicesDep
from wakeful.api.http.responses import JsonResponse, responses
from wakeful.service.admin.cost import LISTED, MAX_DAYS
from wakeful.service.cost_serializers import serialize_cost

router: Final = APIRouter(prefix="/api/workspaces/{workspace}", tags=["cost"], dependencies=SECURED)

From = Annotated[
    str | None,
    Query(alias="from", description=f"The first day (UTC), such as 2027-03-01; at most {MAX_DAYS} days."),
]
To = Annotated[str | None, Query(description="The last day (UTC); today by default.")]


@router.get("/cost", summary="Tokens and cost", responses=responses({200: "Cost"}))
async def get_cost(
    workspace: str,
    services: ServicesDep,
    principal: CurrentPrincipal,
    from_: From = None,
    to: To = None,
    agent: Annotated[str | None, Query(description="Only this agent.")] = None,
    limit: Annotated[int, Query(ge=1, le=LISTED, description="How many agents and jobs.")] = 20,
) -> Response:
    """What runs used by day, agent and job, and the budgets with what is left of them today.

    The last 30 days by default. Agents and jobs are found among the 100 most expensive of each day. A key of
    the role `agent` sees its own agent.
    """
    report = await services.cost.report(principal, workspace, first=from_, last=to, agent=agent, limit=limit)
    return JsonResponse(serialize_cost(report))
