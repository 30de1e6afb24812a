"""The HTTP app of `wakeful worker`: liveness, readiness and metrics."""

from __future__ import annotations

from fastapi import FastAPI

from wakeful import __version__
from wakeful.api.http import health, metrics, problems
from wakeful.api.http.health import Ready
from wakeful.api.http.middleware import RequestMiddleware
from wakeful.api.http.telemetry import NO_TELEMETRY
from wakeful.api.rpc.socket import Connections
from wakeful.service.services import Services


def create_worker_app(services: Services, ready: Ready) -> FastAPI:
    """Return the app of a worker: only `/healthz`, `/readyz` and `/metrics`."""
    app = FastAPI(
        title="Wakeful worker",
        version=__version__,
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
    app.include_router(health.router)
    app.include_router(metrics.router)
    app.add_middleware(RequestMiddleware)
    return app
