"""A network link to a server that a test can cut, restore, suspend and garble."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from urllib.parse import urlsplit


class NetworkLink:
    """Forwards connections to the address of a server. After `cut`, connections are refused and aborted."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        assert address.hostname is not None
        assert address.port is not None
        self._host, self._far_port = address.hostname, address.port
        self._port = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._copies: set[asyncio.Task[None]] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        #: changes what the server sends
        self.change: Callable[[bytes], bytes] = lambda data: data

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def restore(self) -> None:
        """Accept connections, always on the same port."""
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        """Abort all connections, and refuse new ones."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in self._writers:
            writer.transport.abort()
        for copy in [*self._copies]:
            copy.cancel()
        await asyncio.gather(*self._copies, return_exceptions=True)

    def hang(self) -> None:
        """Accept connections and data, and forward nothing until `resume`."""
        self._flowing.clear()

    def resume(self) -> None:
        """Forward what has arrived, and all that follows."""
        self._flowing.set()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(self._host, self._far_port)
        except OSError:
            writer.close()
            return
        self._writers |= {writer, far_writer}
        for source, sink in ((reader, far_writer), (far_reader, writer)):
            copy = asyncio.create_task(self._copy(source, sink, from_server=source is far_reader))
            self._copies.add(copy)
            copy.add_done_callback(self._copies.discard)

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, from_server: bool
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                await self._flowing.wait()
                writer.write(self.change(data) if from_server else data)
                await writer.drain()
        writer.close()
        self._writers.discard(writer)


@contextlib.asynccontextmanager
async def network_link(url: str) -> AsyncIterator[NetworkLink]:
    """Yield a link to a server."""
    link = NetworkLink(url)
    await link.restore()
    try:
        yield link
    finally:
        await link.cut()
