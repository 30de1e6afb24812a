"""Servers on this machine that tests send requests to: a webhook receiver and a chat endpoint.

They run on threads of their own, so they work in sync and async tests, and also while a test blocks. They are
for tests only: they trust their client, and know only what Wakeful and Apprise send.
"""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from hmac import compare_digest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from wakeful.launch.secrets import read_secret, standard_signature

_HOST: Final = "127.0.0.1"
#: How often a server looks whether it is to stop, in seconds.
_POLL_S: Final = 0.02
_JOIN_S: Final = 5.0


class ReceivedRequest(NamedTuple):
    """A request that a receiver got."""

    method: str
    path: str
    #: the names are in lower case
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the body, read as JSON."""
        return json.loads(self.body)

    def is_signed_with(self, secret: str) -> bool:
        """Return whether its `webhook-signature` is made with that secret: `whsec_…` of a job or an agent.

        The timestamp is not compared with the time: a test has its own clock.
        """
        timestamp = self.headers.get("webhook-timestamp", "")
        if not timestamp.isdecimal():
            return False
        identity = self.headers.get("webhook-id", "")
        expected = standard_signature([read_secret(secret)], identity, int(timestamp), self.body)
        given = self.headers.get("webhook-signature", "").split(" ")
        return any(compare_digest(each.encode(), expected.encode()) for each in given)


class Response(NamedTuple):
    """What a receiver answers."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = {}
    #: real seconds until it answers
    delay: float = 0.0


class Receiver:
    """A server that listens from `start` to `close`, or in `with`. Subclasses answer."""

    def __init__(self) -> None:
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> Self:
        """Listen at a free port of 127.0.0.1."""
        self._server = server = _Server(self)
        self._thread = threading.Thread(
            target=server.serve_forever, args=[_POLL_S], name="wakeful-receiver", daemon=True
        )
        self._thread.start()
        return self

    def close(self) -> None:
        """Close all connections and stop. Answers that wait for their delay are dropped."""
        server, self._server = self._server, None
        if server is not None and self._thread is not None:
            server.shutdown()
            server.close_connections()
            server.server_close()
            self._thread.join(_JOIN_S)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def port(self) -> int:
        """The port that it listens at."""
        if self._server is None:
            raise RuntimeError("this server does not listen; use it as `with WebhookReceiver() as receiver:`")
        return self._server.server_port

    def answer(self, request: ReceivedRequest) -> Response:
        """Return the answer to a request. It is called on several threads, one call at a time."""
        raise NotImplementedError


class WebhookReceiver(Receiver):
    """Records requests, and answers 200 or what the test says.

    ```python
    with WebhookReceiver() as receiver:
        receiver.respond(503, times=2)
        job = await app.jobs.create("digest", schedule="@daily", target=Webhook(receiver.url))
        receiver.secret = job.secret
        await harness.advance("1d")
    assert [request.json()["job"] for request in receiver.requests] == ["digest"] * 3
    ```
    """

    def __init__(self) -> None:
        super().__init__()
        #: the requests in their order, without refused ones
        self.requests: list[ReceivedRequest] = []
        #: requests that were not signed with `secret`: they were answered with 401
        self.refused: list[ReceivedRequest] = []
        #: the secret that requests must be signed with: `whsec_…`; None: they need no signature
        self.secret: str | None = None
        self._script: list[_Scripted] = []

    @property
    def url(self) -> str:
        """The URL for a webhook. Any other path works too."""
        return f"http://{_HOST}:{self.port}/hook"

    @property
    def channel(self) -> str:
        """The URL for a channel, such as `WAKEFUL_CHANNEL_TEAM`: messages are requests with a `message`."""
        return f"json://{_HOST}:{self.port}/channel"

    def respond(
        self,
        status: int = 200,
        body: object = b"",
        *,
        headers: Mapping[str, str] | None = None,
        delay: float = 0.0,
        times: int | None = 1,
        path: str | None = None,
    ) -> None:
        """Answer the next request like this, or the next `times`; all further ones with `times=None`.

        `body` is text, bytes, or a value that becomes JSON. `delay` is in real seconds. With `path`, only
        requests to that path count. Answers are used in the order in which they are given.
        """
        if not isinstance(body, bytes):
            body = (body if isinstance(body, str) else json.dumps(body)).encode()
        self._script.append(_Scripted(Response(status, body, headers or {}, delay), times, path))

    def answer(self, request: ReceivedRequest) -> Response:
        """Return the next answer of the script that fits, else 200."""
        if self.secret is not None and not request.is_signed_with(self.secret):
            self.refused.append(request)
            return Response(401, b"the signature is not valid")
        self.requests.append(request)
        for each in self._script:
            if each.path in (None, request.path):
                if each.times is not None:
                    each.times -= 1
                    if each.times <= 0:
                        self._script.remove(each)
                return each.response
        return Response()


class _Scripted:
    def __init__(self, response: Response, times: int | None, path: str | None) -> None:
        self.response = response
        self.times = times
        self.path = path


class ChatScript:
    """What the model of a test answers: one item per request, then it repeats the message."""

    def __init__(self) -> None:
        #: the bodies of all requests
        self.requests: list[dict[str, Any]] = []
        #: the `usage` of answers that do not say another
        self.usage: dict[str, Any] | None = {
            "prompt_tokens": 100,
            "completion_tokens": 20,
            "total_tokens": 120,
        }
        self._script: deque[Callable[[Mapping[str, Any]], Response]] = deque()

    def say(self, text: str | None, **fields: Any) -> None:
        """Answer with this text. `fields` are `finish_reason`, `usage`, and fields of the message."""
        self._script.append(lambda request: self.complete(request, {"content": text, **fields}))

    def call(self, *calls: tuple[str, object], text: str | None = None, **fields: Any) -> None:
        """Call tools: (name, arguments)."""
        tool_calls = [
            {
                "id": f"call_{number}",
                "type": "function",
                "function": {
                    "name": name,
                    "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments),
                },
            }
            for number, (name, arguments) in enumerate(calls)
        ]
        self.say(text, **{"tool_calls": tool_calls, "finish_reason": "tool_calls", **fields})

    def refuse(
        self, status: int, message: str, headers: Mapping[str, str] | None = None, **fields: Any
    ) -> None:
        """Answer with an error. `fields` are those of the error object."""
        error = {"message": message, "type": "error", "param": None, "code": None, **fields}
        self.raw(json.dumps({"error": error}), status, headers)

    def raw(self, body: str, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        """Answer with exactly this."""
        self._script.append(lambda request: Response(status, body.encode(), headers or {}))

    def texts(self, number: int = -1) -> list[tuple[str, Any]]:
        """Return the messages of a request without the system text: (role, content)."""
        messages = self.requests[number]["messages"]
        return [(each["role"], each.get("content")) for each in messages if each["role"] != "system"]

    def next_response(self) -> Callable[[Mapping[str, Any]], Response]:
        """Return what makes the next response."""
        return self._script.popleft() if self._script else self._repeat

    def _repeat(self, request: Mapping[str, Any]) -> Response:
        said = [message["content"] for message in request["messages"] if message["role"] == "user"]
        return self.complete(request, {"content": f"You said: {said[-1]}"})

    def complete(self, request: Mapping[str, Any], fields: Mapping[str, Any]) -> Response:
        """Return a response of the protocol, with these fields of the message."""
        fields = dict(fields)
        finish, used = fields.pop("finish_reason", "stop"), fields.pop("usage", self.usage)
        choice = {
            "index": 0,
            "message": {"role": "assistant", "refusal": None, **fields},
            "finish_reason": finish,
            "logprobs": None,
        }
        body: dict[str, Any] = {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": request["model"],
            "choices": [choice],
        }
        if used is not None:
            body["usage"] = used
        return Response(200, json.dumps(body).encode())


class ChatEndpoint(ChatScript, Receiver):
    """An OpenAI-compatible endpoint whose answers the test says.

    ```python
    with ChatEndpoint() as model:
        model.call(("cron", {"action": "list"}))
        model.say("Nothing is planned.")
        await app.jobs.create(
            "plan", schedule="@daily", message="What is planned?", target=Chat(model.url, "test")
        )
    ```
    """

    def __init__(self) -> None:
        ChatScript.__init__(self)
        Receiver.__init__(self)
        #: the API key that requests must have; None: they need none
        self.key: str | None = None

    @property
    def url(self) -> str:
        """The base URL of the endpoint."""
        return f"http://{_HOST}:{self.port}/v1"

    def answer(self, request: ReceivedRequest) -> Response:
        """Return the next answer of the script."""
        if request.path != "/v1/chat/completions":
            return _error(404, f"there is no {request.path}; the endpoint is /v1/chat/completions")
        if self.key is not None and request.headers.get("authorization") != f"Bearer {self.key}":
            return _error(401, "the API key is not the `key` of this endpoint")
        body = request.json()
        self.requests.append(body)
        return self.next_response()(body)


def _error(status: int, message: str) -> Response:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
    return Response(status, json.dumps({"error": error}).encode())


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    #: Connections that wait to be accepted. With the default, 5, requests that arrive together are reset.
    request_queue_size = 128

    def __init__(self, receiver: Receiver) -> None:
        super().__init__((_HOST, 0), _Handler)
        self.receiver = receiver
        self.lock = threading.Lock()
        self.closing = threading.Event()
        self.connections: dict[socket.socket, threading.Thread] = {}

    def close_connections(self) -> None:
        """Close the connections, and wait until their threads have ended."""
        self.closing.set()
        with self.lock:
            connections = dict(self.connections)
        for connection, thread in connections.items():
            with contextlib.suppress(OSError):  # the client has closed it
                connection.shutdown(socket.SHUT_RDWR)
            thread.join(_JOIN_S)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print an error; not of a client that does not wait for an answer."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def setup(self) -> None:
        super().setup()
        with self.server.lock:
            self.server.connections[self.connection] = threading.current_thread()

    def finish(self) -> None:
        with self.server.lock:
            del self.server.connections[self.connection]
        super().finish()

    def handle_request(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = ReceivedRequest(self.command, self.path, headers, body)
        with self.server.lock:
            response = self.server.receiver.answer(request)
        if response.delay and self.server.closing.wait(response.delay):
            self.close_connection = True
            return
        self.send_response(response.status)
        for name, value in {"content-type": "application/json", **response.headers}.items():
            self.send_header(name, value)
        if response.status >= 200 and response.status not in (204, 304):
            self.send_header("content-length", str(len(response.body)))
        self.end_headers()
        if response.status not in (204, 304):
            self.wfile.write(response.body)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_request

    def log_message(self, format: str, *args: object) -> None:
        pass
