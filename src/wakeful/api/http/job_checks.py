"""What is known about a job before it is saved, over HTTP: its schedule, its target, and its texts."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from wakeful.api.http.dependencies import SECURED, CurrentPrincipal, Document, ServicesDep
from wakeful.api.http.responses import BODY, JsonResponse, request_body, responses
from wakeful.job.job import Json
from wakeful.service.job_check_serializers import (
    serialize_preview,
    serialize_snippets,
    serialize_target_test,
)

router = APIRouter(prefix="/api/workspaces/{workspace}", tags=["jobs"], dependencies=SECURED)

_SCHEDULE: Final[dict[str, Json]] = {"schedule": "30 2 * * *", "tz": "Europe/Berlin", "count": 5}
_TARGET: Final[dict[str, Json]] = {
    "name": "digest",
    "target": {"kind": "webhook", "url": "https://example.com/hook"},
    "payload": {"to": "me"},
}


@router.post(
    "/schedules/preview",
    summary="Preview a schedule",
    responses=responses({200: "SchedulePreview"}, *BODY),
    openapi_extra=request_body("SchedulePreviewRequest", _SCHEDULE),
)
async def preview_schedule(
    workspace: str, services: ServicesDep, principal: CurrentPrincipal, document: Document
) -> Response:
    """A schedule in words, its next ticks with clock changes, and a quieter minute if many jobs start then.

    It takes the fields of a job that determine its ticks, and has the errors of a creation.
    """
    found = await services.schedule_previews.preview(principal, workspace, document)
    return JsonResponse(serialize_preview(found))


@router.post(
    "/agents/{agent}/jobs/test-target",
    summary="Test a target",
    responses=responses({200: "TargetTest"}, *BODY, 429),
    openapi_extra=request_body("TargetTestRequest", _TARGET),
)
async def test_target(
    workspace: str, agent: str, services: ServicesDep, principal: CurrentPrincipal, document: Document
) -> Response:
    """Send one signed request to a webhook, as a run does, and return both the request and the response.

    Other kinds are only checked: whether a function is registered, a command allowed, a key of a model
    configured, an executor connected. A test is no run, and is not retried.
    """
    found = await services.target_tests.test(principal, workspace, agent, document)
    return JsonResponse(serialize_target_test(found))


@router.post(
    "/agents/{agent}/jobs/snippets",
    summary="Write a job as YAML, curl, CLI and Python",
    responses=responses({200: "JobSnippets"}, *BODY),
    openapi_extra=request_body("JobDraft", {"name": "digest", "schedule": "0 7 * * 1-5"}),
)
async def write_job_snippets(
    workspace: str,
    agent: str,
    request: Request,
    services: ServicesDep,
    principal: CurrentPrincipal,
    document: Document,
) -> Response:
    """The texts that create the job of a document. It is not validated, and nothing is saved."""
    base_url = services.public_url or str(request.base_url).rstrip("/")
    texts = await services.job_texts.write(principal, workspace, agent, document, base_url)
    return JsonResponse(serialize_snippets(texts))
