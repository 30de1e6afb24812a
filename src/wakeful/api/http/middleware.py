"""What every request goes through: an id, a limit, a line in the log, and an answer whatever happens.

HEAD is answered here as GET without the body, on every path that takes GET.

It is plain ASGI, not a middleware class of the framework's: those copy bodies and break streams.
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

from wakeful.api.http.problems import MAX_BODY, TooLarge, internal_problem, problem
from wakeful.errors import PermissionDenied
from wakeful.logs import get_logger
from wakeful.service.services import Services

_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}")
#: what pages in a browser may connect to: their sites are checked
_PAGES: Final = frozenset({"/mcp", "/ws"})
#: asked so often that nobody wants to read of it
_QUIET: Final = frozenset({"/healthz", "/readyz", "/metrics"})

log = get_logger("wakeful.http")


class RequestMiddleware:
    """The way in and out of the app."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, and see that it is answered."""
        if scope["type"] == "websocket":
            await self._connect(scope, receive, send)
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        method = scope["method"]
        if method == "HEAD":
            scope, receive, send = _as_get(scope, send)
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id
        status = 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = int(message["status"])
                MutableHeaders(scope=message)["x-request-id"] = request_id
            await send(message)

        try:
            refusal = _refusal(scope, headers)
            if refusal is not None:
                await problem(*refusal, path=scope["path"])(scope, receive, answer)
            else:
                await self._app(scope, _limited(receive), answer)
        except ClientDisconnect:
            status = 0
        except Exception:
            log.exception("http.error", request_id=request_id, path=_template(scope))
            if status:  # the answer is under way: all that is left is to break it off
                raise
            await internal_problem(scope["path"])(scope, receive, answer)
        finally:
            _tell(scope, method, status, began, request_id)

    async def _connect(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a WebSocket through; refused before it is accepted, it is answered with 403."""
        try:
            _check_site(scope, Headers(scope=scope))
        except PermissionDenied as error:
            log.info("ws.refused", reason=error.message)
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": ""})
            return
        await self._app(scope, receive, send)


def _check_site(scope: Scope, headers: Headers) -> None:
    """Refuse a request for another host, or by a page of another site; see `service.origins`."""
    path = scope["path"]
    if path in _QUIET:  # asked by address, from within the network
        return
    origins = cast(Services, scope["app"].state.services).origins
    host = headers.get("host")
    origins.check_host(host)
    if path in _PAGES:
        origins.check_origin(headers.get("origin"), host)


def _as_get(scope: Scope, send: Send) -> tuple[Scope, Receive, Send]:
    """A HEAD as a GET whose client leaves when it has the headers: so the answer may also be a stream."""
    answered = asyncio.Event()
    parts: list[Message] = [{"type": "http.request", "body": b"", "more_body": False}]

    async def hear() -> Message:
        if parts:
            return parts.pop()
        await answered.wait()
        return {"type": "http.disconnect"}

    async def answer(message: Message) -> None:
        if message["type"] == "http.response.start":
            await send(message)
        elif not answered.is_set():
            answered.set()
            await send({"type": "http.response.body", "body": b""})

    return {**scope, "method": "GET"}, hear, answer


def _refusal(scope: Scope, headers: Headers) -> tuple[int, str] | None:
    """Why a request is not let in at all."""
    length = headers.get("content-length", "")
    if length.isdecimal() and int(length[:20]) > MAX_BODY:
        return 413, TooLarge().message
    if "\x00" in scope["path"] or b"%00" in scope["query_string"]:
        return 400, "there is a zero byte in the address; take it out"
    try:
        _check_site(scope, headers)
    except PermissionDenied as error:
        return 403, error.message
    return None


def _limited(receive: Receive) -> Receive:
    """The body, up to the limit: one that is sent in chunks does not say beforehand how large it is."""
    size = 0

    async def part() -> Message:
        nonlocal size
        message = await receive()
        if message["type"] == "http.request":
            size += len(message.get("body", b""))
            if size > MAX_BODY:
                raise TooLarge
        return message

    return part


def _template(scope: Scope) -> str:
    """The path as it is declared; never as it was asked for, which may hold anything."""
    return getattr(scope.get("route"), "path", "-")


def _tell(scope: Scope, method: str, status: int, began: float, request_id: str) -> None:
    path = _template(scope)
    cast(Services, scope["app"].state.services).metrics.record_request(method, path, status)
    tell = log.debug if path in _QUIET or not status else log.info
    tell(
        "http.request",
        method=method,
        path=path,
        status=status or "gone",
        ms=round((time.perf_counter() - began) * 1000, 1),
        actor=scope.get("state", {}).get("actor", "-"),
        request_id=request_id,
    )
