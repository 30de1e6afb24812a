"""The WebSocket protocol of uvicorn, except that a close does not wait for the client.

Uvicorn sends a close frame only after the client has read all earlier messages. A client that reads nothing,
which is why it is disconnected, would never get it.
"""

from __future__ import annotations

from typing import Final

from uvicorn._types import ASGISendEvent
from uvicorn.protocols.websockets.wsproto_impl import WSProtocol

#: Seconds for the closing handshake.
CLOSE_TIMEOUT_S: Final = 5.0


class Protocol(WSProtocol):
    """One connection."""

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
