"""A server that sends exact bytes, to test how a client reads them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress


class RawConnection:
    """One accepted connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def request(self) -> tuple[bytes, bytes]:
        """Return the head and the body of the next request. Raises IncompleteReadError at the end."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = 0
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        return head, await self.reader.readexactly(length)

    async def send(self, *pieces: bytes) -> None:
        """Send pieces, each in its own packet as far as possible."""
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()
            await asyncio.sleep(0)

    async def until_closed(self) -> None:
        """Wait until the client closes the connection."""
        with suppress(OSError):
            while await self.reader.read(65_536):
                pass


Talk = Callable[[RawConnection], Awaitable[None]]


class RawServer:
    """Calls `talk` for each connection."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self.accepted = 0
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        self.accepted += 1
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                await self._talk(RawConnection(reader, writer))
        finally:
            writer.close()


@asynccontextmanager
async def raw_server(
    talk: Talk, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[RawServer]:
    """Start a server on a free port."""
    made = RawServer(talk)
    server = await asyncio.start_server(made.serve, host, 0, ssl=tls)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        await server.wait_closed()
