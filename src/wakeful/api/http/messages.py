"""Messages and sessions of an agent over HTTP."""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter, Request
from starlette.responses import Response

from wakeful.api.http.dependencies import SECURED, CurrentPrincipal, ServiceDocument, ServicesDep
from wakeful.api.http.idempotency import IdempotencyKey, respond_once
from wakeful.api.http.paging import Cursor, Limit, page, read_cursor
from wakeful.api.http.responses import BODY, JsonResponse, request_body, responses
from wakeful.service.serializers import serialize_receipt, serialize_session

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
    """
    send = partial(services.messages.send, principal, workspace, agent, document)
    return await respond_once(
        request, principal, workspace, send, lambda receipt: JsonResponse(serialize_receipt(receipt), 202)
    )


@router.get("/sessions", summary="List the sessions of an agent", responses=responses({200: "Sessions"}))
async def list_sessions(
    workspace: str,
    agent: str,
    services: ServicesDep,
    principal: CurrentPrincipal,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """The sessions by name, with their waiting messages and running turns."""
    scope = ["sessions", workspace, agent]
    after = str(read_cursor(cursor, scope, str)[0]) if cursor is not None else None
    found = await services.messages.sessions(principal, workspace, agent, after, limit + 1)
    sessions, following = page(found, limit, scope, lambda session: [session.name])
    return JsonResponse(
        {"sessions": [serialize_session(session) for session in sessions], "cursor": following}
    )
