"""OpenID Connect issuers: a real one in a process of its own, and one that lies as a test tells it to."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import sys
import time
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import aiohttp
from aiohttp import web
from authlib.oauth2.rfc7636 import create_s256_code_challenge
from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey

from tests.support.waiting import eventually
from tests.support.web_programs import free_port

CLIENT = "wakeful-test"


@dataclass
class RealIssuer:
    """`oidc-provider-mock`."""

    url: str
    session: aiohttp.ClientSession

    async def set_person(self, subject: str, **claims: object) -> None:
        """Set what the issuer says about a person."""
        async with self.session.put(f"{self.url}/users/{subject}", json=claims) as response:
            assert response.status == 204, await response.text()

    async def sign_in(self, address: str, subject: str) -> str:
        """Fill the form of the issuer as a person; return the address that the browser is sent back to."""
        async with self.session.post(address, data={"sub": subject}, allow_redirects=False) as response:
            assert response.status in (302, 303), await response.text()
            return response.headers["location"]


@asynccontextmanager
async def real_issuer() -> AsyncIterator[RealIssuer]:
    """Run the issuer until the block ends."""
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "ignore", "-m", "oidc_provider_mock", "--port", str(port),
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        async with aiohttp.ClientSession() as session:
            issuer = RealIssuer(f"http://127.0.0.1:{port}", session)

            async def is_up() -> bool:
                assert process.returncode is None, "the issuer has exited"
                try:
                    async with session.get(f"{issuer.url}/.well-known/openid-configuration") as response:
                        return response.status == 200
                except aiohttp.ClientError:
                    return False

            await eventually(is_up)
            yield issuer
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def new_key(kid: str | None = "one") -> RSAKey:
    """Return a signing key."""
    return RSAKey.generate_key(2048, {"kid": kid} if kid else None)


@dataclass
class FakeIssuer:
    """An issuer whose documents and tokens the test replaces. Without that, it is correct."""

    url: str = ""
    key: RSAKey = field(default_factory=new_key)
    #: the keys that it publishes; None: that of its tokens
    published: list[RSAKey] | None = None
    #: claims that are set, or with None removed, in the next tokens
    claims: dict[str, Any] = field(default_factory=dict)
    user_info: dict[str, Any] | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    #: signs the claims of a token
    sign: Callable[[dict[str, Any]], str] | None = None
    #: called before each response
    before: Callable[[str], Awaitable[web.StreamResponse | None]] | None = None
    requests: list[str] = field(default_factory=list)
    _codes: dict[str, dict[str, str]] = field(default_factory=dict)

    def code(self, address: str) -> str:
        """Sign the person in at the address of an authorization request; return the way back."""
        query = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        assert query["response_type"] == "code"
        assert query["code_challenge_method"] == "S256"
        code = secrets.token_urlsafe()
        self._codes[code] = query
        return f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state']})}"

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append(request.path)
        if self.before is not None:
            early = await self.before(request.path)
            if early is not None:
                return early
        if request.path == "/.well-known/openid-configuration":
            return web.json_response(
                {
                    "issuer": self.url,
                    "authorization_endpoint": f"{self.url}/authorize",
                    "token_endpoint": f"{self.url}/token",
                    "userinfo_endpoint": f"{self.url}/userinfo",
                    "jwks_uri": f"{self.url}/jwks",
                    **self.metadata,
                }
            )
        if request.path == "/jwks":
            keys = [self.key] if self.published is None else self.published
            return web.json_response(KeySet(list(keys)).as_dict())
        if request.path == "/userinfo":
            return web.json_response(self.user_info) if self.user_info else web.Response(status=404)
        return await self._token(request)

    async def _token(self, request: web.BaseRequest) -> web.StreamResponse:
        form = {name: str(value) for name, value in (await request.post()).items()}
        asked = self._codes.pop(form.get("code", ""), None)
        verifier = form.get("code_verifier", "")
        if asked is None or create_s256_code_challenge(verifier) != asked["code_challenge"]:
            return web.json_response({"error": "invalid_grant"}, status=400)
        assert form["redirect_uri"] == asked["redirect_uri"]
        now = int(time.time())
        claims = {
            "iss": self.url, "aud": CLIENT, "sub": "ada", "iat": now, "exp": now + 300,
            "nonce": asked["nonce"], "name": "Ada Lovelace", "email": "ada@example.com", "groups": ["ops"],
            **self.claims,
        }  # fmt: skip
        claims = {name: value for name, value in claims.items() if value is not None}
        header = {"alg": "RS256", **({"kid": self.key.kid} if self.key.kid else {})}
        token = self.sign(claims) if self.sign else jwt.encode(header, claims, self.key)
        return web.json_response({"access_token": "at", "token_type": "Bearer", "id_token": token})


@asynccontextmanager
async def fake_issuer() -> AsyncIterator[FakeIssuer]:
    """Serve the issuer until the block ends."""
    issuer = FakeIssuer()
    runner = web.ServerRunner(web.Server(issuer), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    issuer.url = re.sub(r"/$", "", f"http://127.0.0.1:{runner.addresses[0][1]}")
    try:
        yield issuer
    finally:
        await runner.cleanup()


def unsigned(claims: dict[str, Any], header: dict[str, Any]) -> str:
    """Return a token with any header and no signature."""
    parts = [json.dumps(part).encode() for part in (header, claims)]
    return ".".join(urlsafe_b64encode(part).decode().rstrip("=") for part in parts) + "."
