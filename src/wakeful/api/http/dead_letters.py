"""Dead letters over HTTP: list, replay, discard."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from wakeful.api.http.dependencies import SECURED, CurrentPrincipal, Document, ServicesDep
from wakeful.api.http.idempotency import IdempotencyKey, respond_once
from wakeful.api.http.paging import Cursor, Limit
from wakeful.api.http.responses import BODY, JsonResponse, request_body, responses
from wakeful.api.http.runs import runs_page
from wakeful.errors import InvalidArgument

router = APIRouter(
    prefix="/api/workspaces/{workspace}/dead-letters", tags=["dead letters"], dependencies=SECURED
)


@router.get("", summary="List dead letters", responses=responses({200: "DeadLetters"}))
async def list_dead_letters(
    workspace: str,
    services: ServicesDep,
    principal: CurrentPrincipal,
    agent: Annotated[str | None, Query(description="Only of this agent.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """Failed runs that were not replayed or discarded, newest first."""
    return await runs_page(
        services, principal, workspace, agent, dead=True, limit=limit, cursor=cursor, name="deadLetters"
    )


@router.post(
    "/replay",
    summary="Replay dead letters",
    responses=responses({200: "Replayed"}, *BODY, 409, headers=("Idempotency-Replayed",)),
    openapi_extra=request_body("WhichDeadLetters", {"all": True}),
)
async def replay_dead_letters(
    workspace: str,
    request: Request,
    services: ServicesDep,
    principal: CurrentPrincipal,
    body: Document,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """The named ones, or with `all` the oldest thousand. Runs that are not dead letters are left out."""
    replay = partial(services.runs.replay_many, principal, workspace, _ids(body))
    return await respond_once(
        request, principal, workspace, replay, lambda ids: JsonResponse({"replayed": list(ids)})
    )


@router.post(
    "/discard",
    summary="Discard dead letters",
    responses=responses({200: "Discarded"}, *BODY),
    openapi_extra=request_body("WhichDeadLetters", {"ids": ["01980000-0000-7000-8000-000000000000"]}),
)
async def discard_dead_letters(
    workspace: str, services: ServicesDep, principal: CurrentPrincipal, body: Document
) -> Response:
    """Discard permanently, selected in the same way; their runs stay readable."""
    ids = _ids(body)
    return JsonResponse({"discarded": list(await services.runs.discard_many(principal, workspace, ids))})


def _ids(body: dict[str, object]) -> list[str] | None:
    """Return the ids; None for all, which must be requested explicitly."""
    ids, everything = body.get("ids"), body.get("all")
    if everything is True and ids is None:
        return None
    if isinstance(ids, list) and all(isinstance(each, str) for each in ids) and not everything:
        return ids
    raise InvalidArgument('select dead letters: {"ids": ["…"]} for some of them, or {"all": true}')
