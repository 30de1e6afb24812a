"""What a request brings: who asks, of whom, and with what body."""

from __future__ import annotations

import json
from typing import Annotated, Final, cast

from fastapi import Depends, Request
from fastapi.security import HTTPBearer

from wakeful.api.http.declared import check_fields, check_query, declares_body, refuse_unknown
from wakeful.api.http.problems import Malformed
from wakeful.errors import InvalidArgument, Unauthenticated
from wakeful.service.auth.access import Principal
from wakeful.service.services import Services

_BEARER: Final = HTTPBearer(
    auto_error=False,
    scheme_name="bearer",
    description="An API key (`wk_…`) or a JWT: `Authorization: Bearer wk_…`.",
)


def services_of(request: Request) -> Services:
    """The service layer of the app that was asked."""
    return cast(Services, request.app.state.services)


async def _services(request: Request) -> Services:
    # What is not async, the framework does in a thread: far too much for looking something up.
    return services_of(request)


async def current_principal(request: Request) -> Principal:
    """Whoever asks, by the bearer that they show; Unauthenticated where they show none that holds."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthenticated("say who you are: send the header 'Authorization: Bearer wk_…' with an API key")
    address = request.client.host if request.client else None
    principal = await services_of(request).keys.authenticate(token.strip(), address)
    request.state.actor = principal.actor
    return principal


async def check_declared(
    request: Request, principal: Annotated[Principal, Depends(current_principal)]
) -> None:
    """Refuse parameters, and a body, that the route does not declare. The caller is authenticated first."""
    check_query(request)
    if request.method != "GET" and not declares_body(request) and await request.body():
        value = await json_body(request)
        if isinstance(value, dict):
            refuse_unknown(value, (), "field")
        elif value is not None:
            raise InvalidArgument("this path takes no body; leave it out")


async def service_document(request: Request) -> dict[str, object]:
    """The body, a JSON object, for a use case that refuses unknown fields itself."""
    value = await json_body(request)
    if not isinstance(value, dict):
        raise InvalidArgument("the body is a JSON object; send one such as {}")
    return value


async def document(request: Request) -> dict[str, object]:
    """The body, a JSON object with no other fields than those that the route declares."""
    value = await service_document(request)
    check_fields(request, value)
    return value


async def optional_document(request: Request) -> dict[str, object]:
    """The body, which is a JSON object or is left out."""
    return await document(request) if await request.body() else {}


async def json_body(request: Request) -> object:
    """The body as JSON, whatever its content type says: Malformed where it is none."""
    raw = await request.body()
    if not raw:
        raise Malformed("there is no body; send JSON")
    try:
        text = raw.decode()
    except UnicodeError:
        raise Malformed("the body is not UTF-8; JSON is sent as UTF-8") from None
    return read_json(text, "the body")


def read_json(text: str, what: str) -> object:
    """JSON that somebody sent, and that everything can keep: Malformed, about `what`, where it is none."""
    try:
        value: object = json.loads(text, parse_constant=_refuse_constant)
        if "\\ud" in text or "\\uD" in text:  # half of a pair is JSON, but no Unicode: nothing could keep it
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise Malformed(f"{what} is nested too deeply; flatten it") from None
    except UnicodeError:
        raise Malformed(f"{what} is not UTF-8; JSON is sent as UTF-8") from None
    except ValueError as error:
        raise Malformed(f"{what} is no JSON: {error}") from None
    return value


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is no number in JSON")


#: The service layer.
ServicesDep = Annotated[Services, Depends(_services)]
#: Who asks.
CurrentPrincipal = Annotated[Principal, Depends(current_principal)]
#: The body, a JSON object.
Document = Annotated[dict[str, object], Depends(document)]
#: The body, a JSON object that a use case judges whole.
ServiceDocument = Annotated[dict[str, object], Depends(service_document)]
#: The body, a JSON object or nothing.
OptionalDocument = Annotated[dict[str, object], Depends(optional_document)]
#: What every route under /api needs: a bearer, and a request that says nothing the route does not declare.
SECURED: Final = [Depends(_BEARER), Depends(check_declared)]
