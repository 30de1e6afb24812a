"""Connections: opened to allowed addresses only, each sends a request and parses its response with llhttp.

The parser has no limits of its own. Here the head of a response has a limit, interim responses (1xx) have
one, and the caller sets the one of the body: more of it is not read, and the connection is closed.
"""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from ipaddress import IPv4Address
from typing import Final, cast

import aiohappyeyeballs
from httptools import HttpParserCallbackError, HttpParserError, HttpParserUpgrade, HttpResponseParser

from wakeful.launch.address_guard import AddressGuard, AddressRefused, GuardedResolver
from wakeful.launch.http.messages import (
    MAX_INTERIM,
    ConnectionClosed,
    HttpError,
    InvalidTarget,
    MalformedResponse,
    Response,
    ResponseCutOff,
    TooManyInterimResponses,
    UrlOrigin,
)

#: The largest head of a response (status and headers), and its trailers, in bytes.
MAX_HEAD: Final = 64 * 1024
_SWITCHING_PROTOCOLS: Final = 101
#: How long the addresses of a name are used, in seconds.
DNS_TTL_S: Final = 30
#: How many names are remembered.
_MAX_NAMES: Final = 1_000
#: When the next address of a name is tried while the previous one does not answer, in seconds (RFC 8305).
_NEXT_ADDRESS_S: Final = 0.25

Addresses = list[aiohappyeyeballs.AddrInfoType]


class HttpConnection(asyncio.Protocol):
    """A connection to a receiver. It has at most one request at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, connections: set[HttpConnection]) -> None:
        self._loop = loop
        #: the open connections, with this one
        self._connections = connections
        self._transport: asyncio.Transport | None = None
        self._parser = HttpResponseParser(self)
        # What receivers in use send, and other clients accept.
        self._parser.set_dangerous_leniencies(
            lenient_headers=True,
            lenient_optional_cr_before_lf=True,
            lenient_spaces_after_chunk_size=True,
        )
        self._waiter: asyncio.Future[Response] | None = None
        self._limit = 0
        self._until: Callable[[bytearray], bool] | None = None
        #: done when the connection is closed
        self.closed: asyncio.Future[None] = loop.create_future()
        self._start()

    def _start(self) -> None:
        """Forget the previous response."""
        self._fields: list[tuple[bytes, bytes]] = []
        self._body = bytearray()
        self._status = 0
        #: the bytes received, those up to the last part of the body, and those of complete headers
        self._received = self._progress = self._head = 0
        self._interim = 0
        self._in_body = self._complete = False
        self._keep_alive = False
        #: whether the end of the connection is the end of the body
        self._until_end = False

    # --- for the client ------------------------------------------------------------------------------

    async def exchange(
        self, request: bytes, limit: int, until: Callable[[bytearray], bool] | None = None
    ) -> Response:
        """Send a request, and return its response with up to `limit` bytes of its body. Raises HttpError.

        The body may end before, when `until` says of its parts so far that they are enough.
        The connection is closed if the response does not allow another request, and on cancellation.
        """
        transport = self._transport
        assert self._waiter is None, "one request at a time"
        if transport is None or transport.is_closing():
            raise ConnectionClosed(silent=True)
        self._start()
        self._limit, self._until = limit, until
        waiter: asyncio.Future[Response] = self._loop.create_future()
        self._waiter = waiter
        transport.write(request)
        try:
            return await waiter
        except BaseException:
            self.abort()
            raise
        finally:
            self._waiter = None

    @property
    def reusable(self) -> bool:
        """Whether another request can be sent."""
        return self._keep_alive and self._transport is not None and not self._transport.is_closing()

    def is_quiet(self) -> bool:
        """Return whether nothing has arrived that the event loop has not read yet.

        On an unused connection, anything that arrives is its end, or a response to no request.
        """
        return self._transport is not None and not _is_readable(self._transport)

    def abort(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    # --- of the transport ----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start."""
        self._transport = cast(asyncio.Transport, transport)
        self._connections.add(self)

    def data_received(self, data: bytes) -> None:
        """Parse a part of the response."""
        waiter = self._waiter
        if waiter is None or waiter.done():  # it belongs to no request
            self._keep_alive = False
            self.abort()
            return
        self._received += len(data)
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            pass
        except HttpParserError as error:
            if not self._complete:  # else it is about what follows the response
                cause = error.__context__ if isinstance(error, HttpParserCallbackError) else None
                self._fail(cause if isinstance(cause, HttpError) else MalformedResponse(error))
                return
            self._keep_alive = False
        if self._complete:
            self._finish()
        elif not self._in_body:
            if self._received > MAX_HEAD * (self._interim + 1):
                self._fail(_too_large())
        elif len(self._body) >= self._limit or (self._until is not None and self._until(self._body)):
            self._keep_alive = False
            self._finish()
        elif self._received - self._progress > MAX_HEAD:  # trailers, or extensions of a chunk
            self._fail(_too_large())

    def eof_received(self) -> None:
        """Handle the end of what the receiver sends: no response can follow."""
        self._handle_end(None)
        self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """Handle the end of the connection."""
        self._handle_end(error)
        self._connections.discard(self)
        self._transport = None
        self.closed.set_result(None)

    def _handle_end(self, error: Exception | None) -> None:
        self._keep_alive = False
        if self._waiter is None or self._waiter.done():
            return
        if self._in_body:
            if self._until_end and error is None:
                self._finish()
            else:
                self._fail(ResponseCutOff())
        else:
            self._fail(ConnectionClosed(error, silent=self._received == 0))

    def _finish(self) -> None:
        assert self._waiter is not None
        assert self._transport is not None
        if self._transport.get_write_buffer_size():  # it responded before it had read the request
            self._keep_alive = False
        body = bytes(self._body[: self._limit])
        self._waiter.set_result(Response(self._status, self._fields, body))
        if not self._keep_alive:
            self.abort()

    def _fail(self, error: HttpError) -> None:
        assert self._waiter is not None
        self._keep_alive = False
        self._waiter.set_exception(error)
        self.abort()

    # --- of the parser -------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Start a message."""
        if self._complete:  # a second response to one request
            self._keep_alive = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; trailers are only counted."""
        if self._complete:
            return
        self._head += len(name) + len(value) + 4
        if self._head > MAX_HEAD:
            raise _too_large()
        if not self._in_body:
            self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        """Handle the end of a head."""
        if self._complete:
            return
        status = self._status = self._parser.get_status_code()
        if 100 <= status < 200 and status != _SWITCHING_PROTOCOLS:
            self._interim += 1
            if self._interim > MAX_INTERIM:
                raise TooManyInterimResponses
            return
        self._in_body = True
        self._progress = self._received
        self._keep_alive = self._parser.should_keep_alive() and status != _SWITCHING_PROTOCOLS
        self._until_end = not self._keep_alive and _lasts_until_end(self._fields)

    def on_body(self, data: bytes) -> None:
        """Keep a part of the body, up to the limit."""
        self._progress = self._received
        if len(self._body) < self._limit and not self._complete:
            self._body += data

    def on_message_complete(self) -> None:
        """Handle the end of a message."""
        if self._in_body:
            self._complete = True
        else:  # an interim response
            self._fields = []
            self._head = 0


def _too_large() -> MalformedResponse:
    return MalformedResponse(f"its headers are larger than {MAX_HEAD // 1024} KB")


def _lasts_until_end(fields: list[tuple[bytes, bytes]]) -> bool:
    """Return whether a body ends with its connection: it has neither a length nor chunks."""
    for name, value in fields:
        lower = name.lower()
        if lower == b"content-length":
            return False
        if lower == b"transfer-encoding" and value.lower().rstrip().endswith(b"chunked"):
            return False
    return True


def _is_readable(transport: asyncio.Transport) -> bool:
    """Return whether the socket has bytes to read, or its end."""
    number = transport.get_extra_info("socket").fileno()
    if number < 0:
        return True
    if not hasattr(select, "poll"):  # Windows
        return bool(select.select([number], [], [], 0)[0])
    poll = select.poll()
    poll.register(number, select.POLLIN)
    return bool(poll.poll(0))


class HttpConnector:
    """Opens connections to allowed addresses: every socket is created by the guard."""

    def __init__(
        self,
        guard: AddressGuard,
        resolver: GuardedResolver,
        tls: ssl.SSLContext | None = None,
        now: Callable[[], float] | None = None,
    ) -> None:
        self._guard = guard
        self._resolver = resolver
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._now = now or self._loop.time
        #: the addresses of each name and port, and until when they are used
        self._known: OrderedDict[tuple[str, int], tuple[float, Addresses]] = OrderedDict()
        self._lookups: dict[tuple[str, int], asyncio.Task[Addresses]] = {}

    async def connect(self, origin: UrlOrigin, connections: set[HttpConnection]) -> HttpConnection:
        """Open a connection. Raises HttpError, AddressRefused."""
        # A name may end with one dot, but no certificate has one.
        host = origin.host.rstrip(".") + "." if origin.host.endswith("..") else origin.host
        addresses = await self._addresses(host, origin.port)
        context = await self._context() if origin.tls else None
        while True:
            try:
                sock = await aiohappyeyeballs.start_connection(
                    addresses,
                    happy_eyeballs_delay=_NEXT_ADDRESS_S,
                    loop=self._loop,
                    socket_factory=self._guard.socket,
                )
            except OSError as error:  # it has tried all addresses
                raise _failure(origin, error) from error
            try:
                _, connection = await self._loop.create_connection(
                    lambda: HttpConnection(self._loop, connections),
                    sock=sock,
                    ssl=context,
                    server_hostname=host.rstrip(".") if origin.tls else None,
                )
                return connection
            except OSError as error:
                aiohappyeyeballs.pop_addr_infos_interleave(addresses)
                if not addresses:
                    raise _failure(origin, error) from error

    async def close(self) -> None:
        """Cancel the lookups, and stop the threads of the resolver."""
        lookups = list(self._lookups.values())
        for lookup in lookups:
            lookup.cancel()
        if lookups:
            await asyncio.wait(lookups)
        await self._resolver.close()

    async def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = await asyncio.to_thread(_default_context)
        return self._tls

    async def _addresses(self, host: str, port: int) -> Addresses:
        """Return the addresses of a host, as a list that the caller may change."""
        if ":" in host:
            return [_address(host, port)]
        if host.replace(".", "").isdigit():
            # Other spellings, such as 127.1, look different from the address that they mean.
            if not _is_canonical(host):
                raise InvalidTarget(f"{host} - is not a canonical IPv4 address")
            return [_address(host, port)]
        key = host, port
        until, known = self._known.get(key, (0.0, []))
        if not known or until <= self._now():
            lookup = self._lookups.get(key)
            if lookup is None:
                lookup = self._lookups[key] = self._loop.create_task(self._look_up(host, port))
                lookup.add_done_callback(lambda done: self._finish_lookup(key, done))
            try:
                # Others may wait for the same lookup.
                known = await asyncio.shield(lookup)
            except AddressRefused:
                raise
            except OSError as error:
                raise HttpError(f"the name {host} could not be resolved: {error}") from error
        found = known.copy()
        known.append(known.pop(0))  # the next connection tries another one first
        return found

    async def _look_up(self, host: str, port: int) -> Addresses:
        found = await self._resolver.resolve(host, port, socket.AF_UNSPEC)
        return [_address(each, port) for each in found]

    def _finish_lookup(self, key: tuple[str, int], lookup: asyncio.Task[Addresses]) -> None:
        del self._lookups[key]
        self._known.pop(key, None)
        if not lookup.cancelled() and lookup.exception() is None:
            self._known[key] = self._now() + DNS_TTL_S, lookup.result()
            if len(self._known) > _MAX_NAMES:
                self._known.popitem(last=False)


@lru_cache(maxsize=1)
def _default_context() -> ssl.SSLContext:
    """Return a context that verifies certificates with the authorities of the system. It reads files."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def _address(host: str, port: int) -> aiohappyeyeballs.AddrInfoType:
    if ":" in host:
        return socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port, 0, 0)
    return socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port)


def _is_canonical(host: str) -> bool:
    """Return whether a host of digits and dots is an address as it is usually written.

    >>> _is_canonical("127.0.0.1"), _is_canonical("127.1"), _is_canonical("0177.0.0.1")
    (True, False, False)
    """
    try:
        return str(IPv4Address(host)) == host
    except ValueError:
        return False


def _failure(origin: UrlOrigin, error: OSError) -> HttpError | AddressRefused:
    if isinstance(error, AddressRefused):
        return error
    if isinstance(error, ssl.SSLCertVerificationError):
        return HttpError(f"the certificate of {origin.host} was not accepted: {error}")
    return HttpError(f"could not connect to {origin.host}:{origin.port}: {error}")
