"""Errors as HTTP tells them: `application/problem+json` (RFC 9457), with the code that every face has.

Whatever goes wrong is told in this one form: what the service layer refuses, parameters that cannot be read,
unknown paths, bodies that are too large, and our own mistakes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Final

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match

from wakeful.api.http.oauth import challenge
from wakeful.document.values import compact
from wakeful.errors import FailedPrecondition, InvalidArgument, ResourceExhausted, WakefulError
from wakeful.job import Json
from wakeful.policy import DAY_MS
from wakeful.service.idempotency import InvalidKey

PROBLEM_JSON: Final = "application/problem+json"
#: The largest body that is read, in bytes.
MAX_BODY: Final = 256 * 1024

#: The status of each code. A malformed request is 400; one that can be read, and is wrong, is 422.
STATUS: Final[dict[str, int]] = {
    "invalid-argument": 422,
    "unauthenticated": 401,
    "permission-denied": 403,
    "not-found": 404,
    "already-exists": 409,
    "failed-precondition": 409,
    "resource-exhausted": 429,
    "unavailable": 503,
}
#: The code of what the server itself answers, before any use case is asked.
_CODES: Final[dict[int, str]] = {
    401: "unauthenticated",
    403: "permission-denied",
    404: "not-found",
    409: "failed-precondition",
    412: "failed-precondition",
    429: "resource-exhausted",
    503: "unavailable",
}
_SENTENCES: Final[dict[int, str]] = {
    404: "there is nothing at this path; /docs shows every path that there is",
    405: "this path does not take this method; the header Allow says which it takes",
}
_METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")
_UNTOLD: Final = "something went wrong here, not with the request; the log has it under this x-request-id"


class Malformed(InvalidArgument):
    """The request cannot be read at all: 400."""


class TooLarge(InvalidArgument):
    """A body that is larger than any that makes sense here: 413."""

    def __init__(self) -> None:
        super().__init__(f"the body has more than {MAX_BODY} bytes; keep what is large elsewhere")


class Stale(FailedPrecondition):
    """What `If-Match` or `If-None-Match` asks for does not hold: 412."""


def status_of(error: WakefulError) -> int:
    """The status that tells this error."""
    if isinstance(error, Malformed | InvalidKey):
        return 400
    if isinstance(error, Stale):
        return 412
    if isinstance(error, TooLarge):
        return 413
    return STATUS.get(error.code, 500)


def problem(
    status: int,
    detail: str,
    code: str | None = None,
    *,
    path: str = "",
    headers: Mapping[str, str] | None = None,
) -> Response:
    """An answer that says what is wrong."""
    code = code or _CODES.get(status, "internal" if status >= 500 else "invalid-argument")
    content: dict[str, Json] = {
        "type": f"urn:wakeful:problem:{code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "code": code,
        "instance": path,
    }
    # A sentence may quote what somebody sent, and that need not be Unicode.
    body = compact(content).encode(errors="backslashreplace")
    return Response(body, status, headers, media_type=PROBLEM_JSON)


def internal_problem(path: str) -> Response:
    """The answer to a mistake of our own: what it was is in the log, and nowhere else."""
    return problem(500, _UNTOLD, path=path)


def install(app: FastAPI) -> None:
    """Have every error of this app told as a problem."""
    app.add_exception_handler(WakefulError, _refused)
    app.add_exception_handler(RequestValidationError, _unreadable)
    app.add_exception_handler(HTTPException, _answered)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, WakefulError)
    path, status = request.url.path, status_of(error)
    if status == 500:
        return internal_problem(path)
    headers: dict[str, str] = {}
    if status == 401:
        headers["WWW-Authenticate"] = challenge(request)
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(error.retry_after_s)
    if isinstance(error, ResourceExhausted) and error.daily:
        now_ms = request.app.state.services.now_ms()
        headers["Retry-After"] = str((DAY_MS - now_ms % DAY_MS) // 1000 + 1)
    return problem(status, error.message, error.code, path=path, headers=headers)


async def _unreadable(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    lines = [f"{_place(each['loc'])}: {each['msg']}" for each in error.errors()]
    return problem(400, "\n".join(lines), "invalid-argument", path=request.url.path)


async def _answered(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    said = error.detail if error.detail != HTTPStatus(error.status_code).phrase else None
    detail = said or _SENTENCES.get(error.status_code, error.detail)
    headers = {"Allow": _allowed(request)} if error.status_code == 405 else error.headers
    return problem(error.status_code, detail, path=request.url.path, headers=headers)


def _allowed(request: Request) -> str:
    """Every method that the path takes. The framework names only those of the first route that matches."""
    found = [
        method
        for method in _METHODS
        if any(
            route.matches({**request.scope, "method": method})[0] is Match.FULL
            for route in request.app.router.routes
        )
    ]
    if "GET" in found:
        found.insert(found.index("GET") + 1, "HEAD")
    return ", ".join(found)


def _place(loc: Sequence[int | str]) -> str:
    """Where in a request a parameter stands: its name, without what kind of parameter it is."""
    return ".".join(str(part) for part in loc[1:]) or "request"
