"""MCP at `/mcp`, by its streamable HTTP: every request shows its key, and is answered by itself.

There are no sessions: any replica answers any request, and a key that is revoked opens nothing any more. So
there is no stream to hold open either, and GET is answered 405, as the protocol has it for such servers.
`?agent=writer` says whose jobs they are where a call does not, and `?workspace=acme` which workspace, for a
key that is not bound to one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, cast

from fastapi import FastAPI
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from wakeful.api.http.declared import refuse_unknown
from wakeful.api.http.dependencies import current_principal, services_of
from wakeful.api.http.problems import MAX_BODY
from wakeful.api.mcp.local import LocalScheduler
from wakeful.api.mcp.port import Scheduler
from wakeful.api.mcp.server import Context, make_server
from wakeful.errors import Unavailable

_PARAMETERS: Final = ("workspace", "agent")


class Mcp:
    """The path `/mcp`, once the app runs."""

    def __init__(self) -> None:
        self._manager: StreamableHTTPSessionManager | None = None
        self.route: Route | None = None

    @asynccontextmanager
    async def running(self, app: FastAPI) -> AsyncIterator[None]:
        """Answer, as long as this lasts."""
        manager = StreamableHTTPSessionManager(
            make_server(_scheduler), json_response=True, stateless=True, max_request_body_size=MAX_BODY
        )
        async with manager.run():
            self._manager = manager
            try:
                yield
            finally:
                self._manager = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Find out who asks, and answer."""
        scope["route"] = self.route  # by which the log and the metrics call it
        request = Request(scope, receive)
        principal = await current_principal(request)
        if self._manager is None:
            raise Unavailable("the server is about to start or to stop; try again in a moment")
        query = request.query_params
        refuse_unknown(query, _PARAMETERS, "parameter")
        request.state.scheduler = LocalScheduler(
            services_of(request), principal, query.get("workspace") or None, query.get("agent") or None
        )
        await self._manager.handle_request(scope, receive, send)


def mount(app: FastAPI) -> None:
    """Put `/mcp` on an app."""
    path = Mcp()
    path.route = Route("/mcp", path, methods=["POST"], include_in_schema=False)
    app.router.routes.append(path.route)
    app.router.lifespan_context = path.running


def _scheduler(ctx: Context) -> Scheduler:
    return cast(Scheduler, cast(Request, ctx.request).state.scheduler)
