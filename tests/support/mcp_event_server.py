"""An MCP server with events, for tests. It refuses what a server that keeps the draft refuses."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
from aiohttp import web

from wakeful.launch.secrets import read_secret, standard_signature
from wakeful.signal.mcp_events import subscription_id

KEY = "a-token-of-the-server"
EVENT = "ticket.created"
_META = "io.modelcontextprotocol/"


@dataclass
class Subscription:
    """A subscription with webhook delivery."""

    id: str
    url: str
    secret: bytes
    cursor: str | None
    arguments: dict[str, Any]
    refreshes: int = 0
    #: the statuses that the callback answered
    answers: list[int] = field(default_factory=list)


class Refused(Exception):
    """The answer is an error of JSON-RPC."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class McpEventServer:
    """Serves one event, `ticket.created` with the argument `queue`, by webhook and by poll."""

    def __init__(self) -> None:
        self.url = ""
        self.modes = {"webhook", "poll"}
        self.subscriptions: dict[str, Subscription] = {}
        self.ended: list[str] = []
        self.events: list[dict[str, Any]] = []
        #: events before this position are lost
        self.first = 0
        self.grant_ms = 3_600_000
        self.methods: list[str] = []
        #: what the server asks of the next requests: `cut`, `stream`, `http 503`, `wrong challenge`
        self.faults: list[str] = []
        #: awaited before a request is answered
        self.before_answer: Callable[[], Awaitable[None]] | None = None
        self._session: aiohttp.ClientSession | None = None

    # --- requests of the client ------------------------------------------------------------------

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        method, number = body["method"], body["id"]
        self.methods.append(method)
        fault = self.faults.pop(0) if self.faults else ""
        if request.headers.get("Authorization") != f"Bearer {KEY}":
            return web.Response(status=401)
        meta = body["params"].pop("_meta")
        assert body["jsonrpc"] == "2.0"
        assert request.headers["MCP-Protocol-Version"] == meta[f"{_META}protocolVersion"] == "2026-07-28"
        assert request.headers["Mcp-Method"] == method
        assert "text/event-stream" in request.headers["Accept"]
        assert meta[f"{_META}clientInfo"]["name"] == "wakeful"
        if fault.startswith("http"):
            return web.Response(status=int(fault.split()[1]))
        try:
            result = await self._answer(method, body["params"], fault)
            message: dict[str, Any] = {"jsonrpc": "2.0", "id": number, "result": result}
        except Refused as error:
            message = {"jsonrpc": "2.0", "id": number, "error": {"code": error.code, "message": str(error)}}
        if self.before_answer is not None:
            await self.before_answer()
        text = json.dumps(message)
        if fault == "stream":
            noise = 'event: message\ndata: {"jsonrpc":"2.0","method":"notifications/message"}\n\n'
            return web.Response(text=f"{noise}data: {text}\n\n", content_type="text/event-stream")
        if fault == "cut":
            response = web.StreamResponse(headers={"Content-Length": str(len(text))})
            response.content_type = "application/json"
            await response.prepare(request)
            await response.write(text[: len(text) // 2].encode())
            assert request.transport is not None
            request.transport.abort()
            return response
        return web.json_response(text=text)

    async def _answer(self, method: str, params: dict[str, Any], fault: str) -> dict[str, Any]:
        if method == "events/poll":
            return self._poll(**params)
        if method == "events/subscribe":
            return await self._subscribe(**params, fault=fault)
        if method == "events/unsubscribe":
            url = params["delivery"]["url"]
            if self.subscriptions.pop(url, None) is None:
                raise Refused(-32011, "there is no such subscription")
            self.ended.append(url)
            return {}
        raise Refused(-32601, "no such method")

    def _check(self, name: str, arguments: dict[str, Any], mode: str) -> None:
        if name != EVENT:
            raise Refused(-32011, f"there is no event {name}")
        if set(arguments) - {"queue"}:
            raise Refused(-32602, "the event has the argument queue")
        if mode not in self.modes:
            raise Refused(-32014, f"the event has no delivery by {mode}")

    async def _subscribe(
        self,
        name: str,
        arguments: dict[str, Any],
        delivery: dict[str, Any],
        cursor: str | None,
        fault: str,
        ttlMs: int | None = None,
    ) -> dict[str, Any]:
        assert set(delivery) == {"mode", "url", "secret"}
        self._check(name, arguments, delivery["mode"])
        url, secret = delivery["url"], read_secret(delivery["secret"])
        known = self.subscriptions.get(url)
        if known is not None:
            known.refreshes += 1
            known.secret = secret
        else:
            known = Subscription(subscription_id("key", url, name, arguments), url, secret, cursor, arguments)
            challenge = secrets.token_hex(16)
            status, answer = await self.post(
                known, {"type": "verification", "challenge": challenge}, f"msg_verification_{challenge}"
            )
            if status != 200 or json.loads(answer)["challenge"] != challenge or fault == "wrong challenge":
                raise Refused(-32015, "the callback did not return the challenge")
            self.subscriptions[url] = known
        asked = timedelta(milliseconds=min(self.grant_ms, ttlMs or self.grant_ms))
        start = len(self.events) if cursor is None else max(int(cursor), self.first)
        return {
            "id": known.id,
            "refreshBefore": (datetime.now(UTC) + asked).isoformat(),
            "cursor": str(start),
            "truncated": cursor is not None and int(cursor) < self.first,
        }

    def _poll(
        self, name: str, arguments: dict[str, Any], cursor: str | None, maxEvents: int = 10
    ) -> dict[str, Any]:
        self._check(name, arguments, "poll")
        start = len(self.events) if cursor is None else max(int(cursor), self.first)
        found = self.events[start : start + maxEvents]
        return {
            "events": [{key: value for key, value in each.items() if key != "cursor"} for each in found],
            "cursor": str(start + len(found)),
            "truncated": cursor is not None and int(cursor) < self.first,
            "hasMore": start + len(found) < len(self.events),
            "nextPollMs": 1000,
        }

    # --- deliveries ------------------------------------------------------------------------------

    def add_event(self, **data: Any) -> dict[str, Any]:
        """Add an event; it is not sent yet."""
        number = len(self.events) + 1
        event = {
            "eventId": f"evt_{number}",
            "name": EVENT,
            "timestamp": datetime.now(UTC).isoformat(),
            "data": data,
            "cursor": str(number),
        }
        self.events.append(event)
        return event

    async def deliver(self, event: dict[str, Any], **changes: Any) -> int:
        """Send an event to the only subscription. Returns the status of the answer."""
        (to,) = self.subscriptions.values()
        return (await self.post(to, event, event["eventId"], **changes))[0]

    async def post(
        self,
        to: Subscription,
        message: dict[str, Any],
        message_id: str,
        *,
        sent_s: int | None = None,
        secret: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, str]:
        """Send a signed message to a callback. Returns the status and the body of the answer."""
        body = json.dumps(message).encode()
        sent_s = int(datetime.now(UTC).timestamp()) if sent_s is None else sent_s
        signed = {
            "content-type": "application/json",
            "webhook-id": message_id,
            "webhook-timestamp": str(sent_s),
            "webhook-signature": standard_signature([secret or to.secret], message_id, sent_s, body),
            "x-mcp-subscription-id": to.id,
            **(headers or {}),
        }
        assert self._session is not None
        async with self._session.post(to.url, data=body, headers=signed) as response:
            to.answers.append(response.status)
            return response.status, await response.text()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[McpEventServer]:
        """Listen on a free port of 127.0.0.1."""
        app = web.Application()
        app.router.add_post("/mcp", self.answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
        async with aiohttp.ClientSession() as self._session:
            try:
                yield self
            finally:
                await runner.cleanup()
