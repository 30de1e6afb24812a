"""Signing in at an OpenID Connect issuer: the browser goes there, and comes back with a code.

The cookie has a random secret and the page to go to. What is sent to the issuer follows from the secret, so
a code that comes back is only accepted from the browser that went, by any replica.
"""

from __future__ import annotations

import hmac
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from functools import partial
from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from wakeful.api.http.dependencies import ServicesDep, address_of
from wakeful.api.http.session_cookie import (
    check_own_page,
    openid_cookie,
    session_token,
    set_openid_cookie,
    set_session,
)
from wakeful.dashboard.context import PageRoute, local_path
from wakeful.dashboard.pages.sign_in import SIGN_IN, sign_in_form
from wakeful.dashboard.render import render_page
from wakeful.errors import NotFound, Unauthenticated, WakefulError
from wakeful.service.auth.openid import OpenIdProvider, derive
from wakeful.service.auth.people import PersonRow, clean_name
from wakeful.service.services import Services

OPENID: Final = f"{SIGN_IN}/openid"
CALLBACK: Final = f"{OPENID}/callback"
#: The longest page to go back to: browsers drop cookies of more than 4,096 bytes.
_LONGEST_KEPT: Final = 2_900
#: Seconds that a browser may take at the issuer.
_AWAY_S: Final = 600

router = APIRouter(include_in_schema=False, route_class=PageRoute)


@router.get(OPENID)
async def go_to_issuer(request: Request, services: ServicesDep) -> Response:
    """Send the browser to the issuer."""
    provider = _provider(services)
    back, secret = local_path(request.query_params.get("next")), secrets.token_urlsafe(32)
    try:
        check_own_page(request)  # another site must not replace a session
        address = await provider.address(_callback(request, services), secret)
    except WakefulError as error:
        return await sign_in_form(request, services, back, error, by_issuer=True)
    response = RedirectResponse(address, 303)
    kept = back if len(back) <= _LONGEST_KEPT else ""
    path = urlsafe_b64encode(kept.encode()).decode().rstrip("=")
    set_openid_cookie(response, request, f"{secret}.{path}", _AWAY_S)
    return response


@router.get(CALLBACK)
async def come_back(request: Request, services: ServicesDep) -> Response:
    """Start a session of the person whom the code stands for."""
    provider, query = _provider(services), request.query_params
    secret, _, path = openid_cookie(request).partition(".")
    back = local_path(_decode(path))
    if not secret or not hmac.compare_digest(derive(secret, "state"), _ascii(query.get("state"))):
        error: WakefulError = Unauthenticated(
            "this sign-in was not started in this browser, or too long ago, or at another address of this "
            "server; sign in again"
        )
        return await sign_in_form(request, services, back, error, by_issuer=True)
    person = partial(_person, provider, query, _callback(request, services), secret)
    try:
        signed_in = await services.auth.web_sessions.sign_in_person(person, address_of(request))
    except WakefulError as error:
        response = await sign_in_form(request, services, back, error, by_issuer=True)
        set_openid_cookie(response, request, "", 0)
        return response
    before = session_token(request)
    if before is not None:
        await services.auth.web_sessions.sign_out(before, address_of(request))
    request.state.actor = signed_in.principal.actor
    # Not a redirect: the browser comes from another site, and would not send the cookie of the session.
    response = render_page("load_again.html", {"title": "Wakeful", "address": back})
    set_session(response, request, signed_in.token, signed_in.max_age_s)
    set_openid_cookie(response, request, "", 0)
    return response


async def _person(
    provider: OpenIdProvider, query: Mapping[str, str], callback: str, secret: str
) -> PersonRow:
    """Return the person whom the response of the issuer is about."""
    code = query.get("code")
    if not code:
        why = clean_name(query.get("error_description")) or clean_name(query.get("error")) or "no code"
        raise Unauthenticated(f"{provider.name} has not signed you in: {why}")
    provider.check_issuer(query.get("iss"))
    return await provider.person(callback, secret, code)


def _provider(services: Services) -> OpenIdProvider:
    if services.auth.openid is None:
        raise NotFound("no issuer is set here (WAKEFUL_OIDC_ISSUER); sign in with a key")
    return services.auth.openid


def _callback(request: Request, services: Services) -> str:
    """Return the address to which the issuer sends the browser back; it is registered there."""
    return (services.public_url or str(request.base_url).rstrip("/")) + CALLBACK


def _ascii(text: str | None) -> str:
    return text if text is not None and text.isascii() else ""


def _decode(text: str) -> str | None:
    try:
        return urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    except ValueError:
        return None
