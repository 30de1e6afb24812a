"""Search over HTTP: jobs, agents and runs by what a person types."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from wakeful.api.http.dependencies import SECURED, CurrentPrincipal, ServicesDep
from wakeful.api.http.responses import JsonResponse, responses
from wakeful.service.jobs.job_query import LONGEST

router = APIRouter(prefix="/api/workspaces/{workspace}", tags=["jobs"], dependencies=SECURED)


@router.get("/search", summary="Find jobs, agents and runs", responses=responses({200: "SearchResult"}))
async def search(
    workspace: str,
    services: ServicesDep,
    principal: CurrentPrincipal,
    q: Annotated[
        str, Query(max_length=LONGEST, description="A part of a name, or the beginning of the id of a run.")
    ] = "",
) -> Response:
    """A few jobs and agents whose names have the text, and runs whose ids begin with it."""
    found = await services.search.search(principal, workspace, q)
    return JsonResponse(
        {
            "jobs": [
                {"id": job.id, "agentId": job.agent, "name": job.name, "enabled": job.enabled}
                for job in found.jobs
            ],
            "agents": [*found.agents],
            "runs": [
                {"id": run.id, "agentId": run.agent, "job": run.job_name, "state": run.state}
                for run in found.runs
            ],
        }
    )
