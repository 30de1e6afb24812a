"""A FastAPI application with a scheduler below a path, its own sign-in, and a real uvicorn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import uvicorn
from fastapi import FastAPI, HTTPException, Request, Response
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import HTTPConnection

from wakeful import Wakeful
from wakeful.integrations.fastapi import User, WebApp

ROOT = "/wakeful"
#: Seconds for the server to stop.
_STOP_S = 30.0


@dataclass
class Host:
    """The application, and what its users and its middleware do."""

    app: Wakeful
    web: WebApp = field(init=False)
    fastapi: FastAPI = field(init=False)
    url: str = ""
    #: by session id, the users who are signed in at the host
    users: dict[str, User] = field(default_factory=dict)
    #: whether every request is refused with an exception
    refuses: bool = False
    #: what the middleware found in the state of each request after its response
    states: list[dict[str, object]] = field(default_factory=list)
    server: uvicorn.Server = field(init=False)

    def __post_init__(self) -> None:
        self.web = WebApp(self.app, authenticate=self.user_of, sign_in_url="/login")
        self.fastapi = FastAPI(lifespan=self.web.lifespan)
        self.fastapi.mount(ROOT, self.web)
        self.fastapi.add_middleware(BaseHTTPMiddleware, dispatch=self.note_state)
        self.fastapi.add_middleware(GZipMiddleware, minimum_size=10)

        @self.fastapi.get("/login/{session}")
        def log_in(session: str) -> Response:
            response = Response("hello")
            response.set_cookie("session", session)
            return response

        @self.fastapi.get("/")
        def home(request: Request) -> str:
            return f"the host with {sorted(request.cookies)}"

    async def user_of(self, request: HTTPConnection) -> User | None:
        """Return the user of the session cookie of the host."""
        assert request.app is self.fastapi
        if self.refuses:
            raise HTTPException(401)
        return self.users.get(request.cookies.get("session", ""))

    async def note_state(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        """Use names in the state that the scheduler uses in its own."""
        request.state.csrf = request.state.actor = request.state.request_id = "of the host"
        response = await call_next(request)
        assert request.app is self.fastapi
        self.states.append(dict(request.state._state))
        return response


@asynccontextmanager
async def serving_host(host: Host) -> AsyncIterator[Host]:
    """Serve it on a free port."""
    config = uvicorn.Config(host.fastapi, port=0, log_config=None, lifespan="on")
    host.server = uvicorn.Server(config)
    serving = asyncio.create_task(host.server.serve())
    while not host.server.started and not serving.done():
        await asyncio.sleep(0.01)
    if serving.done():
        await serving
    port = host.server.servers[0].sockets[0].getsockname()[1]
    host.url = f"http://127.0.0.1:{port}"
    try:
        yield host
    finally:
        host.server.should_exit = True
        _, running = await asyncio.wait({serving}, timeout=_STOP_S)
        host.server.force_exit = True
        await serving
        assert not running, "the server waits for requests that do not end"
