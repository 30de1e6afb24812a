"""The HTTP client against a receiver that closes, resets, stalls, splits and repeats at every byte.

The model: each attempt is posted at most once, ends, and gets its own response or an error. Requests say in
their path which they are, and the receiver looks up what it does with them.
"""

from __future__ import annotations

import asyncio
import re
import select
import socket
import struct
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from yarl import URL

from tests.support.effort import cases
from tests.support.receiver import OPEN, Secrets, to
from tests.support.waiting import PATIENCE
from wakeful.launch.chat.endpoint import ChatEndpoint
from wakeful.launch.http.client import HttpClient
from wakeful.launch.http.connection import HttpConnection
from wakeful.launch.http.messages import HttpError
from wakeful.launch.webhook import WebhookLauncher
from wakeful.run.outcome import Failed, Succeeded
from wakeful.values.clock import SystemClock

#: Complete responses, which allow another request. `%d` is the number of the request.
GOOD: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n%04d",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2;a=b\r\n%.2s\r\n2\r\n%.2s\r\n0\r\nx: y\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\na: b\r\n\r\n"
    b"HTTP/1.1 200 OK\r\nx-bytes: \xff\xfe\r\ncontent-length: 4\r\n\r\n%04d",
)
#: Complete responses after which the connection has no use.
LAST: Final = (
    b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 4\r\n\r\n%04d",
    b"HTTP/1.0 200 OK\r\ncontent-length: 4\r\n\r\n%04d",
)
#: What follows a complete response and belongs to no request.
MORE: Final = (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nother", b"rest", b"\x00")
#: What is no response.
BAD: Final = (
    b"\xff\xfe\r\n\r\n",
    b"SSH-2.0-OpenSSH_9.6\r\n",
    b"HTTP/1.1 two hundred\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\ncontent-length: 5\r\n\r\n0000",
    b"HTTP/1.1 200 OK\r\ncontent-length: -4\r\n\r\n0000",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
    b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000 + b"\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n" * 1_000,
)
_NO_LINGER: Final = struct.pack("ii", 1, 0)


@dataclass(frozen=True)
class Act:
    """What the receiver does with one request."""

    response: bytes
    #: what is sent after it
    more: bytes = b""
    #: whether the response is a valid one
    valid: bool = True
    #: how many bytes are sent; None: all
    cut: int | None = None
    #: the number of pieces
    pieces: int = 1
    #: what comes then: keep, close, half_close, reset, stall
    end: str = "keep"
    #: whether it waits for the body of the request
    reads_body: bool = True
    #: what it sends long after the response, on a connection that is unused; b"": it ends the connection
    late: bytes | None = None

    def sent_to(self, number: int) -> bytes:
        """Return what is sent as the response to the request of this number."""
        text = b"%04d" % number
        if not self.valid:
            response = self.response
        elif b"%.2s" in self.response:
            response = self.response % (text[:2], text[2:])
        else:
            response = self.response % number
        return (response + self.more)[: self.cut]

    @property
    def is_cut(self) -> bool:
        """Whether a part of the response is missing."""
        return len(self.sent_to(0)) < len(replace(self, cut=None, more=b"").sent_to(0))

    @property
    def must_fail(self) -> bool:
        """Whether the client must not accept the response."""
        return self.is_cut or not self.valid

    @property
    def must_succeed(self) -> bool:
        """Whether the client must accept the response: nothing resets the connection before it is read."""
        return not self.must_fail and self.reads_body and self.end != "reset"

    @property
    def waits(self) -> bool:
        """Whether the client waits for the rest until its deadline."""
        return self.is_cut and self.end in ("keep", "stall") and self.reads_body


class HostileReceiver:
    """Serves connections. It counts how often each request began to arrive."""

    def __init__(self, acts: Sequence[Act]) -> None:
        self.acts = acts
        self.posted = Counter[int]()
        #: set when the request of that number was handled
        self.handled = [asyncio.Event() for _ in acts]
        #: the ports of clients whose connections cannot be used again
        self.ended = set[int]()
        #: the connections with something to send late
        self._late: list[tuple[asyncio.StreamWriter, bytes]] = []
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until an act ends it, or the client does."""
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                while await self._one(reader, writer):
                    pass
        finally:
            self.ended.add(writer.get_extra_info("peername")[1])
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        found = re.match(rb"POST /(\d+)", head)
        assert found, head
        number = int(found[1])
        self.posted[number] += 1
        act = self.acts[number]
        try:
            if act.reads_body:
                length = re.search(rb"content-length: (\d+)", head.lower())
                assert length, head
                await reader.readexactly(int(length[1]))
            await self._send(writer, act, number)
            if act.end == "reset":
                sock = writer.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
                writer.transport.abort()
            elif act.end == "half_close":
                writer.write_eof()
                self.ended.add(writer.get_extra_info("peername")[1])
            elif act.late is not None:
                self._late.append((writer, act.late))
        finally:
            self.handled[number].set()
        if act.waits or act.end == "half_close":
            while await reader.read(65_536):
                pass
        return act.end in ("keep", "stall") and act.reads_body

    def send_late(self) -> None:
        """Send what comes late, without running the event loop."""
        for writer, data in self._late:
            sock, port = writer.get_extra_info("socket"), writer.get_extra_info("peername")[1]
            if port in self.ended:  # by a later request on the same connection
                continue
            self.ended.add(port)
            with suppress(OSError):  # the client has closed it
                if data:
                    writer.write(data)
                else:
                    sock.shutdown(socket.SHUT_WR)
        self._late.clear()

    async def _send(self, writer: asyncio.StreamWriter, act: Act, number: int) -> None:
        data = act.sent_to(number)
        size = len(data) // act.pieces + 1
        for at in range(0, len(data), size):
            writer.write(data[at : at + size])
            await writer.drain()
            if size < len(data):
                await asyncio.sleep(0)


#: Sends a request to a URL, and returns the body of the response; None: there was none.
Post = Callable[[str], Awaitable[bytes | None]]
Posting = Callable[[], AbstractAsyncContextManager[tuple[Post, HttpClient]]]


@asynccontextmanager
async def posting_by_client() -> AsyncIterator[tuple[Post, HttpClient]]:
    client = HttpClient(OPEN, connections=2, per_host=2)

    async def post(url: str) -> bytes | None:
        try:
            return (await client.request("POST", URL(url), {}, b"{}", 1_000)).body
        except HttpError:
            return None

    yield post, client
    await client.close()


@asynccontextmanager
async def posting_by_webhooks() -> AsyncIterator[tuple[Post, HttpClient]]:
    launcher = WebhookLauncher(Secrets(b"s" * 32), OPEN, SystemClock(), lambda status: None)
    await launcher.open()

    async def post(url: str) -> bytes | None:
        outcome = await launcher.start(to(url))
        if isinstance(outcome, Succeeded):
            return (outcome.output or "").encode()
        assert isinstance(outcome, Failed)
        assert (outcome.reason, outcome.permanent) == ("network", False)
        return None

    assert launcher._client is not None
    yield post, launcher._client
    await launcher.close()


@asynccontextmanager
async def posting_by_chat() -> AsyncIterator[tuple[Post, HttpClient]]:
    endpoint = ChatEndpoint(OPEN, SystemClock(), lambda status: None)
    await endpoint.open()

    async def post(url: str) -> bytes | None:
        reply = await endpoint.post(URL(url), {}, {"model": "m"})
        if isinstance(reply, Failed):
            assert (reply.reason, reply.permanent) == ("network", False)
            return None
        return reply.text.encode()

    assert endpoint._client is not None
    yield post, endpoint._client
    await endpoint.close()


async def play(
    posting: Posting, acts: Sequence[Act], batch: int = 1, cancelled: Mapping[int, int] | None = None
) -> None:
    """Send the requests of all acts, `batch` at a time, and compare what comes with the model.

    A request in `cancelled` is cancelled after so many rounds of the event loop, and one that waits for the
    rest of its response when the receiver has stopped, as by its deadline.
    """
    receiver = HostileReceiver(acts)
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    receiver.port = server.sockets[0].getsockname()[1]
    async with asyncio.timeout(PATIENCE), server, posting() as (post, client):
        for first in range(0, len(acts), batch):
            numbers = range(first, min(first + batch, len(acts)))
            tasks = [
                asyncio.ensure_future(post(f"http://127.0.0.1:{receiver.port}/{each}")) for each in numbers
            ]
            await asyncio.gather(
                *[
                    _compare(receiver, each, task, (cancelled or {}).get(each))
                    for each, task in zip(numbers, tasks, strict=True)
                ]
            )
            receiver.send_late()
            for connection in list(client._connections):
                _wait_for_its_end(receiver, connection)
        assert client._active == 0
        assert client._queues == {}
    assert client._connections == set()
    assert set(receiver.posted.values()) <= {1}, receiver.posted


async def _compare(
    receiver: HostileReceiver, number: int, task: asyncio.Future[bytes | None], rounds: int | None
) -> None:
    act = receiver.acts[number]
    if rounds is not None:
        for _ in range(rounds):
            await asyncio.sleep(0)
        task.cancel()
    elif act.waits:
        await receiver.handled[number].wait()
        task.cancel()
    await asyncio.wait([task])
    if task.cancelled():
        assert rounds is not None or act.waits
        return
    body = task.result()
    if act.must_fail:
        assert body is None, act
    elif act.must_succeed or body is not None:
        assert body == b"%04d" % number, act
    if rounds is None:
        await receiver.handled[number].wait()


def _wait_for_its_end(receiver: HostileReceiver, connection: HttpConnection) -> None:
    """Wait until the end of a connection has arrived here. The event loop must not notice it."""
    transport, until = connection._transport, time.monotonic() + PATIENCE
    if transport is not None and transport.get_extra_info("sockname")[1] in receiver.ended:
        sock = transport.get_extra_info("socket")
        while sock.fileno() >= 0 and not select.select([sock], [], [], 0.01)[0]:
            assert time.monotonic() < until


def acts_of(response: st.SearchStrategy[bytes], *, valid: bool) -> st.SearchStrategy[Act]:
    return st.builds(
        Act,
        response,
        more=st.just(b"") if not valid else st.sampled_from((b"", b"", *MORE)),
        valid=st.just(valid),
        cut=st.none() | st.integers(0, 120),
        pieces=st.sampled_from((1, 2, 7, 100)),
        end=st.sampled_from(("keep", "close", "half_close", "reset", "stall")),
        reads_body=st.sampled_from((True, True, True, False)),
    )


#: Several responses, then the end: with the next request, in the middle of it, or while there is none.
KEPT: Final = st.builds(Act, st.sampled_from(GOOD), late=st.sampled_from((None, None, None, b"", *MORE)))
ENDED: Final = st.builds(
    Act,
    st.sampled_from(GOOD),
    cut=st.sampled_from((0, 0, 1, None)),
    end=st.sampled_from(("close", "reset", "half_close", "stall")),
    reads_body=st.booleans(),
)
ACTS: Final = st.one_of(
    KEPT,
    KEPT,
    ENDED,
    acts_of(st.sampled_from(GOOD + LAST), valid=True),
    acts_of(st.sampled_from(BAD), valid=False),
)


@pytest.mark.parametrize("posting", [posting_by_client, posting_by_webhooks, posting_by_chat])
def test_each_attempt_is_posted_at_most_once_and_gets_its_own_response_or_an_error(
    posting: Posting,
):
    @settings(max_examples=cases(60, 600), deadline=None, database=None)
    @given(
        acts=st.lists(ACTS, min_size=1, max_size=12),
        batch=st.integers(1, 4),
        cancelled=st.dictionaries(st.integers(0, 11), st.integers(0, 12), max_size=3),
    )
    def check(acts: list[Act], batch: int, cancelled: dict[int, int]) -> None:
        asyncio.run(play(posting, acts, batch, cancelled))

    check()


@pytest.mark.parametrize("end", ["close", "reset", "stall"])
async def test_a_response_may_end_at_every_byte(end: str):
    acts = [
        Act(response, cut=cut, end=end)
        for response in GOOD + LAST
        for cut in range(len(Act(response).sent_to(0)) + 1)
    ]
    await play(posting_by_client, acts)


@pytest.mark.parametrize("posting", [posting_by_client, posting_by_webhooks, posting_by_chat])
async def test_a_connection_may_end_after_any_number_of_requests(posting: Posting):
    """Receivers acknowledge the first requests of a connection at once, and later ones with a delay."""
    good = GOOD[0]
    for end in (
        Act(good, cut=0, end="reset"),
        Act(good, cut=0, end="close"),
        Act(good, end="reset"),
        Act(good, end="close"),
        Act(good, end="half_close"),
        Act(good, late=b""),
        Act(good, late=MORE[0]),
    ):
        for number in range(8):
            await play(posting, [*[Act(good)] * number, end, Act(good)])
