"""A server for tests, and an HTTP client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import aiohttp

from wakeful import Wakeful
from wakeful.server.http_app import create_app
from wakeful.server.serve import Listening, readiness
from wakeful.service.auth.access import LOCAL
from wakeful.settings import Settings

HOME = "/api/workspaces/default"
JOBS = f"{HOME}/agents/default/jobs"
_OUTSIDE = (
    "/api",
    "/healthz",
    "/readyz",
    "/metrics",
    "/openapi",
    "/docs",
    "/hooks",
    "/workspaces/",
    "/mcp",
    "/.well-known",
)


class Reply(NamedTuple):
    """A response."""

    status: int
    headers: Mapping[str, str]
    body: Any

    @property
    def code(self) -> str:
        """Return the code of a problem; checks the format of the problem."""
        assert self.headers["content-type"] == "application/problem+json", self
        assert self.body.keys() - {"errors"} == {"type", "title", "status", "detail", "code", "instance"}
        assert self.body["status"] == self.status
        return str(self.body["code"])


@dataclass
class ApiClient:
    """A client with a key."""

    url: str
    session: aiohttp.ClientSession
    key: str | None = None
    app: Wakeful = field(repr=False, default=None)  # type: ignore[assignment]

    async def __call__(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        data: Any = None,
        headers: Mapping[str, str] | None = None,
        **query: str | int,
    ) -> Reply:
        """Send a request; a path without /api is in the default workspace."""
        whole = path if path.startswith(_OUTSIDE) else HOME + path
        own = {} if self.key is None else {"Authorization": f"Bearer {self.key}"}
        async with self.session.request(
            method,
            self.url + whole,
            json=body,
            data=data,
            params=query,
            headers={**own, **(headers or {})},
            allow_redirects=False,
        ) as response:
            is_json = "json" in response.headers.get("content-type", "")
            content = await (response.json(content_type=None) if is_json else response.text())
            return Reply(response.status, response.headers, content)

    def with_key(self, key: str | None) -> ApiClient:
        """Return the same client with another key."""
        return ApiClient(self.url, self.session, key, self.app)

    async def new(self, role: str, workspace: str | None = "default", **given: object) -> ApiClient:
        """Return a client with a new key of this role."""
        document = {"name": role, "role": role, **given}
        return self.with_key((await self.app.services.auth.keys.create(LOCAL, workspace, document))[1])


@asynccontextmanager
async def served(
    app: Wakeful, settings: Settings | None = None, *, direct: bool = True
) -> AsyncIterator[ApiClient]:
    """Start the app and a server on its own port; yields an admin's client."""
    http_app = create_app(app.services, ready=readiness(app), direct=direct)
    http = Listening(http_app, settings or Settings(port=0))
    async with http, aiohttp.ClientSession() as session:
        key = await app.services.auth.keys.first_key()
        yield ApiClient(http.url, session, key, app)
