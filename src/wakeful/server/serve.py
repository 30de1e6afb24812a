"""The server: the engine and the interfaces in one process and one event loop.

On SIGINT or SIGTERM it first stops accepting requests and completes those in progress, then the engine stops
with its own grace period. A second signal skips the wait for requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Final, Self, cast

import uvicorn
from fastapi import FastAPI

from wakeful.api.http.problems import MAX_BODY
from wakeful.api.http.worker_app import Ready, create_worker_app
from wakeful.api.rpc.connection import Connections, Protocol
from wakeful.app.embedded import Wakeful
from wakeful.engine.exposition import new_registry
from wakeful.engine.tracing_setup import process_tracing
from wakeful.errors import InvalidArgument, Unavailable
from wakeful.logs import get_logger
from wakeful.server.acceptor import (
    Acceptor,
    bound_socket,
    connection_limit,
    raise_open_file_limit,
    socket_url,
)
from wakeful.server.http_app import create_app, end_streams
from wakeful.server.http_protocol import HttpProtocol
from wakeful.server.processes.child import Child, SupervisorLink
from wakeful.server.processes.metrics import MetricsExchange
from wakeful.server.service_manager import ServiceManager
from wakeful.settings import PREFIX, Settings
from wakeful.values.process_share import current_share

#: The default port of a worker; if it is taken, any free port is used.
WORKER_PORT: Final = 9254
#: Seconds for requests in progress when the server stops.
GRACE: Final = 5.0
#: Seconds for RPC connections to close by themselves.
_RPC_GRACE: Final = 1.0
#: Seconds between two checks of whether they have ended.
_POLL: Final = 0.01
#: Seconds that an idle connection is kept: longer than proxies keep theirs.
_KEEP_ALIVE: Final = 75
_BACKLOG: Final = 2_048
#: Seconds between two pings of a WebSocket, and for the pong.
_PING: Final = 20.0

log = get_logger("wakeful.server")


async def serve(
    settings: Settings,
    *,
    app: Wakeful | None = None,
    opened: Callable[[Wakeful], Awaitable[None]] | None = None,
    prepare: Callable[[str, Wakeful], Awaitable[None]] | None = None,
    started: Callable[[str, Wakeful], None] = lambda url, app: None,
    child: Child | None = None,
) -> None:
    """Serve until a signal, or until cancelled.

    `app` is a scheduler with its own functions; without one it is created from the settings. `opened` gets
    the scheduler before a key is created, `prepare` the URL and the scheduler before requests are accepted,
    `started` both afterwards. `child` is given in one of several processes on one port. InvalidArgument or
    Unavailable: it cannot start, and nothing was started.
    """
    raise_open_file_limit()
    manager = ServiceManager.of_environment() if child is None else child.link
    app = app or Wakeful(settings.db, settings=settings)
    http_app = create_app(app.services, ready=readiness(app))
    http = Listening(http_app, settings, None if child is None else child.listener)
    try:
        manager.starting("opening the database")
        async with _stop_start_on_signal(), process_tracing(), app:
            if opened is not None:
                await opened(app)
            if settings.admin_key is not None:
                await app.services.auth.keys.apply_admin_key(settings.admin_key)
            if prepare is not None:
                await prepare(http.url, app)
            if child is None or child.number == 1:
                await app.services.admin.doctor.log_few_connections()
            async with _exchanged_metrics(child, http_app, app), http:
                stop = _stopper(http, manager, once=child is not None)
                app.on_error = stop
                with _signals(stop, keep=child is not None):
                    exempt_startup_objects()
                    log.info("server.started", url=http.url, tls=settings.tls_cert is not None)
                    manager.ready(f"serving at {http.url}", app.services.admin.status)
                    started(http.url, app)
                    await http.wait_ended()
                log.info("server.stopping")
        if app.error is not None:
            raise app.error
    finally:
        await manager.close()
        http.close()


async def work(
    settings: Settings, app: Wakeful, *, started: Callable[[str | None], None] = lambda url: None
) -> None:
    """Run a worker until a signal: no API, only health and metrics on its own port.

    `started` gets the URL; None if the settings disable HTTP.
    """
    raise_open_file_limit()
    manager = ServiceManager.of_environment()
    http = _worker_http(settings, app) if settings.worker_http else None
    try:
        manager.starting("opening the database")
        async with _stop_start_on_signal(), process_tracing(), app:
            if http is None:
                # A reader of "started" may stop it at once, so install the signal handlers first.
                working = asyncio.create_task(app.serve_forever())
                await asyncio.sleep(0)
                manager.ready("working", app.services.admin.status)
                started(None)
                try:
                    await working
                finally:
                    manager.stopping()
                return
            async with http:
                stop = _stopper(http, manager)
                app.on_error = stop
                with _signals(stop):
                    exempt_startup_objects()
                    log.info("worker.started", url=http.url)
                    manager.ready(f"working; health and metrics at {http.url}", app.services.admin.status)
                    started(http.url)
                    await http.wait_ended()
                log.info("worker.stopping")
        if app.error is not None:
            raise app.error
    finally:
        await manager.close()
        if http is not None:
            http.close()


def _worker_http(settings: Settings, app: Wakeful) -> Listening:
    worker_app = create_worker_app(app.services, readiness(app))
    port = settings.worker_port
    if port is None and settings.port != 0:
        try:
            return Listening(worker_app, replace(settings, port=WORKER_PORT))
        except Unavailable as error:
            log.info("worker.port_taken", port=WORKER_PORT, error=error.message)
    return Listening(worker_app, replace(settings, port=port or 0))


class Listening:
    """An HTTP server for an app, in this event loop: `async with Listening(app, settings) as http`.

    The constructor binds the port, so that nothing starts if the port is taken. `shared` is a socket that
    other processes accept connections on too.
    """

    def __init__(self, app: FastAPI, settings: Settings, shared: socket.socket | None = None) -> None:
        self._config = _config(app, settings)
        self._app = app
        self._socket = shared or bound_socket(settings)
        limit = connection_limit(settings)
        connections = cast(Connections, app.state.connections)
        self._server = _Server(self._config, self._socket, limit, connections, shared is not None)
        #: the URL of the server
        self.url = socket_url(self._socket, settings)
        self._task: asyncio.Task[None] | None = None

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
        await self.wait_ended()

    def close(self) -> None:
        """Release the port if the server never started."""
        self._socket.close()

    def stop(self) -> None:
        """Stop accepting, and end after the requests in progress; a second call ends at once."""
        self._server.stop()
        end_streams(self._app)

    async def wait_ended(self) -> None:
        """Wait for the end."""
        if self._task is not None:
            await asyncio.shield(self._task)


class _Server(uvicorn.Server):
    """Uvicorn without its signal handling and accept loop, and with events for the start and the end."""

    def __init__(
        self,
        config: uvicorn.Config,
        listener: socket.socket,
        limit: int | None,
        rpc: Connections,
        shared: bool,
    ) -> None:
        super().__init__(config)
        self._shared = shared
        self._rpc = rpc
        self._listener = listener
        self._limit = limit
        self._acceptor: Acceptor | None = None
        self.begun = asyncio.Event()
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Stop gracefully; a second call stops at once."""
        if self.should_exit:
            self.force_exit = True
        self.should_exit = True
        self._stopping.set()

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
            shared=self._shared,
        )
        self._acceptor.start()
        self.begun.set()

    async def main_loop(self) -> None:
        while not self.should_exit:
            await self.on_tick(0)  # renews the date header
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await self._stopping.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        acceptor = self._acceptor
        assert acceptor is not None
        await acceptor.close()
        try:
            with contextlib.suppress(TimeoutError):  # they send a reason, Uvicorn does not
                async with asyncio.timeout(_RPC_GRACE):
                    await self._rpc.wait_closed()
            for connection in list(self.server_state.connections):
                connection.shutdown()
            await self._requests_ended()
            if not self.force_exit:
                await self.lifespan.shutdown()
        finally:
            acceptor.stop_checking()

    async def _requests_ended(self) -> None:
        """Wait for the connections and requests in progress; cancel those that take too long."""
        state = self.server_state
        try:
            async with asyncio.timeout(GRACE):
                while (state.connections or state.tasks) and not self.force_exit:  # noqa: ASYNC110
                    await asyncio.sleep(_POLL)  # Uvicorn keeps them in plain sets
        except TimeoutError:
            log.warning("server.requests_cancelled", count=len(state.tasks))
            for task in state.tasks:
                task.cancel()

    def _protocol(self) -> asyncio.Protocol:
        return HttpProtocol(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)


def readiness(app: Wakeful) -> Ready:
    """Return the check of /readyz: the database responds and the loops of the engine run."""
    return app.services.admin.status.ready


@contextlib.asynccontextmanager
async def _stop_start_on_signal() -> AsyncIterator[None]:
    """Let SIGTERM end the start. Without a handler, process 1 of a container ignores the signal.

    The handlers of the started process replace this one.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    stopped = False

    def stop() -> None:
        nonlocal stopped
        stopped = True
        task.cancel()

    # Not available outside of the main thread or on Windows.
    with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
        loop.add_signal_handler(signal.SIGTERM, stop)
    try:
        yield
    except asyncio.CancelledError:
        if not stopped:
            raise
        task.uncancel()
        log.info("server.stopped", reason="SIGTERM during the start")
    finally:
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.remove_signal_handler(signal.SIGTERM)


def _stopper(
    http: Listening, manager: ServiceManager | SupervisorLink, *, once: bool = False
) -> Callable[[], None]:
    """Return what stops the process. `once`: a second signal changes nothing.

    A signal to a process group reaches the supervisor and its processes, and the supervisor sends it too.
    """
    stopped = False

    def stop() -> None:
        nonlocal stopped
        if stopped and once:
            return
        stopped = True
        manager.stopping()
        http.stop()

    return stop


@contextlib.contextmanager
def _signals(stop: Callable[[], None], *, keep: bool = False) -> Iterator[None]:
    """Stop at SIGINT and SIGTERM. `keep`: until the event loop ends, so that a later signal does not kill."""
    loop = asyncio.get_running_loop()
    with contextlib.ExitStack() as stack:
        for number in (signal.SIGINT, signal.SIGTERM):
            # Not available outside of the main thread or on Windows: there a signal ends the process.
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                loop.add_signal_handler(number, stop)
                if not keep:
                    stack.callback(loop.remove_signal_handler, number)
        yield


def _config(app: FastAPI, settings: Settings) -> uvicorn.Config:
    cert, key, ca = settings.tls_cert, settings.tls_key, settings.tls_client_ca
    if (cert is None) != (key is None):
        missing = "TLS_KEY" if key is None else "TLS_CERT"
        raise InvalidArgument(f"{PREFIX}{missing}: it is missing; TLS needs a certificate and its key")
    if ca is not None and cert is None:
        raise InvalidArgument(f"{PREFIX}TLS_CLIENT_CA: it needs {PREFIX}TLS_CERT")
    for name, file in (("TLS_CERT", cert), ("TLS_KEY", key), ("TLS_CLIENT_CA", ca)):
        if file is not None and not os.access(file, os.R_OK):
            raise InvalidArgument(f"{PREFIX}{name}: the file '{file}' cannot be read")
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
        backlog=_BACKLOG,
        http=HttpProtocol,
        ws=Protocol,
        ws_max_size=MAX_BODY,
        ws_ping_interval=_PING,
        ws_ping_timeout=_PING,
        ws_per_message_deflate=False,  # a few bytes could inflate to more than the memory
    )
    try:
        config.load()
    except (ssl.SSLError, OSError) as error:
        raise InvalidArgument(
            f"{PREFIX}TLS_CERT, {PREFIX}TLS_KEY: not a certificate and its key: {error}"
        ) from error
    return config


@contextlib.asynccontextmanager
async def _exchanged_metrics(child: Child | None, http_app: FastAPI, app: Wakeful) -> AsyncIterator[None]:
    """Let /metrics return the sum of all processes."""
    if child is None:
        yield
        return
    async with MetricsExchange(child.folder, current_share(), new_registry(app.services.metrics)) as exchange:
        http_app.state.collect_metrics = exchange.collect_all
        yield


def exempt_startup_objects() -> None:
    """Exempt all objects that exist now from garbage collection. For processes that only run a server.

    These are modules, routes and templates, which stay until the process ends. A full collection looks at
    each of them, about 180,000, and stops all requests for a tenth of a second.
    """
    gc.freeze()
