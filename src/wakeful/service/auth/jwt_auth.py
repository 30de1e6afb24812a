"""JWT authentication: tokens signed with a shared secret (HS256) or with a key of a key set (JWKS)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from wakeful.errors import InvalidArgument, Unauthenticated, Unavailable
from wakeful.job.job import check_slug
from wakeful.service.auth.access import ROLES, Principal
from wakeful.settings import PREFIX
from wakeful.values.stored_text import UNSTORABLE, is_storable

_RSA: Final = ("RS256", "RS384", "RS512", "PS256")
_ECDSA: Final = {"secp256r1": "ES256", "secp384r1": "ES384"}
_ALGORITHMS: Final = (*_RSA, *_ECDSA.values(), "EdDSA")
_SHORTEST_SECRET: Final = 32
#: Seconds in which the key set must be received, and until the next try after it was not.
_FETCH_S: Final = 5.0
_RETRY_S: Final = 1.0


class JwtTokens:
    """Verifies JWTs. A token must have `exp` and `sub`, and must not have expired.

    The claim `workspace` names one workspace; `*` is all. If the operator has set an audience or an issuer,
    the token must match it.
    """

    def __init__(
        self,
        *,
        secret: str | None = None,
        jwks_url: str | None = None,
        audience: str | None = None,
        issuer: str | None = None,
    ) -> None:
        if secret is not None and len(secret.encode()) < _SHORTEST_SECRET:
            raise InvalidArgument(f"JWT_SECRET: it has fewer than {_SHORTEST_SECRET} bytes; use a longer one")
        self._secret = secret
        self._key_set = _KeySet(jwks_url) if jwks_url else None
        self._audience, self._issuer = audience, issuer

    async def principal(self, token: str) -> Principal:
        """Return the principal of a token, or raise Unauthenticated.

        Unavailable: the key set cannot be read.
        """
        try:
            claims = await self._claims(token)
        except jwt.ExpiredSignatureError as error:
            raise Unauthenticated("this token has expired; get another") from error
        except jwt.PyJWTError as error:
            raise Unauthenticated(f"this token is not accepted: {error}") from error
        except (TypeError, ValueError, AttributeError, RecursionError) as error:  # raised inside PyJWT
            raise Unauthenticated("this token is not accepted: it cannot be read") from error
        return _principal(claims)

    async def _claims(self, token: str) -> Mapping[str, object]:
        header = jwt.get_unverified_header(token)
        algorithm = header.get("alg")
        if algorithm == "HS256" and self._secret is not None:
            return self._decode(token, self._secret, ["HS256"])
        if algorithm in _ALGORITHMS and self._key_set is not None:
            key = await self._key_set.key(header.get("kid"))
            if algorithm not in _choose_algorithms(key.key):
                raise Unauthenticated(
                    f"this token is signed with {algorithm}, which its key cannot be used with"
                )
            return self._decode(token, key.key, [str(algorithm)])
        raise Unauthenticated(f"tokens signed with {algorithm} are not accepted here")

    def _decode(self, token: str, key: object, algorithms: list[str]) -> Mapping[str, object]:
        claims: Mapping[str, object] = jwt.decode(
            token,
            key,  # type: ignore[arg-type]
            algorithms=algorithms,
            audience=self._audience,
            issuer=self._issuer,
            leeway=5,
            options={"require": ["exp", "sub"], "verify_aud": self._audience is not None},
        )
        return claims


class _KeySet:
    """The keys at a URL, kept for five minutes. The set is fetched again for an unknown key, once a second.

    It is fetched in a thread of its own: while its server does not respond, known keys are accepted, and the
    threads that resolve the names of other hosts stay free.
    """

    def __init__(self, url: str) -> None:
        self._client = jwt.PyJWKClient(url, timeout=_FETCH_S)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="wakeful-jwks")
        self._retry_at = 0.0
        #: when a key was last not found in it: anybody can send tokens of keys that do not exist
        self._fetched_at = -_RETRY_S

    async def key(self, kid: str | None) -> jwt.PyJWK:
        """Return the key with that id. PyJWTError: there is none; Unavailable: the set cannot be read."""
        key = self._known(kid)
        if key is not None:
            return key
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._fetch, kid)

    def _known(self, kid: str | None) -> jwt.PyJWK | None:
        """Return the key if it is in the set that is kept. PyJWTError: it is not, and the set is new."""
        cached = self._client.jwk_set_cache.get() if self._client.jwk_set_cache else None
        for key in cached.keys if cached else ():
            if kid and key.key_id == kid and key.public_key_use in ("sig", None):
                return key
        if cached and time.monotonic() < self._fetched_at + _RETRY_S:
            raise jwt.PyJWKClientError("the key set has no key with its id")
        return None

    def _fetch(self, kid: str | None) -> jwt.PyJWK:
        key = self._known(kid)  # another token may have fetched it
        if key is not None:
            return key
        problem: Exception | None = None
        if time.monotonic() >= self._retry_at:
            try:
                return self._client.get_signing_key(kid or "")
            except (jwt.PyJWKClientConnectionError, jwt.PyJWKSetError, OSError, ValueError) as error:
                self._retry_at = time.monotonic() + _RETRY_S
                problem = error
            except jwt.PyJWKClientError:
                self._fetched_at = time.monotonic()
                raise
        raise Unavailable(
            f"the key set of {PREFIX}JWKS_URL cannot be read, and so no token checked; try again later"
        ) from problem


def _choose_algorithms(key: object) -> Collection[str]:
    """Return the algorithms of a public key."""
    if isinstance(key, RSAPublicKey):
        return _RSA
    if isinstance(key, EllipticCurvePublicKey):
        return [_ECDSA[key.curve.name]] if key.curve.name in _ECDSA else []
    return ["EdDSA"] if isinstance(key, Ed25519PublicKey | Ed448PublicKey) else []


def _principal(claims: Mapping[str, object]) -> Principal:
    subject, role = claims.get("sub"), claims.get("role")
    workspace, agent = claims.get("workspace"), claims.get("agent")
    for known in ROLES:
        if role == known and isinstance(workspace, str) and isinstance(subject, str):
            break
    else:
        raise Unauthenticated(f"a token needs a workspace and a role: one of {', '.join(ROLES)}")
    if not is_storable(subject):
        raise Unauthenticated(f"in this token: sub: {UNSTORABLE}")
    if known == "agent":
        if not isinstance(agent, str) or workspace == "*":
            raise Unauthenticated("a token of the role agent must name its agent and one workspace")
        return Principal(f"jwt:{subject[:200]}", known, _slug(workspace), _slug(agent))
    return Principal(f"jwt:{subject[:200]}", known, None if workspace == "*" else _slug(workspace))


def _slug(text: str) -> str:
    try:
        return check_slug(text)
    except InvalidArgument as error:
        raise Unauthenticated(f"in this token: {error.message}") from error
