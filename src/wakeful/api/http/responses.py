"""Responses: how they are sent, and how the OpenAPI document describes them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final, cast
from urllib.parse import quote

from starlette.responses import Response
from starlette.types import Scope

from wakeful.api.http.problems import PROBLEM_JSON
from wakeful.api.http.root_path import href
from wakeful.values.json_value import Json, compact
from wakeful.values.stored_text import clean_text

_REASONS: Final[dict[int, str]] = {
    400: "The request cannot be read: its URL, a header or the JSON of the body is malformed.",
    401: "The credentials are missing, unknown, expired or revoked.",
    403: "The role of the key does not allow it.",
    404: "It does not exist, or it belongs to another owner.",
    409: "The request conflicts with the present state, or the name is taken.",
    412: "`If-Match` or `If-None-Match` does not hold.",
    413: "The body is too large: more than 256 KB, or 8 MB with many jobs.",
    422: "A query parameter or a field is unknown or invalid; or the `Idempotency-Key` was used "
    "for another request.",
    429: "A quota or a budget is used up, or the limit of connections or requests is reached.",
    503: "The database cannot be reached; try again later.",
}
#: The errors of every route of the API.
_ALWAYS: Final = (400, 401, 403, 404, 422, 429, 503)
#: The header of a stored response.
REPLAYED: Final = "Idempotency-Replayed"
_HEADERS: Final[dict[str, str]] = {
    "ETag": "The version of the job or agent, in quotes.",
    "Location": "The path of the resource.",
    REPLAYED: "`true` if this is the stored response of an earlier request with this key.",
}
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; manifest-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
#: The headers of every HTML page.
PAGE_HEADERS: Final = {
    "content-security-policy": _POLICY,
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "vary": "x-wakeful-region",
}
#: How many characters are written before the event loop has its turn: a few milliseconds.
_IN_TURN: Final = 65_536
#: Responses as FastAPI takes them.
Responses = dict[int | str, dict[str, Any]]
#: The name among the extensions of a scope.
DIRECT_WRITE: Final = "wakeful.direct_write"
#: Writes a part of a response that has begun; False: it was not written, and must be sent as usual.
DirectWrite = Callable[[bytes], bool]


class JsonResponse(Response):
    """A response with compact JSON."""

    media_type = "application/json"

    def __init__(self, content: Json, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(clean_text(compact(content)).encode(), status, headers)


async def compact_in_turns(content: Mapping[str, Json | Iterator[Json]]) -> str:
    """Return `compact(content)`. The items of its lists are written one after the other, with pauses.

    A page of runs with large payloads takes seconds; meanwhile the event loop has its turn. An iterator is
    written as a list: what it returns may take time to compute, too.
    """
    fields: list[str] = []
    for name, value in content.items():
        if not isinstance(value, list | Iterator):
            fields.append(f"{compact(name)}:{compact(value)}")
            continue
        items: list[str] = []
        size = 0
        for item in value:
            items.append(compact(item))
            size += len(items[-1])
            if size >= _IN_TURN:
                size = 0
                await asyncio.sleep(0)
        fields.append(f"{compact(name)}:[{','.join(items)}]")
    return f"{{{','.join(fields)}}}"


async def list_response(content: Mapping[str, Json | Iterator[Json]], status: int = 200) -> Response:
    """Return a response with lists whose items may be large, or take time to serialize."""
    text = clean_text(await compact_in_turns(content))
    return Response(text.encode(), status, media_type=JsonResponse.media_type)


def no_content() -> Response:
    """Return a response without a body."""
    return Response(status_code=204)


def location_of(*parts: str) -> str:
    """Return the path of a resource, for `Location`.

    >>> location_of("acme", "runs", "7")
    '/api/workspaces/acme/runs/7'
    """
    return href("/api/workspaces/") + "/".join(quote(part, safe="") for part in parts)


def ref(schema: str) -> dict[str, str]:
    """Return a reference to a schema of the document."""
    return {"$ref": f"#/components/schemas/{schema}"}


def responses(
    success: Mapping[int, str | None], *errors: int, headers: tuple[str, ...] = (), always: bool = True
) -> Responses:
    """Return the responses of a route: schemas by status, and its errors besides the common ones."""
    declared: Responses = {}
    for status, schema in success.items():
        declared[status] = {"description": HTTPStatus(status).phrase}
        if schema is not None:
            declared[status]["content"] = {"application/json": {"schema": ref(schema)}}
        if headers and status < 300:
            declared[status]["headers"] = {
                name: {"description": _HEADERS[name], "schema": {"type": "string"}} for name in headers
            }
    for status in sorted({*(_ALWAYS if always else ()), *errors}):
        declared[status] = {
            "description": _REASONS[status],
            "content": {PROBLEM_JSON: {"schema": ref("Problem")}},
        }
    return declared


def direct_write_of(scope: Scope) -> DirectWrite | None:
    """Return what writes parts of the response to a request; None: the server does not offer it.

    A part is written at once: no task runs, and no layer of the app is passed. Our server offers it in the
    scope of a request. With another server, parts are sent as usual.
    """
    return cast("DirectWrite | None", scope.get("extensions", {}).get(DIRECT_WRITE))
