"""The notification socket of a service manager: in a directory, or with an abstract name."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.waiting import PATIENCE


class NotifySocket:
    """Receives messages in order."""

    def __init__(self, receiver: socket.socket, address: str) -> None:
        self._receiver = receiver
        #: the value of NOTIFY_SOCKET
        self.address = address
        self.received: list[dict[str, str]] = []

    def drain(self) -> list[dict[str, str]]:
        """Return all messages so far, without waiting."""
        while True:
            try:
                data = self._receiver.recv(65_536)
            except BlockingIOError:
                return self.received
            self.received.append(dict(line.split("=", 1) for line in data.decode().split("\n")))

    async def until(self, matches: Callable[[dict[str, str]], bool]) -> dict[str, str]:
        """Wait for the next message that matches, and return it."""
        seen = 0
        async with asyncio.timeout(PATIENCE):
            while True:
                messages = self.drain()
                for message in messages[seen:]:
                    if matches(message):
                        return message
                seen = len(messages)
                await asyncio.sleep(0.01)


@contextmanager
def notify_socket(place: Path | None) -> Iterator[NotifySocket]:
    """Open a socket in a directory, or with an abstract name for None."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        if place is None:
            receiver.bind("")  # the kernel chooses an abstract name
            address = "@" + receiver.getsockname()[1:].decode()
        else:
            address = str(place / "notify")
            receiver.bind(address)
        receiver.setblocking(False)
        yield NotifySocket(receiver, address)
