"""The HTTP protocol of uvicorn, with limits and deadlines for the client, and direct parts of streams.

The headers of the first request are due from the moment of the connection, those of a later request from
their first byte; the body and the reading of the response have deadlines too. `check` closes a connection
whose client is late; the acceptor calls it once a second.

The parser refuses a request with both `Content-Length` and `Transfer-Encoding`, and the connection is closed:
a proxy may have read another length, so what follows may not be a request of its client (RFC 9112, 6.1). The
sizes of headers, and of what surrounds a body (sizes of chunks, trailers), are limited. Trailers are ignored.

A part of a stream passes through all layers of the app, and a task must run for it. An event for hundreds of
clients is written directly instead: the scope has a `DirectWrite` under `DIRECT_WRITE`.
"""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from typing import Final

from httptools import HttpParserError
from uvicorn._types import ASGI3Application, ASGIReceiveCallable, ASGISendCallable, ASGISendEvent, Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from wakeful.api.http.responses import DIRECT_WRITE
from wakeful.logs import get_logger

#: Seconds for the headers of a request.
HEADERS_S: Final = 10.0
#: Seconds between two parts of a body, and for a whole request.
BODY_PART_S: Final = 10.0
REQUEST_S: Final = 60.0
#: Seconds in which a client must read a part of a response that fills the buffers.
RESPONSE_S: Final = 30.0
#: Seconds for the end of a closed connection.
CLOSE_S: Final = 5.0
#: The most bytes of the headers of a request, and of a request besides its headers and its body.
MAX_HEADERS: Final = 65_536
MAX_FRAMING: Final = 4_194_304
#: The most requests that a client sends without waiting for the responses.
MAX_PIPELINED: Final = 100

_TIMEOUT: Final = (
    b"HTTP/1.1 408 Request Timeout\r\n"
    b"content-type: text/plain; charset=utf-8\r\ncontent-length: 36\r\nconnection: close\r\n\r\n"
    b"the request was not sent within time"
)

log = get_logger("wakeful.http")


class HttpProtocol(HttpToolsProtocol):
    """One HTTP connection."""

    #: when the present request began; None: there is none
    _began: float | None = None
    #: when the last bytes were received, when writing was paused, and when the connection was closed
    _received = 0.0
    _stalled: float | None = None
    _closed: float | None = None
    _empty = True
    #: whether the headers of a request are being received, and how many bytes of it are no body
    _in_headers = True
    _framing = 0
    #: whose response is being sent; `cycle` is that of the request that is being received
    _responding: RequestResponseCycle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the deadline of the first request."""
        super().connection_made(transport)
        # It would log the tokens of trigger URLs, if an app adds a handler to the logger of uvicorn.
        self.access_log = False
        self._began = self._received = self.loop.time()
        self.app = partial(self._respond, self.app)

    async def _respond(
        self, app: ASGI3Application, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable
    ) -> None:
        """Handle a request. Its response may be written directly."""
        cycle = self._responding
        assert cycle is not None
        if scope["http_version"] == "1.0":  # type: ignore[typeddict-item]
            send = partial(_send_until_close, cycle, send)
        write = partial(self._write_part, cycle)
        await app({**scope, "extensions": {DIRECT_WRITE: write}}, receive, send)  # type: ignore[arg-type]

    def _write_part(self, cycle: RequestResponseCycle, part: bytes) -> bool:
        """Write a part of a chunked response. False: it must be sent as usual, which may wait."""
        if (
            self._responding is not cycle
            or not cycle.chunked_encoding
            or not cycle.response_started
            or cycle.response_complete
            or cycle.disconnected
            or cycle.scope["method"] == "HEAD"
            or self.flow.write_paused
            or self.transport.is_closing()
        ):
            return False
        self.transport.write(b"%x\r\n%b\r\n" % (len(part), part))
        return True

    def data_received(self, data: bytes) -> None:
        """Read data of the client."""
        self._received = self.loop.time()
        self._empty = False
        if self._began is None:
            self._began = self._received
        self._framing += len(data)
        super().data_received(data)
        if (
            self._framing > (MAX_HEADERS if self._in_headers else MAX_FRAMING)
            and not self.transport.is_closing()
        ):
            self.send_400_response("Invalid HTTP request received.")

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell every request that its client is gone."""
        waiting = [cycle for cycle, _ in self.pipeline]
        super().connection_lost(exc)
        for cycle in (self._responding, *waiting):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()

    def on_message_begin(self) -> None:
        """Begin a request."""
        super().on_message_begin()
        self._in_headers = True
        if len(self.pipeline) >= MAX_PIPELINED:
            raise HttpParserError("too many requests at once")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header; trailers come after the body and are ignored."""
        if self._in_headers:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Start the request."""
        super().on_headers_complete()
        self._in_headers = False
        self._framing = 0

    def on_body(self, body: bytes) -> None:
        """Read a part of the body."""
        self._framing -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request: what follows are the headers of the next one."""
        super().on_message_complete()
        self._in_headers = True
        self._framing = 0

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._responding = cycle
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        """Wait for the next request, which begins with its first byte."""
        self._began = None
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Note when the client stopped reading."""
        self._stalled = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """Clear the stall: the client reads again."""
        self._stalled = None
        super().resume_writing()

    def check(self, now: float) -> None:
        """Close the connection if the client is late."""
        if self.transport.is_closing():
            if self._closed is None:
                self._closed = now
            elif now - self._closed > CLOSE_S:
                self.transport.abort()
            return
        if self._waits_for_us():
            self._received = now  # the deadline starts when the client can continue
        if self._stalled is not None and now - self._stalled > RESPONSE_S:
            log.debug("http.timeout", reason="response not read", client=self._address)
            self.transport.abort()
        elif self._late(now):
            log.debug("http.timeout", reason="request not complete", client=self._address)
            cycle = self._responding
            answering = cycle is not None and cycle.response_started and not cycle.response_complete
            if not answering and not self._empty:
                self.transport.write(_TIMEOUT)
            self.transport.close()

    def _late(self, now: float) -> bool:
        if self._began is None:
            return False
        cycle: RequestResponseCycle | None = self.cycle
        if self._in_headers:
            responding = cycle is not None and not cycle.response_complete
            return not responding and now - self._began > HEADERS_S
        if not self._waits_for_us():
            return now - self._received > BODY_PART_S or now - self._began > REQUEST_S
        return False

    def _waits_for_us(self) -> bool:
        """Return whether the client must wait: the app has not read the data, or not requested the body."""
        cycle: RequestResponseCycle | None = self.cycle
        return self.flow.read_paused or (
            cycle is not None and not cycle.response_complete and cycle.waiting_for_100_continue
        )

    @property
    def _address(self) -> str:
        return self.client[0] if self.client else "-"


async def _send_until_close(
    cycle: RequestResponseCycle, send: ASGISendCallable, message: ASGISendEvent
) -> None:
    """Send a part of a response to a client of HTTP/1.0. It knows no chunks: the connection ends with it."""
    if message["type"] == "http.response.start":
        names = {name.lower() for name, _ in message.get("headers", ())}
        if b"content-length" not in names and message["status"] not in (204, 304):
            cycle.chunked_encoding = False
            cycle.expected_content_length = sys.maxsize
    elif (
        message["type"] == "http.response.body"
        and not message.get("more_body", False)
        and cycle.expected_content_length > sys.maxsize // 2  # it has no declared length
    ):
        cycle.expected_content_length = len(message.get("body", b""))
    await send(message)
