"""How a test API server of Kubernetes reads requests and writes responses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aiohttp import web

from tests.support import kubernetes_status as status
from tests.support.kubernetes_status import Object
from tests.support.strict_json import strict_json


def parsed(text: bytes) -> Any:
    """Return the body of a request; None: it has none."""
    if not text:
        return None
    try:
        return strict_json(text)
    except ValueError as error:
        raise status.bad_request(f"the object provided is unrecognized: {error}") from None


def answer_json(
    body: Object, code: int = 200, warnings: Iterable[str] = (), retry_after: int | None = None
) -> web.Response:
    """Return a response with an object, and with a `Warning` header for each warning."""
    response = web.json_response(body, status=code)
    for warning in warnings:
        text = warning.replace("\\", "\\\\").replace('"', '\\"')
        response.headers.add("Warning", f'299 - "{text}"')
    if retry_after is not None:
        response.headers["Retry-After"] = str(retry_after)
    return response


async def healthy(request: web.Request) -> web.Response:
    """Answer a health check."""
    return web.Response(text="ok")


async def server_version(request: web.Request) -> web.Response:
    """Answer with the version of Kubernetes whose rules are kept."""
    return answer_json(
        {
            "major": "1",
            "minor": "33",
            "gitVersion": "v1.33.0",
            "gitCommit": "",
            "gitTreeState": "clean",
            "buildDate": "2025-04-23T13:00:00Z",
            "goVersion": "go1.24",
            "compiler": "gc",
            "platform": "linux/amd64",
        }
    )
