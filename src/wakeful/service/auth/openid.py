"""Sign-in at an OpenID Connect issuer: the authorization code flow with PKCE, state and nonce.

Authlib composes the requests and checks the claims of the id_token; joserfc verifies its signature. This
module sends the requests, within limits of time and size, and keeps the issuer's metadata and keys.

State, nonce and code verifier follow from a secret that only the browser has, in a cookie: no replica stores
anything, any of them can finish what another began, and a code is useless in another browser.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp

from wakeful.errors import Unauthenticated, Unavailable
from wakeful.logs import get_logger
from wakeful.service.auth.people import PersonRow, clean_name, read_person
from wakeful.settings import Settings
from wakeful.values.clock import Clock

#: Seconds for all requests of one sign-in.
LIMIT_S: Final = 10.0
#: How long metadata and keys are used, and until the next try after they could not be read.
_KEEP_S: Final = 3_600.0
_RETRY_S: Final = 1.0
_LARGEST: Final = 1_000_000
#: How far the clock of the issuer may differ, in seconds.
_LEEWAY_S: Final = 60
_ALGORITHMS: Final = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519",
)  # fmt: skip
_KEY_TYPES: Final = ("RSA", "EC", "OKP")
_DISCOVERY: Final = "/.well-known/openid-configuration"

log = get_logger("wakeful.sign_in")


@dataclass(slots=True)
class _Kept:
    """A document of the issuer, kept for an hour; while the issuer does not respond, for longer."""

    fetch: Callable[[], Awaitable[dict[str, Any]]]
    value: dict[str, Any] | None = None
    read_at: float = 0.0
    retry_at: float = 0.0

    async def get(self, lock: asyncio.Lock, *, again: bool = False) -> dict[str, Any]:
        """Return the document. `again`: read it again, unless that was done a moment ago."""
        async with lock:
            now = asyncio.get_running_loop().time()
            fresh = self.value is not None and now - self.read_at < (_RETRY_S if again else _KEEP_S)
            if self.value is None or not fresh:
                if now < self.retry_at:
                    if self.value is None:
                        raise _unavailable("it did not respond a moment ago")
                    return self.value
                self.retry_at = asyncio.get_running_loop().time() + _RETRY_S
                try:
                    self.value = await self.fetch()
                except Unavailable:
                    self.retry_at = asyncio.get_running_loop().time() + _RETRY_S
                    if self.value is None or again:
                        raise
                    return self.value
                self.read_at, self.retry_at = asyncio.get_running_loop().time(), 0.0
            return self.value


class OpenIdProvider:
    """The issuer of the settings, at which this server is a client."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        issuer = settings.oidc_issuer
        if issuer is None:
            raise ValueError("no issuer is set")
        self._issuer = issuer
        self._settings = settings
        self._clock = clock
        self._metadata = _Kept(self._read_metadata)
        self._keys = _Kept(self._read_keys)
        self._reading = asyncio.Lock()
        #: as on the sign-in page
        self.name = clean_name(settings.oidc_name) or str(urlsplit(issuer).hostname)

    def check_issuer(self, issuer: str | None) -> None:
        """Raise Unauthenticated if a response names another issuer (RFC 9207)."""
        if issuer is not None and issuer.rstrip("/") != self._issuer.rstrip("/"):
            raise Unauthenticated(f"this is not a response of {self.name}; sign in again")

    async def address(self, redirect_uri: str, secret: str) -> str:
        """Return the address of the issuer at which a person signs in. Unavailable: it does not respond."""
        from authlib.oauth2.rfc6749.parameters import prepare_grant_uri  # imports what few processes use
        from authlib.oauth2.rfc7636 import create_s256_code_challenge

        async with _time_limit():
            metadata = await self._metadata.get(self._reading)
        return str(
            prepare_grant_uri(
                metadata["authorization_endpoint"],
                client_id=self._settings.oidc_client_id,
                response_type="code",
                redirect_uri=redirect_uri,
                scope=self._settings.oidc_scopes,
                state=derive(secret, "state"),
                nonce=derive(secret, "nonce"),
                code_challenge=create_s256_code_challenge(derive(secret, "verifier")),
                code_challenge_method="S256",
            )
        )

    async def person(self, redirect_uri: str, secret: str, code: str) -> PersonRow:
        """Return the person whom a code of the issuer stands for.

        Unauthenticated: the code or the token is not valid. NoGrant: the person may do nothing here.
        Unavailable: the issuer does not respond.
        """
        async with _time_limit():
            metadata = await self._metadata.get(self._reading)
            token = await self._exchange(metadata, redirect_uri, secret, code)
            claims = await self._verify(metadata, token, derive(secret, "nonce"))
            claims = await self._with_user_info(metadata, token, claims)
        settings = self._settings
        return read_person(
            self._issuer, claims, settings.oidc_groups_claim, settings.oidc_groups, settings.oidc_domains,
            self._clock.now_ms(),
        )  # fmt: skip

    async def _exchange(
        self, metadata: Mapping[str, Any], redirect_uri: str, secret: str, code: str
    ) -> dict[str, Any]:
        from authlib.oauth2.auth import ClientAuth
        from authlib.oauth2.rfc6749.parameters import prepare_token_request

        body = prepare_token_request(
            "authorization_code",
            redirect_uri=redirect_uri,
            code=code,
            code_verifier=derive(secret, "verifier"),
        )
        settings = self._settings
        method = "none"
        if settings.oidc_client_secret:
            known = metadata.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
            method = "client_secret_basic" if "client_secret_basic" in known else "client_secret_post"
        auth = ClientAuth(settings.oidc_client_id, settings.oidc_client_secret, method)
        headers = {"content-type": "application/x-www-form-urlencoded"}
        url, headers, body = auth.prepare("POST", metadata["token_endpoint"], headers, body)
        status, token = await _request("POST", url, headers, body)
        if status == 200 and isinstance(token.get("id_token"), str):
            return token
        error = clean_name(token.get("error_description")) or clean_name(token.get("error"))
        if _is_busy(status):
            raise _unavailable(f"its token endpoint answers {status}")
        raise Unauthenticated(f"{self.name} does not accept this sign-in ({error or status}); sign in again")

    async def _verify(
        self, metadata: Mapping[str, Any], token: Mapping[str, Any], nonce: str
    ) -> dict[str, object]:
        """Return the claims of the id_token. After a change of the issuer's keys, they are read again."""
        from authlib.oidc.core import CodeIDToken
        from joserfc import jwt
        from joserfc.errors import BadSignatureError, InvalidKeyIdError, JoseError
        from joserfc.jws import JWSRegistry

        registry = JWSRegistry(algorithms=_ALGORITHMS, strict_check_header=False)
        try:
            try:
                found = jwt.decode(
                    token["id_token"], _key_set(await self._keys.get(self._reading)), registry=registry
                )
            except (BadSignatureError, InvalidKeyIdError):
                keys = _key_set(await self._keys.get(self._reading, again=True))
                found = jwt.decode(token["id_token"], keys, registry=registry)
            claims = CodeIDToken(
                found.claims,
                found.header,
                {
                    "iss": {"essential": True, "value": metadata["issuer"]},
                    "aud": {"essential": True, "value": self._settings.oidc_client_id},
                },
                {
                    "nonce": nonce,
                    "client_id": self._settings.oidc_client_id,
                    "access_token": token.get("access_token"),
                },
            )
            claims.validate(now=self._clock.now_ms() // 1_000, leeway=_LEEWAY_S)
        except (JoseError, TypeError, ValueError, KeyError, AttributeError, RecursionError) as error:
            why = clean_name(str(error)) or type(error).__name__
            raise Unauthenticated(f"the token of {self.name} is not valid ({why}); sign in again") from error
        return dict(claims)

    async def _with_user_info(
        self, metadata: Mapping[str, Any], token: Mapping[str, Any], claims: dict[str, object]
    ) -> dict[str, object]:
        """Return the claims with those that the issuer gives only at its userinfo endpoint."""
        needed = {self._settings.oidc_groups_claim.split(".")[0]}
        needed |= {"email", "email_verified"} if self._settings.oidc_domains else set()
        url, access = metadata.get("userinfo_endpoint"), token.get("access_token")
        wanted = needed | {"name", "email"}
        if wanted <= claims.keys() or not isinstance(url, str) or not isinstance(access, str):
            return claims
        status, more = await _request("GET", url, {"authorization": f"Bearer {access}"})
        if _is_busy(status) and not needed <= claims.keys():  # a person without groups loses all access
            raise _unavailable(f"its userinfo endpoint answers {status}")
        if status != 200 or more.get("sub") != claims["sub"]:
            log.warning("sign_in.no_user_info", status=status)
            return claims
        found = {**more, **claims}
        if found.get("email") != more.get("email"):  # the endpoint says nothing about that of the token
            found["email_verified"] = claims.get("email_verified")
        return found

    async def _read_metadata(self) -> dict[str, Any]:
        status, found = await _request("GET", self._issuer.rstrip("/") + _DISCOVERY)
        if status != 200:
            raise _unavailable(f"its {_DISCOVERY} answers {status}")
        if str(found.get("issuer")).rstrip("/") != self._issuer.rstrip("/"):
            raise _unavailable(
                f"it calls itself {clean_name(found.get('issuer'))}; set that as WAKEFUL_OIDC_ISSUER"
            )
        schemes = ("https",) if self._issuer.startswith("https:") else ("https", "http")
        for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
            if urlsplit(str(found.get(name))).scheme not in schemes:
                raise _unavailable(f"its metadata has no {name} with https")
        return found

    async def _read_keys(self) -> dict[str, Any]:
        # The metadata is there already: whoever asks for keys has read it, and holds the lock.
        status, found = await _request("GET", str((self._metadata.value or {})["jwks_uri"]))
        if status != 200 or not isinstance(found.get("keys"), list):
            raise _unavailable(f"its key set answers {status}")
        return found


def derive(secret: str, purpose: str) -> str:
    """Return what a browser with this secret sends as state, nonce or code verifier.

    >>> derive("a", "state") == derive("a", "state"), derive("a", "state") == derive("a", "nonce")
    (True, False)
    """
    digest = hmac.new(secret.encode(), f"wakeful {purpose}".encode(), hashlib.sha256).digest()
    return urlsafe_b64encode(digest).decode().rstrip("=")


def _key_set(document: Mapping[str, Any]) -> Any:
    """Return the public keys that can sign. One that cannot be read does not hide the others."""
    from joserfc.errors import JoseError
    from joserfc.jwk import JWKRegistry, KeySet

    keys = []
    for each in document["keys"]:
        if isinstance(each, dict) and each.get("kty") in _KEY_TYPES and each.get("use", "sig") == "sig":
            try:
                keys.append(JWKRegistry.import_key(each))
            except (JoseError, TypeError, ValueError, KeyError):
                continue
    return KeySet(keys)


@asynccontextmanager
async def _time_limit() -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(LIMIT_S):
            yield
    except TimeoutError as error:
        raise _unavailable(f"it did not respond within {LIMIT_S:.0f} s") from error


async def _request(
    method: str, url: str, headers: Mapping[str, str] | None = None, body: str | None = None
) -> tuple[int, dict[str, Any]]:
    """Send a request to the issuer; return the status and the JSON object of the response."""
    timeout = aiohttp.ClientTimeout(total=None)  # `_time_limit` is for all requests together
    sent = {"accept": "application/json", **(headers or {})}
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as session,
            session.request(method, url, data=body, headers=sent, allow_redirects=False) as response,
        ):
            content = await response.content.read(_LARGEST + 1)
            while len(content) <= _LARGEST and (more := await response.content.read(_LARGEST)):
                content += more
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise _unavailable(type(error).__name__) from error
    try:
        found = json.loads(content) if len(content) <= _LARGEST else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        if response.status < 400:
            raise _unavailable(f"a response of {response.status} is not a JSON object")
        found = {}
    return response.status, found


def _is_busy(status: int) -> bool:
    """Return whether the issuer may answer the same request in another way later."""
    return status >= 500 or status == 429


def _unavailable(why: str) -> Unavailable:
    return Unavailable(f"the issuer cannot be used: {why}; try again later, or sign in with a key")
