"""An HTTP client that behaves like a browser: it keeps cookies, and sends no key."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

from tests.support.api_client import HOME, Reply
from wakeful.api.http.session_cookie import masked
from wakeful.service.auth.web_sessions import csrf_token

COOKIE = "wakeful_session"


@dataclass
class BrowserClient:
    """A client with a cookie jar; several servers on one host share it, as in a browser."""

    url: str
    session: aiohttp.ClientSession

    async def __call__(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        form: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Send a request and return the response; redirects are not followed."""
        async with self.session.request(
            method, self.url + path, json=body, data=form, headers=headers, allow_redirects=False
        ) as response:
            is_json = "json" in response.headers.get("content-type", "")
            content: Any = await (response.json(content_type=None) if is_json else response.text())
            return Reply(response.status, response.headers, content)

    async def sign_in(self, key: str | None, **fields: str) -> Reply:
        """Send the form of the sign-in page."""
        return await self("POST", "/sign-in", form={"key": key or "", **fields})

    async def status(self) -> int:
        """Return the status of a request that needs a session."""
        return (await self("GET", f"{HOME}/jobs")).status

    @property
    def token(self) -> str:
        """The token of the session; empty without one."""
        return next((cookie.value for cookie in self.session.cookie_jar if cookie.key == COOKIE), "")

    @property
    def csrf(self) -> dict[str, str]:
        """The header of a page of this session."""
        return {"x-wakeful-csrf": masked(csrf_token(self.token))}

    def at(self, url: str) -> BrowserClient:
        """Return the same browser at another server."""
        return BrowserClient(url, self.session)


@asynccontextmanager
async def browsing(url: str) -> AsyncIterator[BrowserClient]:
    """Return a browser without cookies."""
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        yield BrowserClient(url, session)
