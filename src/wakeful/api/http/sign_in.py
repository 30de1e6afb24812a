"""Sign-in links, and the sign-in sessions of keys, over HTTP. Signing in is a page of the dashboard."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from wakeful.api.http.dependencies import (
    SECURED,
    CurrentPrincipal,
    ServicesDep,
    WorkspaceDep,
    bearer_principal,
)
from wakeful.api.http.responses import JsonResponse, no_content, responses
from wakeful.service.report_serializers import WEB_SESSIONS, serialize_sign_in_link

router = APIRouter(tags=["keys"], dependencies=SECURED)

_SESSIONS: Final = "/api/workspaces/{workspace}/keys/{key_id}/sessions"


@router.post(
    "/api/sign-in-links",
    status_code=201,
    dependencies=[Depends(bearer_principal)],
    summary="Create a sign-in link",
    responses=responses({201: "SignInLink"}),
)
async def create_sign_in_link(
    request: Request, services: ServicesDep, principal: CurrentPrincipal
) -> Response:
    """A link to the dashboard that signs in with the key of this request. It works once, for five minutes.

    A sign-in session cannot create one: send the key. The address is `WAKEFUL_PUBLIC_URL`, else that of this
    request.
    """
    link = await services.auth.web_sessions.create_link(principal)
    base_url = services.public_url or str(request.base_url).rstrip("/")
    return JsonResponse(serialize_sign_in_link(link, base_url), 201, {"Cache-Control": "no-store"})


@router.get(
    _SESSIONS, summary="List the sign-in sessions of a key", responses=responses({200: "WebSessions"})
)
async def list_key_sessions(key_id: str, about: WorkspaceDep) -> Response:
    """The 100 that were used last. Admins see those of every key, other roles those of their own key."""
    rows = await about.services.auth.web_sessions.list(*about.caller, key_id)
    return JsonResponse({"sessions": [WEB_SESSIONS.to_json(row) for row in rows]})


@router.delete(
    _SESSIONS,
    status_code=204,
    summary="End all sign-in sessions of a key",
    responses=responses({204: None}),
)
async def end_key_sessions(key_id: str, about: WorkspaceDep) -> Response:
    """Also ends its sign-in links. The key itself stays valid."""
    await about.services.auth.web_sessions.end_all(*about.caller, key_id)
    return no_content()


@router.delete(
    _SESSIONS + "/{session_id}",
    status_code=204,
    summary="End a sign-in session",
    responses=responses({204: None}),
)
async def end_key_session(key_id: str, session_id: str, about: WorkspaceDep) -> Response:
    """Also ends its open event streams."""
    await about.services.auth.web_sessions.end(*about.caller, key_id, session_id)
    return no_content()
