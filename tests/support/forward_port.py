"""Forward connections from a port of this network to a Unix socket.

    python forward_port.py PORT SOCKET

So programs in a network of their own can use a server outside it.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress


async def forward(port: int, place: str) -> None:
    """Forward connections until the process ends."""

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_unix_connection(place)
        await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))

    server = await asyncio.start_server(connect, "127.0.0.1", port)
    await server.serve_forever()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()


if __name__ == "__main__":
    asyncio.run(forward(int(sys.argv[1]), sys.argv[2]))
