"""Actions on several jobs over HTTP: pause, resume, run and delete; jobs are named, or found by a filter."""

from __future__ import annotations

from functools import partial
from typing import Final

from fastapi import APIRouter
from starlette.responses import Response

from wakeful.api.http.dependencies import SECURED, CurrentPrincipal, Document, ServicesDep
from wakeful.api.http.idempotency import Once
from wakeful.api.http.responses import BODY, JsonResponse, request_body, responses
from wakeful.errors import InvalidArgument
from wakeful.service.jobs.job_selection import read_selection
from wakeful.service.serializers import serialize_bulk_result, serialize_bulk_runs

_KEPT: Final = ("Idempotency-Replayed",)

router = APIRouter(prefix="/api/workspaces/{workspace}/jobs", tags=["jobs"], dependencies=SECURED)


@router.post(
    "/pause",
    summary="Pause several jobs",
    responses=responses({200: "BulkResult"}, *BODY, 409, headers=_KEPT),
    openapi_extra=request_body("BulkPause", {"agent": "ops", "label": ["team=ops"], "note": "maintenance"}),
)
async def pause_jobs(
    workspace: str, services: ServicesDep, principal: CurrentPrincipal, once: Once, body: Document
) -> Response:
    """The named jobs, or the enabled jobs that the filter finds. `dryRun` counts them and changes nothing.

    An unknown name changes nothing. A job that cannot be paused is in `errors`; the others are paused.
    """
    operation = partial(
        services.jobs.pause_many,
        principal,
        workspace,
        read_selection(body),
        note=body.get("note"),
        until=body.get("until"),
        dry_run=_dry_run(body),
    )
    return await once.respond(operation, lambda result: JsonResponse(serialize_bulk_result(result)))


@router.post(
    "/resume",
    summary="Resume several jobs",
    responses=responses({200: "BulkResult"}, *BODY, 409, headers=_KEPT),
    openapi_extra=request_body("BulkResume", {"agent": "ops", "dryRun": True}),
)
async def resume_jobs(
    workspace: str, services: ServicesDep, principal: CurrentPrincipal, once: Once, body: Document
) -> Response:
    """The named jobs, or the paused jobs that the filter finds. `dryRun` counts them and changes nothing."""
    operation = partial(
        services.jobs.resume_many, principal, workspace, read_selection(body), dry_run=_dry_run(body)
    )
    return await once.respond(operation, lambda result: JsonResponse(serialize_bulk_result(result)))


@router.post(
    "/run",
    summary="Run several jobs",
    responses=responses({200: "BulkRuns"}, *BODY, 409, headers=_KEPT),
    openapi_extra=request_body("BulkRun", {"jobs": ["digest", "ops/tidy"]}),
)
async def run_jobs(
    workspace: str, services: ServicesDep, principal: CurrentPrincipal, once: Once, body: Document
) -> Response:
    """The named jobs, or the enabled jobs that the filter finds: at most 1,000 of them.

    Each is run as by `POST …/jobs/{name}/run`. A job that cannot be run is in `errors`; the others are run.
    """
    operation = partial(
        services.jobs.run_many,
        principal,
        workspace,
        read_selection(body),
        mode=body.get("mode", "force"),
        payload=body.get("payload"),
        overlap=body.get("overlapPolicy"),
        dry_run=_dry_run(body),
    )
    return await once.respond(operation, lambda result: JsonResponse(serialize_bulk_runs(result)))


@router.post(
    "/delete",
    summary="Delete several jobs",
    responses=responses({200: "BulkResult"}, *BODY, 409, headers=_KEPT),
    openapi_extra=request_body("BulkDelete", {"agent": "ops", "label": ["team=ops"], "dryRun": True}),
)
async def delete_jobs(
    workspace: str, services: ServicesDep, principal: CurrentPrincipal, once: Once, body: Document
) -> Response:
    """The named jobs, or those that the filter finds: at most 1,000 of them.

    Each is deleted as by `DELETE …/jobs/{name}`. A job that cannot be deleted is in `errors`.
    """
    operation = partial(
        services.jobs.delete_many, principal, workspace, read_selection(body), dry_run=_dry_run(body)
    )
    return await once.respond(operation, lambda result: JsonResponse(serialize_bulk_result(result)))


def _dry_run(body: dict[str, object]) -> bool:
    value = body.get("dryRun")
    if value is not None and not isinstance(value, bool):
        raise InvalidArgument("dryRun: write true or false")
    return value is True
