"""Answers: how they are sent, and how the OpenAPI document tells of them."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

from starlette.responses import Response

from wakeful.api.http.problems import PROBLEM_JSON
from wakeful.document.values import compact
from wakeful.job import Json

_WHY: Final[dict[int, str]] = {
    400: "The request cannot be read: a parameter, a header or the JSON of the body is malformed.",
    401: "Nobody knows who is asking: the bearer is missing, unknown, expired or revoked.",
    403: "The role of the key does not allow it.",
    404: "It is not there, or it is somebody else's.",
    409: "Right in itself, but not in the state things are in, or the name is taken.",
    412: "`If-Match` or `If-None-Match` does not hold.",
    413: "The body is larger than 256 KB.",
    422: "A query parameter or a field is unknown, or the body can be read and is wrong; or the "
    "`Idempotency-Key` was used for something else.",
    429: "A quota is used up, or there are as many connections as there may be.",
    503: "The database cannot be reached; trying again may help.",
}
#: What can go wrong with any request to the API.
_ALWAYS: Final = (400, 401, 403, 404, 422, 503)
_HEADERS: Final[dict[str, str]] = {
    "ETag": "The version of the job, in quotes.",
    "Location": "Where it is.",
    "Idempotency-Replayed": "`true` where this is the first answer to this key again.",
}
#: Responses as FastAPI takes them.
Responses = dict[int | str, dict[str, Any]]


class JsonResponse(Response):
    """Compact JSON."""

    media_type = "application/json"

    def __init__(self, content: Json, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(compact(content).encode(), status, headers)


def no_content() -> Response:
    """An answer without a body: it is done."""
    return Response(status_code=204)


def location_of(*parts: str) -> str:
    """The path of something, for a `Location`.

    >>> location_of("acme", "runs", "7")
    '/api/workspaces/acme/runs/7'
    """
    return "/api/workspaces/" + "/".join(quote(part, safe="") for part in parts)


def ref(schema: str) -> dict[str, str]:
    """A reference to a schema of the document."""
    return {"$ref": f"#/components/schemas/{schema}"}


def responses(
    good: Mapping[int, str | None], *errors: int, headers: tuple[str, ...] = (), always: bool = True
) -> Responses:
    """What a path may answer: schemas by status, and which errors beside those that are always possible."""
    answers: Responses = {}
    for status, schema in good.items():
        answers[status] = {"description": HTTPStatus(status).phrase}
        if schema is not None:
            answers[status]["content"] = {"application/json": {"schema": ref(schema)}}
        if headers and status < 300:
            answers[status]["headers"] = {
                name: {"description": _HEADERS[name], "schema": {"type": "string"}} for name in headers
            }
    for status in sorted({*(_ALWAYS if always else ()), *errors}):
        answers[status] = {
            "description": _WHY[status],
            "content": {PROBLEM_JSON: {"schema": ref("Problem")}},
        }
    return answers


def request_body(schema: str, example: Json, *, required: bool = True) -> dict[str, Any]:
    """The body that a path takes, for its `openapi_extra`."""
    content = {"application/json": {"schema": ref(schema), "example": example}}
    return {"requestBody": {"required": required, "content": content}}


#: The errors of a path that takes a body.
BODY: Final = (413,)
