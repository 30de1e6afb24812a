"""The HTTP app: all routes, the error format, and the OpenAPI document."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Receive, Scope, Send

from wakeful.api.http import (
    admin,
    agents,
    dead_letters,
    events,
    executors,
    hooks,
    inbox,
    instances,
    job_actions,
    jobs,
    oauth,
    problems,
    runs,
    sign_in,
    suggestions,
)
from wakeful.api.http.direct import DirectRoutes
from wakeful.api.http.docs import router as docs_router
from wakeful.api.http.middleware import RequestMiddleware
from wakeful.api.http.schemas import SCHEMAS
from wakeful.api.http.schemas.enums import named
from wakeful.api.http.worker_app import NO_TELEMETRY, Ready, health_router, metrics_router
from wakeful.api.rpc import connection
from wakeful.dashboard import routes as dashboard
from wakeful.errors import NotFound
from wakeful.service.services import Services
from wakeful.values.json_value import camel
from wakeful.values.package import VERSION

_ABOUT: Final = """Durable cron for AI agents.

Every path under `/api` requires `Authorization: Bearer wk_…`, or the cookie of a sign-in session. Errors are
`application/problem+json` with a `code` and a `detail` that says what to do. Lists are paged: send the
`cursor` of a page to get the next one.
"""
_TAGS: Final = (
    "jobs", "hooks", "runs", "work", "dead letters", "incidents", "suggestions", "inbox", "agents",
    "instances", "sessions",
    "workspaces", "workflows", "keys", "quotas", "cost", "operations", "audit", "status", "events", "health",
)  # fmt: skip

#: The path of all pages of a workspace.
_PAGES: Final = "/workspaces/"
_NONE: Final[tuple[Match, Scope]] = Match.NONE, {}


def create_app(services: Services, *, ready: Ready | None = None, direct: bool = True) -> FastAPI:
    """Return the app over these services. `ready` returns why the process is not ready, or None.

    Without `direct`, the framework handles each request.
    """
    app = FastAPI(
        title="Wakeful",
        version=VERSION,
        description=_ABOUT,
        openapi_tags=[{"name": name} for name in _TAGS],
        docs_url=None,  # FastAPI's page loads scripts from other hosts
        redoc_url=None,
        redirect_slashes=False,
        **NO_TELEMETRY,
    )
    app.state.services = services
    app.state.ready = ready or _always
    app.state.connections = connection.Connections()
    problems.install(app)
    others = _add_pages(app)
    # `/runs/claim` must come before `/runs/{run_id}`, which would match it too.
    for router in (
        health_router,
        agents.router,
        agents.messages_router,
        agents.sessions_router,
        instances.signals_router,
        instances.router,
        jobs.router,
        job_actions.router,
        job_actions.checks_router,
        hooks.router,
        hooks.outside_router,
        job_actions.bulk_router,
        executors.router,
        runs.router,
        jobs.search_router,
        dead_letters.router,
        dead_letters.incidents_router,
        suggestions.router,
        inbox.router,
        sign_in.router,
        admin.cost_router,
        admin.operations_router,
        admin.router,
        events.router,
        metrics_router,
        connection.router,
        docs_router,
        oauth.router,
    ):
        _add_routes(app, router)
    app.router.routes.extend(others)
    if find_spec("mcp") is not None:  # wakeful[mcp]
        import_module("wakeful.api.mcp.http").mount(app)
        import_module("wakeful.dashboard.consent").mount(app)
    else:
        app.router.routes.append(Route("/mcp", _refuse_mcp, methods=["GET", "POST"], include_in_schema=False))
    if direct:
        app.add_middleware(DirectRoutes, routes=app.router.routes, handlers=app.exception_handlers)
    app.add_middleware(RequestMiddleware)
    _add_schemas(app)
    return app


def end_streams(app: FastAPI) -> None:
    """End event streams, waiting claims and RPC connections, which would delay the end of the process."""
    services: Services = app.state.services
    services.events.shut_down()
    services.live.shut_down()
    services.runs.pull.shut_down()
    connections: connection.Connections = app.state.connections
    connections.shut_down()


async def _refuse_mcp(request: Request) -> Response:
    raise NotFound("this server has no MCP: its operator installs the extra 'mcp' of Wakeful and restarts it")


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


class RouteGroup(BaseRoute):
    """Routes whose paths all begin with `prefix`. As one after the other, but faster."""

    def __init__(self, prefix: str, routes: Sequence[BaseRoute]) -> None:
        self._prefix = prefix
        #: the routes, in the order in which they are tried
        self.routes = tuple(routes)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return the first route that matches the path and the method, else one that matches the path."""
        path: str = scope.get("path", "")
        if not path.removeprefix(scope.get("root_path", "")).startswith(self._prefix):
            return _NONE
        found = _NONE
        for route in self.routes:
            match, child = route.matches(scope)
            if match is Match.FULL:
                return match, {**child, "grouped": route}
            if match is Match.PARTIAL and found is _NONE:
                found = match, {**child, "grouped": route}
        return found

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request with the route that matched."""
        route: BaseRoute = scope["grouped"]
        await route.handle(scope, receive, send)
