"""The HTTP protocol of uvicorn, with deadlines for the client, and parts of streams that need no task.

The headers of the first request are due from the moment of the connection, those of a later request from
their first byte; the body and the reading of the response have deadlines too. `check` closes a connection
whose client is late; the acceptor calls it once a second.

A request with both `Content-Length` and `Transfer-Encoding` is refused and the connection closed: a proxy may
have read another length, so what follows may not be a request of its client (RFC 9112, 6.1).

A part of a stream passes through all layers of the app, and a task must run for it. An event for hundreds of
clients is written directly instead: the scope has a `DirectWrite` under `DIRECT_WRITE`.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

import h11
from uvicorn._types import ASGI3Application, ASGIReceiveCallable, ASGISendCallable, Scope
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from wakeful.api.http.problems import problem
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

_TIMEOUT: Final = (
    b"HTTP/1.1 408 Request Timeout\r\n"
    b"content-type: text/plain; charset=utf-8\r\ncontent-length: 36\r\nconnection: close\r\n\r\n"
    b"the request was not sent within time"
)

_TWO_LENGTHS: Final = (
    "the request has both Content-Length and Transfer-Encoding, so its length is ambiguous; send only one"
)

log = get_logger("wakeful.http")


class HttpProtocol(H11Protocol):
    """One HTTP connection."""

    #: when the present request began; None: there is none
    _began: float | None = None
    #: when the last bytes were received, when writing was paused, and when the connection was closed
    _received = 0.0
    _stalled: float | None = None
    _closed: float | None = None
    #: when the deadlines were checked last
    _checked = 0.0
    _empty = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the deadline of the first request."""
        super().connection_made(transport)
        # It would log the tokens of trigger URLs, if an app adds a handler to the logger of uvicorn.
        self.access_log = False
        self._began = self._received = self._checked = self.loop.time()
        self.app = partial(self._respond, self.app)

    async def _respond(
        self, app: ASGI3Application, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable
    ) -> None:
        """Handle a request. Its response may be written directly."""
        names = {name for name, _ in scope["headers"]}  # type: ignore[typeddict-item]
        if {b"content-length", b"transfer-encoding"} <= names:
            refusal = problem(400, _TWO_LENGTHS, path=scope["path"], headers={"connection": "close"})  # type: ignore[typeddict-item]
            await refusal(scope, receive, send)  # type: ignore[arg-type]
            return
        write = partial(self._write_part, self.cycle)
        await app({**scope, "extensions": {DIRECT_WRITE: write}}, receive, send)  # type: ignore[arg-type]

    def _write_part(self, cycle: RequestResponseCycle, part: bytes) -> bool:
        """Write a part of a chunked response. False: it must be sent as usual, which may wait."""
        if (
            self.cycle is not cycle
            or not cycle.response_started
            or cycle.response_complete
            or cycle.disconnected
            or cycle.scope["method"] == "HEAD"
            or self.flow.write_paused
            or self.transport.is_closing()
            or self.conn.our_state is not h11.SEND_BODY
            or self.conn.their_http_version == b"1.0"
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
        super().data_received(data)
        if self._awaits_next_request():  # this was the rest of a request that was answered before its end
            self._began = None
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

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
        since, self._checked = self._checked, now
        if self._waits_for_us():  # that time does not count against the client
            self._received = now
            if self._began is not None:
                self._began = min(self._began + now - since, now)
        if self._stalled is not None and now - self._stalled > RESPONSE_S:
            log.debug("http.timeout", reason="response not read", client=self._address)
            self.transport.abort()
        elif self._late(now):
            log.debug("http.timeout", reason="request not complete", client=self._address)
            cycle: RequestResponseCycle | None = self.cycle
            reads_body = self.conn.their_state is h11.SEND_BODY  # else `cycle` is of an earlier request
            answered = reads_body and cycle is not None and cycle.response_started
            if not answered and not self._empty:
                self.transport.write(_TIMEOUT)
            self.transport.close()

    def _late(self, now: float) -> bool:
        if self._began is None:
            return False
        if self.conn.their_state is h11.IDLE:
            return now - self._began > HEADERS_S
        if self.conn.their_state is h11.SEND_BODY and not self._waits_for_us():
            return now - self._received > BODY_PART_S or now - self._began > REQUEST_S
        return False

    def _awaits_next_request(self) -> bool:
        """Return whether a request was answered and nothing of the next one is there."""
        cycle: RequestResponseCycle | None = self.cycle
        answered = cycle is not None and cycle.response_complete
        return answered and self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]

    def _waits_for_us(self) -> bool:
        """Return whether the client must wait: the app has not read the data, or not requested the body."""
        return self.flow.read_paused or self.conn.they_are_waiting_for_100_continue

    @property
    def _address(self) -> str:
        return self.client[0] if self.client else "-"
