"""A person with a browser, and an assistant with the official client that signs in by OAuth."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import secrets
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider, TokenStorage
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)
from pydantic import AnyUrl

from tests.support.api_client import Reply
from tests.support.browser_client import BrowserClient

CALLBACK = "http://localhost:3030/callback"


class MemoryStorage(TokenStorage):
    """Keeps what a client knows."""

    tokens: OAuthToken | None = None
    client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


@dataclass
class Person:
    """A person who has signed in to the dashboard with a browser."""

    browser: BrowserClient
    choice: dict[str, str] = field(default_factory=lambda: {"role": "agent", "agent": "writer"})
    #: the pages that were shown, and where the browser was sent after each
    pages: list[Reply] = field(default_factory=list)
    location: str = ""
    returned: dict[str, str] = field(default_factory=dict)

    async def open(self, address: str) -> None:
        """Open the address that an assistant asks for, and decide."""
        path = address.removeprefix(self.browser.url)
        page = await self.browser("GET", path)
        self.pages.append(page)
        assert page.status == 200, page
        reply = await self.send(page)
        assert reply.status == 303, reply
        self.location = reply.headers["location"]
        query = parse_qs(urlsplit(self.location).query)
        self.returned = {name: value for name, (value,) in query.items()}

    async def send(self, page: Reply, **changed: str) -> Reply:
        """Send the form of a page."""
        found = re.search(r'<form method="post" action="([^"]+)"', page.body)
        assert found is not None
        form = {**fields_of(page), "decision": "allow", **self.choice, **changed}
        return await self.browser("POST", html.unescape(found[1]), form=form)

    async def answer(self) -> AuthorizationCodeResult:
        """Return what the browser brought back to the assistant."""
        return AuthorizationCodeResult(**self.returned)


def fields_of(page: Reply) -> dict[str, str]:
    """Return the hidden fields of a page, and the chosen workspace."""
    hidden = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page.body))
    workspace = re.search(r'<select name="workspace".*?<option value="([^"]+)"', page.body, re.DOTALL)
    return hidden | ({"workspace": workspace[1]} if workspace else {})


def sign_in_with(
    person: Person, url: str, storage: MemoryStorage, client_metadata_url: str | None = None
) -> OAuthClientProvider:
    """Return what signs in the official client with the address of the server alone."""
    metadata = OAuthClientMetadata(client_name="Test assistant", redirect_uris=[AnyUrl(CALLBACK)])
    return OAuthClientProvider(
        url, metadata, storage, person.open, person.answer, client_metadata_url=client_metadata_url
    )


@dataclass
class RawClient:
    """A client that sends each request of OAuth by itself."""

    url: str
    http: httpx2.AsyncClient
    client_id: str = ""
    verifier: str = field(default_factory=lambda: secrets.token_urlsafe(48))

    async def register(self, **fields: Any) -> httpx2.Response:
        """Register, with the usual metadata and these fields."""
        metadata = {"client_name": "Raw", "redirect_uris": [CALLBACK], "token_endpoint_auth_method": "none"}
        response = await self.http.post(f"{self.url}/oauth/register", json=metadata | fields)
        if response.status_code == 201:
            self.client_id = response.json()["client_id"]
        return response

    def authorization(self, **fields: str) -> str:
        """Return the path that a person opens."""
        digest = hashlib.sha256(self.verifier.encode()).digest()
        query = {
            "response_type": "code",
            "client_id": self.client_id,
            "redirect_uri": CALLBACK,
            "code_challenge": base64.urlsafe_b64encode(digest).decode().rstrip("="),
            "code_challenge_method": "S256",
            "state": "s1",
            "resource": f"{self.url}/mcp",
        }
        return f"/oauth/authorize?{urlencode({k: v for k, v in (query | fields).items() if v})}"

    async def exchange(self, code: str, **fields: str) -> httpx2.Response:
        """Exchange a code."""
        own = {"grant_type": "authorization_code", "code": code, "redirect_uri": CALLBACK}
        return await self.token(**(own | {"code_verifier": self.verifier} | fields))

    async def refresh(self, refresh_token: str, **fields: str) -> httpx2.Response:
        """Exchange a refresh token."""
        return await self.token(**({"grant_type": "refresh_token", "refresh_token": refresh_token} | fields))

    async def token(self, **fields: str) -> httpx2.Response:
        """Send a request to the token endpoint."""
        return await self.http.post(f"{self.url}/oauth/token", data={"client_id": self.client_id} | fields)

    async def call(self, access_token: str, path: str = "/mcp") -> httpx2.Response:
        """Call the server with a token."""
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        headers = {
            "authorization": f"Bearer {access_token}",
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
        }
        return await self.http.post(self.url + path, content=body, headers=headers)
