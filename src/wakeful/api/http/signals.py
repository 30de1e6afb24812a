"""Signals over HTTP: CloudEvents 1.0 in structured, binary or batch mode."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from wakeful.api.http.dependencies import SECURED, CurrentPrincipal, ServicesDep
from wakeful.api.http.idempotency import IdempotencyKey, respond_once
from wakeful.api.http.problems import Malformed
from wakeful.api.http.responses import BODY, JsonResponse, ref, responses
from wakeful.job.job import DEFAULT_INSTANCE, Json
from wakeful.service.instance_serializers import serialize_sent
from wakeful.signal.requests import BATCH, STRUCTURED, SignalRequest, read_request
from wakeful.signal.signals import NotJson

router = APIRouter(
    prefix="/api/workspaces/{workspace}/agents/{agent}", tags=["instances"], dependencies=SECURED
)

_EXAMPLE: Final[Json] = {
    "specversion": "1.0",
    "id": "invoice-17",
    "source": "/billing",
    "type": "invoice.paid",
    "data": {"amount": 120},
}


def _body() -> dict[str, Any]:
    """Return the request body for the OpenAPI document. In binary mode it is the data alone."""
    one = {"schema": ref("Signal"), "example": _EXAMPLE}
    batch = {"schema": ref("SignalBatch"), "example": [_EXAMPLE]}
    content = {"application/json": one, STRUCTURED: one, BATCH: batch}
    return {"requestBody": {"required": True, "content": content}}


@router.post(
    "/signals",
    summary="Send signals to an instance",
    status_code=202,
    responses=responses({202: "Sent"}, *BODY, 409, 429, headers=("Idempotency-Replayed",)),
    openapi_extra=_body(),
)
async def send_signals(
    workspace: str,
    agent: str,
    request: Request,
    services: ServicesDep,
    principal: CurrentPrincipal,
    instance: Annotated[
        str,
        Query(description="The instance; it is created if it does not exist."),
    ] = DEFAULT_INSTANCE,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """A CloudEvent: structured, binary (attributes in `ce-` headers, data in the body), or a batch of them.

    Each signal becomes a run, which is the response; the response to a batch has the `runs`. All signals of a
    batch are stored, or none. If the instance has received the `source` and `id` of a signal before, the
    response has the first run and `duplicate` is true.
    """
    received = await _read(request)
    send = partial(services.signals.send, principal, workspace, agent, instance, received.signals)
    return await respond_once(
        request,
        principal,
        workspace,
        send,
        lambda sent: JsonResponse(serialize_sent(sent, batch=received.batch), 202),
    )


async def _read(request: Request) -> SignalRequest:
    try:
        return read_request(request.headers, await request.body())
    except NotJson as error:
        raise Malformed(error.message) from None
