"""Speaking to an agent over HTTP, and where what was said waits."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from wakeful.api.http.dependencies import SECURED, CurrentPrincipal, ServiceDocument, ServicesDep
from wakeful.api.http.idempotency import IdempotencyKey, once
from wakeful.api.http.paging import Cursor, Limit, page, read_cursor
from wakeful.api.http.responses import BODY, JsonAnswer, takes, told
from wakeful.service.agents.messages import Receipt
from wakeful.service.serializers import receipt_shape, session_shape
from wakeful.store.idempotency import Keyed

router = APIRouter(
    prefix="/api/workspaces/{workspace}/agents/{agent}", tags=["sessions"], dependencies=SECURED
)


@router.post(
    "/messages",
    summary="Say something to an agent",
    status_code=202,
    responses=told({202: "Receipt"}, *BODY, 409, headers=("Idempotency-Replayed",)),
    openapi_extra=takes("Message", {"message": "what failed last night?", "session": "telegram:123456789"}),
)
async def send_message(
    workspace: str,
    agent: str,
    request: Request,
    here: ServicesDep,
    who: CurrentPrincipal,
    document: ServiceDocument,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """A message waits in a session until it becomes part of a turn, which is a run of the agent.

    `/stop` ends the oldest turn that is under way, `/stopall` all of them and what waits: both at once.
    """

    async def act(keyed: Keyed[Receipt] | None) -> Receipt:
        return await here.messages.say(who, workspace, agent, document, keyed=keyed)

    return await once(request, who, workspace, act, lambda receipt: JsonAnswer(receipt_shape(receipt), 202))


@router.get("/sessions", summary="List the sessions of an agent", responses=told({200: "Sessions"}))
async def list_sessions(
    workspace: str,
    agent: str,
    here: ServicesDep,
    who: CurrentPrincipal,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """Its conversations by name: what waits in each, and what is under way."""
    scope = ["sessions", workspace, agent]
    after = str(read_cursor(cursor, scope, str)[0]) if cursor is not None else None
    found = await here.messages.sessions(who, workspace, agent, after, limit + 1)
    sessions, following = page(found, limit, scope, lambda session: [session.name])
    return JsonAnswer({"sessions": [session_shape(session) for session in sessions], "cursor": following})
