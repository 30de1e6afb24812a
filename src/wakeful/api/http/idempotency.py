"""The header `Idempotency-Key`. The rules are in `wakeful.service.idempotency`."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, TypeVar

from fastapi import Depends, Header, Request
from starlette.responses import Response

from wakeful.api.http.dependencies import CurrentPrincipal, WorkspaceRequest, services_of
from wakeful.api.http.responses import REPLAYED
from wakeful.api.http.root_path import route_path
from wakeful.service.auth.access import Principal
from wakeful.service.idempotency import KeyedOperation, Reply

T = TypeVar("T")

IdempotencyKey = Annotated[
    str | None,
    Header(
        description="Any text, up to 255 characters. A request with the same key within a day is performed "
        "once; a repeat gets the first response.",
    ),
]

_QUOTED: Final = re.compile(r'"(?:[^"\\]|\\["\\])*"')
_ESCAPE: Final = re.compile(r'\\(["\\])')
_HEADERS: Final = ("location", "etag", "cache-control")


def idempotency_key_of(request: Request) -> str | None:
    """Return the `Idempotency-Key`. It may be a structured string (RFC 8941): `"a"` and `a` are one key."""
    text = request.headers.get("idempotency-key")
    if text is None or _QUOTED.fullmatch(text) is None:
        return text
    return _ESCAPE.sub(r"\1", text[1:-1])


async def respond_by_key(
    request: Request,
    principal: Principal,
    workspace: str,
    key: str | None,
    identity: Sequence[str | bytes],
    operation: KeyedOperation[T],
    render: Callable[[T], Response],
) -> Response:
    """Perform the request, or return the stored response of the first one with this key.

    `identity` is what a repeated request must have in common with the first.
    """
    if key is None:
        return render(await operation(keyed=None))
    reply = await services_of(request).idempotency.perform(
        principal, workspace, key, identity, operation, lambda result: _reply(render(result))
    )
    return _response(reply)


@dataclass(frozen=True, slots=True)
class OnceRequest(WorkspaceRequest):
    """A request about a workspace, with its `Idempotency-Key`."""

    key: str | None

    async def respond(
        self, operation: Callable[[], Awaitable[T]], render: Callable[[T], Response]
    ) -> Response:
        """Perform the request, or return the stored response of the first one with its key."""
        if self.key is None:
            return render(await operation())
        reply = await self.services.idempotency.perform_claimed(
            *self.caller,
            self.key,
            await _identity(self.request),
            operation,
            lambda result: _reply(render(result)),
        )
        return _response(reply)

    async def respond_keyed(self, operation: KeyedOperation[T], render: Callable[[T], Response]) -> Response:
        """Do the same with an operation that takes the key itself."""
        identity = await _identity(self.request)
        return await respond_by_key(self.request, *self.caller, self.key, identity, operation, render)


async def _once_request(
    request: Request, principal: CurrentPrincipal, workspace: str, idempotency_key: IdempotencyKey = None
) -> OnceRequest:
    key = idempotency_key_of(request)
    return OnceRequest(request, services_of(request), principal, workspace, key)


#: A request that is performed once for its `Idempotency-Key`.
Once = Annotated[OnceRequest, Depends(_once_request)]


async def _identity(request: Request) -> tuple[str | bytes, ...]:
    """Return what a repeated request must have in common with the first: also the attributes of an event."""
    events = [f"{name}: {value}" for name, value in request.headers.items() if name.startswith("ce-")]
    return (
        request.method,
        route_path(request.scope),
        request.url.query,
        await request.body(),
        *sorted(events),
    )


def _reply(response: Response) -> Reply:
    headers = {name: response.headers[name] for name in _HEADERS if name in response.headers}
    return Reply(response.status_code, headers, bytes(response.body).decode())


def _response(reply: Reply) -> Response:
    headers = {**reply.headers, REPLAYED: "true"} if reply.replayed else reply.headers
    if not reply.body:
        return Response(status_code=reply.status, headers=headers)
    return Response(reply.body.encode(), reply.status, headers, "application/json")
