"""Where the RPC is: `/ws`, and everybody who is connected there."""

from __future__ import annotations

from typing import cast

from fastapi import APIRouter
from starlette.websockets import WebSocket

from wakeful.api.rpc.connection import Connection
from wakeful.service.services import Services

router = APIRouter()


class Connections:
    """Everybody who is connected to this process."""

    def __init__(self) -> None:
        self._open: set[Connection] = set()

    def __len__(self) -> int:
        return len(self._open)

    async def serve(self, connection: Connection) -> None:
        """Serve a client until it is over."""
        self._open.add(connection)
        try:
            await connection.live()
        finally:
            self._open.discard(connection)

    def shut_down(self) -> None:
        """End them all: the process is about to stop."""
        for connection in list(self._open):
            connection.shut_down()


@router.websocket("/ws")
async def rpc(socket: WebSocket) -> None:
    """Requests and their answers, and events, as JSON text."""
    services = cast(Services, socket.app.state.services)
    await cast(Connections, socket.app.state.connections).serve(Connection(socket, services))
