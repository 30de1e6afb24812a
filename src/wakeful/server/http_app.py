"""The HTTP app: all routes, the error format, and the OpenAPI document."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, cast

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

from wakeful import __version__
from wakeful.api.http import (
    admin,
    agents,
    bulk_jobs,
    cost,
    dead_letters,
    executors,
    health,
    hooks,
    incidents,
    instances,
    job_actions,
    job_checks,
    jobs,
    messages,
    oauth,
    operations,
    problems,
    runs,
    search,
    sessions,
    sign_in,
    signals,
    suggestions,
)
from wakeful.api.http.docs import router as docs_router
from wakeful.api.http.health import Ready
from wakeful.api.http.middleware import RequestMiddleware
from wakeful.api.http.route_group import RouteGroup
from wakeful.api.http.schemas import SCHEMAS
from wakeful.api.http.schemas.enums import named
from wakeful.api.http.telemetry import NO_TELEMETRY
from wakeful.api.rpc import socket
from wakeful.dashboard import routes as dashboard
from wakeful.document.values import camel
from wakeful.service.services import Services

_ABOUT: Final = """Durable cron for AI agents.

Every path under `/api` requires `Authorization: Bearer wk_…`, or the cookie of a sign-in session. Errors are
`application/problem+json` with a `code` and a `detail` that says what to do. Lists are paged: send the
`cursor` of a page to get the next one.
"""
_TAGS: Final = (
    "jobs", "hooks", "runs", "work", "dead letters", "incidents", "suggestions", "agents", "instances",
    "sessions",
    "workspaces", "workflows", "keys", "quotas", "cost", "operations", "audit", "status", "events", "health",
)  # fmt: skip

#: The path of all pages of a workspace.
_PAGES: Final = "/workspaces/"


def create_app(services: Services, *, ready: Ready | None = None) -> FastAPI:
    """Return the app over these services. `ready` returns why the process is not ready, or None."""
    app = FastAPI(
        title="Wakeful",
        version=__version__,
        description=_ABOUT,
        openapi_tags=[{"name": name} for name in _TAGS],
        docs_url=None,  # FastAPI's page loads scripts from other hosts
        redoc_url=None,
        redirect_slashes=False,
        **NO_TELEMETRY,
    )
    app.state.services = services
    app.state.ready = ready or _always
    app.state.connections = socket.Connections()
    problems.install(app)
    others = _add_pages(app)
    # `/runs/claim` must come before `/runs/{run_id}`, which would match it too.
    for part in (
        health,
        agents,
        messages,
        sessions,
        signals,
        instances,
        jobs,
        job_actions,
        job_checks,
        hooks,
        bulk_jobs,
        executors,
        runs,
        search,
        dead_letters,
        incidents,
        suggestions,
        sign_in,
        cost,
        operations,
        admin,
    ):
        _add_routes(app, part.router)
    for name in ("events", "metrics"):
        _include(app, f"wakeful.api.http.{name}")
    for router in (socket.router, docs_router, oauth.router):
        _add_routes(app, router)
    app.router.routes.extend(others)
    if find_spec("mcp") is not None:  # wakeful[mcp]
        import_module("wakeful.api.mcp.http").mount(app)
    app.add_middleware(RequestMiddleware)
    _add_schemas(app)
    return app


def _add_routes(app: FastAPI, router: APIRouter) -> None:
    """Add the routes as they are: `include_router` builds each again, which takes 0.1 s per app.

    The operation id is short, because generated clients use it as a method name: `create_job` is `createJob`.
    """
    for route in router.routes:
        if isinstance(route, APIRoute):
            route.operation_id = camel(route.name)
        app.router.routes.append(route)


def _add_pages(app: FastAPI) -> list[BaseRoute]:
    """Add the pages of the dashboard, and return its other routes.

    The pages are first, since open dashboards fetch parts of them all the time.
    """
    routes = [route for router in dashboard.routers() for route in router.routes]
    pages = [route for route in routes if getattr(route, "path", "").startswith(_PAGES)]
    app.router.routes.append(RouteGroup(_PAGES, pages))
    return [route for route in routes if route not in pages]


def _include(app: FastAPI, module: str) -> None:
    if find_spec(module) is not None:
        _add_routes(app, cast(APIRouter, import_module(module).router))


async def _always() -> str | None:
    return None


def _add_schemas(app: FastAPI) -> None:
    """Add the schemas to the OpenAPI document: FastAPI adds only its own models."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = generate()
            components = document.setdefault("components", {})
            components["schemas"] = dict(sorted(SCHEMAS.items()))
            for path in document["paths"].values():
                for operation in path.values():
                    _remove_default_errors(operation["responses"])
                    if "parameters" in operation:
                        operation["parameters"] = named(operation["parameters"])
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _remove_default_errors(responses: dict[str, Any]) -> None:
    """Remove FastAPI's schema of 422: all errors are problems here."""
    if "HTTPValidationError" in str(responses.get("422")):
        del responses["422"]
