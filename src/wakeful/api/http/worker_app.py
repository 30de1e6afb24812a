"""What every process serves without authentication: liveness, readiness and metrics. The app of a worker.

The metrics are in the Prometheus format, defined in `wakeful.engine.exposition`. They need a key if the
operator has set `WAKEFUL_METRICS_KEY`. A server with several processes returns their sum, whichever gets the
request.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

from fastapi import APIRouter, FastAPI, Request
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector
from starlette.responses import Response

from wakeful.api.http import problems
from wakeful.api.http.dependencies import ServicesDep
from wakeful.api.http.middleware import RequestMiddleware
from wakeful.api.http.responses import JsonResponse, responses
from wakeful.api.rpc.connection import Connections
from wakeful.engine.exposition import new_registry
from wakeful.errors import Unauthenticated, Unavailable
from wakeful.service.services import Services
from wakeful.values.package import VERSION

#: Arguments of `FastAPI` that turn off its telemetry; versions without it ignore them. Its spans contain
#: paths and queries of requests, which may contain credentials. `engine.tracing` records what they trigger.
NO_TELEMETRY: Final[dict[str, Any]] = {
    "telemetry": {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}
}
#: Returns why the process is not ready, or None.
Ready = Callable[[], Awaitable[str | None]]
#: Returns the metrics of all processes of the server.
CollectAll = Callable[[], Awaitable[Collector]]

health_router = APIRouter(tags=["health"])
metrics_router = APIRouter(tags=["health"])

_RESPONSES = responses({200: None}, 401, always=False)
_RESPONSES[200]["content"] = {"text/plain": {"schema": {"type": "string"}}}


@health_router.get("/healthz", summary="Liveness", responses=responses({200: "Health"}, always=False))
async def get_health() -> Response:
    """Responds while the process is alive."""
    return JsonResponse({"status": "ok"})


@health_router.get("/readyz", summary="Readiness", responses=responses({200: "Health"}, 503, always=False))
async def get_readiness(request: Request) -> Response:
    """Ready if the database responds and every loop of the engine runs."""
    reason = await cast(Ready, request.app.state.ready)()
    if reason is not None:
        raise Unavailable(reason)
    return JsonResponse({"status": "ready"})


@metrics_router.get("/metrics", summary="Metrics", responses=_RESPONSES)
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
    collected = new_registry(services.metrics) if collect_all is None else await collect_all()
    return Response(generate_latest(collected), media_type=CONTENT_TYPE_LATEST)


def create_worker_app(services: Services, ready: Ready) -> FastAPI:
    """Return the app of a worker: only `/healthz`, `/readyz` and `/metrics`."""
    app = FastAPI(
        title="Wakeful worker",
        version=VERSION,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        **NO_TELEMETRY,
    )
    app.state.services = services
    app.state.ready = ready
    app.state.connections = Connections()
    problems.install(app)
    app.include_router(health_router)
    app.include_router(metrics_router)
    app.add_middleware(RequestMiddleware)
    return app
