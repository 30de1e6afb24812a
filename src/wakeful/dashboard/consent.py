"""The page on which a person connects an assistant: it shows who asks, and the person chooses what it may do.

The page is a plain form. Its address has the request of the assistant, which the library checks when the page
is shown and again when the form is sent. No browser is sent to the assistant before the person has decided.
"""

from __future__ import annotations

import json
from typing import Final
from urllib.parse import parse_qs, urlsplit

from fastapi import APIRouter, FastAPI, Request
from mcp.server.auth.handlers.authorize import AuthorizationHandler
from mcp.server.auth.provider import construct_redirect_uri
from pydantic import AnyUrl
from starlette.responses import RedirectResponse, Response

from wakeful.api.http.dependencies import ServicesDep, address_of
from wakeful.api.http.responses import PAGE_HEADERS
from wakeful.api.http.session_cookie import check_change, masked, session_token
from wakeful.api.mcp.oauth import AUTHORIZE, Asked, Provider, is_local, issuer_of, read_form
from wakeful.dashboard.context import PageRoute, chosen_theme, requested_path
from wakeful.dashboard.render import render_page
from wakeful.errors import InvalidArgument, NotFound, Unauthenticated
from wakeful.service.auth.access import Principal, Role, grantable_roles
from wakeful.service.auth.oauth import Approval, check_approver
from wakeful.service.auth.people import clean_name
from wakeful.service.auth.web_sessions import csrf_token
from wakeful.service.services import Services

router = APIRouter(include_in_schema=False, route_class=PageRoute)

_ROLES: Final[dict[Role, str]] = {
    "agent": "Manage the jobs of one agent",
    "member": "Read everything, and run jobs",
    "admin": "Everything in the workspace",
}
#: How many workspaces and agents the form offers; another one can be typed.
_OFFERED: Final = 200


def mount(app: FastAPI) -> None:
    """Add the page to an app."""
    app.router.routes.extend(router.routes)


@router.get(AUTHORIZE)
async def show_consent(request: Request, services: ServicesDep) -> Response:
    """Ask the person."""
    issuer = issuer_of(request)
    token, person = await _person(request, services)
    asked = await _check(request, services, issuer)
    names = [row.name for row in await services.agents.workspaces.list(person)]
    workspaces = sorted(names, key=lambda name: name != "default")[:_OFFERED]
    if not workspaces:
        raise NotFound("there is no workspace that you may use yet; ask the operator of this installation")
    token, principal = await _person(request, services, workspaces[0])
    agents = [row.name for row in await services.agents.list(principal, workspaces[0])]
    roles = set(grantable_roles(principal))
    for name in person.workspaces:  # the choice is checked when it is known
        roles |= set(grantable_roles((await _person(request, services, name))[1]))
    uri = asked.params.redirect_uri
    values = {
        "title": "Connect an assistant",
        "theme": chosen_theme(request),
        "address": requested_path(request),
        "csrf": masked(csrf_token(token)),
        "name": clean_name(asked.client.client_name) or "A program without a name",
        "known_by": urlsplit(asked.client.client_id).hostname,
        "host": _host(uri),
        "on_computer": uri.scheme != "https",
        "workspaces": [(name, name) for name in workspaces],
        "roles": [(role, text) for role, text in _ROLES.items() if role in roles],
        "agents": agents[:_OFFERED],
    }
    response = render_page("consent.html", values)
    # After the form, the browser follows a redirect to the assistant. Not every address can be named here.
    target = f"https://{uri.host}:{uri.port}" if uri.scheme == "https" and "[" not in str(uri.host) else None
    policy = PAGE_HEADERS["content-security-policy"]
    form_action = f"form-action 'self' {target or f'{uri.scheme}:'}"
    response.headers["content-security-policy"] = policy.replace("form-action 'self'", form_action)
    return response


@router.post(AUTHORIZE)
async def decide(request: Request, services: ServicesDep) -> Response:
    """Send the browser back to the assistant: with a code, or with the refusal of the person."""
    issuer = issuer_of(request)
    form = await read_form(request)
    token, principal = await _person(request, services, form.get("workspace"))
    check_change(request, token, form.get("csrf"))
    request.state.actor = principal.actor
    client, params = await _check(request, services, issuer)
    back, uri = {"state": params.state, "iss": issuer}, str(params.redirect_uri)
    if form.get("decision") != "allow":
        return RedirectResponse(construct_redirect_uri(uri, error="access_denied", **back), 303)
    role = next((each for each in _ROLES if each == form.get("role")), None)
    if role is None:
        raise InvalidArgument(f"role: choose one of {', '.join(_ROLES)}")
    approval = Approval(
        redirect_uri=uri,
        redirect_uri_given=params.redirect_uri_provided_explicitly,
        code_challenge=params.code_challenge,
        resource=params.resource or "",
        name=client.client_name or "",
        host=_host(params.redirect_uri),
        workspace=form.get("workspace", ""),
        role=role,
        agent=form.get("agent") or None if role == "agent" else None,
    )
    document = client.model_dump_json(exclude_none=True)
    code = await services.auth.oauth.approve(principal, client.client_id, document, approval)
    return RedirectResponse(construct_redirect_uri(uri, code=code, **back), 303)


async def _person(
    request: Request, services: Services, workspace: str | None = None
) -> tuple[str, Principal]:
    """Return the token and the principal of the sign-in session, which must be a person's."""
    token = session_token(request)
    if token is None:
        raise Unauthenticated("sign in to connect an assistant")
    principal = await services.auth.web_sessions.authenticate(token, address_of(request), workspace)
    check_approver(principal)
    return token, principal


async def _check(request: Request, services: Services, issuer: str) -> Asked:
    """Return the request of the assistant, or raise InvalidArgument."""
    provider = Provider(services, issuer, fetches=True)
    as_get = Request({**request.scope, "method": "GET"})  # its parameters are in the address
    response = await AuthorizationHandler(provider).handle(as_get)
    if provider.asked is not None:
        return provider.asked
    if response.status_code == 400:
        problem = json.loads(bytes(response.body)).get("error_description")
    else:
        problem = parse_qs(urlsplit(response.headers["location"]).query).get("error_description", [None])[0]
    raise InvalidArgument(f"the assistant has sent an invalid request: {provider.problem or problem}")


def _host(uri: AnyUrl) -> str:
    """Return where the code goes, as a person reads it."""
    if uri.scheme == "https":
        return str(uri.host) if uri.port in (None, 443) else f"{uri.host}:{uri.port}"
    return "localhost" if is_local(uri) else f"{uri.scheme}:"
