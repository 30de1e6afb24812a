"""Webhooks per second of one process: the launcher, compared with a bare loop of the same client.

    python -m benchmarks.webhooks           a table
    python -m benchmarks.webhooks --json    the same numbers as JSON

**The floor** is a loop with a default aiohttp session that signs the same bodies twice and posts them,
without address guard, trace, other headers or outcomes. **Tuned** is that loop without the defaults of
aiohttp that a webhook does not need: cookies, timers, redirects, decompression.

Both and the launcher (`WebhookLauncher.start`) keep the same number of posts in flight, to the same server
in a separate process that responds at once. They take turns, and the median of the rounds counts. The CPU
time per post is printed too: on a busy machine it varies less than the rate.
"""

from __future__ import annotations

import argparse
import asyncio
import hmac
import json
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from statistics import median

from aiohttp import ClientSession, ClientTimeout, DummyCookieJar, TCPConnector

from wakeful.clock import SystemClock
from wakeful.launch.address_guard import AddressGuard
from wakeful.launch.port import Launch
from wakeful.launch.webhook import WebhookLauncher
from wakeful.outcome import Succeeded

POSTS = 5_000
IN_FLIGHT = 100
ROUNDS = 5
SECRET = b"k" * 32
KEY = "5f" * 32
ANSWER = b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 11\r\n\r\n{"ok":true}'

Post = Callable[[int], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Row:
    """One way to post: its rate and its CPU time."""

    name: str
    per_second: float
    cpu_us: float


class Secrets:
    """The same secret for every job."""

    def secrets_of(self, run: Launch) -> tuple[bytes, ...]:
        """Return the secret."""
        return (SECRET,)


class ImmediateServer(asyncio.Protocol):
    """A server that responds to every request at once, and parses only its end."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start a connection."""
        assert isinstance(transport, asyncio.Transport)
        self._transport, self._read = transport, b""

    def data_received(self, data: bytes) -> None:
        """Respond to each complete request."""
        self._read += data
        while (end := self._read.find(b"\r\n\r\n")) >= 0:
            length = int(self._read[:end].lower().split(b"content-length:", 1)[1].split(b"\r\n", 1)[0])
            if len(self._read) < end + 4 + length:
                return
            self._read = self._read[end + 4 + length :]
            self._transport.write(ANSWER)


async def serve() -> None:
    server = await asyncio.get_running_loop().create_server(ImmediateServer, "127.0.0.1", 0, backlog=1000)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def bare(session: ClientSession, url: str) -> Post:
    async def post(number: int) -> None:
        body = b'{"job":"digest","payload":{"message":"hello","n":%d}}' % number
        timestamp = str(int(time.time()))
        signed = f"{KEY}.{timestamp}.".encode() + body
        headers = {
            "content-type": "application/json",
            "x-wakeful-signature": hmac.digest(SECRET, body, "sha256").hex(),
            "webhook-id": KEY,
            "webhook-timestamp": timestamp,
            "webhook-signature": f"v1,{b64encode(hmac.digest(SECRET, signed, 'sha256')).decode()}",
        }
        async with session.post(url, data=body, headers=headers) as response:
            await response.read()
            assert response.status == 200

    return post


def launched(launcher: WebhookLauncher, url: str) -> Post:
    target = {"kind": "webhook", "url": url}

    async def post(number: int) -> None:
        outcome = await launcher.start(
            Launch(
                f"run-{number}", "digest", "j1", "default", "default",
                f'{{"message":"hello","n":{number}}}',
                1_741_392_000_000, 1_741_392_000_000, 1, "schedule", KEY, target,
            )
        )  # fmt: skip
        assert isinstance(outcome, Succeeded), outcome

    return post


async def measure(post: Post) -> tuple[float, float]:
    numbers = iter(range(POSTS))

    async def keep_posting() -> None:
        for number in numbers:
            await post(number)

    start, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*[keep_posting() for _ in range(IN_FLIGHT)])
    return POSTS / (time.perf_counter() - start), (time.process_time() - cpu) / POSTS * 1e6


async def run(url: str) -> list[Row]:
    launcher = WebhookLauncher(
        Secrets(), AddressGuard(allow_private=True), SystemClock(), lambda status: None
    )
    await launcher.open()
    async with (
        ClientSession(connector=TCPConnector(limit=IN_FLIGHT)) as plain,
        ClientSession(
            connector=TCPConnector(limit=IN_FLIGHT),
            cookie_jar=DummyCookieJar(),
            timeout=ClientTimeout(total=None),
            auto_decompress=False,
        ) as tuned,
    ):
        ways = {"floor": bare(plain, url), "tuned": bare(tuned, url), "launcher": launched(launcher, url)}
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for way in ways.values():  # connections, caches
            await measure(way)
        for _ in range(ROUNDS):
            for name, way in ways.items():
                found[name].append(await measure(way))
    await launcher.close()
    return [
        Row(name, median(rate for rate, _ in each), median(cpu for _, cpu in each))
        for name, each in found.items()
    ]


def show(rows: list[Row]) -> None:
    print(f"{POSTS} posts, {IN_FLIGHT} in flight, median of {ROUNDS} rounds\n")
    floor = rows[0]
    print(f"{'':<12}{'per second':>11}{'ratio':>8}{'µs cpu':>9}{'ratio':>8}")
    for row in rows:
        print(
            f"{row.name:<12}{row.per_second:>10.0f}{row.per_second / floor.per_second:>8.2f}"
            f"{row.cpu_us:>9.0f}{floor.cpu_us / row.cpu_us:>8.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print the numbers for a program")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    if wanted.serve:
        asyncio.run(serve())
        return
    with subprocess.Popen([sys.executable, __file__, "--serve"], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            rows = asyncio.run(run(f"http://127.0.0.1:{int(server.stdout.readline())}/hook"))
        finally:
            server.terminate()
    if wanted.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        show(rows)


if __name__ == "__main__":
    main()
