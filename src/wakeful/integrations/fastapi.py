"""The API and the dashboard of an embedded scheduler, below a path of a FastAPI or Starlette application.

```python
from fastapi import FastAPI
from wakeful import Wakeful
from wakeful.integrations.fastapi import WebApp

app = Wakeful("sqlite:///wakeful.db")
web = WebApp(app)
host = FastAPI(lifespan=web.lifespan)
host.mount("/wakeful", web)
```

The scheduler runs on the event loop of the host. Each process of the host is a replica.
"""

from __future__ import annotations

import asyncio
import inspect
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final, cast

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from wakeful.api.http.dependencies import HOST_USER
from wakeful.api.http.problems import problem
from wakeful.app.embedded import Wakeful
from wakeful.dashboard.pages.sign_in import HOST_SIGN_IN
from wakeful.errors import InvalidArgument
from wakeful.server.http_app import create_app, end_streams
from wakeful.server.serve import readiness
from wakeful.service.auth.access import ROLES, Principal, Role
from wakeful.settings import current_settings

#: Seconds for which the user of a request is not authenticated again: streams and pages ask several times.
_KNOWN_S: Final = 1.0
#: Seconds between two checks of whether the server of the host stops.
_POLL_S: Final = 0.2
_NOT_STARTED: Final = (
    "the scheduler does not run on this event loop; start it with the host: FastAPI(lifespan=web.lifespan), "
    "or `async with web.lifespan(host):` in a lifespan of your own"
)


@dataclass(frozen=True, slots=True)
class User:
    """A user whom the host application has authenticated.

    - `name`: the name in the audit log, which has it as `user:ada`
    - `role`: `admin`, `member` (reads and runs), or `agent` with the name of its `agent`
    - `workspace`: the only workspace that the user sees; None: all of them
    """

    name: str
    role: Role = "member"
    workspace: str | None = "default"
    agent: str | None = None

    def __post_init__(self) -> None:
        if not self.name:
            raise InvalidArgument("name: a user of the host has no name; return None if nobody is signed in")
        if self.role not in ROLES:
            raise InvalidArgument(f"role: '{self.role}' is not one of {', '.join(ROLES)}")
        if (self.role == "agent") != (self.agent is not None):
            raise InvalidArgument("agent: give it with the role 'agent', and only with it")
        if self.role == "agent" and self.workspace is None:
            raise InvalidArgument("workspace: give that of the agent")

    @property
    def principal(self) -> Principal:
        """The caller, as all services take it."""
        return Principal(f"user:{self.name[:200]}", self.role, self.workspace, self.agent)


#: Returns the user of a request or WebSocket of the host; None: nobody is signed in. It may be async.
Authenticate = Callable[[HTTPConnection], User | Awaitable[User | None] | None]


class WebApp:
    """The API, the dashboard, MCP and RPC of a scheduler, as an application to mount.

    - `authenticate`: returns the user of a request to the host. Without it, and where it returns None, API
      keys and sign-in sessions are accepted as by a server. A function that is not async runs in a thread
    - `sign_in_url`: the page of the host that a browser without a user is sent to, with `?next=`
    """

    def __init__(
        self, app: Wakeful, *, authenticate: Authenticate | None = None, sign_in_url: str | None = None
    ) -> None:
        self._app = app
        self._authenticate = authenticate
        self._sign_in_url = sign_in_url
        self._http: FastAPI | None = None

    @asynccontextmanager
    async def lifespan(self, host: ASGIApp) -> AsyncIterator[None]:
        """Run the scheduler, unless it runs, and accept requests: `FastAPI(lifespan=web.lifespan)`."""
        async with AsyncExitStack() as stack:
            if self._app.home.loop is None:
                await stack.enter_async_context(self._app)
            if (admin_key := current_settings().admin_key) is not None:
                await self._app.services.auth.keys.apply_admin_key(admin_key)
            http = create_app(self._app.services, ready=readiness(self._app))
            await stack.enter_async_context(http.router.lifespan_context(http))
            watching = asyncio.create_task(_end_streams_at_stop(http), name="wakeful-host")
            stack.callback(watching.cancel)
            self._http = http
            try:
                yield
            finally:
                self._http = None
                end_streams(http)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request of the host. The scope and the state of the host's request stay as they are."""
        if self._http is None or not self._app.home.is_here:
            await _refuse(scope, receive, send)
            return
        own: Scope = {**scope, "state": {}, "app_root_path": scope.get("root_path", "")}
        if self._authenticate is not None:
            own[HOST_USER] = _Request(self._authenticate, HTTPConnection(scope)).user
        if self._sign_in_url is not None:
            own[HOST_SIGN_IN] = self._sign_in_url
        await self._http(own, receive, send)


class _Request:
    """The user of a request, who may sign out while its response is a stream."""

    def __init__(self, authenticate: Authenticate, request: HTTPConnection) -> None:
        self._authenticate = authenticate
        self._request = request
        self._known: Principal | None = None
        self._asked = float("-inf")

    async def user(self) -> Principal | None:
        """Return the user; None: nobody is signed in."""
        if time.monotonic() - self._asked > _KNOWN_S:
            found = await self._ask()
            self._known, self._asked = found.principal if found else None, time.monotonic()
        return self._known

    async def _ask(self) -> User | None:
        try:
            return await self._call()
        except HTTPException as error:
            if error.status_code != 401:
                raise
            return None  # as dependencies of FastAPI say it

    async def _call(self) -> User | None:
        if inspect.iscoroutinefunction(self._authenticate):
            return cast("User | None", await self._authenticate(self._request))
        found = await run_in_threadpool(self._authenticate, self._request)
        return await found if isinstance(found, Awaitable) else found


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        await problem(503, _NOT_STARTED, "unavailable", path=scope["path"])(scope, receive, send)
    elif scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1012, "reason": "the scheduler does not run"})


async def _end_streams_at_stop(http: FastAPI) -> None:
    """End event streams as soon as uvicorn begins to stop: it waits for them before it ends the lifespan.

    Uvicorn tells applications nothing before that, but its handler of SIGTERM is a method of its server.
    """
    while True:
        await asyncio.sleep(_POLL_S)
        server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
        if getattr(server, "should_exit", False):
            end_streams(http)
