"""A fast webhook receiver in a process of its own, for the benchmarks."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

ANSWER = b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 11\r\n\r\n{"ok":true}'


class Receiver(asyncio.Protocol):
    """Responds to every request after a delay, and parses only its end."""

    def __init__(self, delay_s: float = 0.0) -> None:
        self._delay_s = delay_s

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start a connection."""
        assert isinstance(transport, asyncio.Transport)
        self._transport, self._read = transport, b""

    def data_received(self, data: bytes) -> None:
        """Respond to each complete request."""
        self._read += data
        while (end := self._read.find(b"\r\n\r\n")) >= 0:
            head = self._read[:end].lower()
            if len(self._read) < end + 4 + (length := int(find_header(head, b"content-length"))):
                return
            self._read = self._read[end + 4 + length :]
            self.note(head)
            if self._delay_s:
                asyncio.get_running_loop().call_later(self._delay_s, self._transport.write, ANSWER)
            else:
                self._transport.write(ANSWER)

    def note(self, head: bytes) -> None:
        """Handle the headers of a complete request, in lower case; for subclasses."""


def find_header(head: bytes, name: bytes) -> str:
    """Return the value of a header that a request must have."""
    return head.split(b"\r\n" + name + b":", 1)[1].split(b"\r\n", 1)[0].decode().strip()


async def serve(delay_s: float) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Receiver(delay_s), "127.0.0.1", 0, backlog=1000)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextmanager
def receiver(delay_ms: int = 0) -> Iterator[str]:
    """Start a receiver that takes `delay_ms` per request, and yield its URL."""
    command = [sys.executable, "-m", "benchmarks.bare.receiver", str(delay_ms)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/hook"
        finally:
            process.terminate()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]) / 1000))
