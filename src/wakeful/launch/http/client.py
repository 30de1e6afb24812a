"""The client: keeps connections for further requests, and limits how many are in use."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from yarl import URL

from wakeful.launch.address_guard import AddressGuard, GuardedResolver
from wakeful.launch.http.connection import HttpConnection, HttpConnector
from wakeful.launch.http.messages import (
    ConnectionClosed,
    HttpError,
    Response,
    UrlOrigin,
    parse_destination,
    request_bytes,
)

#: How long an unused connection is kept, in seconds. It is shorter than the idle timeout of common servers
#: (5 s), so that requests rarely meet a closed connection.
KEEP_ALIVE_S: Final = 4.0
#: How many unused connections are kept.
MAX_IDLE: Final = 256


@dataclass(slots=True, eq=False)
class _Host:
    """The connections to one origin."""

    origin: UrlOrigin
    #: the requests that are sent or read
    active: int = 0
    #: unused connections, and since when; the oldest first
    idle: dict[HttpConnection, float] = field(default_factory=dict)
    #: requests that wait for their turn; the result means that they are counted as active
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)


class HttpClient:
    """Sends requests. `connections` and `per_host` limit how many are active; others wait for their turn.

    It has no timeouts: the caller cancels, which closes the connection. `close` also closes `resolver`.
    """

    def __init__(
        self,
        guard: AddressGuard,
        *,
        connections: int,
        per_host: int,
        tls: ssl.SSLContext | None = None,
        resolver: GuardedResolver | None = None,
    ) -> None:
        # Each request has a thread to look up its name: some name servers do not answer for half a minute.
        resolver = resolver or GuardedResolver(guard, threads=connections)
        self._limit = connections
        self._per_host = per_host
        self._loop = asyncio.get_running_loop()
        self._connector = HttpConnector(guard, resolver, tls)
        self._hosts: dict[UrlOrigin, _Host] = {}
        #: the hosts for which requests wait; the first is served next
        self._queues: dict[UrlOrigin, _Host] = {}
        self._active = 0
        self._idle = 0
        self._connections: set[HttpConnection] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self.closed = False

    async def request(
        self,
        method: str,
        url: URL,
        headers: Mapping[str, str],
        body: bytes | None,
        limit: int,
        on_sent: Callable[[], None] | None = None,
        until: Callable[[bytearray], bool] | None = None,
    ) -> Response:
        """Send a request, and return the response with up to `limit` bytes of its body.

        `until` gets the body as it arrives, and returns whether that is all which is needed of it.
        `on_sent` is called when there is a connection, just before the request is sent. Raises HttpError or
        AddressRefused if there is no response, ValueError for invalid headers.
        """
        destination = parse_destination(url)
        request = request_bytes(method, destination, headers, body)
        host = await self._enter(destination.origin)
        try:
            while True:
                connection = self._take_idle(host)
                reused = connection is not None
                if connection is None:
                    connection = await self._connector.connect(host.origin, self._connections)
                if self.closed:  # while it waited
                    connection.abort()
                    raise HttpError("the client is closed")
                if on_sent is not None:
                    on_sent()
                try:
                    response = await connection.exchange(request, limit, until)
                except ConnectionClosed as error:
                    # It may have been closed while it was unused. A post is never sent again: that it did
                    # not arrive cannot be known. Bytes that were not acknowledged may have been read.
                    if reused and error.silent and method == "GET":
                        continue
                    raise
                if connection.reusable:
                    self._keep(host, connection)
                return response
        finally:
            self._leave(host)

    async def close(self) -> None:
        """Close all connections."""
        self.closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        await self._connector.close()
        connections = list(self._connections)
        for connection in connections:
            connection.abort()
        await asyncio.gather(*[connection.closed for connection in connections])

    async def _enter(self, origin: UrlOrigin) -> _Host:
        """Wait for the turn of a request."""
        if self.closed:
            raise HttpError("the client is closed")
        host = self._hosts.get(origin)
        if host is None:
            host = self._hosts[origin] = _Host(origin)
        if self._active < self._limit and host.active < self._per_host and not host.waiting:
            self._active += 1
            host.active += 1
            return host
        turn = self._loop.create_future()
        host.waiting.append(turn)
        self._queues[origin] = host
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                host.waiting.remove(turn)
                self._start_next()  # a request that came since then waits behind it
                self._forget(host)
            else:  # its turn came at the same time
                self._leave(host)
            raise
        return host

    def _leave(self, host: _Host) -> None:
        """End a request, and start the next that waits."""
        self._active -= 1
        host.active -= 1
        if self._queues:
            self._start_next()
        self._forget(host)

    def _start_next(self) -> None:
        for host in list(self._queues.values()):
            if self._active >= self._limit:
                return
            if host.active >= self._per_host:
                continue
            turn = next((each for each in host.waiting if not each.done()), None)
            if turn is None:
                continue
            host.waiting.remove(turn)
            turn.set_result(None)
            self._active += 1
            host.active += 1
            # The other hosts come before its next request.
            del self._queues[host.origin]
            if host.waiting:
                self._queues[host.origin] = host

    def _forget(self, host: _Host) -> None:
        """Drop what is known of a host that is not in use."""
        if not host.waiting:
            self._queues.pop(host.origin, None)
            if not host.active and not host.idle:
                self._hosts.pop(host.origin, None)

    # --- unused connections --------------------------------------------------------------------------

    def _take_idle(self, host: _Host) -> HttpConnection | None:
        """Return the unused connection that was used last; None if there is none."""
        oldest = self._loop.time() - KEEP_ALIVE_S
        while host.idle:
            connection, since = host.idle.popitem()
            self._idle -= 1
            if connection.reusable and since > oldest and connection.is_quiet():
                return connection
            connection.abort()
        return None

    def _keep(self, host: _Host, connection: HttpConnection) -> None:
        if self.closed or self._idle >= MAX_IDLE:
            connection.abort()
            return
        host.idle[connection] = self._loop.time()
        self._idle += 1
        if self._sweep is None:
            self._sweep = self._loop.call_later(KEEP_ALIVE_S, self._close_old)

    def _close_old(self) -> None:
        """Close the connections that were not used for a while, or that their receivers closed."""
        oldest = self._loop.time() - KEEP_ALIVE_S
        for host in list(self._hosts.values()):
            for connection, since in list(host.idle.items()):
                if since <= oldest or not connection.reusable:
                    del host.idle[connection]
                    self._idle -= 1
                    connection.abort()
            self._forget(host)
        self._sweep = self._loop.call_later(KEEP_ALIVE_S / 4, self._close_old) if self._idle else None
