"""MCP at `/mcp` over streamable HTTP: every request is authenticated and stateless.

There are no sessions: any replica handles any request, and a revoked key stops working. There is no stream
either, so GET returns 405, as the protocol defines for such servers. `?agent=writer` sets the agent of calls
that name none, and `?workspace=acme` the workspace, for a key that is not bound to one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final, cast

from fastapi import FastAPI
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from wakeful.api.http.dependencies import (
    RUN_ID,
    address_of,
    bearer_of,
    bearer_principal,
    count_request,
    refuse_unknown,
    services_of,
)
from wakeful.api.http.oauth import MCP, own_issuer
from wakeful.api.http.problems import MAX_BODY
from wakeful.api.mcp import oauth
from wakeful.api.mcp.events import EventCaller, add_events
from wakeful.api.mcp.server import Context, make_server
from wakeful.errors import Unavailable
from wakeful.service.auth.access import Principal
from wakeful.service.auth.oauth import ACCESS_PREFIX
from wakeful.service.cron_tool.local import LocalScheduler
from wakeful.service.cron_tool.port import Scheduler

_PARAMETERS: Final = ("workspace", "agent")


class Mcp:
    """The path `/mcp`, while the app runs."""

    def __init__(self) -> None:
        self._manager: StreamableHTTPSessionManager | None = None
        self.route: Route | None = None

    @asynccontextmanager
    async def running(self, app: FastAPI) -> AsyncIterator[None]:
        """Handle requests inside this context."""
        server = make_server(_scheduler)
        add_events(server, _event_caller)
        manager = StreamableHTTPSessionManager(
            server, json_response=True, stateless=True, max_request_body_size=MAX_BODY
        )
        async with manager.run():
            self._manager = manager
            try:
                yield
            finally:
                self._manager = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Authenticate and handle a request."""
        scope["route"] = self.route  # the name in logs and metrics
        request = Request(scope, receive)
        principal = await _principal(request)
        if self._manager is None:
            raise Unavailable("the server is starting or stopping; try again in a moment")
        query = request.query_params
        refuse_unknown(query, _PARAMETERS, "parameter")
        services, workspace, agent = services_of(request), query.get("workspace"), query.get("agent")
        request.state.scheduler = LocalScheduler(services, principal, workspace or None, agent or None)
        request.state.event_caller = EventCaller(
            services.agents.subscriptions,
            principal,
            workspace or principal.workspace or "default",
            agent or None,
        )
        await self._manager.handle_request(scope, receive, send)


def mount(app: FastAPI) -> None:
    """Add `/mcp` to an app."""
    app.state.oauth = True
    path = Mcp()
    path.route = Route("/mcp", path, methods=["POST"], include_in_schema=False)
    app.router.routes += [path.route, *oauth.routes()]
    app.router.lifespan_context = path.running


async def _principal(request: Request) -> Principal:
    """Return the principal of a key, a token of an issuer, or an access token of this server."""
    bearer = bearer_of(request) or ""
    issuer = own_issuer(request) if bearer.startswith(ACCESS_PREFIX) else None
    if issuer is None:
        return await bearer_principal(request)
    run_id = request.headers.get(RUN_ID)
    principal = await services_of(request).auth.oauth.authenticate(bearer, issuer + MCP, address_of(request))
    request.state.actor = principal.actor
    return count_request(request, replace(principal, run_id=run_id) if run_id else principal)


def _scheduler(ctx: Context) -> Scheduler:
    return cast(Scheduler, cast(Request, ctx.request).state.scheduler)


def _event_caller(ctx: Context) -> EventCaller:
    return cast(EventCaller, cast(Request, ctx.request).state.event_caller)
