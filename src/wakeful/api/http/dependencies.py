"""Dependencies of the routes: the services, the principal and the body.

Query parameters and body fields that a route does not declare are refused. The names come from the route: its
query parameters, and the schema of its body. So the check applies to every route, and a new
parameter is accepted as soon as the route declares it.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Final, cast

from fastapi import Depends, Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from starlette.requests import HTTPConnection

from wakeful.api.http.problems import Malformed
from wakeful.api.http.root_path import HOST_USER as HOST_USER
from wakeful.api.http.schemas import SCHEMAS
from wakeful.api.http.session_cookie import CSRF, SAFE_METHODS, check_change, session_token
from wakeful.errors import InvalidArgument, Unauthenticated
from wakeful.service.auth.access import Principal
from wakeful.service.auth.connections import OpenUse
from wakeful.service.auth.keys import PREFIX
from wakeful.service.auth.web_sessions import csrf_token
from wakeful.service.services import Services
from wakeful.values.json_value import MAX_DEPTH, is_deeper

#: The header with the run that makes the call.
RUN_ID: Final = "x-wakeful-run-id"
HostUser = Callable[[], Awaitable[Principal | None]]
#: The levels of a body: those of a value that is stored, and some around it.
_LEVELS: Final = MAX_DEPTH + 10
#: The workspace for which a request is counted, in its state; the middleware counts it no longer.
IN_PROGRESS: Final = "in_progress"
_SHOWN: Final = 5
_LONGEST_NAME: Final = 64
#: After so many items of a long list are read, the event loop has its turn.
_AT_ONCE: Final = 200
_SPACE: Final = r"[ \t\n\r]*"
#: What follows an item of the only list of a body: a comma, or its end.
_NEXT_ITEM: Final = re.compile(rf"{_SPACE}(,|\]{_SPACE}\}}{_SPACE}\Z){_SPACE}")
_BEARER: Final = HTTPBearer(
    auto_error=False,
    scheme_name="bearer",
    description="An API key (`wk_…`) or a JWT: `Authorization: Bearer wk_…`.",
)


def check_query(request: Request) -> None:
    """Raise InvalidArgument for a query parameter that the route does not declare."""
    if request.scope["query_string"]:
        refuse_unknown(request.query_params, _query_names(request.scope["route"]), "parameter")


def check_fields(request: Request, fields: Iterable[str]) -> None:
    """Raise InvalidArgument for a body field that the schema of the route does not declare."""
    names = _field_names(request.scope["route"])
    if names is not None:
        refuse_unknown(fields, names, "field")


def declares_body(request: Request) -> bool:
    """Return whether the route declares a body."""
    return "requestBody" in (request.scope["route"].openapi_extra or {})


def refuse_unknown(given: Iterable[str], known: tuple[str, ...], kind: str) -> None:
    """Raise InvalidArgument with the unknown names among parameters or fields, and the known ones."""
    unknown = [name[:_LONGEST_NAME] for name in dict.fromkeys(given) if name not in known]
    if unknown:
        none = "there is no such" if len(unknown) == 1 else "there are no such"
        kinds = kind if len(unknown) == 1 else f"{kind}s"
        choice = f"there are {', '.join(known)}" if known else f"this path takes no {kind}s"
        raise InvalidArgument(f"{', '.join(unknown[:_SHOWN])}: {none} {kinds}; {choice}")


def _query_names(route: APIRoute) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_parameters(route.dependant)))


def _parameters(dependant: Dependant) -> Iterable[str]:
    for parameter in dependant.query_params:
        yield parameter.alias
    for inner in dependant.dependencies:
        yield from _parameters(inner)


def _field_names(route: APIRoute) -> tuple[str, ...] | None:
    """Return the fields of the body; None if any are allowed."""
    content = (route.openapi_extra or {})["requestBody"]["content"]["application/json"]
    schema = SCHEMAS[content["schema"]["$ref"].rpartition("/")[2]]
    return None if schema.get("additionalProperties", True) else tuple(schema["properties"])


def services_of(request: Request) -> Services:
    """Return the services of the app."""
    return cast(Services, request.app.state.services)


async def _services(request: Request) -> Services:
    # Async, because FastAPI runs a plain function in a thread.
    return services_of(request)


async def current_principal(request: Request) -> Principal:
    """Return the principal of the bearer token, else of the sign-in session, or raise Unauthenticated."""
    return count_request(request, await _authenticate(request))


def count_request(request: Request, principal: Principal) -> Principal:
    """Count a request of a workspace until it is over; TooManyConnections if the limit is reached."""
    if principal.workspace is not None and not hasattr(request.state, IN_PROGRESS):
        services_of(request).auth.connection_limits.begin_request(principal.workspace)
        setattr(request.state, IN_PROGRESS, principal.workspace)
    return principal


async def _authenticate(request: Request) -> Principal:
    """Return the principal of a request, which may be over meanwhile: it is not counted here."""
    bearer = bearer_of(request)
    user = await host_user(request, bearer)
    if user is not None:
        principal = _check_user(request, user, bearer)
    elif bearer is None:
        principal = await _session_principal(request)
    else:
        principal = await services_of(request).auth.keys.authenticate(
            bearer, address_of(request), request.headers.get(RUN_ID)
        )
    request.state.actor = principal.actor
    return principal


async def host_user(connection: HTTPConnection, bearer: str | None) -> Principal | None:
    """Return the user that the host application authenticated; None: nobody, or an API key is sent."""
    authenticate: HostUser | None = connection.scope.get(HOST_USER)
    if authenticate is None or (bearer is not None and bearer.startswith(PREFIX)):
        return None
    return await authenticate()


def _check_user(request: Request, user: Principal, bearer: str | None) -> Principal:
    """Return a user of the host. A browser may send its credential by itself, unless that is a bearer token.

    A change then carries the CSRF token of the user. It is no secret: only a page of this host can send it.
    """
    if bearer is None and request.method not in SAFE_METHODS:
        check_change(request, user.actor, request.headers.get(CSRF))
    request.state.csrf = csrf_token(user.actor)
    return replace(user, address=address_of(request), run_id=request.headers.get(RUN_ID))


async def open_use(request: Request, end: Callable[[], object]) -> OpenUse:
    """Call `end` when the key or session of the request has ended; Unauthenticated: it has already."""
    credential = bearer_of(request) or session_token(request) or ""
    if session_token(request) == credential:  # a person may have another role in another workspace
        credential += f" {request.path_params.get('workspace')}"
    if HOST_USER in request.scope:  # a request of a user of the host is checked by itself
        credential = f"request {id(request)}"
    return await services_of(request).auth.open_uses.add(credential, partial(_authenticate, request), end)


async def bearer_principal(request: Request) -> Principal:
    """Return the principal of the bearer token; a sign-in session is not enough."""
    if bearer_of(request) is None:
        raise Unauthenticated(
            "send the header 'Authorization: Bearer wk_…' with an API key; a sign-in session is not enough"
        )
    return await current_principal(request)


async def _session_principal(request: Request) -> Principal:
    token = session_token(request)
    if token is None:
        raise _no_credentials()
    principal = await services_of(request).auth.web_sessions.authenticate(
        token, address_of(request), request.path_params.get("workspace")
    )
    if request.method not in SAFE_METHODS:
        check_change(request, token, request.headers.get(CSRF))
    request.state.csrf = csrf_token(token)
    return principal


def bearer_of(request: Request) -> str | None:
    """Return the bearer token; None: there is none."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


def address_of(request: Request) -> str | None:
    """Return the address of the client."""
    return request.client.host if request.client else None


def _no_credentials() -> Unauthenticated:
    return Unauthenticated("no credentials: send the header 'Authorization: Bearer wk_…' with an API key")


async def check_declared(
    request: Request, principal: Annotated[Principal, Depends(current_principal)]
) -> None:
    """Refuse undeclared parameters, and a body that the route does not take. Authenticates first."""
    check_query(request)
    if request.method != "GET" and not declares_body(request) and await request.body():
        value = await json_body(request)
        if isinstance(value, dict):
            refuse_unknown(value, (), "field")
        elif value is not None:
            raise InvalidArgument("this path takes no body; leave it out")


async def service_document(request: Request) -> dict[str, object]:
    """Return the body, a JSON object, for a service that refuses unknown fields itself."""
    value = await json_body(request)
    if not isinstance(value, dict):
        raise InvalidArgument("the body must be a JSON object, such as {}")
    return value


async def document(request: Request) -> dict[str, object]:
    """Return the body, a JSON object with only the fields that the route declares."""
    value = await service_document(request)
    check_fields(request, value)
    return value


async def optional_document(request: Request) -> dict[str, object]:
    """Return the body, a JSON object; empty if there is no body."""
    return await document(request) if await request.body() else {}


async def long_list(request: Request, name: str) -> dict[str, object]:
    """Return the body as `document` does. It has one field, a list, whose items are read with pauses."""
    text = (await request.body()).decode(errors="replace")
    begin = re.match(rf'{_SPACE}{{{_SPACE}"{name}"{_SPACE}:{_SPACE}\[{_SPACE}', text)
    if begin is None or "\ufffd" in text or "\\ud" in text or "\\uD" in text:
        return await document(request)  # it may be invalid, or have other fields
    items: list[object] = []
    place = begin.end()
    try:
        while True:
            item, end = _DECODER.raw_decode(text, place)
            _check_levels(item, text.count("[", place, end) + text.count("{", place, end), "the body")
            items.append(item)
            if len(items) % _AT_ONCE == 0:
                await asyncio.sleep(0)
            following = _NEXT_ITEM.match(text, end)
            if following is None or following[1] != ",":
                break
            place = following.end()
    except (ValueError, RecursionError):
        following = None
    return await document(request) if following is None else {name: items}


async def json_body(request: Request) -> object:
    """Return the body as JSON, whatever its content type; Malformed if it is not JSON."""
    raw = await request.body()
    if not raw:
        raise Malformed("there is no body; send JSON")
    try:
        text = raw.decode()
    except UnicodeError:
        raise Malformed("the body is not UTF-8; JSON is sent as UTF-8") from None
    return read_json(text, "the body")


def read_json(text: str, what: str) -> object:
    """Return JSON that can be stored; raise Malformed, about `what`, for any other text.

    InvalidArgument: it is nested deeper than any value in it may be.
    """
    try:
        value: object = json.loads(text, parse_constant=_refuse_constant)
        if "\\ud" in text or "\\uD" in text:  # a lone surrogate is JSON but cannot be stored
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise Malformed(f"{what} is nested too deeply; flatten it") from None
    except UnicodeError:
        raise Malformed(f"{what} is not UTF-8; JSON is sent as UTF-8") from None
    except ValueError as error:
        raise Malformed(f"{what} is not JSON: {error}") from None
    _check_levels(value, text.count("[") + text.count("{"), what)
    return value


def _check_levels(value: object, brackets: int, what: str) -> None:
    if brackets > _LEVELS and is_deeper(value, _LEVELS):
        raise InvalidArgument(f"{what} is nested deeper than {_LEVELS} levels; flatten it")


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not a number in JSON")


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant)


async def _page_turn(request: Request) -> AsyncIterator[None]:
    """Wait while many lists of the tenant are read and sent: the memory is that of all."""
    async with services_of(request).pages.next():
        yield


#: The services.
ServicesDep = Annotated[Services, Depends(_services)]
#: The principal of the request.
CurrentPrincipal = Annotated[Principal, Depends(current_principal)]


@dataclass(frozen=True, slots=True)
class WorkspaceRequest:
    """A request about a workspace: the services, and who calls them."""

    request: Request
    services: Services
    principal: Principal
    workspace: str

    @property
    def caller(self) -> tuple[Principal, str]:
        """The first arguments of a service call."""
        return self.principal, self.workspace


async def _workspace_request(
    request: Request, principal: CurrentPrincipal, workspace: str
) -> WorkspaceRequest:
    return WorkspaceRequest(request, services_of(request), principal, workspace)


#: A request about a workspace.
WorkspaceDep = Annotated[WorkspaceRequest, Depends(_workspace_request)]
#: The body, a JSON object.
Document = Annotated[dict[str, object], Depends(document)]
#: The body, a JSON object whose fields a service checks.
ServiceDocument = Annotated[dict[str, object], Depends(service_document)]
#: The body, a JSON object that may be absent.
OptionalDocument = Annotated[dict[str, object], Depends(optional_document)]
#: For the routes of lists whose items may be large.
IN_TURN: Final = [Depends(_page_turn)]
#: The checks of every route under /api: a bearer, and no undeclared parameters or fields.
SECURED: Final = [Depends(_BEARER), Depends(check_declared)]
