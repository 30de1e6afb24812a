"""The server: the engine and its faces in one process and one event loop, from the start to the last answer.

It stops when it is told to (SIGINT, SIGTERM): first it takes no more requests and answers those it has, then
the engine stops with its own grace. A second signal ends the waiting for answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Final, Self, cast

import uvicorn
from fastapi import FastAPI

from wakeful.api.acceptor import Acceptor
from wakeful.api.http.app import create_app
from wakeful.api.http.health import Ready
from wakeful.api.http.problems import MAX_BODY
from wakeful.api.http.worker_app import create_worker_app
from wakeful.api.http_protocol import HttpProtocol
from wakeful.api.open_files import connection_limit, raise_open_file_limit
from wakeful.api.rpc.protocol import Protocol
from wakeful.api.rpc.socket import Connections
from wakeful.app.embedded import Wakeful
from wakeful.errors import InvalidArgument, Unavailable
from wakeful.logs import get_logger
from wakeful.service.services import Services
from wakeful.settings import PREFIX, Settings

#: Where a worker listens, unless it is told otherwise or the port is taken.
WORKER_PORT: Final = 9254
#: Seconds that answers under way are given when the server stops.
GRACE: Final = 5.0
#: Seconds that a connection is kept for the next request: longer than proxies keep theirs.
_KEEP_ALIVE: Final = 75
_BACKLOG: Final = 2_048
#: Seconds between two pings of a WebSocket, and until one must be answered.
_PING: Final = 20.0

log = get_logger("wakeful.server")


async def serve(
    settings: Settings,
    *,
    app: Wakeful | None = None,
    prepare: Callable[[str, Wakeful], Awaitable[None]] | None = None,
    started: Callable[[str, Wakeful], None] = lambda url, app: None,
) -> None:
    """Serve until the process is told to end, or this is cancelled.

    `app` is a scheduler with functions of its own; without one it is made of the settings. `prepare` gets the
    address, and the scheduler, before requests are taken, and `started` as soon as they are.
    InvalidArgument and Unavailable say why it cannot start, before anything has.
    """
    raise_open_file_limit()
    app = app or Wakeful(settings.db, settings=settings)
    http = Listening(create_app(app.services, ready=readiness(app)), settings)
    try:
        async with app:
            if settings.admin_key is not None:
                await app.services.keys.apply_admin_key(settings.admin_key)
            if prepare is not None:
                await prepare(http.url, app)
            async with http:
                with _signals(http):
                    log.info("server.started", url=http.url, tls=settings.tls_cert is not None)
                    started(http.url, app)
                    await http.ended()
                log.info("server.stopping")
    finally:
        http.close()


async def work(
    settings: Settings, app: Wakeful, *, started: Callable[[str | None], None] = lambda url: None
) -> None:
    """Be a worker until the process is told to end: no API, but health and metrics on a port of its own.

    `started` gets the address; None: the settings say that there is none.
    """
    raise_open_file_limit()
    http = _worker_http(settings, app) if settings.worker_http else None
    try:
        async with app:
            if http is None:
                # Whoever reads that it works may tell it to stop at once: so first it listens for that.
                working = asyncio.create_task(app.serve_forever())
                await asyncio.sleep(0)
                started(None)
                await working
                return
            async with http:
                with _signals(http):
                    log.info("worker.started", url=http.url)
                    started(http.url)
                    await http.ended()
                log.info("worker.stopping")
    finally:
        if http is not None:
            http.close()


def _worker_http(settings: Settings, app: Wakeful) -> Listening:
    faces = create_worker_app(app.services, readiness(app))
    port = settings.worker_port
    if port is None and settings.port != 0:
        try:
            return Listening(faces, replace(settings, port=WORKER_PORT))
        except Unavailable as error:
            log.info("worker.port_taken", port=WORKER_PORT, error=error.message)
    return Listening(faces, replace(settings, port=port or 0))


class Listening:
    """An app that is listened for, in this event loop: `async with Listening(app, settings) as http`.

    The port is taken when it is made, so that nothing starts where somebody else is there already.
    """

    def __init__(self, app: FastAPI, settings: Settings) -> None:
        self._config = _config(app, settings)
        self._services = cast(Services, app.state.services)
        self._connections = cast(Connections, app.state.connections)
        self._socket = _bound(settings.host, settings.port)
        self._address = self._socket.getsockname()
        self._server = _Server(self._config, self._socket, connection_limit(settings))
        self._task: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = self._address[:2]
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
        return f"{'https' if self._config.is_ssl else 'http'}://{host}:{port}"

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._server.serve([]), name="wakeful-http")
        begun = asyncio.create_task(self._server.begun.wait())
        await asyncio.wait({self._task, begun}, return_when=asyncio.FIRST_COMPLETED)
        if not begun.done():
            begun.cancel()
            await self._task
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop()
        await self.ended()

    def close(self) -> None:
        """Let go of the port, where it never came to listening."""
        self._socket.close()

    def stop(self) -> None:
        """Take no more requests, and end when those under way are answered; said again, end at once."""
        if self._server.should_exit:
            self._server.force_exit = True
        self._server.should_exit = True
        self._services.events.shut_down()  # else event streams and waiting claims would keep us
        self._services.pull.shut_down()
        self._connections.shut_down()

    async def ended(self) -> None:
        """Wait until it has."""
        if self._task is not None:
            await asyncio.shield(self._task)


class _Server(uvicorn.Server):
    """Uvicorn, which leaves signals and accepting to us and says when it has begun."""

    def __init__(self, config: uvicorn.Config, listener: socket.socket, limit: int | None) -> None:
        super().__init__(config)
        self._listener = listener
        self._limit = limit
        self._acceptor: Acceptor | None = None
        self.begun = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._acceptor = Acceptor(
            self._listener,
            self._protocol,
            self.server_state,
            tls=self.config.ssl,
            limit=self._limit,
            backlog=self.config.backlog,
        )
        self._acceptor.start()
        self.begun.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        acceptor = self._acceptor
        assert acceptor is not None
        await acceptor.close()
        try:
            await super().shutdown(sockets)
        finally:
            acceptor.stop_checking()

    def _protocol(self) -> asyncio.Protocol:
        return HttpProtocol(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)


def readiness(app: Wakeful) -> Ready:
    """What /readyz asks: whether the database answers and the engine's loops go round."""
    return app.services.status.ready


@contextlib.contextmanager
def _signals(http: Listening) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    with contextlib.ExitStack() as stack:
        for number in (signal.SIGINT, signal.SIGTERM):
            # Not to be had outside of the main thread, nor on Windows: there they end the process.
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                loop.add_signal_handler(number, http.stop)
                stack.callback(loop.remove_signal_handler, number)
        yield


def _config(app: FastAPI, settings: Settings) -> uvicorn.Config:
    cert, key, ca = settings.tls_cert, settings.tls_key, settings.tls_client_ca
    if (cert is None) != (key is None):
        missing = "TLS_KEY" if key is None else "TLS_CERT"
        raise InvalidArgument(f"{PREFIX}{missing}: TLS takes a certificate and its key; this one is missing")
    if ca is not None and cert is None:
        raise InvalidArgument(f"{PREFIX}TLS_CLIENT_CA: it says nothing without {PREFIX}TLS_CERT")
    for name, file in (("TLS_CERT", cert), ("TLS_KEY", key), ("TLS_CLIENT_CA", ca)):
        if file is not None and not os.access(file, os.R_OK):
            raise InvalidArgument(f"{PREFIX}{name}: there is no file '{file}' that can be read")
    config = uvicorn.Config(
        app,
        ssl_certfile=cert,
        ssl_keyfile=key,
        ssl_ca_certs=ca,
        ssl_cert_reqs=ssl.CERT_NONE if ca is None else ssl.CERT_REQUIRED,
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=list(settings.trusted_proxies),
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=round(GRACE),
        backlog=_BACKLOG,
        http=HttpProtocol,
        ws=Protocol,
        ws_max_size=MAX_BODY,
        ws_ping_interval=_PING,
        ws_ping_timeout=_PING,
        ws_per_message_deflate=False,  # a few bytes could unfold to more than there is room for
    )
    try:
        config.load()
    except (ssl.SSLError, OSError) as error:
        raise InvalidArgument(
            f"{PREFIX}TLS_CERT, {PREFIX}TLS_KEY: they are no certificate and its key: {error}"
        ) from error
    return config


def _bound(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise InvalidArgument(f"{PREFIX}HOST: '{host}' is no address of this machine: {error}") from error
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise Unavailable(
            f"{host} port {port} cannot be had: {error.strerror}; end who has it, or set another {PREFIX}PORT"
        ) from error
    listener.set_inheritable(False)
    return listener
