"""Errors over HTTP: `application/problem+json` (RFC 9457), with the code of the error.

All errors have this form: those of the services, unreadable parameters, unknown paths, bodies that are too
large, and internal errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match

from wakeful.api.http.oauth import challenge
from wakeful.api.http.root_path import route_path
from wakeful.errors import FailedPrecondition, InvalidArgument, ItemError, ResourceExhausted, WakefulError
from wakeful.job.policy import DAY_MS
from wakeful.logs.redaction import redact
from wakeful.service.idempotency import InvalidKey
from wakeful.values.json_value import Json, compact, quote

PROBLEM_JSON: Final = "application/problem+json"
#: The largest body, in bytes; and that of a request with many jobs.
MAX_BODY: Final = 256 * 1024
MAX_BATCH_BODY: Final = 8 * 1024 * 1024
#: The end of the path of a request with many jobs.
BATCH_PATH: Final = "/jobs/bulk"

#: The status of each code. A malformed request is 400; a readable but invalid one, such as one with an
#: unknown value of a parameter, is 422.
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
#: The code of errors that the server raises before a service is called.
_CODES: Final[dict[int, str]] = {
    401: "unauthenticated",
    403: "permission-denied",
    404: "not-found",
    409: "failed-precondition",
    412: "failed-precondition",
    429: "resource-exhausted",
    503: "unavailable",
}
_DETAILS: Final[dict[int, str]] = {
    404: "there is nothing at this path; /docs lists all paths",
    405: "this path does not support this method; the header Allow lists the methods",
}
#: Where a GET is likely: a person opens the URL, or a program looks at it.
_HOOKS: Final = "/hooks/"
_NOT_POST: Final = (
    "send POST to run the job; GET does not run it, because browsers, link previews and crawlers send GET to "
    "every URL that they find"
)
_METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")
_INTERNAL: Final = "internal error; the server's log has the details under this x-request-id"


class Malformed(InvalidArgument):
    """The request cannot be read: 400."""


class TooLarge(InvalidArgument):
    """The body is too large: 413."""

    def __init__(self, limit: int) -> None:
        instead = "store large data elsewhere" if limit == MAX_BODY else "send fewer jobs at once"
        super().__init__(f"the body has more than {limit} bytes; {instead}")


def body_limit(method: str, path: str) -> int:
    """Return how many bytes the body of a request may have.

    >>> body_limit("POST", "/api/workspaces/default/agents/default/jobs/bulk")
    8388608
    """
    return MAX_BATCH_BODY if method == "POST" and path.endswith(BATCH_PATH) else MAX_BODY


class Stale(FailedPrecondition):
    """The condition of `If-Match` or `If-None-Match` does not hold: 412."""


def status_of(error: WakefulError) -> int:
    """Return the status of an error."""
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
    errors: Sequence[ItemError] = (),
) -> Response:
    """Return a problem response, with the `errors` of a request with many items."""
    code = code or _CODES.get(status, "internal" if status >= 500 else "invalid-argument")
    content: dict[str, Json] = {
        "type": f"urn:wakeful:problem:{code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "code": code,
        "instance": redact(path),
    }
    if errors:
        content["errors"] = [
            {"index": each.index, "field": each.field, "code": each.code, "message": each.message}
            for each in errors
        ]
    # The detail may quote input that is not valid Unicode.
    body = compact(content).encode(errors="backslashreplace")
    return Response(body, status, headers, media_type=PROBLEM_JSON)


def internal_problem(path: str) -> Response:
    """Return the response to an internal error, without details."""
    return problem(500, _INTERNAL, path=path)


def install(app: FastAPI) -> None:
    """Return every error of the app as a problem."""
    app.add_exception_handler(WakefulError, _wakeful_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_exception)


async def _wakeful_error(request: Request, error: Exception) -> Response:
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
    return problem(status, error.message, error.code, path=path, headers=headers, errors=error.errors)


async def _validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    lines = [f"{_parameter_name(each['loc'])}: {_parameter_error(each)}" for each in error.errors()]
    return problem(422, "\n".join(lines), "invalid-argument", path=request.url.path)


async def _http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    own_detail = error.detail if error.detail != HTTPStatus(error.status_code).phrase else None
    detail = own_detail or _DETAILS.get(error.status_code, error.detail)
    headers = {"Allow": _allowed(request)} if error.status_code == 405 else error.headers
    if error.status_code == 405 and route_path(request.scope).startswith(_HOOKS):
        detail, headers = _NOT_POST, {"Allow": "POST", "Referrer-Policy": "no-referrer"}
    return problem(error.status_code, detail, path=request.url.path, headers=headers)


def _allowed(request: Request) -> str:
    """Return all methods of a path. The framework names only those of the first matching route."""
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


def _parameter_error(error: Mapping[str, Any]) -> str:
    """Return what is wrong with a parameter, in the words of the services."""
    limits, given = error.get("ctx", {}), error["input"]
    value = quote(given)
    match error["type"]:
        case "int_type" | "int_parsing" | "int_parsing_size" | "int_from_float":
            return f"{value} is not a whole number"
        case "greater_than_equal":
            return f"{value} is too small; the minimum is {limits['ge']}"
        case "less_than_equal":
            return f"{value} is too large; the maximum is {limits['le']}"
        case "bool_type" | "bool_parsing":
            return f"{value} is neither true nor false"
        case "enum" | "literal_error":
            return f"{value} is not known; write {limits['expected']}"
        case "string_too_long":
            return f"it has {len(given)} characters; at most {limits['max_length']}"
    return str(error["msg"])


def _parameter_name(loc: Sequence[int | str]) -> str:
    """Return the name of a parameter, without its location."""
    return ".".join(str(part) for part in loc[1:]) or "request"
