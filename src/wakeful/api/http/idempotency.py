"""The header `Idempotency-Key`. The rules are in `wakeful.service.idempotency`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Final, TypeVar

from fastapi import Header, Request
from starlette.responses import Response

from wakeful.api.http.dependencies import services_of
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

_REPLAYED: Final = "Idempotency-Replayed"
_HEADERS: Final = ("location", "etag")


async def respond_once(
    request: Request,
    principal: Principal,
    workspace: str,
    operation: KeyedOperation[T],
    render: Callable[[T], Response],
) -> Response:
    """Perform the request, or return the stored response of the first one with its `Idempotency-Key`."""
    key = request.headers.get("idempotency-key")
    identity = request.method, request.url.path, request.url.query, await request.body()
    return await respond_by_key(request, principal, workspace, key, identity, operation, render)


async def respond_by_key(
    request: Request,
    principal: Principal,
    workspace: str,
    key: str | None,
    identity: Sequence[str | bytes],
    operation: KeyedOperation[T],
    render: Callable[[T], Response],
) -> Response:
    """Do the same with this key; `identity` is what a repeated request must have in common with the first."""
    if key is None:
        return render(await operation(keyed=None))
    reply = await services_of(request).idempotency.perform(
        principal, workspace, key, identity, operation, lambda result: _reply(render(result))
    )
    return _response(reply)


def _reply(response: Response) -> Reply:
    headers = {name: response.headers[name] for name in _HEADERS if name in response.headers}
    return Reply(response.status_code, headers, bytes(response.body).decode())


def _response(reply: Reply) -> Response:
    headers = {**reply.headers, _REPLAYED: "true"} if reply.replayed else reply.headers
    if not reply.body:
        return Response(status_code=reply.status, headers=headers)
    return Response(reply.body.encode(), reply.status, headers, "application/json")
