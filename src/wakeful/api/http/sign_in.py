"""Sign-in links, and the sign-in sessions of keys, over HTTP. Signing in is a page of the dashboard."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Depends, Request
from starlette.responses import Response

from wakeful.api.http.dependencies import ServicesDep, WorkspaceDep, bearer_principal
from wakeful.api.http.operations import ApiRouter
from wakeful.api.http.responses import JsonResponse, no_content
from wakeful.service.auth.access import Principal
from wakeful.service.report_serializers import WEB_SESSIONS, serialize_sign_in_link

router = ApiRouter("keys", prefix="/api")

_SESSIONS: Final = "/workspaces/{workspace}/keys/{key_id}/sessions"


@router.operation("POST /sign-in-links", "Create a sign-in link", {201: "SignInLink"})
async def create_sign_in_link(
    request: Request, services: ServicesDep, principal: Annotated[Principal, Depends(bearer_principal)]
) -> Response:
    """A link to the dashboard that signs in with the key of this request. It works once, for five minutes.

    A sign-in session cannot create one: send the key. The address is `WAKEFUL_PUBLIC_URL`, else that of this
    request.
    """
    link = await services.auth.web_sessions.create_link(principal)
    base_url = services.public_url or str(request.base_url).rstrip("/")
    return JsonResponse(serialize_sign_in_link(link, base_url), 201, {"Cache-Control": "no-store"})


@router.operation(f"GET {_SESSIONS}", "List the sign-in sessions of a key", "WebSessions")
async def list_key_sessions(key_id: str, about: WorkspaceDep) -> Response:
    """The 100 that were used last. Admins see those of every key, other roles those of their own key."""
    rows = await about.services.auth.web_sessions.list(*about.caller, key_id)
    return JsonResponse({"sessions": [WEB_SESSIONS.to_json(row) for row in rows]})


@router.operation(f"DELETE {_SESSIONS}", "End all sign-in sessions of a key", {204: None})
async def end_key_sessions(key_id: str, about: WorkspaceDep) -> Response:
    """Also ends its sign-in links. The key itself stays valid."""
    await about.services.auth.web_sessions.end_all(*about.caller, key_id)
    return no_content()


@router.operation(f"DELETE {_SESSIONS}/{{session_id}}", "End a sign-in session", {204: None})
async def end_key_session(key_id: str, session_id: str, about: WorkspaceDep) -> Response:
    """Also ends its open event streams."""
    await about.services.auth.web_sessions.end(*about.caller, key_id, session_id)
    return no_content()
