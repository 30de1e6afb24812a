"""The middleware of every request: a request id, the body limit, compression, a log line, and a response to
every error.

HEAD is handled as GET without the body, on every path that has GET.

This is plain ASGI, not a middleware class of the framework: those copy bodies and break streams.
"""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from typing import Final, cast

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from wakeful.api.http.compression import compressing
from wakeful.api.http.dependencies import IN_PROGRESS
from wakeful.api.http.problems import TooLarge, body_limit, internal_problem, problem
from wakeful.api.http.root_path import route_path, use_root_path
from wakeful.engine.tracing import incoming_traceparent
from wakeful.errors import PermissionDenied
from wakeful.logs import get_logger
from wakeful.service.services import Services

_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}")
#: the paths that web pages connect to, whose origin is checked
_PAGES: Final = frozenset({"/mcp", "/ws"})
#: probes, logged at the debug level
_QUIET: Final = frozenset({"/healthz", "/readyz", "/metrics"})
#: the header of a page that refreshes a part of itself
_REGION: Final = b"x-wakeful-region"

log = get_logger("wakeful.http")


class RequestMiddleware:
    """Wraps every request and WebSocket of the app."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] == "websocket":
            await self._connect(scope, receive, send)
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        use_root_path(scope)
        method = scope["method"]
        if method == "HEAD":
            scope, receive, send = _as_get(scope, send)
        headers = Headers(scope=scope)
        send = compressing(method, headers, send)
        sent_id = headers.get("x-request-id", "")
        request_id = sent_id if _REQUEST_ID.fullmatch(sent_id) else uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id
        status: int | None = None  # none sent yet
        if cast(Services, scope["app"].state.services).telemetry.tracing is not None:
            incoming_traceparent.set(headers.get("traceparent"))

        async def respond(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = int(message["status"])
                sent = MutableHeaders(scope=message)
                sent["x-request-id"] = request_id
                if "csrf" in scope["state"]:  # in a sign-in session, a browser reads the response
                    sent.setdefault("cache-control", "no-store")
                    sent.setdefault("x-content-type-options", "nosniff")
            await send(message)

        try:
            refusal = _refusal(scope, headers)
            if refusal is not None:
                await problem(*refusal, path=scope["path"])(scope, receive, respond)
            else:
                limit = body_limit(method, scope["path"])
                await self._app(scope, _limited(receive, limit), respond)
        except ClientDisconnect:
            status = None
        except Exception:
            log.exception("http.error", request_id=request_id, path=_template(scope))
            if status is not None:  # the response has started and can only be aborted
                raise
            await internal_problem(scope["path"])(scope, receive, respond)
        finally:
            workspace = scope["state"].pop(IN_PROGRESS, None)
            if workspace is not None:
                cast(Services, scope["app"].state.services).auth.connection_limits.end_request(workspace)
            _log_request(scope, method, status, began, request_id)

    async def _connect(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Accept a WebSocket, or refuse it with 403."""
        try:
            _check_site(scope, Headers(scope=scope))
        except PermissionDenied as error:
            log.info("ws.refused", reason=error.message)
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": ""})
            return
        await self._app(scope, receive, send)


def _check_site(scope: Scope, headers: Headers) -> None:
    """Refuse a request for another host, or from a page of another site; see `service.auth.origins`."""
    path = route_path(scope)
    if path in _QUIET:  # probes use the address, from within the network
        return
    origins = cast(Services, scope["app"].state.services).auth.origins
    host = headers.get("host")
    origins.check_host(host)
    if path in _PAGES:
        origins.check_origin(headers.get("origin"), host)


def _as_get(scope: Scope, send: Send) -> tuple[Scope, Receive, Send]:
    """Handle a HEAD as a GET whose client disconnects after the headers, so that a stream ends too."""
    responded = asyncio.Event()
    parts: list[Message] = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> Message:
        if parts:
            return parts.pop()
        await responded.wait()
        return {"type": "http.disconnect"}

    async def respond(message: Message) -> None:
        if message["type"] == "http.response.start":
            await send(message)
        elif not responded.is_set():
            responded.set()
            await send({"type": "http.response.body", "body": b""})

    return {**scope, "method": "GET"}, receive, respond


def _refusal(scope: Scope, headers: Headers) -> tuple[int, str] | None:
    """Return the status and message of a refusal before routing, or None."""
    length = headers.get("content-length", "")
    limit = body_limit(scope["method"], scope["path"])
    if length.isdecimal() and int(length[:20]) > limit:
        return 413, TooLarge(limit).message
    if "\x00" in scope["path"] or b"%00" in scope["query_string"]:
        return 400, "the URL contains a zero byte; remove it"
    try:
        _check_site(scope, headers)
    except PermissionDenied as error:
        return 403, error.message
    return None


def _limited(receive: Receive, limit: int) -> Receive:
    """Limit the body while it is received: a chunked body has no declared size."""
    size = 0

    async def part() -> Message:
        nonlocal size
        message = await receive()
        if message["type"] == "http.request":
            size += len(message.get("body", b""))
            if size > limit:
                raise TooLarge(limit)
        return message

    return part


def _template(scope: Scope) -> str:
    """Return the declared path of the route, not the requested one, which may contain any text."""
    return getattr(scope.get("route"), "path", "-")


def _log_request(scope: Scope, method: str, status: int | None, began: float, request_id: str) -> None:
    path = _template(scope)
    cast(Services, scope["app"].state.services).metrics.record_request(method, path, status or 0)
    # Open dashboards refresh themselves: only failures of that are of interest.
    refreshes = status == 200 and any(name == _REGION for name, _ in scope["headers"])
    write = log.debug if path in _QUIET or status is None or refreshes else log.info
    write(
        "http.request",
        method=method,
        path=path,
        status=status or "disconnected",
        ms=round((time.perf_counter() - began) * 1000, 1),
        actor=scope.get("state", {}).get("actor", "-"),
        request_id=request_id,
    )
