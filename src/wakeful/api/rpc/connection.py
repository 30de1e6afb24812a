"""One client's connection, from the greeting to the goodbye.

Requests are answered one after the other, in their order; those that come meanwhile wait in the network, not
here. Events are taken from the feed as the client takes them from us. So nothing piles up, and a client that
takes nothing for a while is dropped: it can come again and go on after the last event that it has seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Final

from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from wakeful.api.rpc.cron import METHODS
from wakeful.api.rpc.frames import Request, Unreadable, answer, event, read_request, refusal
from wakeful.api.rpc.params import Params
from wakeful.errors import NotFound, Unauthenticated, WakefulError
from wakeful.logs import get_logger
from wakeful.service.auth.access import Principal
from wakeful.service.auth.connection_limits import ConnectionSlot, TooManyConnections
from wakeful.service.event_stream import Subscription
from wakeful.service.serializers import JsonObject
from wakeful.service.services import Services

#: Seconds in which a client says who it is.
GREETING_S: Final = 5.0
#: Seconds in which a client takes what is sent to it.
TAKEN_S: Final = 10.0
#: Seconds after which the key of a client that only listens is looked at again.
CHECKED_S: Final = 15.0
#: The subprotocol, and what one begins with that carries a key: a browser can send no other header.
PROTOCOL: Final = "wakeful"
_CARRIER: Final = "bearer."

#: Why a connection is closed. 4401 and 4429 are ours; the others are those of RFC 6455 and its registry.
NOT_KNOWN: Final = 4401
BINARY: Final = 1003
BROKEN: Final = 1011
STOPPING: Final = 1012
TOO_SLOW: Final = 1013
FULL: Final = 4429

#: What can be asked beside `cron.…`.
_OWN: Final = ("auth", "events.subscribe", "events.unsubscribe")

log = get_logger("wakeful.rpc")


class Closed(Exception):
    """It is over: with this code and for this reason, or without a word where the client has gone."""

    def __init__(self, code: int | None = None, reason: str = "") -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class Connection:
    """A client that asks, and perhaps listens."""

    def __init__(self, socket: WebSocket, services: Services) -> None:
        self._socket = socket
        self._services = services
        self._address = socket.client.host if socket.client else None
        self._token: str | None = None
        #: what is sent is sent whole, one after the other
        self._sending = asyncio.Lock()
        self._waiting: asyncio.Future[str] | None = None
        self._stopping = False
        self._slow = False
        self._listener: Subscription | None = None
        self._telling: asyncio.Task[None] | None = None
        self._slot: ConnectionSlot | None = None

    async def live(self) -> None:
        """Serve the client until either side has had enough."""
        offered = self._socket.scope.get("subprotocols") or []
        await self._socket.accept(subprotocol=PROTOCOL if PROTOCOL in offered else None)
        try:
            await self._greet(offered)
            while True:
                await self._serve(await self._next())
        except (Closed, WebSocketDisconnect) as end:
            code, reason = (end.code, end.reason) if isinstance(end, Closed) else (None, "")
        except TooManyConnections as error:
            code, reason = FULL, _short(error.message)
            self._services.metrics.record_rpc_drop("limit")
        finally:
            await self._hear_no_more()
            if self._slot is not None:
                self._slot.release()
        if code is not None and self._socket.application_state is WebSocketState.CONNECTED:
            log.info("rpc.closed", code=code, reason=reason)
            with contextlib.suppress(WebSocketDisconnect, RuntimeError):  # they have gone meanwhile
                await self._socket.close(code, reason)

    def shut_down(self) -> None:
        """End it as soon as what is under way is answered: the process is about to stop."""
        self._stopping = True
        if self._waiting is not None:
            self._waiting.cancel()

    # --- who it is -------------------------------------------------------------------------------

    async def _greet(self, offered: list[str]) -> None:
        """Learn who it is: by a header, by a subprotocol, or by their first message."""
        scheme, _, token = self._socket.headers.get("authorization", "").partition(" ")
        carried = [each.removeprefix(_CARRIER) for each in offered if each.startswith(_CARRIER)]
        if scheme.lower() == "bearer" and token.strip():
            self._token = token.strip()
        elif carried:
            self._token = carried[0]
        if self._token is not None:
            try:
                principal = await self._principal()
            except Unauthenticated as error:
                raise Closed(NOT_KNOWN, _short(error.message)) from error
            self._slot = self._services.connection_limits.acquire("rpc", principal.actor)
            return
        self._slot = self._services.connection_limits.acquire("rpc")
        try:
            async with asyncio.timeout(GREETING_S):
                text = await self._next()
        except TimeoutError:
            raise Closed(NOT_KNOWN, "say who you are, by a first message 'auth' or a header") from None
        await self._serve(text)
        if self._token is None:
            raise Closed(NOT_KNOWN, "say who you are first: the method 'auth' with a token")

    async def _principal(self) -> Principal:
        """Who asks, as their key says now."""
        if self._token is None:
            raise Unauthenticated("say who you are first: the method 'auth' with a token")
        return await self._services.keys.authenticate(self._token, self._address)

    def _belong(self, principal: Principal) -> None:
        if self._slot is not None:
            self._slot.assign(principal.actor)

    async def _auth(self, request: Request) -> JsonObject:
        token = request.params.get("token")
        if not isinstance(token, str) or not token:
            raise Unauthenticated("token: give an API key (wk_…) or a JWT")
        principal = await self._services.keys.authenticate(token, self._address)
        self._belong(principal)
        if self._listener is not None:  # what it hears was somebody else's to hear
            await self._hear_no_more()
        self._token = token
        return {"role": principal.role, "workspace": principal.workspace, "agentId": principal.agent}

    # --- requests --------------------------------------------------------------------------------

    async def _next(self) -> str:
        """The next message."""
        if self._stopping:
            raise _stopped()
        self._waiting = asyncio.ensure_future(self._received())
        try:
            return await self._waiting
        except asyncio.CancelledError:
            if self._stopping:
                raise _stopped() from None
            raise
        finally:
            self._waiting = None

    async def _received(self) -> str:
        message = await self._socket.receive()
        if message["type"] == "websocket.disconnect":
            raise Closed
        text = message.get("text")
        if text is None:
            raise Closed(BINARY, "send text, not bytes: a message is JSON")
        return str(text)

    async def _serve(self, text: str) -> None:
        """Answer a message, whatever it is."""
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
                said = await self._auth(request)
            else:
                principal = await self._principal()
                actor = principal.actor
                said = await self._answered(principal, request)
                listen = request.method == "events.subscribe"
            told = answer(request.id, said)
        except WakefulError as error:
            code, told = error.code, refusal(request.id, error)
            full = error if isinstance(error, TooManyConnections) else None
        except Exception as error:
            log.exception("rpc.error", method=_known(request.method))
            code, told = "internal", refusal(request.id, error)
        ms = round((time.perf_counter() - began) * 1000, 1)
        log.info("rpc.request", method=_known(request.method), code=code, ms=ms, actor=actor)
        self._services.metrics.record_rpc_call(_known(request.method), code)
        await self._say(told)
        if full is not None:
            raise full
        if code == Unauthenticated.code:
            raise Closed(NOT_KNOWN, "the key is not good; come again with one that is")
        if listen and self._listener is not None:  # not before they know that they do
            self._telling = asyncio.create_task(self._tell(self._listener), name="wakeful-rpc-events")

    async def _answered(self, principal: Principal, request: Request) -> JsonObject:
        method = METHODS.get(request.method)
        if method is not None:
            return await method(self._services, principal, Params(principal, request.params))
        if request.method == "events.subscribe":
            return await self._subscribe(principal, Params(principal, request.params))
        if request.method == "events.unsubscribe":
            Params(principal, request.params).only()
            heard = self._listener is not None
            await self._hear_no_more()
            return {"unsubscribed": heard}
        known = ", ".join((*METHODS, *_OWN))
        raise NotFound(f"there is no method '{request.method[:64]}'; there are {known}")

    # --- events ----------------------------------------------------------------------------------

    async def _subscribe(self, principal: Principal, params: Params) -> JsonObject:
        """Begin to listen, in place of what was listened to before."""
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
        await self._hear_no_more()
        self._listener = listener
        return {"subscribed": True, "after": listener.seen if after is None else after}

    async def _tell(self, listener: Subscription) -> None:
        """Send the events as they come, for as long as the key is good."""
        try:
            while (found := await listener.next(CHECKED_S)) is not None:
                await self._principal()
                for happened in found:
                    await self._say(event(happened))
            return  # the feed has ended, and so will the connection
        except Closed as end:
            code, reason = end.code, end.reason
        except Unauthenticated as error:
            code, reason = NOT_KNOWN, _short(error.message)
        except WakefulError as error:
            code, reason = TOO_SLOW, _short(f"come again and go on: {error.message}")
        except WebSocketDisconnect:
            return
        except Exception:
            log.exception("rpc.error", method="events")
            code, reason = BROKEN, "something went wrong here; come again and go on after the last event"
        if code is not None:
            with contextlib.suppress(WebSocketDisconnect, RuntimeError):
                log.info("rpc.closed", code=code, reason=reason)
                await self._socket.close(code, reason)

    async def _hear_no_more(self) -> None:
        listener, telling = self._listener, self._telling
        self._listener = self._telling = None
        if listener is not None:
            listener.close()
        if telling is not None:
            telling.cancel()
            await asyncio.wait({telling})

    # --- sending ---------------------------------------------------------------------------------

    async def _say(self, text: str) -> None:
        """Send this, or Closed where they do not take it in time."""
        try:
            async with self._sending, asyncio.timeout(TAKEN_S):
                await self._socket.send_text(text)
        except TimeoutError:
            if not self._slow:
                self._slow = True
                self._services.metrics.record_rpc_drop("slow")
            raise Closed(
                TOO_SLOW, f"nothing was taken for {TAKEN_S:g} s; come again and go on after the last event"
            ) from None
        except RuntimeError as error:  # it was closed meanwhile
            raise Closed from error


def _stopped() -> Closed:
    return Closed(STOPPING, "the server stops; come again and go on after the last event")


def _known(method: str) -> str:
    """The name of a method for the log; never one that somebody made up, which may hold anything."""
    return method if method in METHODS or method in _OWN else "-"


def _short(reason: str) -> str:
    """A reason that fits into a close frame, which has 123 bytes for it."""
    return reason.encode()[:120].decode(errors="ignore")
