"""How a WebSocket is spoken: uvicorn's own way, but that closing waits for nobody.

Uvicorn sends a close frame only after all that was sent before has been taken. To a client that takes
nothing, which is why it is dropped, that would be never.
"""

from __future__ import annotations

from typing import Final

from uvicorn._types import ASGISendEvent
from uvicorn.protocols.websockets.wsproto_impl import WSProtocol

#: Seconds that a client is given to say goodbye, and to take what is left.
FAREWELL_S: Final = 5.0


class Protocol(WSProtocol):
    """One connection."""

    async def send(self, message: ASGISendEvent) -> None:
        """Send what the app says."""
        closing = message["type"] == "websocket.close"
        if closing:
            self.writable.set()
        await super().send(message)
        if closing:
            self.loop.call_later(FAREWELL_S, self.transport.abort)

    def keepalive_timeout(self) -> None:
        """Give up on a client that does not answer pings."""
        super().keepalive_timeout()
        self.loop.call_later(FAREWELL_S, self.transport.abort)
