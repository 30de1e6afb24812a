"""The path `/ws`, its WebSocket protocol, and the open RPC connections."""

from __future__ import annotations

import asyncio
from typing import Final, cast

from fastapi import APIRouter
from starlette.websockets import WebSocket
from uvicorn._types import ASGISendEvent
from uvicorn.protocols.websockets.wsproto_impl import WSProtocol

from wakeful.api.rpc.connection import Connection
from wakeful.service.services import Services

#: Seconds for the closing handshake.
CLOSE_TIMEOUT_S: Final = 5.0

router = APIRouter()


class Protocol(WSProtocol):
    """The protocol of uvicorn, except that a close does not wait for the client.

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

    def keepalive_timeout(self) -> None:
        """Close the connection of a client that does not answer pings."""
        super().keepalive_timeout()
        self.loop.call_later(CLOSE_TIMEOUT_S, self.transport.abort)


class Connections:
    """The RPC connections of this process."""

    def __init__(self) -> None:
        self._open: set[Connection] = set()
        self._none_open = asyncio.Event()
        self._none_open.set()

    def __len__(self) -> int:
        return len(self._open)

    async def serve(self, connection: Connection) -> None:
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

    async def closed(self) -> None:
        """Wait until no connection is open."""
        await self._none_open.wait()


@router.websocket("/ws")
async def rpc(socket: WebSocket) -> None:
    """Serve requests, responses and events as JSON text."""
    services = cast(Services, socket.app.state.services)
    await cast(Connections, socket.app.state.connections).serve(Connection(socket, services))
