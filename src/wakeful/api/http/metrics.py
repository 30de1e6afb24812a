"""The metrics in the Prometheus format, defined in `wakeful.engine.metrics`.

They need no authentication, unless the operator has set `WAKEFUL_METRICS_KEY`. A server with several
processes returns their sum, whichever process gets the request.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable

from fastapi import APIRouter, Request
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector
from starlette.responses import Response

from wakeful.api.http.dependencies import ServicesDep
from wakeful.api.http.responses import responses
from wakeful.errors import Unauthenticated

router = APIRouter(tags=["health"])

#: Returns the metrics of all processes of the server.
CollectAll = Callable[[], Awaitable[Collector]]

_RESPONSES = responses({200: None}, 401, always=False)
_RESPONSES[200]["content"] = {"text/plain": {"schema": {"type": "string"}}}


@router.get("/metrics", summary="Metrics", responses=_RESPONSES)
async def get_metrics(request: Request, services: ServicesDep) -> Response:
    """In the Prometheus text format."""
    if services.metrics_key is not None:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(
            token.strip().encode(), services.metrics_key.encode()
        ):
            raise Unauthenticated("send the header 'Authorization: Bearer …' with the key for metrics")
    await services.metrics.refresh(services.store)
    collect_all: CollectAll | None = getattr(request.app.state, "collect_metrics", None)
    collected = services.metrics.registry if collect_all is None else await collect_all()
    return Response(generate_latest(collected), media_type=CONTENT_TYPE_LATEST)
