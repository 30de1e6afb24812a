"""The HTTP app: every path put together, errors in one form, and the document that tells of it all."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, cast

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute

from wakeful import __version__
from wakeful.api.http import (
    admin,
    agents,
    dead_letters,
    executors,
    health,
    job_actions,
    jobs,
    messages,
    oauth,
    problems,
    runs,
)
from wakeful.api.http.docs import router as docs_router
from wakeful.api.http.health import Ready
from wakeful.api.http.middleware import RequestMiddleware
from wakeful.api.http.schemas import SCHEMAS
from wakeful.api.http.schemas.enums import named
from wakeful.api.rpc import socket
from wakeful.document.values import camel
from wakeful.service.services import Services

_ABOUT: Final = """Cron for agents: it keeps time in a database and wakes the agent.

Everything under `/api` takes `Authorization: Bearer wk_…`. Errors are `application/problem+json` with a
`code` and a sentence that says what to do. Lists come in pages: send the `cursor` of one for the next.
"""
_TAGS: Final = (
    "jobs", "runs", "work", "dead letters", "agents", "sessions", "workspaces", "workflows",
    "keys", "quotas", "audit", "status", "events", "health",
)  # fmt: skip


def create_app(services: Services, *, ready: Ready | None = None) -> FastAPI:
    """The app over these services. `ready` is what /readyz asks: it says what is not ready, or None."""
    app = FastAPI(
        title="Wakeful",
        version=__version__,
        description=_ABOUT,
        openapi_tags=[{"name": name} for name in _TAGS],
        docs_url=None,  # FastAPI's page loads its scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=_operation_id,
    )
    app.state.services = services
    app.state.ready = ready or _always
    app.state.connections = socket.Connections()
    problems.install(app)
    # `/runs/claim` stands before `/runs/{run_id}`, which would take it for a run.
    for part in (health, agents, messages, jobs, job_actions, executors, runs, dead_letters, admin):
        app.include_router(part.router)
    for name in ("events", "metrics"):
        _include(app, f"wakeful.api.http.{name}")
    app.include_router(socket.router)
    app.include_router(docs_router)
    app.include_router(oauth.router)
    if find_spec("mcp") is not None:  # wakeful[mcp]
        import_module("wakeful.api.mcp.http").mount(app)
    app.add_middleware(RequestMiddleware)
    _tell(app)
    return app


def _operation_id(route: APIRoute) -> str:
    """A short id that generated clients use as the name of a method: `create_job` is `createJob`."""
    return camel(route.name)


def _include(app: FastAPI, module: str) -> None:
    if find_spec(module) is not None:
        app.include_router(cast(APIRouter, import_module(module).router))


async def _always() -> str | None:
    return None


def _tell(app: FastAPI) -> None:
    """Put the schemas into the document, which FastAPI would only do for models of its own."""
    made = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = made()
            components = document.setdefault("components", {})
            components["schemas"] = dict(sorted(SCHEMAS.items()))
            for path in document["paths"].values():
                for operation in path.values():
                    _forget_own_errors(operation["responses"])
                    if "parameters" in operation:
                        operation["parameters"] = named(operation["parameters"])
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _forget_own_errors(responses: dict[str, Any]) -> None:
    """Parameters that cannot be read are 400 here, and problems: not what FastAPI says by itself."""
    if "HTTPValidationError" in str(responses.get("422")):
        del responses["422"]
