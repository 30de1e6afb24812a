"""The receiver of webhooks of the chaos test: it journals each POST, and often ends a connection badly."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import time

from tests.chaos.jobs import HOOK_TIMEOUT_MS
from tests.chaos.launches import Launched
from tests.chaos.work import fails

_TOO_LATE_S = 1.5 * HOOK_TIMEOUT_MS / 1000
_FATES = ["answer"] * 30 + ["close after it", "cut", "reset", "say nothing", "answer late"]


class Receiver:
    """A server on the loopback address. `launches` has each POST that arrived completely."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self.launches: list[Launched] = []

    async def start(self) -> None:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/hook"

    def close(self) -> None:
        """Stop listening."""
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._answer_one(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError):
            pass  # the sender was killed, or gave up
        finally:
            writer.close()

    async def _answer_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Receive a POST. Returns whether the connection is kept."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        fields = {
            name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])
        }
        await reader.readexactly(int(fields["content-length"]))
        run_id, attempt, key = (fields[f] for f in ("x-wakeful-run-id", "x-wakeful-attempt", "webhook-id"))
        launch = Launched(run_id, int(attempt), key, None, time.time_ns() // 1000)
        self.launches.append(launch)
        fate = self._dice.choice(_FATES)
        failed = fate in ("cut", "reset", "say nothing", "answer late") or fails(key, int(attempt), 10)
        await asyncio.sleep(_TOO_LATE_S if fate == "answer late" else self._dice.choice([0, 0, 0.005, 0.3]))
        launch.end, launch.ended_us = "failed" if failed else "succeeded", time.time_ns() // 1000
        if fate == "reset":
            connection = writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return False
        if fate == "say nothing":
            return False
        status = "200 OK" if not failed or fate == "answer late" else "500 Internal Server Error"
        if fate == "cut":
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{")
            return False
        writer.write(f"HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\n{{}}".encode())
        await writer.drain()
        return fate != "close after it"
