"""A TCP proxy in front of PostgreSQL that cuts a connection at the COMMIT of a keyed operation."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Literal
from urllib.parse import parse_qs, urlsplit

#: `before`: the server never receives the COMMIT. `after`: it commits, and the client gets no response.
Cut = Literal["before", "after"]


class CommitProxy:
    """Forward everything until `cut` is set; then cut one connection."""

    def __init__(self, server: str) -> None:
        self._server = server
        self.cut: Cut | None = None
        self.cuts = 0
        self.url = ""
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Handle one connection of a client."""
        try:
            upstream = await self._connect()
        except OSError:
            writer.close()
            return
        down = asyncio.create_task(_pump(upstream[0], writer))
        self._tasks.add(down)
        try:
            await self._forward(reader, *upstream, down)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            down.cancel()
            self._tasks.discard(down)
            for each in (writer, upstream[1]):
                with suppress(OSError):
                    each.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        parts = urlsplit(self._server)
        folder = parse_qs(parts.query).get("host", [""])[0]
        if folder.startswith("/"):
            return await asyncio.open_unix_connection(f"{folder}/.s.PGSQL.5432")
        return await asyncio.open_connection(parts.hostname, parts.port or 5432)

    async def _forward(
        self,
        reader: asyncio.StreamReader,
        answers: asyncio.StreamReader,
        upstream: asyncio.StreamWriter,
        down: asyncio.Task[None],
    ) -> None:
        """Forward the client's messages, and detect the statements of a keyed operation."""
        size = await reader.readexactly(4)
        upstream.write(size + await reader.readexactly(struct.unpack("!I", size)[0] - 4))
        keyed_statements: set[bytes] = set()
        keyed = False
        while True:
            head = await reader.readexactly(5)
            body = await reader.readexactly(struct.unpack("!I", head[1:])[0] - 4)
            if head[:1] == b"P":
                name, query, _ = body.split(b"\0", 2)
                if b"UPDATE idempotency_keys" in query:
                    keyed_statements.add(name)
            if head[:1] == b"B":
                keyed = keyed or body.split(b"\0", 2)[1] in keyed_statements
            committing = head[:1] == b"Q" and b"COMMIT" in body
            if committing and keyed and self.cut is not None:
                cut, self.cut = self.cut, None
                self.cuts += 1
                down.cancel()  # the client gets no further data
                with suppress(asyncio.CancelledError):
                    await down
                if cut == "after":  # the server closes once it has processed COMMIT and Terminate
                    upstream.write(head + body + b"X" + struct.pack("!I", 4))
                    await answers.read()
                return
            keyed = keyed and not committing
            upstream.write(head + body)
            await upstream.drain()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
        writer.close()


@asynccontextmanager
async def commit_proxy(server: str) -> AsyncIterator[CommitProxy]:
    """Run a proxy for the server of this URL; its own URL names the same database."""
    proxy = CommitProxy(server)
    listening = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    parts = urlsplit(server)
    user = parts.netloc.rpartition("@")[0] or "postgres"
    proxy.url = f"postgresql://{user}@127.0.0.1:{port}{parts.path}?sslmode=disable"
    try:
        yield proxy
    finally:
        listening.close()
