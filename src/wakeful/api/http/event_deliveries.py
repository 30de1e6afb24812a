"""The callback of subscriptions to events of other MCP servers (`on`)."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from wakeful.api.http.dependencies import ServicesDep
from wakeful.api.http.responses import BODY, JsonResponse, no_content, responses
from wakeful.errors import NotFound

router = APIRouter()

_GONE: Final = 410


@router.post(
    "/hooks/events/{source}",
    tags=["hooks"],
    status_code=204,
    summary="Receive an event for a job",
    responses=responses(
        {200: "EventChallenge", 204: None, 410: None}, *(401, 403, 409, 422, 503, *BODY), always=False
    ),
)
async def receive_event(source: str, request: Request, services: ServicesDep) -> Response:
    """A message of an MCP server to which a job has subscribed (`on`), signed as in Standard Webhooks.

    An event that was received is not received again. A verification is answered with its challenge. 410: the
    subscription has ended.
    """
    headers = {name.lower(): value for name, value in request.headers.items()}
    try:
        answer = await services.jobs.events.receive(source, headers, await request.body())
    except NotFound:
        return Response(status_code=_GONE)
    return no_content() if answer is None else JsonResponse(answer)
