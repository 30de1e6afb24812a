"""The path `/ws`: its WebSocket protocol, and the connections of clients.

Requests are answered one at a time, in order; further requests wait in the network. Events are read from
the event stream as fast as the client reads them. So nothing is buffered, and a client that reads nothing
for a while is disconnected: it can reconnect and resume after the last event that it has seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import replace
from functools import partial
from typing import Final, cast

from fastapi import APIRouter
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState
from uvicorn._types import ASGISendEvent
from uvicorn.protocols.websockets.wsproto_impl import WSProtocol
from wsproto.events import Ping

from wakeful.api.http.dependencies import RUN_ID, host_user
from wakeful.api.rpc.cron import METHODS
from wakeful.api.rpc.frames import (
    Params,
    Request,
    Unreadable,
    error_frame,
    event_frame,
    read_request,
    result_frame,
)
from wakeful.errors import NotFound, PermissionDenied, Unauthenticated, WakefulError
from wakeful.logs import get_logger
from wakeful.model.codec import JsonObject
from wakeful.service.auth.access import Principal
from wakeful.service.auth.connections import ConnectionSlot, OpenUse, TooManyConnections
from wakeful.service.event_stream import Subscription
from wakeful.service.services import Services
from wakeful.values.stored_text import clean_text

#: Seconds in which a client must authenticate.
AUTH_TIMEOUT_S: Final = 5.0
#: Seconds in which a client must read a message.
SEND_TIMEOUT_S: Final = 10.0
#: Seconds between two checks of the key of a client that only receives events.
KEY_CHECK_S: Final = 15.0
#: The subprotocol, and the prefix of one that contains a key: a browser can send no other header.
PROTOCOL: Final = "wakeful"
#: Methods whose results may be large.
_LISTS: Final = ("cron.list", "cron.runs")
_BEARER_PREFIX: Final = "bearer."

#: The close codes. 4401 and 4429 are private; the others are from RFC 6455 and its registry.
UNAUTHENTICATED: Final = 4401
BINARY_MESSAGE: Final = 1003
INTERNAL_ERROR: Final = 1011
STOPPING: Final = 1012
TOO_SLOW: Final = 1013
TOO_MANY_CONNECTIONS: Final = 4429

#: The methods besides `cron.…`.
_OWN: Final = ("auth", "events.subscribe", "events.unsubscribe")
#: Seconds for the closing handshake.
CLOSE_TIMEOUT_S: Final = 5.0

router = APIRouter()

log = get_logger("wakeful.rpc")


class Closed(Exception):
    """The connection ends with this code and reason; without a code if the client has disconnected."""

    def __init__(self, code: int | None = None, reason: str = "") -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class RpcConnection:
    """Serves the requests of one client, and sends it events."""

    def __init__(self, socket: WebSocket, services: Services) -> None:
        self._socket = socket
        self._services = services
        self._address = socket.client.host if socket.client else None
        self._token: str | None = None
        #: whether the host application of a mounted app has authenticated the client
        self._by_host = False
        #: the run that makes the calls
        self._run_id = socket.headers.get(RUN_ID)
        #: messages are sent one at a time
        self._sending = asyncio.Lock()
        self._waiting: asyncio.Future[str] | None = None
        self._stopping = False
        self._slow = False
        self._listener: Subscription | None = None
        self._event_task: asyncio.Task[None] | None = None
        self._slot: ConnectionSlot | None = None
        self._use: OpenUse | None = None
        self._key_ended = False

    async def serve(self) -> None:
        """Serve the client until either side closes the connection."""
        offered = self._socket.scope.get("subprotocols") or []
        await self._socket.accept(subprotocol=PROTOCOL if PROTOCOL in offered else None)
        try:
            await self._authenticate(offered)
            while True:
                await self._handle(await self._next())
        except (Closed, WebSocketDisconnect) as end:
            code, reason = (end.code, end.reason) if isinstance(end, Closed) else (None, "")
        except TooManyConnections as error:
            code, reason = TOO_MANY_CONNECTIONS, _short(error.message)
            self._services.metrics.record_rpc_drop("limit")
        except WakefulError as error:  # the key could not be checked
            code, reason = TOO_SLOW, _short(f"reconnect later: {error.message}")
        finally:
            if self._slot is not None:
                self._slot.release()
            if self._use is not None:
                self._use.close()
            await self._unsubscribe()
        if code is not None and self._socket.application_state is WebSocketState.CONNECTED:
            log.info("rpc.closed", code=code, reason=reason)
            with contextlib.suppress(WebSocketDisconnect, RuntimeError):  # the client has disconnected
                await self._socket.close(code, reason)

    def shut_down(self) -> None:
        """Close after the present request: the process stops."""
        self._stopping = True
        if self._waiting is not None:
            self._waiting.cancel()

    # --- authentication --------------------------------------------------------------------------

    async def _authenticate(self, offered: list[str]) -> None:
        """Authenticate the client by a header, a subprotocol or its first message."""
        scheme, _, token = self._socket.headers.get("authorization", "").partition(" ")
        tokens = [each.removeprefix(_BEARER_PREFIX) for each in offered if each.startswith(_BEARER_PREFIX)]
        by_header = scheme.lower() == "bearer" and bool(token.strip())
        if by_header:
            self._token = token.strip()
        elif tokens:
            self._token = tokens[0]
        self._by_host = await host_user(self._socket, self._token) is not None
        if self._by_host and not by_header:
            self._check_page()
        if self._token is not None or self._by_host:
            try:
                principal = await self._principal()
            except Unauthenticated as error:
                raise Closed(UNAUTHENTICATED, _short(error.message)) from error
            self._slot = self._services.auth.connection_limits.acquire(
                "rpc", principal.actor, principal.workspace
            )
            await self._watch_key(None if self._by_host else self._token)
            return
        self._slot = self._services.auth.connection_limits.acquire("rpc")
        try:
            async with asyncio.timeout(AUTH_TIMEOUT_S):
                text = await self._next()
        except TimeoutError:
            raise Closed(UNAUTHENTICATED, "authenticate with a header or a first message 'auth'") from None
        await self._handle(text)
        if self._token is None:
            raise Closed(UNAUTHENTICATED, "authenticate first: call the method 'auth' with a token")

    def _check_page(self) -> None:
        """Close a connection of a page of another site: the browser sends the cookies of the host."""
        headers = self._socket.headers
        try:
            self._services.auth.origins.check_origin(
                headers.get("origin"), headers.get("host"), by_cookie=True
            )
        except PermissionDenied as error:
            raise Closed(UNAUTHENTICATED, _short(error.message)) from error

    async def _principal(self) -> Principal:
        """Return the principal of the present key."""
        if self._by_host:
            user = await host_user(self._socket, None)
            if user is None:
                raise Unauthenticated("the user has signed out; sign in again")
            return replace(user, address=self._address, run_id=self._run_id)
        if self._token is None:
            raise Unauthenticated("authenticate first: call the method 'auth' with a token")
        return await self._services.auth.keys.authenticate(self._token, self._address, self._run_id)

    async def _watch_key(self, token: str | None) -> None:
        """Close the connection when its key ends, or its user signs out, after the present request."""
        before, authenticate = self._use, self._services.auth.keys.authenticate
        check = self._principal if token is None else partial(authenticate, token)
        credential = token or f"connection {id(self)}"
        self._use = await self._services.auth.open_uses.add(credential, check, self._end)
        if before is not None:
            before.close()

    def _end(self) -> None:
        self._key_ended = True
        if self._waiting is not None:
            self._waiting.cancel()

    def _assign_slot(self, principal: Principal) -> None:
        if self._slot is not None:
            self._slot.assign(principal.actor, principal.workspace)

    async def _auth(self, request: Request) -> JsonObject:
        token = request.params.get("token")
        if not isinstance(token, str) or not token:
            raise Unauthenticated("token: give an API key (wk_…) or a JWT")
        principal = await self._services.auth.keys.authenticate(token, self._address, self._run_id)
        self._assign_slot(principal)
        if self._listener is not None:  # its events were those of the previous principal
            await self._unsubscribe()
        await self._watch_key(token)
        self._token, self._by_host = token, False
        return {"role": principal.role, "workspace": principal.workspace, "agentId": principal.agent}

    # --- requests --------------------------------------------------------------------------------

    async def _next(self) -> str:
        """Return the next message."""
        self._check_open()
        self._waiting = asyncio.ensure_future(self._receive())
        try:
            return await self._waiting
        except asyncio.CancelledError:
            self._check_open()
            raise
        finally:
            self._waiting = None

    def _check_open(self) -> None:
        """Raise Closed if the process stops, or the key of the connection has ended."""
        if self._stopping:
            raise Closed(STOPPING, "the server stops; reconnect and resume after the last event")
        if self._key_ended:
            raise Closed(UNAUTHENTICATED, "the key has ended; reconnect with a valid one")

    async def _receive(self) -> str:
        message = await self._socket.receive()
        if message["type"] == "websocket.disconnect":
            raise Closed
        text = message.get("text")
        if text is None:
            raise Closed(BINARY_MESSAGE, "send text, not bytes: a message is JSON")
        return str(text)

    async def _handle(self, text: str) -> None:
        """Respond to a message."""
        began = time.perf_counter()
        request = Request(None, "-", {})
        actor, code = "-", "ok"
        listen = False
        full: TooManyConnections | None = None
        try:
            try:
                request = read_request(text)
            except Unreadable as error:
                request = request._replace(id=error.id)
                raise
            if request.method == "auth":
                reply = await result_frame(request.id, await self._auth(request))
            else:
                principal = await self._principal()
                actor = principal.actor
                lists = request.method in _LISTS
                async with self._services.pages.next() if lists else contextlib.nullcontext():
                    reply = await result_frame(request.id, await self._call(principal, request))
                listen = request.method == "events.subscribe"
        except WakefulError as error:
            code, reply = error.code, error_frame(request.id, error)
            full = error if isinstance(error, TooManyConnections) else None
        except Exception as error:
            log.exception("rpc.error", method=_method_label(request.method))
            code, reply = "internal", error_frame(request.id, error)
        ms = round((time.perf_counter() - began) * 1000, 1)
        log.info("rpc.request", method=_method_label(request.method), code=code, ms=ms, actor=actor)
        self._services.metrics.record_rpc_call(_method_label(request.method), code)
        await self._send(reply)
        if full is not None:
            raise full
        if code == Unauthenticated.code:
            raise Closed(UNAUTHENTICATED, "the key is not valid; reconnect with a valid one")
        if listen and self._listener is not None:  # after the response to the subscription
            self._event_task = asyncio.create_task(
                self._send_events(self._listener), name="wakeful-rpc-events"
            )

    async def _call(self, principal: Principal, request: Request) -> JsonObject:
        method = METHODS.get(request.method)
        if method is not None:
            return await method(self._services, principal, Params(principal, request.params))
        if request.method == "events.subscribe":
            return await self._subscribe(principal, Params(principal, request.params))
        if request.method == "events.unsubscribe":
            Params(principal, request.params).only()
            subscribed = self._listener is not None
            await self._unsubscribe()
            return {"unsubscribed": subscribed}
        known = ", ".join((*METHODS, *_OWN))
        raise NotFound(f"there is no method '{request.method[:64]}'; the methods are {known}")

    # --- events ----------------------------------------------------------------------------------

    async def _subscribe(self, principal: Principal, params: Params) -> JsonObject:
        """Subscribe to events, in place of an earlier subscription."""
        params.only("jobId", "types", "after")
        after = params.number("after", -1, 0, 2**53) if "after" in params.given else None
        listener = await self._services.events.subscribe(
            principal,
            params.workspace,
            agent=params.agent,
            job=params.name("jobId"),
            types=params.words("types"),
            after=after,
        )
        try:
            await self._unsubscribe()
        except BaseException:
            listener.close()
            raise
        self._listener = listener
        return {"subscribed": True, "after": listener.seen if after is None else after}

    async def _send_events(self, listener: Subscription) -> None:
        """Send events as long as the key is valid."""
        try:
            while (found := await listener.next(KEY_CHECK_S)) is not None:
                await self._principal()
                for event in found:
                    await self._send(event_frame(event))
            return  # the stream has ended, and the connection is closed
        except Closed as end:
            code, reason = end.code, end.reason
        except Unauthenticated as error:
            code, reason = UNAUTHENTICATED, _short(error.message)
        except WakefulError as error:
            code, reason = TOO_SLOW, _short(f"reconnect and resume: {error.message}")
        except WebSocketDisconnect:
            return
        except Exception:
            log.exception("rpc.error", method="events")
            code, reason = INTERNAL_ERROR, "internal error; reconnect and resume after the last event"
        if code is not None:
            with contextlib.suppress(WebSocketDisconnect, RuntimeError):
                log.info("rpc.closed", code=code, reason=reason)
                await self._socket.close(code, reason)

    async def _unsubscribe(self) -> None:
        listener, event_task = self._listener, self._event_task
        self._listener = self._event_task = None
        if listener is not None:
            listener.close()
        if event_task is not None:
            event_task.cancel()
            await asyncio.wait({event_task})

    # --- sending ---------------------------------------------------------------------------------

    async def _send(self, text: str) -> None:
        """Send a message; raise Closed if the client does not read it in time."""
        try:
            async with self._sending, asyncio.timeout(SEND_TIMEOUT_S):
                await self._socket.send_text(clean_text(text))
        except TimeoutError:
            if not self._slow:
                self._slow = True
                self._services.metrics.record_rpc_drop("slow")
            raise Closed(
                TOO_SLOW,
                f"nothing was read for {SEND_TIMEOUT_S:g} s; reconnect and resume after the last event",
            ) from None
        except RuntimeError as error:  # the connection was closed
            raise Closed from error


def _method_label(method: str) -> str:
    """Return the name of a known method for the log; `-` for any other text."""
    return method if method in METHODS or method in _OWN else "-"


def _short(reason: str) -> str:
    """Return a reason that fits into a close frame (123 bytes)."""
    return reason.encode()[:120].decode(errors="ignore")


class Protocol(WSProtocol):
    """The protocol of uvicorn, except that nothing waits for a client that does not read.

    Uvicorn sends a close frame only after the client has read all earlier messages. A client that reads
    nothing, which is why it is disconnected, would never get it.
    """

    async def send(self, message: ASGISendEvent) -> None:
        """Send a message of the app."""
        closing = message["type"] == "websocket.close"
        if closing:
            self.writable.set()
        await super().send(message)
        if closing:
            self.loop.call_later(CLOSE_TIMEOUT_S, self.transport.abort)

    def handle_ping(self, event: Ping) -> None:
        """Answer a ping, unless the client reads nothing: the answers would fill the memory."""
        if self.writable.is_set():
            super().handle_ping(event)

    def keepalive_timeout(self) -> None:
        """Close the connection of a client that does not answer pings."""
        super().keepalive_timeout()
        self.loop.call_later(CLOSE_TIMEOUT_S, self.transport.abort)


class Connections:
    """The RPC connections of this process."""

    def __init__(self) -> None:
        self._open: set[RpcConnection] = set()
        self._none_open = asyncio.Event()
        self._none_open.set()

    def __len__(self) -> int:
        return len(self._open)

    async def serve(self, connection: RpcConnection) -> None:
        """Serve a client until its connection ends."""
        self._open.add(connection)
        self._none_open.clear()
        try:
            await connection.serve()
        finally:
            self._open.discard(connection)
            if not self._open:
                self._none_open.set()

    def shut_down(self) -> None:
        """Close all connections: the process stops."""
        for connection in list(self._open):
            connection.shut_down()

    async def wait_closed(self) -> None:
        """Wait until no connection is open."""
        await self._none_open.wait()


@router.websocket("/ws")
async def rpc(socket: WebSocket) -> None:
    """Serve requests, responses and events as JSON text."""
    services = cast(Services, socket.app.state.services)
    await cast(Connections, socket.app.state.connections).serve(RpcConnection(socket, services))
