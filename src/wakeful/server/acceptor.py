"""The socket of the server. Accepts connections up to a limit, with a deadline for TLS.

The server of asyncio accepts without a limit, and logs an error every second when open files run out.

The limit of open files is raised at the start, and divided between HTTP and the engine. Each connection is
an open file, and the engine needs open files for database connections, webhooks and the pipes of commands.
A share of the limit is reserved for the engine, so that clients cannot use it up.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
import sys
from collections.abc import Callable
from typing import Final

from uvicorn.server import ServerState

from wakeful.errors import InvalidArgument, Unavailable
from wakeful.logs import get_logger
from wakeful.server.http_protocol import HttpProtocol
from wakeful.settings import PREFIX, Settings

#: Seconds for the TLS handshake, and for the TLS shutdown.
_HANDSHAKE_S: Final = 10.0
_TLS_CLOSE_S: Final = 5.0
#: Seconds between two checks of all connections.
_CHECK_S: Final = 1.0
#: Seconds without accepting after files or memory ran out.
_BACKOFF_S: Final = 1.0
#: Seconds between two log lines of one kind.
_LOG_S: Final = 60.0
#: Connections accepted before the event loop does something else.
_BATCH: Final = 64
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_FULL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\n"
    b"content-type: text/plain; charset=utf-8\r\ncontent-length: 37\r\nretry-after: 10\r\n"
    b"connection: close\r\n\r\n"
    b"too many connections; try again later"
)


if sys.platform != "win32":  # Windows has no such limit
    import resource

#: Open files of the engine beside those of runs: databases, logs, listeners, libraries.
_ENGINE_FILES: Final = 128
#: A larger limit is useless, and some programs close every possible file when they start.
_MOST_FILES: Final = 1 << 20
#: Open files of one run, at most: the three pipes of a command.
_FILES_PER_RUN: Final = 3

log = get_logger("wakeful.server")


def raise_open_file_limit() -> None:
    """Raise the soft limit of open files of this process to the hard limit, or to a million."""
    if sys.platform == "win32":
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft == resource.RLIM_INFINITY or soft >= limit:
        return
    with contextlib.suppress(OSError, ValueError):  # macOS refuses more than its own maximum
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        log.info("server.open_files", limit=limit, was=soft)


def connection_limit(settings: Settings) -> int | None:
    """Return the limit of open HTTP connections; None: unlimited.

    It is `max_http_connections`, or what the limit of open files leaves besides the engine, if that is less.
    """
    configured = settings.max_http_connections or None
    if sys.platform == "win32":
        return configured
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files == resource.RLIM_INFINITY:
        return configured
    free = files - min(files // 2, engine_files(settings))
    return free if configured is None else min(configured, free)


def engine_files(settings: Settings) -> int:
    """Return the number of open files that the engine needs when every lane is full."""
    lanes = [settings.lane_main, settings.lane_subagent, settings.lane_team, settings.lane_cron]
    return _ENGINE_FILES + _FILES_PER_RUN * sum([*lanes, *settings.lanes.values()])


def socket_url(listener: socket.socket, settings: Settings) -> str:
    """Return the URL of a server on this socket."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"{'http' if settings.tls_cert is None else 'https'}://{host}:{port}"


def bound_socket(settings: Settings) -> socket.socket:
    """Return a socket that is bound to the address of the settings. Unavailable: it is taken."""
    host, port = settings.host, settings.port
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise InvalidArgument(f"{PREFIX}HOST: '{host}' is not an address of this machine: {error}") from error
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise Unavailable(
            f"cannot listen on {host} port {port}: {error.strerror}; "
            f"free the port, or set another {PREFIX}PORT"
        ) from error
    listener.set_inheritable(False)
    return listener


class Acceptor:
    """Accepts connections on one listening socket.

    `limit` is the number of open connections, including handshakes; None: unlimited. A connection beyond it
    gets a 503 and is closed. `shared`: other processes accept on the same socket; connections that arrive
    together are left for them.
    """

    def __init__(
        self,
        listener: socket.socket,
        create_protocol: Callable[[], asyncio.Protocol],
        state: ServerState,
        *,
        tls: ssl.SSLContext | None,
        limit: int | None,
        backlog: int,
        shared: bool = False,
    ) -> None:
        self._listener = listener
        self._create_protocol = create_protocol
        self._state = state
        self._tls = tls
        self._limit = limit
        self._backlog = backlog
        self._batch = 1 if shared else _BATCH
        #: the connections that are being set up
        self._starting: dict[asyncio.Task[None], socket.socket] = {}
        self._loop = asyncio.get_running_loop()
        self._accepting: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._refused = _RateLimitedLog("server.connections_full")
        self._failed = _RateLimitedLog("server.accept_failed")

    def start(self) -> None:
        """Start to listen."""
        self._listener.setblocking(False)
        self._listener.listen(self._backlog)
        self._accepting = self._loop.create_task(self._accept(), name="wakeful-accept")
        self._check()

    async def close(self) -> None:
        """Stop accepting, and close the listening socket. Open connections stay open."""
        tasks = [*self._starting, *([self._accepting] if self._accepting else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._listener.close()

    def stop_checking(self) -> None:
        """Stop the deadlines: all connections are closed."""
        if self._timer is not None:
            self._timer.cancel()

    # --- accepting -------------------------------------------------------------------------------

    async def _accept(self) -> None:
        while True:
            for _ in range(self._batch):
                try:
                    connection = await self._next_connection()
                except OSError as error:
                    if error.errno in _EXHAUSTED:
                        self._failed.warning(self._loop.time(), error=str(error), open=self._open())
                        await asyncio.sleep(_BACKOFF_S)
                    continue  # otherwise the client disconnected before it was accepted
                if self._limit is not None and self._open() >= self._limit:
                    self._refused.warning(self._loop.time(), limit=self._limit)
                    self._refuse(connection)
                    continue
                task = self._loop.create_task(self._serve(connection))
                self._starting[task] = connection
                task.add_done_callback(self._finish_start)
            await asyncio.sleep(0)

    async def _next_connection(self) -> socket.socket:
        """Accept a connection. A cancelled `sock_accept` may lose one that it has accepted."""
        while True:
            try:
                return self._listener.accept()[0]
            except BlockingIOError:
                readable = self._loop.create_future()
            try:
                self._loop.add_reader(self._listener, _set_done, readable)
            except NotImplementedError:  # on Windows
                return (await self._loop.sock_accept(self._listener))[0]
            try:
                await readable
            finally:
                self._loop.remove_reader(self._listener)

    def _open(self) -> int:
        return len(self._state.connections) + len(self._starting)

    def _refuse(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        with contextlib.suppress(OSError), connection:
            if self._tls is None:
                with contextlib.suppress(BlockingIOError):
                    connection.recv(65_536)  # with unread data, close would drop the response
                connection.send(_FULL)

    def _finish_start(self, task: asyncio.Task[None]) -> None:
        connection = self._starting.pop(task)
        if task.cancelled():  # perhaps before its first step
            connection.close()

    async def _serve(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        try:
            await self._loop.connect_accepted_socket(
                self._create_protocol,
                connection,
                ssl=self._tls,
                ssl_handshake_timeout=None if self._tls is None else _HANDSHAKE_S,
                ssl_shutdown_timeout=None if self._tls is None else _TLS_CLOSE_S,
            )
        except OSError as error:  # includes TLS errors
            log.debug("server.handshake_failed", error=str(error) or type(error).__name__)
            connection.close()
        except BaseException:
            connection.close()
            raise

    # --- deadlines -------------------------------------------------------------------------------

    def _check(self) -> None:
        now = self._loop.time()
        for protocol in list(self._state.connections):
            if isinstance(protocol, HttpProtocol):
                protocol.check(now)
        self._timer = self._loop.call_later(_CHECK_S, self._check)


def _set_done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class _RateLimitedLog:
    """Logs an event at most once a minute, with its count since then."""

    def __init__(self, event: str) -> None:
        self._event = event
        self._last: float | None = None
        self._count = 0

    def warning(self, now: float, **known: object) -> None:
        self._count += 1
        if self._last is None or now - self._last >= _LOG_S:
            log.warning(self._event, count=self._count, **known)
            self._last, self._count = now, 0
