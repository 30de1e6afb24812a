"""Signing in and out.

Both are plain forms, which work without JavaScript. The key is sent once and not stored in the browser.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from wakeful.api.http.dependencies import ServicesDep, address_of
from wakeful.api.http.problems import Malformed
from wakeful.api.http.session_cookie import (
    check_change,
    check_own_page,
    clear_session,
    session_token,
    set_session,
)
from wakeful.dashboard.local_paths import local_path

SIGN_IN: Final = "/sign-in"
SIGN_OUT: Final = "/sign-out"

router = APIRouter(include_in_schema=False)


@router.post(SIGN_IN)
async def sign_in(request: Request, services: ServicesDep) -> Response:
    """Start a session with the `key` of the form, an API key or the token of a one-time link."""
    check_own_page(request)
    fields = await form_fields(request)
    address = address_of(request)
    signed_in = await services.web_sessions.sign_in(fields.get("key", ""), address)
    before = session_token(request)
    if before is not None:
        await services.web_sessions.sign_out(before, address)
    request.state.actor = signed_in.principal.actor
    response = _see_other(local_path(fields.get("next")))
    set_session(response, request, signed_in.token, signed_in.max_age_s)
    return response


@router.post(SIGN_OUT)
async def sign_out(request: Request, services: ServicesDep) -> Response:
    """End the session; with the field `everywhere`, all sessions of its key."""
    token = session_token(request)
    response = _see_other(SIGN_IN)
    if token is None:
        return response
    fields = await form_fields(request)
    check_change(request, token, fields.get("csrf"))
    if fields.get("everywhere"):
        principal = await services.web_sessions.authenticate(token, address_of(request))
        request.state.actor = principal.actor
        await services.web_sessions.end_own(principal)
    else:
        await services.web_sessions.sign_out(token, address_of(request))
    clear_session(response, request)
    return response


async def form_fields(request: Request) -> dict[str, str]:
    """Return the fields of a form that a page sends."""
    try:
        return dict(parse_qsl((await request.body()).decode(), keep_blank_values=True, max_num_fields=20))
    except ValueError:
        raise Malformed("the body is not a form; send application/x-www-form-urlencoded") from None


def _see_other(path: str) -> RedirectResponse:
    return RedirectResponse(path, 303, {"Cache-Control": "no-store"})
