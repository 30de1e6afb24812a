"""A stand-in for an OpenAI-compatible endpoint.

It keeps the rules of the protocol: it checks each request against the types of the `openai` package and
against the order of roles and tool calls, refuses a wrong API key, and checks its own regular responses
against the same types. A test says what the model answers (`say`, `call`, `refuse` …), one item per request;
without one, the answer repeats the message.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

from aiohttp import web
from pydantic import BaseModel, TypeAdapter, ValidationError

from tests.support.strict_json import strict_json
from wakeful.testing.receivers import ChatScript, Response

KEY = "sk-test-0123456789"


@cache
def _protocol() -> tuple[TypeAdapter[Any], type[BaseModel]]:
    """Return the types of a request and of a response; importing `openai` takes seconds."""
    from openai.types.chat import ChatCompletion
    from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming

    return TypeAdapter(CompletionCreateParamsNonStreaming), ChatCompletion


class ChatStandIn(ChatScript):
    """The endpoint, its requests, and what it answers next."""

    def __init__(self) -> None:
        super().__init__()
        self.url = ""
        #: the headers of all requests, also of refused ones
        self.headers: list[Mapping[str, str]] = []
        #: the most bytes of a request, and the most requests in a window of so many seconds
        self.max_bytes: int | None = None
        self.rate: tuple[int, float] | None = None
        self._recent: deque[float] = deque()
        #: accepted API keys; None: requests need none
        self.keys: set[str] | None = {KEY}
        #: until when responses wait
        self._held: dict[int, asyncio.Event] = {}

    def hang(self, until: asyncio.Event) -> None:
        """Do not answer until the event is set."""
        self.say("late")
        self._held[id(self._script[-1])] = until

    def complete(self, request: Mapping[str, Any], fields: Mapping[str, Any]) -> Response:
        """Return a regular response, checked against the types of the `openai` package."""
        response = super().complete(request, fields)
        _protocol()[1].model_validate_json(response.body)
        return response

    # --- the server -------------------------------------------------------------------------------

    async def handle(self, request: web.Request) -> web.Response:
        """Handle a request as the API does."""
        if request.content_type != "application/json":
            return _error(415, "Unsupported content type", "invalid_request")
        try:
            body = strict_json(await request.read())
        except ValueError as error:
            return _error(
                400, f"We could not parse the JSON body of your request: {error}", "invalid_request"
            )
        self.requests.append(body)
        self.headers.append(request.headers)
        if self.max_bytes is not None and (request.content_length or 0) > self.max_bytes:
            return _error(413, "Request body too large", "request_too_large")
        wait_s = self._wait_s()
        if wait_s:
            limited = _error(429, "Rate limit reached for requests", "rate_limit_exceeded")
            limited.headers["Retry-After"] = str(math.ceil(wait_s))
            return limited
        _, _, key = request.headers.get("authorization", "").partition(" ")
        key = request.headers.get("api-key", key)
        if self.keys is not None and key not in self.keys:
            return _error(401, f"Incorrect API key provided: {key}", "invalid_api_key")
        problem = problem_of(body)
        if problem is not None:
            return _error(400, problem, "invalid_request")
        respond = self.next_response()
        held = self._held.pop(id(respond), None)
        if held is not None:
            await held.wait()
        response = respond(body)
        return web.Response(
            body=response.body,
            status=response.status,
            headers=response.headers,
            content_type="application/json",
        )

    def _wait_s(self) -> float:
        """Return how long until the rate permits a request; 0: it is permitted, and counted."""
        if self.rate is None:
            return 0.0
        most, window_s = self.rate
        now = time.monotonic()
        while self._recent and self._recent[0] <= now - window_s:
            self._recent.popleft()
        if len(self._recent) >= most:
            return self._recent[0] + window_s - now
        self._recent.append(now)
        return 0.0


def problem_of(body: Mapping[str, Any]) -> str | None:
    """Return what is wrong with a request; None if it is as the API requires."""
    try:
        read = _consumed(_protocol()[0].validate_python(body))
    except ValidationError as error:
        return f"invalid request: {error}"[:2_000]
    if read != body:
        return f"unknown fields: {json.dumps(read)} is what is known of {json.dumps(body)}"
    messages, expected = body["messages"], list[str]()
    if not messages or messages[-1]["role"] not in ("user", "tool"):
        return "the last message is not from the user or a tool"
    for number, message in enumerate(messages):
        if message["role"] == "system" and number:
            return "the system message must be the first"
        if expected and message.get("tool_call_id") != expected[0]:
            return f"an assistant message with tool calls must be followed by their results: {expected}"
        if message["role"] == "tool":
            if not expected:
                return "a tool message must be a response to a preceding tool call"
            expected.pop(0)
        before = messages[number - 1]["role"] if number else ""
        if message["role"] in ("user", "assistant") and message["role"] == before:
            return "conversation roles must alternate user/assistant/user/assistant/..."
        for call in message.get("tool_calls", ()):
            strict_json(call["function"]["arguments"].encode())
            expected.append(call["id"])
    if "tool_choice" in body and "tools" not in body:
        return "tool_choice is only allowed when tools are specified"
    return None


def _error(status: int, message: str, code: str) -> web.Response:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
    return web.json_response({"error": error}, status=status)


def _consumed(value: Any) -> Any:
    """Return a validated value with its iterators, which validate while they are read, as lists."""
    if isinstance(value, dict):
        return {key: _consumed(each) for key, each in value.items()}
    if isinstance(value, Iterator | list | tuple):
        return [_consumed(each) for each in value]
    return value


@asynccontextmanager
async def chat_endpoint() -> AsyncIterator[ChatStandIn]:
    """Serve a stand-in at a free port."""
    stand_in = ChatStandIn()
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_post("/v1/chat/completions", stand_in.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        assert runner.addresses
        stand_in.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        yield stand_in
    finally:
        await runner.cleanup()
