"""The path `/ws`, and the open RPC connections."""

from __future__ import annotations

import asyncio
from typing import cast

from fastapi import APIRouter
from starlette.websockets import WebSocket

from wakeful.api.rpc.connection import Connection
from wakeful.service.services import Services

router = APIRouter()


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
