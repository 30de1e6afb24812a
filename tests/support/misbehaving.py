"""Message receivers that misbehave as a list of behaviours says, one per request."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Literal

HttpBehaviour = Literal[
    "accept",  # 200
    "refuse",  # 503
    "close",  # read the request, close without an answer
    "late",  # read the request, answer never: until the client's read timeout
    "half",  # answer 200, and close in the middle of the body
    "unread",  # read nothing, and reset
]
SmtpBehaviour = Literal[
    "accept",  # 250
    "refuse",  # 451 to the mail
    "close",  # read the mail, close without an answer
    "late",  # read the mail, answer never
    "close before",  # close at the DATA command
    "one recipient",  # refuse the second recipient, accept the mail for the first
]


class Misbehaving:
    """The complete messages received, and the next behaviours; `accept` after the last."""

    def __init__(self, behaviours: Iterable[str]) -> None:
        self._behaviours = iter(behaviours)
        self.received: list[bytes] = []
        self.port = 0

    def _next(self) -> str:
        return next(self._behaviours, "accept")

    async def http(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Handle one HTTP connection with one request."""
        behaviour = self._next()
        if behaviour == "unread":
            _reset(writer)
            return
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line.partition(b":")[2])
            for line in head.lower().split(b"\r\n")
            if line.startswith(b"content-length:")
        )
        self.received.append(await reader.readexactly(length))
        if behaviour == "late":
            await reader.read()  # until the client gives up
        elif behaviour != "close":
            status = b"503 Busy" if behaviour == "refuse" else b"200 OK"
            body = b'{"ok": ' if behaviour == "half" else b"{}"
            length_line = b"content-length: 100" if behaviour == "half" else b"content-length: 2"
            writer.write(
                b"HTTP/1.1 " + status + b"\r\n" + length_line + b"\r\nconnection: close\r\n\r\n" + body
            )
            await writer.drain()
        writer.close()

    async def smtp(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Handle one SMTP connection."""
        behaviour = self._next()

        def say(text: str) -> None:
            writer.write(text.encode() + b"\r\n")

        say("220 ready")
        recipients = 0
        while line := await reader.readline():
            word = line.upper()[:4]
            if word == b"RCPT":
                recipients += 1
                refused = behaviour == "one recipient" and recipients > 1
                say("550 unknown" if refused else "250 yes")
            elif word == b"DATA":
                if behaviour == "close before":
                    break
                say("354 go on")
                mail = await reader.readuntil(b"\r\n.\r\n")
                self.received.append(mail)
                if behaviour == "close":
                    break
                if behaviour == "late":
                    await reader.read()
                    break
                say("451 later" if behaviour == "refuse" else "250 kept")
            elif word == b"QUIT":
                say("221 bye")
                break
            else:
                say("250 yes")
        with suppress(OSError):
            await writer.drain()
        writer.close()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close with a reset, rather than with an end."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.close()


@asynccontextmanager
async def misbehaving_http(*behaviours: HttpBehaviour) -> AsyncIterator[Misbehaving]:
    """An HTTP server on a port of its own."""
    receiver = Misbehaving(behaviours)
    async with await asyncio.start_server(receiver.http, "127.0.0.1", 0) as server:
        receiver.port = server.sockets[0].getsockname()[1]
        yield receiver


@asynccontextmanager
async def misbehaving_smtp(*behaviours: SmtpBehaviour) -> AsyncIterator[Misbehaving]:
    """An SMTP server on a port of its own."""
    receiver = Misbehaving(behaviours)
    async with await asyncio.start_server(receiver.smtp, "127.0.0.1", 0) as server:
        receiver.port = server.sockets[0].getsockname()[1]
        yield receiver
