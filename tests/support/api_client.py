"""A server to ask over HTTP, and somebody who asks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import aiohttp

from wakeful import Wakeful
from wakeful.api.http.app import create_app
from wakeful.api.server import Listening, readiness
from wakeful.service.auth.access import LOCAL
from wakeful.settings import Settings

HOME = "/api/workspaces/default"
JOBS = f"{HOME}/agents/default/jobs"
_OUTSIDE = ("/api", "/healthz", "/readyz", "/metrics", "/openapi", "/docs")


class Reply(NamedTuple):
    """What was answered."""

    status: int
    headers: Mapping[str, str]
    body: Any

    @property
    def code(self) -> str:
        """The code of a problem, which is in the one form that problems have."""
        assert self.headers["content-type"] == "application/problem+json", self
        assert self.body.keys() == {"type", "title", "status", "detail", "code", "instance"}
        assert self.body["status"] == self.status
        return str(self.body["code"])


@dataclass
class ApiClient:
    """Asks with a key."""

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
        """Ask; a path is that of the default workspace unless it is whole."""
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
        """The same, with another key."""
        return ApiClient(self.url, self.session, key, self.app)

    async def new(self, role: str, workspace: str | None = "default", **given: object) -> ApiClient:
        """Somebody else, with a fresh key of this role."""
        document = {"name": role, "role": role, **given}
        return self.with_key((await self.app.services.keys.create(LOCAL, workspace, document))[1])


@asynccontextmanager
async def served(app: Wakeful, settings: Settings | None = None) -> AsyncIterator[ApiClient]:
    """The operator of a server on a port of its own; the scheduler behind it has started."""
    http = Listening(create_app(app.services, ready=readiness(app)), settings or Settings(port=0))
    async with http, aiohttp.ClientSession() as session:
        key = await app.services.keys.first_key()
        yield ApiClient(http.url, session, key, app)
