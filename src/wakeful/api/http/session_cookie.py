"""The cookie of a sign-in session, and the checks of the requests that it authenticates.

A browser sends the cookie by itself, so a request that changes something must also prove that a page of this
server made it: it carries the CSRF token of the session (`x-wakeful-csrf`), and the browser does not name
another site in `Sec-Fetch-Site` or `Origin`.
"""

from __future__ import annotations

import hmac
import secrets
from typing import Final, Literal
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection
from starlette.responses import Response

from wakeful.api.http.root_path import root_path
from wakeful.errors import PermissionDenied
from wakeful.service.auth.web_sessions import csrf_token
from wakeful.settings import PREFIX

COOKIE: Final = "wakeful_session"
#: The cookie of a browser that is at the issuer to sign in: it comes back from another site.
OPENID_COOKIE: Final = "wakeful_openid"
#: Browsers accept this prefix only with `Secure`, `Path=/` and no `Domain`, from this host itself.
HOST_PREFIX: Final = "__Host-"
#: The same for a path of the host: other applications on it do not get the cookie.
SECURE_PREFIX: Final = "__Secure-"
CSRF: Final = "x-wakeful-csrf"
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


def session_token(request: HTTPConnection) -> str | None:
    """Return the token of the session cookie; None: there is no cookie."""
    return request.cookies.get(_name(request, COOKIE))


def openid_cookie(request: HTTPConnection) -> str:
    """Return the cookie of a sign-in at the issuer; empty: there is none."""
    return request.cookies.get(_name(request, OPENID_COOKIE), "")


def set_openid_cookie(response: Response, request: HTTPConnection, value: str, max_age_s: int) -> None:
    """Set the cookie of a sign-in at the issuer, or delete it."""
    _set(response, request, value, max_age_s, OPENID_COOKIE, "lax")


def set_session(response: Response, request: HTTPConnection, token: str, max_age_s: int) -> None:
    """Set the cookie."""
    _set(response, request, token, max_age_s)


def clear_session(response: Response, request: HTTPConnection) -> None:
    """Delete the cookie."""
    _set(response, request, "", 0)


def check_change(request: HTTPConnection, token: str, csrf: str | None) -> None:
    """Raise PermissionDenied unless a page of this server, in this session, made the request."""
    check_own_page(request)
    if csrf is None:
        raise PermissionDenied(
            f"a change in a sign-in session needs the header {CSRF} with the token of the page; "
            "a program sends 'Authorization: Bearer wk_…' instead"
        )
    if not hmac.compare_digest(_unmasked(csrf), bytes.fromhex(csrf_token(token))):
        raise PermissionDenied("this page belongs to an earlier sign-in session; reload it and try again")


def masked(csrf: str) -> str:
    """Return a CSRF token as a page contains it: combined with new random bytes, which come first.

    So it differs in each response: the size of a compressed page says nothing about it (`compression`).

    >>> masked("ab" * 32) == masked("ab" * 32), len(masked("ab" * 32)), masked("")
    (False, 128, '')
    """
    token = bytes.fromhex(csrf)
    mask = secrets.token_bytes(len(token))
    return (mask + _combined(mask, token)).hex()


def _unmasked(text: str) -> bytes:
    """Return the token in a masked one; empty: it is not one."""
    try:
        given = bytes.fromhex(text)
    except ValueError:
        return b""
    half = len(given) // 2
    return _combined(given[:half], given[half:]) if len(given) == 2 * half else b""


def _combined(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def check_own_page(request: HTTPConnection) -> None:
    """Raise PermissionDenied if the browser says that a page of another site made the request."""
    site = request.headers.get("sec-fetch-site")
    if site in ("same-origin", "none"):  # set by the browser; pages cannot change it
        return
    origin = request.headers.get("origin")
    if site is None and (origin is None or _is_own(origin, request)):
        return
    raise PermissionDenied(
        f"a page of '{(origin or site or '')[:200]}' may not use a sign-in session of this server; if it is "
        f"its own address, set {PREFIX}PUBLIC_URL to it"
    )


def is_https(request: HTTPConnection) -> bool:
    """Return whether the browser uses HTTPS: with this server, or with a proxy at its public address."""
    if request.scope.get("scheme") == "https":
        return True
    address = _public_url(request)
    if not address:
        return False
    public = urlsplit(address)
    return public.scheme == "https" and request.headers.get("host", "").lower() == public.netloc.lower()


def _is_own(origin: str, request: HTTPConnection) -> bool:
    public = urlsplit(_public_url(request))
    own = {f"{request.url.scheme}://{request.headers.get('host', '')}", f"{public.scheme}://{public.netloc}"}
    if is_https(request):
        own.add(f"https://{request.headers.get('host', '')}")
    return origin.lower() in {each.lower() for each in own}


def _public_url(request: HTTPConnection) -> str:
    return request.app.state.services.public_url or ""


def _name(request: HTTPConnection, name: str) -> str:
    if not is_https(request):
        return name
    return (SECURE_PREFIX if root_path() else HOST_PREFIX) + name


def _set(
    response: Response,
    request: HTTPConnection,
    value: str,
    max_age_s: int,
    name: str = COOKIE,
    samesite: Literal["strict", "lax"] = "strict",
) -> None:
    response.set_cookie(
        _name(request, name),
        value,
        max_age=max_age_s,
        path=root_path() or "/",
        secure=is_https(request),
        httponly=True,
        samesite=samesite,
    )
