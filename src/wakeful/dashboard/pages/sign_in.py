"""Signing in and out.

Both are plain forms, which work without JavaScript. The key is sent once and not stored in the browser.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl, urlencode

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from wakeful.api.http.dependencies import ServicesDep, address_of, current_principal
from wakeful.api.http.problems import Malformed, status_of
from wakeful.api.http.root_path import href
from wakeful.api.http.session_cookie import (
    CSRF,
    check_change,
    check_own_page,
    clear_session,
    masked,
    session_token,
    set_session,
)
from wakeful.dashboard.context import PageRoute, chosen_theme, local_path
from wakeful.dashboard.render import render_page
from wakeful.errors import Unauthenticated, WakefulError
from wakeful.service.auth.access import Principal
from wakeful.service.auth.web_sessions import csrf_token
from wakeful.service.services import Services

SIGN_IN: Final = "/sign-in"
SIGN_OUT: Final = "/sign-out"
#: The name in the scope of a request to a mounted app: the address of the host's own sign-in page.
HOST_SIGN_IN: Final = "wakeful.host_sign_in"

router = APIRouter(include_in_schema=False, route_class=PageRoute)


@router.get(SIGN_IN)
async def show_sign_in(request: Request, services: ServicesDep) -> Response:
    """Ask for a key, or send the browser to the sign-in page of the host."""
    back = local_path(request.query_params.get("next"))
    host_page: str | None = request.scope.get(HOST_SIGN_IN)
    if host_page is not None:
        mark = "&" if "?" in host_page else "?"
        return RedirectResponse(f"{host_page}{mark}{urlencode({'next': back})}", 303)
    return await sign_in_form(request, services, back)


@router.post(SIGN_IN)
async def sign_in(request: Request, services: ServicesDep) -> Response:
    """Start a session with the `key` of the form: an API key, or the token of a one-time link."""
    fields: dict[str, str] = {}
    address, before = address_of(request), session_token(request)
    try:
        check_own_page(request)
        fields = await _form_fields(request)
        signed_in = await services.auth.web_sessions.sign_in(fields.get("key", ""), address)
        if before is not None:
            await services.auth.web_sessions.sign_out(before, address)
    except WakefulError as error:
        return await sign_in_form(request, services, local_path(fields.get("next")), error)
    request.state.actor = signed_in.principal.actor
    response = RedirectResponse(local_path(fields.get("next")), 303)
    set_session(response, request, signed_in.token, signed_in.max_age_s)
    return response


@router.get(f"{SIGN_IN}/session")
async def show_session(request: Request) -> Response:
    """Return who is signed in and the token for changes, for a page whose session has ended (401: no one)."""
    try:
        principal = await current_principal(request)
    except Unauthenticated as error:
        return JSONResponse({"detail": error.message}, 401)
    csrf = masked(str(getattr(request.state, "csrf", "")))
    return JSONResponse({"user": principal.actor, "csrf": csrf})


@router.post(SIGN_OUT)
async def sign_out(request: Request, services: ServicesDep) -> Response:
    """End the session; with the field `everywhere`, all sessions of its key."""
    token, response = session_token(request), RedirectResponse(href(SIGN_IN), 303)
    if token is None:
        return response
    fields = await _form_fields(request)
    check_change(request, token, request.headers.get(CSRF, fields.get("csrf")))
    principal = await _principal(request, services)
    if principal is not None:
        request.state.actor = principal.actor
        if fields.get("everywhere"):
            await services.auth.web_sessions.end_own(principal)
        else:
            await services.auth.web_sessions.sign_out(token, principal.address)
    clear_session(response, request)
    return response


async def sign_in_form(
    request: Request,
    services: Services,
    next_path: str,
    error: WakefulError | None = None,
    *,
    by_issuer: bool = False,
) -> Response:
    """Return the page; `by_issuer`: the error is of a sign-in at the issuer, and not of the key."""
    principal = await _principal(request, services)
    values = {
        "title": "Sign in",
        "theme": chosen_theme(request),
        "next": next_path,
        "principal": principal,
        "csrf": masked(csrf_token(session_token(request) or "")) if principal else "",
        "error": error.message if error and not by_issuer else None,
        "issuer_error": error.message if error and by_issuer else None,
        "issuer": services.auth.openid.name if services.auth.openid else None,
    }
    response = render_page("sign_in.html", values, status_of(error) if error else 200)
    if error is not None and error.retry_after_s is not None:
        response.headers["retry-after"] = str(error.retry_after_s)
    return response


async def _principal(request: Request, services: Services) -> Principal | None:
    """Return the principal of the session; None: there is no session, or it has ended."""
    token = session_token(request)
    if token is None:
        return None
    try:
        return await services.auth.web_sessions.authenticate(token, address_of(request))
    except Unauthenticated:
        return None


async def _form_fields(request: Request) -> dict[str, str]:
    try:
        return dict(parse_qsl((await request.body()).decode(), keep_blank_values=True, max_num_fields=20))
    except ValueError:
        raise Malformed("the body is not a form; send application/x-www-form-urlencoded") from None
