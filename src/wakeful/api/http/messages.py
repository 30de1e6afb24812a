"""Messages to an agent over HTTP."""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter, Request
from starlette.responses import Response

from wakeful.api.http.dependencies import SECURED, CurrentPrincipal, ServiceDocument, ServicesDep
from wakeful.api.http.idempotency import IdempotencyKey, respond_once
from wakeful.api.http.responses import BODY, JsonResponse, request_body, responses
from wakeful.service.serializers import serialize_receipt

router = APIRouter(
    prefix="/api/workspaces/{workspace}/agents/{agent}", tags=["sessions"], dependencies=SECURED
)


@router.post(
    "/messages",
    summary="Send a message to an agent",
    status_code=202,
    responses=responses({202: "Receipt"}, *BODY, 409, headers=("Idempotency-Replayed",)),
    openapi_extra=request_body(
        "Message", {"message": "what failed last night?", "session": "telegram:123456789"}
    ),
)
async def send_message(
    workspace: str,
    agent: str,
    request: Request,
    services: ServicesDep,
    principal: CurrentPrincipal,
    document: ServiceDocument,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """A message waits in a session until it becomes part of a turn, which is a run of the agent.

    `/stop` stops the oldest running turn, `/stopall` all turns and drops waiting messages. Both act at once.
    `channel` and `to` say where the message comes from: jobs that are made in the conversation deliver there.
    """
    send = partial(services.messages.send, principal, workspace, agent, document)
    return await respond_once(
        request, principal, workspace, send, lambda receipt: JsonResponse(serialize_receipt(receipt), 202)
    )
